//! What this replica knows of each `RouterConfig`: made by the reconciler, read for the status.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use continuum_config::{
    Build, Config, check_unexpanded,
    model::{Discovery, DiscoverySource},
};
use continuum_crds::{RouterConfig, RouterConfigStatus};
use tokio::{sync::watch, time::Instant};

use super::{
    apply::Known,
    validate::{Accepted, Fleet},
};
use crate::{
    push::Key,
    status::facts::{Applied, Rollout, Verdict},
};

/// One RouterConfig.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// As last seen.
    pub(crate) object: Arc<RouterConfig>,
    pub(crate) verdict: Verdict,
    pub(crate) in_force: Option<InForce>,
    pub(crate) applied: Applied,
    pub(crate) rollout: Option<Rollout>,
    pub(crate) known: Known,
    /// What a router pod starts with; `None` until that was looked up.
    pub(crate) start: Option<Start>,
    /// Since when no router has a session.
    pub(crate) silent: Option<Instant>,
    /// The fleet's namespace, if it is another one, beside which no other has anything of it left.
    pub(crate) tidy: Option<Option<String>>,
    /// Reconciles that failed, one after the other.
    pub(crate) failures: u32,
    /// The status that this replica wrote last, with the resource version that it got.
    pub(crate) written: Option<(RouterConfigStatus, String)>,
    /// When counts were last written.
    pub(crate) counted: Option<Instant>,
}

/// What the ConfigMap gives to a router pod that starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// There is none yet.
    Nothing,
    /// This text.
    Text(Arc<str>),
}

/// The config that routers are given.
#[derive(Clone, Debug)]
pub(crate) struct InForce {
    pub(crate) generation: i64,
    pub(crate) text: Arc<str>,
    /// The source whose views are pushed.
    pub(crate) pushed: Option<Box<Discovery>>,
    /// The source's word, for routers that read it themselves.
    pub(crate) local: Option<&'static str>,
    /// Dynamo namespaces with a shim pool.
    pub(crate) pools: Vec<String>,
    /// What it was made of; not known of a config that was found in a ConfigMap.
    pub(crate) made_of: Option<(Arc<RouterConfig>, Arc<Accepted>)>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    entries: Mutex<BTreeMap<Key, Entry>>,
    changed: watch::Sender<u64>,
}

impl Memory {
    pub(crate) fn of(&self, key: &Key) -> Option<Entry> {
        self.lock().get(key).cloned()
    }

    pub(crate) fn all(&self) -> Vec<(Key, Entry)> {
        let entries = self.lock();
        entries
            .iter()
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect()
    }

    pub(crate) fn keep(&self, key: Key, entry: Entry) {
        self.lock().insert(key, entry);
        self.changed();
    }

    /// A RouterConfig as the watch has it. A new spec waits for its verdict: until then nothing is said of it.
    pub(crate) fn seen(&self, key: &Key, object: &RouterConfig) {
        self.amend(key, |entry| {
            let (before, now) = (&entry.object.metadata, &object.metadata);
            if before.uid == now.uid && before.generation == now.generation {
                entry.object = Arc::new(object.clone());
            }
        });
    }

    /// Changes what is known, without waking whoever makes the status of it.
    pub(crate) fn amend(&self, key: &Key, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.lock().get_mut(key) {
            change(entry);
        }
    }

    pub(crate) fn forget(&self, key: &Key) -> bool {
        self.lock().remove(key).is_some()
    }

    /// Moves when something is known anew.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn changed(&self) {
        self.changed
            .send_modify(|number| *number = number.wrapping_add(1));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InForce {
    pub(crate) fn of(object: Arc<RouterConfig>, accepted: Accepted) -> Self {
        let (pushed, local) = match &accepted.fleet {
            Fleet::None => (None, None),
            Fleet::Local { source, .. } => (None, Some(source.as_str())),
            Fleet::Pushed { discovery, .. } => (Some(discovery.clone()), None),
        };
        Self {
            generation: accepted.generation,
            text: accepted.text.as_str().into(),
            pushed,
            local,
            pools: pools(&accepted.config),
            made_of: Some((object, Arc::new(accepted))),
        }
    }

    /// The Kubernetes namespace of a fleet whose views are pushed.
    pub(crate) fn fleet_namespace(&self) -> Option<&str> {
        let pushed = self.pushed.as_deref()?;
        Some(pushed.kubernetes.namespace.as_str())
    }

    /// The config that an earlier life of the controller gave to routers, as its ConfigMap has it.
    pub(crate) fn restored(text: &str) -> Option<Self> {
        let config = check_unexpanded(text, Build::FULL).ok()?.config;
        let controller = config.controller.as_ref()?;
        let discovery = &config.dynamo.discovery;
        let (pushed, local) = if !config.dynamo.enabled {
            (None, None)
        } else if discovery.source == DiscoverySource::Controller {
            let mut source = discovery.clone();
            source.source = controller.upstream?.source();
            (Some(Box::new(source)), None)
        } else {
            (None, Some(discovery.source.as_str()))
        };
        Some(Self {
            generation: controller.generation,
            text: text.into(),
            pushed,
            local,
            pools: pools(&config),
            made_of: None,
        })
    }
}

fn pools(config: &Config) -> Vec<String> {
    if !config.dynamo.enabled {
        return Vec::new();
    }
    config
        .shim_pools()
        .into_iter()
        .filter(|(_, replicas)| !replicas.is_empty())
        .map(|(name, _)| name.to_owned())
        .collect()
}

//! What this replica knows of each `RouterConfig`: made by the reconciler, read for the status.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use continuum_config::{
    Config,
    model::{BackendRole, Discovery},
};
use continuum_crds::{RouterConfig, RouterConfigStatus, conditions::Reason};
use tokio::{sync::watch, time::Instant};

use super::{
    apply::Known,
    kept::Start,
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
    /// Why there is nothing in force, where there is nothing.
    pub(crate) absent: Absent,
    pub(crate) applied: Applied,
    /// Since when this replica, leading, has had to apply it.
    pub(crate) pending: Option<Instant>,
    pub(crate) rollout: Option<Rollout>,
    /// The name of the routers' Service is somebody else's.
    pub(crate) foreign_service: bool,
    pub(crate) known: Known,
    /// What a router pod starts with, if there is anything; `None` until that was looked up.
    pub(crate) start: Option<Option<Start>>,
    /// Since when what is in force has not been what a router pod starts with.
    pub(crate) unproven: Option<Instant>,
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

impl Entry {
    /// One of which nothing is known but the verdict.
    pub(crate) fn new(
        object: Arc<RouterConfig>,
        verdict: Verdict,
        in_force: Option<InForce>,
        absent: Absent,
    ) -> Self {
        Self {
            object,
            verdict,
            in_force,
            absent,
            applied: Applied::Pending,
            pending: None,
            rollout: None,
            foreign_service: false,
            known: Known::default(),
            start: None,
            unproven: None,
            silent: None,
            tidy: None,
            failures: 0,
            written: None,
            counted: None,
        }
    }

    /// Whether the verdict is of this spec. It is made of nothing else that moves: names stay, and so does what the
    /// operator was started with.
    pub(crate) fn judged(&self, object: &RouterConfig) -> bool {
        let (before, now) = (&self.object.metadata, &object.metadata);
        now.generation.is_some() && before.uid == now.uid && before.generation == now.generation
    }

    /// Whoever leads may change what this replica knew when it led.
    pub(crate) fn leads_no_more(&mut self) {
        self.known = Known::default();
        self.start = None;
        self.unproven = None;
        self.tidy = None;
        self.applied = Applied::Pending;
        self.pending = None;
    }
}

/// Why nothing is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Absent {
    /// Nothing was accepted, or of a fleet that may not be read.
    #[default]
    NotAccepted,
    /// An earlier life accepted something that this version cannot read.
    Unreadable,
    /// What an earlier life accepted could not be looked up.
    NotAsked {
        /// A reason of `ResourcesApplied`.
        reason: Reason,
        /// Why, in the API server's words.
        message: String,
    },
}

/// The config that routers are given.
#[derive(Clone, Debug)]
pub(crate) struct InForce {
    /// Of the RouterConfig whose generations are counted; empty if that is not known.
    pub(crate) uid: String,
    pub(crate) generation: i64,
    pub(crate) text: Arc<str>,
    /// Where the fleet is and who reads it.
    pub(crate) fleet: Fleet,
    /// Dynamo namespaces with a shim pool.
    pub(crate) pools: Vec<String>,
    /// A backend of ordinary routing is configured.
    pub(crate) ordinary: bool,
    /// What it was made of; `None` where an earlier life accepted it and nothing but its text is known.
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
        Self {
            uid: accepted.uid.clone(),
            generation: accepted.generation,
            text: accepted.text.as_str().into(),
            fleet: accepted.fleet.clone(),
            pools: pools(&accepted.config),
            ordinary: ordinary(&accepted.config),
            made_of: Some((object, Arc::new(accepted))),
        }
    }

    /// The source whose views are pushed.
    pub(crate) fn pushed(&self) -> Option<&Discovery> {
        match &self.fleet {
            Fleet::Pushed { discovery, .. } => Some(discovery),
            Fleet::None | Fleet::Local { .. } => None,
        }
    }
}

/// Dynamo namespaces with a shim pool.
pub(crate) fn pools(config: &Config) -> Vec<String> {
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

/// Whether a backend is there for ordinary routing: one that is no frontend of a fleet, and is asked at all.
pub(crate) fn ordinary(config: &Config) -> bool {
    let pools = config.shim_pools();
    let shim = |name: &String| pools.iter().any(|(_, replicas)| replicas.contains(name));
    let mut backends = config.backends.iter();
    backends.any(|one| one.enabled && !one.internal && one.role == BackendRole::Unified && !shim(&one.name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::routerconfig::validate::tests::object;

    #[test]
    fn who_does_not_lead_any_more_looks_at_everything_anew() {
        let mut entry = Entry::new(
            Arc::new(object(json!({}), json!({}))),
            Verdict::Accepted { warnings: Vec::new() },
            None,
            Absent::default(),
        );
        entry.applied = Applied::All;
        entry.start = Some(None);
        // Another leader may have moved it elsewhere and back, and left something there.
        entry.tidy = Some(Some("elsewhere".to_owned()));
        entry.leads_no_more();
        assert_eq!(entry.applied, Applied::Pending);
        assert!(entry.start.is_none() && entry.tidy.is_none());
    }
}

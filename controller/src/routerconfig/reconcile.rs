//! The loop: each `RouterConfig` through dereference, validate, build and apply, again whenever something of it moves.
//!
//! Every replica reads and serves views; the one that leads writes.

mod apis;
mod first;
mod resources;
mod turns;
mod watches;

use std::{sync::Arc, time::Duration};

use continuum_crds::{RouterConfig, conditions::Reason};
use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Resource,
    runtime::{
        controller::Action,
        events::{Recorder, Reporter},
        reflector::ObjectRef,
    },
};
use tokio::{
    sync::{Mutex, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use self::{apis::PodMonitors, first::First, turns::Turns, watches::Watches};
pub use super::metrics::Metrics;
use super::{
    MANAGER, Rejected, Settings,
    apply::reason_of,
    child_name,
    limits::{RESYNC, RETRY_FIRST, RETRY_LEAVE, RETRY_MOST},
    live::Live,
    memory::{Absent, Entry, InForce, Memory},
    restore,
    validate::{Accepted, validate},
};
use crate::{
    certs::{Serving, Trouble},
    cli::Namespaces,
    fleet::Fleets,
    push::{Hub, Key},
    status::{
        facts::{Applied, Rollout, Verdict},
        write::Writer,
    },
};

/// What the reconciler works with.
pub struct Context {
    /// The cluster.
    pub client: Client,
    /// Where routers get their config and view from.
    pub hub: Arc<Hub>,
    /// The fleets that are watched.
    pub fleets: Arc<Mutex<Fleets>>,
    /// What the operator was started with.
    pub settings: Settings,
    /// Where RouterConfigs are served.
    pub served: Namespaces,
    /// Whether this replica writes.
    pub leads: watch::Receiver<bool>,
    /// The certificates of the push port.
    pub serving: watch::Receiver<Option<Serving>>,
    /// Why there is none, or no newer one.
    pub trouble: Trouble,
    /// Told when every RouterConfig has been read once.
    pub listed: watch::Sender<bool>,
    /// Counters.
    pub metrics: Metrics,
    /// The name of this pod: who reports events.
    pub instance: String,
}

/// Runs until `stop`.
pub async fn run(context: Context, stop: CancellationToken) {
    let memory = Arc::new(Memory::default());
    let (watches, live) = Watches::of(&context, &memory);
    let reporter = Reporter {
        controller: MANAGER.to_owned(),
        instance: Some(context.instance.clone()),
    };
    let reconciler = Arc::new(Reconciler {
        recorder: Recorder::new(context.client.clone(), reporter),
        memory: Arc::clone(&memory),
        live,
        pod_monitors: PodMonitors::default(),
        turns: Turns::default(),
        context,
    });
    let firsts: Vec<First> = watches.iter().map(Watches::first).collect();
    let running = watches
        .into_iter()
        .map(|watches| watches.drive(Arc::clone(&reconciler), &stop));
    let running = join_all(running);
    let first = async {
        reconciler.first_list(&firsts).await;
        std::future::pending::<()>().await;
    };
    let writer = Writer::new(&reconciler.context, memory, reconciler.recorder.clone());
    tokio::select! {
        _ = running => stop.cancelled().await,
        () = first => {}
        () = writer.run() => {}
        () = stop.cancelled() => {}
    }
}

/// The one that reconciles.
struct Reconciler {
    context: Context,
    memory: Arc<Memory>,
    live: Live,
    pod_monitors: PodMonitors,
    turns: Turns,
    recorder: Recorder,
}

impl Reconciler {
    /// Once everything that can be listed is understood, routers may be sent here.
    async fn first_list(&self, firsts: &[First]) {
        first::look(firsts, |first| async {
            for object in first.store.state() {
                self.first_look(first, &object).await;
            }
        })
        .await;
        tracing::info!("every RouterConfig that can be listed has been read once");
        self.context.listed.send_replace(true);
    }

    /// Understands what the reconciler has not come to yet, if it is still there.
    async fn first_look(&self, first: &First, object: &RouterConfig) {
        let key = key_of(object);
        let _turn = self.turns.of(&key).await;
        let Some(object) = first.store.get(&ObjectRef::from_obj(object)) else {
            return;
        };
        if object.metadata.deletion_timestamp.is_none() && self.memory.of(&key).is_none() {
            self.judge(&object).await;
        }
    }

    async fn reconcile(&self, object: Arc<RouterConfig>) -> Action {
        self.context.metrics.reconciled();
        let key = key_of(&*object);
        if object.metadata.deletion_timestamp.is_some() {
            return self.leave(&key, &object).await;
        }
        let mut entry = self.understand(&object).await;
        if !*self.context.leads.borrow() {
            self.memory.amend(&key, Entry::leads_no_more);
            let asked = !matches!(entry.absent, Absent::NotAsked { .. });
            return Action::requeue(if asked { RESYNC } else { RETRY_LEAVE });
        }
        if entry.applied == Applied::Pending {
            let since = *entry.pending.get_or_insert_with(Instant::now);
            self.memory.amend(&key, |entry| entry.pending = Some(since));
        }
        let bundle = self.bundle();
        if bundle.is_none() && entry.in_force.is_some() {
            // The certificate comes with a word of its own.
            return Action::requeue(RESYNC);
        }
        let look = self.apply(&key, &mut entry, &bundle.unwrap_or_default()).await;
        let failed = match &entry.applied {
            Applied::Failed { reason, message } => {
                if entry.failures == 0 {
                    tracing::warn!(routerconfig = %key, reason = reason.as_str(), message, "resources could not be applied");
                }
                self.context.metrics.failed(*reason);
                entry.failures = entry.failures.saturating_add(1);
                true
            }
            Applied::All | Applied::Nothing | Applied::Pending | Applied::ConfigAlone { .. } => {
                if std::mem::take(&mut entry.failures) > 0 {
                    tracing::info!(routerconfig = %key, "resources are applied again");
                }
                false
            }
        };
        let wait = if failed { retry(entry.failures) } else { look };
        // The status was written meanwhile, perhaps.
        if let Some(now) = self.memory.of(&key) {
            entry.written = now.written;
            entry.counted = now.counted;
            if now.object.metadata.generation == entry.object.metadata.generation {
                entry.object = now.object;
            }
        }
        self.memory.keep(key, entry);
        Action::requeue(if self.pod_monitors.are_known() {
            wait
        } else {
            wait.min(RETRY_MOST)
        })
    }

    async fn understand(&self, object: &Arc<RouterConfig>) -> Entry {
        let _turn = self.turns.of(&key_of(&**object)).await;
        self.judge(object).await
    }

    /// Judges a RouterConfig and gives its routers what is in force. Asks the cluster for nothing but, for a rejected
    /// one of which this life has accepted nothing, its ConfigMap.
    async fn judge(&self, object: &Arc<RouterConfig>) -> Entry {
        let key = key_of(&**object);
        let before = self.memory.of(&key);
        let same_object = |entry: &Entry| entry.object.metadata.uid == object.metadata.uid;
        let before = before.filter(same_object);
        let settings = &self.context.settings;
        let older = before.as_ref().and_then(|entry| entry.in_force.clone());
        let known = before.as_ref().filter(|entry| entry.judged(object));
        let known = known.map(|entry| entry.verdict.clone());
        let found = match (known, &older) {
            (Some(Verdict::Accepted { warnings }), Some(in_force)) => Ok((warnings, in_force.clone())),
            (Some(Verdict::Rejected { reason, message, .. }), _) => Err(Rejected { reason, message }),
            (Some(Verdict::Accepted { .. }) | None, _) => {
                let accepted = self.validated(object, settings).await;
                accepted.map(|accepted| {
                    let warnings = accepted.warnings.clone();
                    (warnings, InForce::of(Arc::clone(object), accepted))
                })
            }
        };
        let (verdict, in_force) = match found {
            Ok((warnings, in_force)) => (Verdict::Accepted { warnings }, Ok(in_force)),
            Err(rejected) => {
                let older = match older {
                    Some(older) => Ok(older),
                    None => self.restored(object, settings).await,
                };
                let verdict = Verdict::Rejected {
                    reason: rejected.reason,
                    message: rejected.message,
                    older_in_force: older.is_ok(),
                };
                (verdict, older)
            }
        };
        let (in_force, absent) = match in_force {
            Ok(in_force) => (Some(in_force), Absent::default()),
            Err(absent) => (None, absent),
        };
        if before.as_ref().is_none_or(|entry| entry.verdict != verdict) {
            match &verdict {
                Verdict::Accepted { .. } => tracing::info!(routerconfig = %key, "accepted"),
                Verdict::Rejected { reason, message, .. } => {
                    tracing::warn!(routerconfig = %key, reason = reason.as_str(), message, "rejected");
                }
            }
        }
        match &in_force {
            Some(config) => {
                let mut fleets = self.context.fleets.lock().await;
                if let Err(error) = fleets.follow(&key, config.pushed()) {
                    tracing::error!(routerconfig = %key, %error, "the fleet cannot be followed");
                }
                let hub = &self.context.hub;
                hub.set_config(&key, &config.uid, config.generation, &config.text);
            }
            None => self.context.fleets.lock().await.remove(&key),
        }
        let entry = match before {
            Some(before) => {
                // Of the spec before: nothing has been written for this one.
                let same_spec = before.object.metadata.generation == object.metadata.generation;
                Entry {
                    object: Arc::clone(object),
                    verdict,
                    in_force,
                    absent,
                    applied: if same_spec {
                        before.applied
                    } else {
                        Applied::Pending
                    },
                    pending: before.pending.filter(|_| same_spec),
                    unproven: before.unproven.filter(|_| same_spec),
                    rollout: before.rollout.map(|rollout| Rollout {
                        observed: rollout.observed && same_spec,
                        ..rollout
                    }),
                    ..before
                }
            }
            None => Entry::new(Arc::clone(object), verdict, in_force, absent),
        };
        self.memory.keep(key, entry.clone());
        entry
    }

    /// Judged where it holds nobody up: it takes a while for large ones, and the sessions of routers are heard on the
    /// threads of the runtime.
    async fn validated(&self, object: &Arc<RouterConfig>, settings: &Settings) -> Result<Accepted, Rejected> {
        let (judged, with) = (Arc::clone(object), settings.clone());
        let judging = tokio::task::spawn_blocking(move || validate(&judged, &with));
        // It is not begun while the runtime ends.
        judging.await.unwrap_or_else(|_ending| validate(object, settings))
    }

    async fn forget(&self, key: &Key) {
        let _turn = self.turns.of(key).await;
        if self.memory.forget(key) {
            tracing::info!(routerconfig = %key, "gone");
            self.context.fleets.lock().await.remove(key);
        }
    }

    /// What an earlier life accepted last, from the ConfigMap that it made.
    async fn restored(&self, object: &RouterConfig, settings: &Settings) -> Result<InForce, Absent> {
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let name = child_name(object.metadata.name.as_deref().unwrap_or_default());
        let api: Api<ConfigMap> = Api::namespaced(self.context.client.clone(), namespace);
        let map = patiently(&api, &name).await.map_err(|error| Absent::NotAsked {
            reason: reason_of(&error),
            message: format!("ConfigMap {namespace}/{name}: {error}"),
        })?;
        let uid = object.metadata.uid.as_deref();
        let ours = |map: &ConfigMap| {
            let mut owners = map.metadata.owner_references.iter().flatten();
            owners.any(|owner| Some(owner.uid.as_str()) == uid)
        };
        let map = map.filter(ours).ok_or(Absent::NotAccepted)?;
        let (now, data, with) = (object.clone(), map.data.unwrap_or_default(), settings.clone());
        let reading = tokio::task::spawn_blocking(move || restore::in_force(&now, &data, &with));
        reading.await.unwrap_or_else(|ending| {
            Err(Absent::NotAsked {
                reason: Reason::ApiUnavailable,
                message: ending.to_string(),
            })
        })
    }

    fn bundle(&self) -> Option<String> {
        self.context
            .serving
            .borrow()
            .as_ref()
            .map(|serving| serving.bundle.clone())
    }
}

fn key_of(object: &impl Resource) -> Key {
    let metadata = object.meta();
    Key {
        namespace: metadata.namespace.as_deref().unwrap_or_default().into(),
        name: metadata.name.as_deref().unwrap_or_default().into(),
    }
}

fn retry(failures: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1).min(16));
    RETRY_FIRST.saturating_mul(doubled).min(RETRY_MOST)
}

/// A ConfigMap, if it is there. A busy API server is asked again: what it does not tell is not known for some seconds.
async fn patiently(api: &Api<ConfigMap>, name: &str) -> Result<Option<ConfigMap>, kube::Error> {
    for pause in [1, 2, 4] {
        match api.get_opt(name).await {
            Ok(found) => return Ok(found),
            Err(error) => tracing::debug!(%error, name, "a ConfigMap could not be read"),
        }
        tokio::time::sleep(Duration::from_millis(500 * pause)).await;
    }
    api.get_opt(name).await
}

#[cfg(test)]
mod tests;

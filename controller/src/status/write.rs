//! Facts gathered, merged and written; a status that says nothing new is not.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use continuum_crds::{RouterConfig, RouterConfigStatus, conditions::Reason};
use continuum_messages::ConfigId;
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client, Resource as _, ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::events::{Event, EventType, Recorder},
};
use serde_json::json;
use tokio::{
    sync::{Mutex, watch},
    time::{Instant, sleep, timeout},
};

use super::{
    Transition,
    counts::counts,
    facts::{Applied, Facts, Fleet, Router},
    failing::Failing,
    limits::{LOOK_EVERY, MAX_NOTE_CHARS, PAUSE, PENDING},
    merge::{Outage, merge, outage},
};
use crate::{
    certs::{Serving, Trouble},
    fleet::Fleets,
    leader::while_leading,
    push::{Hub, Key, Session},
    routerconfig::{
        MANAGER, Metrics, build,
        memory::{Entry, Memory},
        reason_of,
        reconcile::Context,
        validate,
    },
};

/// Writes the statuses of all `RouterConfig`s, while this replica leads.
pub(crate) struct Writer {
    client: Client,
    hub: Arc<Hub>,
    fleets: Arc<Mutex<Fleets>>,
    memory: Arc<Memory>,
    leads: watch::Receiver<bool>,
    serving: watch::Receiver<Option<Serving>>,
    trouble: Trouble,
    metrics: Metrics,
    recorder: Recorder,
    failing: Failing,
    /// Since when users have had reason to notice that nothing is served.
    unserved: BTreeMap<Key, Instant>,
}

impl Writer {
    pub(crate) fn new(context: &Context, memory: Arc<Memory>, recorder: Recorder) -> Self {
        Self {
            client: context.client.clone(),
            hub: Arc::clone(&context.hub),
            fleets: Arc::clone(&context.fleets),
            memory,
            leads: context.leads.clone(),
            serving: context.serving.clone(),
            trouble: context.trouble.clone(),
            metrics: context.metrics.clone(),
            recorder,
            failing: Failing::default(),
            unserved: BTreeMap::new(),
        }
    }

    /// Runs for ever: after each change, at most so often, and now and then for what only time tells.
    pub(crate) async fn run(mut self) {
        let mut known = self.memory.subscribe();
        let mut sessions = self.hub.sessions().subscribe();
        let mut fleets = self.fleets.lock().await.subscribe();
        loop {
            known.borrow_and_update();
            sessions.borrow_and_update();
            fleets.borrow_and_update();
            if *self.leads.borrow_and_update() {
                let all = self.memory.all();
                self.unserved
                    .retain(|key, _| all.iter().any(|(known, _)| known == key));
                self.failing
                    .retain(|key| all.iter().any(|(known, _)| known == key));
                for (key, entry) in all {
                    self.look(&key, &entry).await;
                }
            } else {
                // Routers have no reason to come here.
                self.unserved.clear();
                self.failing = Failing::default();
            }
            sleep(PAUSE).await;
            let changed = async {
                tokio::select! {
                    _ = known.changed() => {}
                    _ = sessions.changed() => {}
                    _ = fleets.changed() => {}
                    _ = self.leads.changed() => {}
                }
            };
            // Nothing new is as good a reason as a change: views grow old.
            let _elapsed = timeout(LOOK_EVERY, changed).await;
        }
    }

    async fn look(&mut self, key: &Key, entry: &Entry) {
        // What has just begun is about to be known.
        let begun = || entry.pending.is_some_and(|since| since.elapsed() >= PENDING);
        if entry.applied == Applied::Pending && !begun() {
            return;
        }
        let mut facts = self.facts(key, entry).await;
        facts.unserved = self.lasting(key, &outage(&facts));
        let before = before(entry);
        let since_counts = entry.counted.map_or(Duration::MAX, |at| at.elapsed());
        let merged = merge(before, &facts, Timestamp::now(), since_counts);
        if !merged.differs {
            return;
        }
        let write = self.write(&entry.object, &merged.status);
        let Some(written) = while_leading(&self.leads, write).await else {
            return;
        };
        match written {
            Ok(version) => {
                self.metrics.wrote_status();
                if let Some(reason) = self.failing.succeeded(key) {
                    tracing::info!(reason = reason.as_str(), "statuses are written again");
                }
                let counts_moved = before.is_none_or(|before| before.fleet != merged.status.fleet);
                let first = before.is_none();
                self.memory.amend(key, |entry| {
                    if counts_moved {
                        entry.counted = Some(Instant::now());
                    }
                    entry.written = Some((merged.status, version));
                });
                for transition in merged.transitions {
                    self.tell(key, &entry.object, &transition, first).await;
                }
            }
            // It was deleted, or there is another one of that name now.
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
            Err(error) => {
                let reason = reason_of(&error);
                self.metrics.status_failed(reason);
                if self.failing.failed(key, reason) {
                    tracing::warn!(
                        routerconfig = %key,
                        reason = reason.as_str(),
                        %error,
                        "a status cannot be written, and is tried again; others that fail alike are not told of"
                    );
                }
            }
        }
    }

    /// For how long it has been like that. What is certain needs no time to be so, and a rollout alone is no outage.
    fn lasting(&mut self, key: &Key, outage: &Outage) -> Option<Duration> {
        match outage {
            Outage::None => {
                self.unserved.remove(key);
                None
            }
            Outage::Starting(_) | Outage::Certain(_) => self.unserved.get(key).map(Instant::elapsed),
            Outage::Doubtful(_) => {
                let since = self.unserved.entry(key.clone()).or_insert_with(Instant::now);
                Some(since.elapsed())
            }
        }
    }

    async fn write(&self, object: &RouterConfig, status: &RouterConfigStatus) -> Result<String, kube::Error> {
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<RouterConfig> = Api::namespaced(self.client.clone(), namespace);
        let patch = json!({
            "apiVersion": "router.continuum.dev/v1alpha1",
            "kind": "RouterConfig",
            "metadata": { "uid": object.metadata.uid },
            "status": status,
        });
        let params = PatchParams::apply(MANAGER).force();
        let live = api
            .patch_status(&object.name_any(), &params, &Patch::Apply(&patch))
            .await?;
        Ok(live.metadata.resource_version.unwrap_or_default())
    }

    /// Says a transition in the log and as an Event.
    async fn tell(&self, key: &Key, object: &RouterConfig, transition: &Transition, first: bool) {
        let Transition {
            condition,
            reason,
            message,
        } = transition;
        tracing::info!(
            routerconfig = %key,
            condition = condition.as_str(),
            status = reason.status(),
            reason = reason.as_str(),
            message,
            "condition changed"
        );
        // What a new RouterConfig waits for is no news; `Accepted` and what is wrong is.
        if first && !matches!(reason, Reason::Valid | Reason::ValidWithWarnings) && !is_bad(*reason) {
            return;
        }
        let note: String = message.chars().take(MAX_NOTE_CHARS).collect();
        let event = Event {
            type_: if is_bad(*reason) {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: reason.as_str().to_owned(),
            note: Some(note),
            action: condition.as_str().to_owned(),
            secondary: None,
        };
        let about = object.object_ref(&());
        if let Err(error) = self.recorder.publish(&event, &about).await {
            tracing::debug!(routerconfig = %key, %error, "an Event could not be written");
        }
    }

    async fn facts(&self, key: &Key, entry: &Entry) -> Facts {
        let config = entry.in_force.as_ref();
        let fleet = match config {
            None => Fleet::NotWatched,
            Some(config) => match &config.fleet {
                validate::Fleet::Pushed { .. } => self.pushed(key).await,
                validate::Fleet::Local { source, .. } => Fleet::Local {
                    kind: source.as_str(),
                },
                validate::Fleet::None => Fleet::Off,
            },
        };
        let newest = match &fleet {
            Fleet::Pushed { view, .. } => *view,
            Fleet::NotWatched | Fleet::Off | Fleet::Local { .. } => None,
        };
        // Of a view that this replica never had, only the router tells since when it is there.
        let behind = |session: &Session| match session.view {
            Some(view) if Some(view.digest) != newest => {
                let superseded = self.hub.superseded(key, view.digest);
                superseded.unwrap_or_else(|| session.view_since.elapsed())
            }
            Some(_) | None => Duration::ZERO,
        };
        let routers = self.hub.sessions().of(key).into_iter().map(|session| {
            let behind = behind(&session);
            let (report, at) = match session.report {
                Some((report, at)) => (Some(report), Some(at)),
                None => (None, None),
            };
            let told = report.as_ref().map_or(0, |report| report.view_age_ms);
            Router {
                pod: session.pod.name.to_string(),
                config: session.config,
                view: session.view.map(|view| view.digest),
                view_age: Duration::from_millis(told)
                    .saturating_add(at.map_or(Duration::ZERO, |at| at.elapsed())),
                behind,
                report: report.map(|report| (*report).clone()),
            }
        });
        Facts {
            generation: entry.object.metadata.generation.unwrap_or_default(),
            verdict: entry.verdict.clone(),
            applied: self.applied(entry),
            config: config.map(|config| ConfigId::of(config.generation, &config.text)),
            fleet,
            rollout: entry.rollout.clone(),
            routers: routers.collect(),
            pools: config.map(|config| config.pools.clone()).unwrap_or_default(),
            ordinary: config.is_some_and(|config| config.ordinary),
            unserved: None,
            selector: build::scale_selector(&entry.object),
            // Where nothing was ever applied, a Service of that name is somebody else's.
            url: (!entry.foreign_service && entry.applied != Applied::Nothing)
                .then(|| build::url(&entry.object)),
        }
    }

    fn applied(&self, entry: &Entry) -> Applied {
        if entry.applied != Applied::Pending || self.serving.borrow().is_some() {
            return entry.applied.clone();
        }
        let why = self.trouble.borrow().clone();
        Applied::Failed {
            reason: Reason::NoCertificate,
            message: format!(
                "the operator has no certificate for the port that routers connect to: {}",
                why.as_deref().unwrap_or("it has not been read yet")
            ),
        }
    }

    async fn pushed(&self, key: &Key) -> Fleet {
        let published = self.hub.published(key);
        let source = self.fleets.lock().await.source_of(key);
        let (source, refused) = source.unwrap_or_default();
        Fleet::Pushed {
            source,
            view: published.as_ref().map(|published| published.id.digest),
            counts: published
                .as_ref()
                .map(|published| counts(&published.view))
                .unwrap_or_default(),
            refused,
        }
    }
}

/// The newer one of what the watch has told and what was written here.
fn before(entry: &Entry) -> Option<&RouterConfigStatus> {
    let told = entry.object.status.as_ref();
    let Some((written, version)) = &entry.written else {
        return told;
    };
    let number = |version: &str| version.parse::<u64>().ok();
    let told_later =
        number(&entry.object.metadata.resource_version.clone().unwrap_or_default()) > number(version);
    if told_later { told } else { Some(written) }
}

/// Whether users should look.
fn is_bad(reason: Reason) -> bool {
    let degraded = reason.condition() == continuum_crds::conditions::ConditionType::Degraded;
    (reason.status() == "False") != degraded && reason.status() != "Unknown"
}

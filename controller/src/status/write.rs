//! Facts gathered and merged, again and again; a status that says nothing new is not written.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use continuum_crds::{RouterConfigStatus, conditions::Reason};
use continuum_messages::{ConfigId, push::FleetCounts};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::events::Recorder;
use tokio::{
    sync::{Mutex, watch},
    time::{Instant, sleep, timeout},
};

use super::{
    facts::{Applied, Facts, Fleet, Router},
    limits::{LOOK_EVERY, PAUSE, PENDING},
    merge::{Outage, merge, outage},
    writes::{Publisher, Write, Writes},
};
use crate::{
    certs::{Serving, Trouble},
    fleet::Fleets,
    push::{Hub, Key, Session},
    routerconfig::{
        build,
        memory::{Entry, Memory},
        reconcile::Context,
        validate,
    },
};

/// Writes the statuses of all `RouterConfig`s, while this replica leads.
pub(crate) struct Writer {
    known: Known,
    writes: Writes,
}

/// What statuses are made of.
struct Known {
    hub: Arc<Hub>,
    fleets: Arc<Mutex<Fleets>>,
    memory: Arc<Memory>,
    leads: watch::Receiver<bool>,
    serving: watch::Receiver<Option<Serving>>,
    trouble: Trouble,
    /// Since when users have had reason to notice that nothing is served.
    unserved: BTreeMap<Key, Instant>,
}

impl Writer {
    pub(crate) fn new(context: &Context, memory: Arc<Memory>, recorder: Recorder) -> Self {
        let publisher = Publisher {
            client: context.client.clone(),
            leads: context.leads.clone(),
            memory: Arc::clone(&memory),
            recorder,
        };
        let known = Known {
            hub: Arc::clone(&context.hub),
            fleets: Arc::clone(&context.fleets),
            memory,
            leads: context.leads.clone(),
            serving: context.serving.clone(),
            trouble: context.trouble.clone(),
            unserved: BTreeMap::new(),
        };
        Self {
            known,
            writes: Writes::new(publisher, context.metrics.clone()),
        }
    }

    /// Runs for ever: after each change, at most so often, and now and then for what only time tells.
    pub(crate) async fn run(self) {
        let Self {
            mut known,
            mut writes,
        } = self;
        let mut entries = known.memory.subscribe();
        let mut sessions = known.hub.sessions().subscribe();
        let mut fleets = known.fleets.lock().await.subscribe();
        let mut leads = known.leads.clone();
        loop {
            entries.borrow_and_update();
            sessions.borrow_and_update();
            fleets.borrow_and_update();
            if *leads.borrow_and_update() {
                let all = known.memory.all();
                let there = |key: &Key| all.binary_search_by(|(of, _)| of.cmp(key)).is_ok();
                known.unserved.retain(|key, _| there(key));
                writes.retain(there);
                let mut wanted = Vec::new();
                for (key, entry) in all {
                    if !writes.is_busy(&key)
                        && let Some(write) = known.look(&key, &entry).await
                    {
                        wanted.push((key, write));
                    }
                }
                writes.put(wanted);
            } else {
                // Routers have no reason to come here.
                known.unserved.clear();
                writes.clear();
            }
            writes.until(sleep(PAUSE)).await;
            let changed = async {
                tokio::select! {
                    _ = entries.changed() => {}
                    _ = sessions.changed() => {}
                    _ = fleets.changed() => {}
                    _ = leads.changed() => {}
                }
            };
            // Nothing new is as good a reason as a change: views grow old.
            let _elapsed = writes.until(timeout(LOOK_EVERY, changed)).await;
        }
    }
}

impl Known {
    /// What is to be written, if anything.
    async fn look(&mut self, key: &Key, entry: &Entry) -> Option<Write> {
        // What has just begun is about to be known.
        let begun = || entry.pending.is_some_and(|since| since.elapsed() >= PENDING);
        if entry.applied == Applied::Pending && !begun() {
            return None;
        }
        let mut facts = self.facts(key, entry).await;
        facts.unserved = self.lasting(key, &outage(&facts));
        let before = before(entry);
        let since_counts = entry.counted.map_or(Duration::MAX, |at| at.elapsed());
        let merged = merge(before, &facts, Timestamp::now(), since_counts);
        merged.differs.then(|| Write {
            object: Arc::clone(&entry.object),
            first: before.is_none(),
            counts_moved: before.is_none_or(|before| before.fleet != merged.status.fleet),
            merged,
        })
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
            Fleet::NotWatched | Fleet::TooMany | Fleet::Off | Fleet::Local { .. } => None,
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
        let counted = self.hub.counted(key);
        let source = {
            let fleets = self.fleets.lock().await;
            if fleets.is_beyond(key) {
                return Fleet::TooMany;
            }
            fleets.source_of(key)
        };
        let (source, refused) = source.unwrap_or_default();
        let (view, counts) = counted.unzip();
        Fleet::Pushed {
            source,
            view,
            counts: counts.map_or_else(FleetCounts::default, |counts| FleetCounts::clone(&counts)),
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

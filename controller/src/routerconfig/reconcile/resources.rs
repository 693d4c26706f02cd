//! What must exist for a RouterConfig, made to exist; and what is to go, made to go.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use continuum_crds::RouterConfig;
use continuum_messages::Digest;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{
    Resource as _, ResourceExt as _,
    core::{ApiResource, DynamicObject},
    runtime::{
        controller::Action,
        events::{Event, EventType},
    },
};
use tokio::time::Instant;

use super::Reconciler;
use crate::{
    push::Key,
    routerconfig::{
        apply::{Applier, Failure, reason_of},
        build::{self, Files},
        kept::{self, Moment, SPEC_KEY, Start, UNPROVEN},
        limits::{PROOF_LOOK, PROOF_LOOK_MOST, PROVEN_LOOK, RESYNC, RETRY_LEAVE, SILENCE},
        memory::{Absent, Entry, InForce},
        render::CONFIG_KEY,
        restore,
        validate::Accepted,
    },
    status::{facts::Applied, limits::MAX_NOTE_CHARS},
};

impl Reconciler {
    /// Makes the cluster be as what is in force wants it. After how long it is to be looked at again, if all is well.
    pub(super) async fn apply(&self, key: &Key, entry: &mut Entry, bundle: &str) -> Duration {
        let object = Arc::clone(&entry.object);
        let applier = self.applier(&object);
        let Some(config) = entry.in_force.clone() else {
            entry.applied = self.nothing(&applier, entry, bundle).await;
            return RESYNC;
        };
        let Some((built_from, accepted)) = &config.made_of else {
            entry.applied = match self.config_alone(&applier, entry, &config, bundle).await {
                Ok(applied) => applied,
                Err(failure) => failure.into(),
            };
            return RESYNC;
        };
        let start = match self.start(key, &applier, entry, &config, accepted).await {
            Ok(start) => start,
            Err(failure) => {
                entry.applied = failure.into();
                return RESYNC;
            }
        };
        let mut settings = self.context.settings.clone();
        let pod_monitors = self.pod_monitors.exist(&self.context.client).await;
        settings.pod_monitors = pod_monitors.unwrap_or_default();
        let files = Files {
            config: &start.text,
            proven: start.proven,
            ca: bundle,
        };
        let children = build::children(built_from, accepted, &settings, files);
        let foreign = children.iter().find(|child| child.foreign);
        let foreign = foreign.and_then(|child| child.object.metadata.namespace.clone());
        if let Some(namespace) = &foreign {
            // Noted before it is made, so that it is found whatever happens in between.
            let mut elsewhere = applier.elsewhere();
            elsewhere.insert(namespace.clone());
            if let Err(error) = applier.finalizer(&elsewhere).await {
                entry.applied = failed("finalizer", &error).into();
                return RESYNC;
            }
        }
        // Nothing is taken away on a guess.
        let unsure = pod_monitors.is_none().then(build::pod_monitor);
        let outcome = applier.apply(&children, unsure.as_ref(), &mut entry.known).await;
        entry.applied = outcome.applied;
        entry.foreign_service = outcome.foreign_service;
        if outcome.rollout.is_some() {
            entry.rollout = outcome.rollout;
        }
        if let Err(failure) = self.tidy(&applier, entry, foreign).await {
            entry.applied = failure.into();
        }
        if applier.lost() {
            // Whoever leads says what is there.
            entry.applied = Applied::Pending;
            entry.pending = None;
        }
        let pods = entry.rollout.as_ref().is_some_and(|rollout| rollout.replicas > 0);
        if start.text == config.text {
            entry.unproven = None;
        }
        let wait = if start.text != config.text {
            let since = *entry.unproven.get_or_insert_with(Instant::now);
            since.elapsed().clamp(PROOF_LOOK, PROOF_LOOK_MOST)
        } else if pods && !start.proven {
            PROVEN_LOOK
        } else {
            RESYNC
        };
        entry.start = Some(Some(start));
        wait
    }

    /// Nothing is in force: nothing is wanted elsewhere, and what is there gives rights that nobody has accepted.
    async fn nothing(&self, applier: &Applier<'_>, entry: &mut Entry, bundle: &str) -> Applied {
        let unreadable = match &entry.absent {
            Absent::NotAccepted => false,
            Absent::Unreadable => true,
            // Nothing is taken away on a guess.
            Absent::NotAsked { reason, message } => {
                return Applied::Failed {
                    reason: *reason,
                    message: format!("what was accepted before cannot be looked up: {message}"),
                };
            }
        };
        let allowed = &self.context.settings.fleet_namespaces;
        // Somebody did accept it, and it may still be read.
        let stays = unreadable && applier.elsewhere().iter().all(|name| allowed.contains(name));
        if !stays && let Err(failure) = self.tidy(applier, entry, None).await {
            return failure.into();
        }
        if unreadable {
            if let Err(failure) = self.authority_alone(applier, entry, bundle).await {
                return failure.into();
            }
            let message = "this version of the operator cannot read what was accepted before: routers go on with it, and \
                           their resources stay as they are, but for the authority in the ConfigMap";
            return Applied::ConfigAlone {
                message: message.to_owned(),
            };
        }
        Applied::Nothing
    }

    /// Nothing but the configuration is known of what an earlier life accepted: its ConfigMap is kept up, which also
    /// brings the authority to the routers, and the rest stays as it is.
    async fn config_alone(
        &self,
        applier: &Applier<'_>,
        entry: &mut Entry,
        config: &InForce,
        bundle: &str,
    ) -> Result<Applied, Failure> {
        let there = applier.whole(&ApiResource::erase::<ConfigMap>(&())).await?;
        let proven = there.as_ref().is_none_or(is_proven);
        let kept = there.and_then(|map| kept::strings(&map.data).remove(SPEC_KEY));
        let files = Files {
            config: &config.text,
            proven,
            ca: bundle,
        };
        let map = build::config_map(applier.object, files, kept);
        applier.keep(&map, &mut entry.known).await?;
        let deployment = applier.own(&ApiResource::erase::<Deployment>(&())).await?;
        entry.rollout = deployment.map(|there| there.rollout.clone());
        if applier.lost() {
            return Ok(Applied::Pending);
        }
        let mut message = "of the spec that was accepted before only the configuration is known: its ConfigMap is kept up, \
                           and all other resources stay as they are"
            .to_owned();
        if entry.rollout.is_none() {
            message.push_str("; there is no Deployment");
        }
        Ok(Applied::ConfigAlone { message })
    }

    /// The ConfigMap as it is, with the authority of now: without it, routers could not come back.
    async fn authority_alone(
        &self,
        applier: &Applier<'_>,
        entry: &mut Entry,
        bundle: &str,
    ) -> Result<(), Failure> {
        let there = applier.whole(&ApiResource::erase::<ConfigMap>(&())).await?;
        let Some(there) = there.filter(|_| !bundle.is_empty()) else {
            return Ok(());
        };
        let map = build::with_authority(applier.object, &there, bundle);
        applier.keep(&map, &mut entry.known).await
    }

    /// A RouterConfig that is being deleted: what it owns goes with it, what is elsewhere is deleted here. Until that is
    /// done its routers are there, and go on.
    pub(super) async fn leave(&self, key: &Key, object: &Arc<RouterConfig>) -> Action {
        let applier = self.applier(object);
        if !applier.has_finalizer() {
            self.forget(key).await;
            return Action::await_change();
        }
        let uid = &object.metadata.uid;
        let known = self
            .memory
            .of(key)
            .filter(|entry| entry.object.metadata.uid == *uid);
        let entry = match known {
            Some(entry) => entry,
            None => self.understand(object).await,
        };
        if !*self.context.leads.borrow() {
            self.memory.amend(key, Entry::leads_no_more);
            return Action::requeue(RESYNC);
        }
        let left = applier
            .leave_foreign(&self.context.settings.fleet_namespaces, None)
            .await;
        let done = match left {
            Ok(()) => match applier.finalizer(&BTreeSet::new()).await {
                // It is gone already.
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                done => done.map_err(|error| failed("finalizer", &error)),
            },
            Err(failure) => Err(failure),
        };
        let Err(Failure { reason, message }) = done else {
            self.forget(key).await;
            return Action::await_change();
        };
        self.context.metrics.failed(reason);
        tracing::warn!(routerconfig = %key, reason = reason.as_str(), message, "what is in the namespace of its fleet cannot be deleted yet");
        let event = Event {
            type_: EventType::Warning,
            reason: reason.as_str().to_owned(),
            note: Some(message.chars().take(MAX_NOTE_CHARS).collect()),
            action: "Deleting".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &object.object_ref(&())).await {
            tracing::debug!(routerconfig = %key, %error, "an Event could not be written");
        }
        // Its status was written meanwhile, perhaps.
        let mut entry = self.memory.of(key).unwrap_or(entry);
        entry.object = Arc::clone(object);
        entry.applied = Applied::Failed {
            reason,
            message: format!("it is deleted when nothing of it is left elsewhere: {message}"),
        };
        self.memory.keep(key.clone(), entry);
        Action::requeue(RETRY_LEAVE)
    }

    /// Leaves nothing in other namespaces but in `foreign`, and the finalizer on while there is something.
    async fn tidy(
        &self,
        applier: &Applier<'_>,
        entry: &mut Entry,
        foreign: Option<String>,
    ) -> Result<(), Failure> {
        if !applier.has_finalizer() || entry.tidy.as_ref() == Some(&foreign) {
            return Ok(());
        }
        applier
            .leave_foreign(&self.context.settings.fleet_namespaces, foreign.as_deref())
            .await?;
        let elsewhere = foreign.iter().cloned().collect();
        applier
            .finalizer(&elsewhere)
            .await
            .map_err(|error| failed("finalizer", &error))?;
        if !applier.lost() {
            entry.tidy = Some(foreign);
        }
        Ok(())
    }

    /// The configuration that a router pod starts with from now on.
    async fn start(
        &self,
        key: &Key,
        applier: &Applier<'_>,
        entry: &mut Entry,
        config: &InForce,
        accepted: &Accepted,
    ) -> Result<Start, Failure> {
        let before = match entry.start.clone() {
            Some(start) => start,
            None => {
                let map = applier.whole(&ApiResource::erase::<ConfigMap>(&())).await?;
                map.and_then(|map| {
                    let text = kept::strings(&map.data).remove(CONFIG_KEY);
                    // What is no configuration of the operator is nobody's proof.
                    let text = text.filter(|text| restore::is_given(text))?;
                    Some(Start {
                        text: text.into(),
                        proven: is_proven(&map),
                    })
                })
            }
        };
        let deployment = applier.own(&ApiResource::erase::<Deployment>(&())).await?;
        let sessions = self.context.hub.sessions().of(key);
        let silent = if sessions.is_empty() {
            Some(*entry.silent.get_or_insert_with(Instant::now))
        } else {
            entry.silent = None;
            None
        };
        let pods = deployment.as_deref().map_or(0, |there| there.rollout.replicas);
        let runs = |text: &str| {
            let digest = Digest::of(text.as_bytes());
            sessions.iter().any(|session| {
                // Where something of it waits for a new process, nobody knows yet whether one can start with it.
                let report = session.report.as_ref();
                let whole = report.is_none_or(|(report, _)| report.pending.is_empty());
                whole && session.config.is_some_and(|id| id.digest == digest)
            })
        };
        let moment = Moment {
            in_force: runs(&config.text),
            before_in_force: before.as_ref().is_some_and(|before| runs(&before.text)),
            new_process: deployment
                .as_deref()
                .is_none_or(|there| there.process.as_deref() != accepted.process_hash()),
            nobody: silent.is_some_and(|since| pods == 0 || since.elapsed() >= SILENCE),
        };
        Ok(kept::start(&config.text, before.as_ref(), moment))
    }

    pub(super) fn applier<'a>(&'a self, object: &'a RouterConfig) -> Applier<'a> {
        Applier {
            client: &self.context.client,
            live: &self.live,
            leads: &self.context.leads,
            lost: AtomicBool::new(false),
            object,
        }
    }
}

/// Whether a router has run what is in the ConfigMap, as far as it says.
fn is_proven(map: &DynamicObject) -> bool {
    !map.annotations().contains_key(UNPROVEN)
}

impl From<Failure> for Applied {
    fn from(failure: Failure) -> Self {
        Self::Failed {
            reason: failure.reason,
            message: failure.message,
        }
    }
}

fn failed(what: &str, error: &kube::Error) -> Failure {
    Failure {
        reason: reason_of(error),
        message: format!("{what}: {error}"),
    }
}

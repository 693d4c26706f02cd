//! What must exist for a RouterConfig, made to exist; and what is to go, made to go.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::AtomicBool},
};

use continuum_crds::RouterConfig;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{
    Resource as _,
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
        apply::{Applier, Failure, reason_of, rollout_of},
        build::{self, Files, template::PROCESS_CONFIG},
        kept::{self, Moment, SPEC_KEY},
        limits::{RETRY_LEAVE, SILENCE},
        memory::{Absent, Entry, InForce, Start},
        render::CONFIG_KEY,
        restore,
        validate::Accepted,
    },
    status::{facts::Applied, limits::MAX_NOTE_CHARS},
};

impl Reconciler {
    /// Makes the cluster be as what is in force wants it. Whether a router pod that starts is given the newest
    /// configuration.
    pub(super) async fn apply(&self, key: &Key, entry: &mut Entry, bundle: &str) -> bool {
        let object = Arc::clone(&entry.object);
        let applier = self.applier(&object);
        let Some(config) = entry.in_force.clone() else {
            entry.applied = self.nothing(&applier, entry).await;
            return true;
        };
        let Some((built_from, accepted)) = &config.made_of else {
            entry.applied = match self.config_alone(&applier, entry, &config, bundle).await {
                Ok(applied) => applied,
                Err(failure) => failure.into(),
            };
            return true;
        };
        let start = match self.start(key, &applier, entry, &config, accepted).await {
            Ok(start) => start,
            Err(failure) => {
                entry.applied = failure.into();
                return true;
            }
        };
        let mut settings = self.context.settings.clone();
        let pod_monitors = self.pod_monitors.exist(&self.context.client).await;
        settings.pod_monitors = pod_monitors.unwrap_or_default();
        let files = Files {
            config: &start,
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
                return true;
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
        let proven = start == config.text;
        entry.start = Some(Start::Text(start));
        proven
    }

    /// Nothing is in force: nothing is wanted elsewhere, and what is there gives rights that nobody has accepted.
    async fn nothing(&self, applier: &Applier<'_>, entry: &mut Entry) -> Applied {
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
            let message = "this version of the operator cannot read what was accepted before: routers go on with it, and \
                           their resources stay as they are";
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
        let there = applier.own(&ApiResource::erase::<ConfigMap>(&())).await?;
        let kept = there.and_then(|map| kept::strings(&map.data).remove(SPEC_KEY));
        let files = Files {
            config: &config.text,
            ca: bundle,
        };
        let map = build::config_map(applier.object, files, kept);
        applier.keep(&map, &mut entry.known).await?;
        let deployment = applier.own(&ApiResource::erase::<Deployment>(&())).await?;
        entry.rollout = deployment.as_deref().map(rollout_of);
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

    /// A RouterConfig that is being deleted: what it owns goes with it, what is elsewhere is deleted here.
    pub(super) async fn leave(&self, key: &Key, object: &RouterConfig) -> Action {
        self.forget(key).await;
        let applier = self.applier(object);
        if !applier.has_finalizer() || !*self.context.leads.borrow() {
            return Action::await_change();
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
    ) -> Result<Arc<str>, Failure> {
        let before = match entry.start.clone() {
            Some(start) => start,
            None => {
                let map = applier.own(&ApiResource::erase::<ConfigMap>(&())).await?;
                let text = map.and_then(|map| kept::strings(&map.data).remove(CONFIG_KEY));
                // What is no configuration of the operator is nobody's proof.
                let text = text.filter(|text| restore::is_given(text));
                text.map_or(Start::Nothing, |text| Start::Text(text.into()))
            }
        };
        let before = match &before {
            Start::Text(text) => Some(text),
            Start::Nothing => None,
        };
        let deployment = applier.own(&ApiResource::erase::<Deployment>(&())).await?;
        let sessions = self.context.hub.sessions().of(key);
        let silent = if sessions.is_empty() {
            Some(*entry.silent.get_or_insert_with(Instant::now))
        } else {
            entry.silent = None;
            None
        };
        let pods = deployment
            .as_deref()
            .map_or(0, |there| rollout_of(there).replicas);
        let id = continuum_messages::ConfigId::of(config.generation, &config.text);
        let moment = Moment {
            in_force: sessions.iter().any(|session| session.config == Some(id)),
            new_process: deployment
                .as_deref()
                .is_none_or(|there| process_of(there) != accepted.process_hash()),
            nobody: silent.is_some_and(|since| pods == 0 || since.elapsed() >= SILENCE),
        };
        Ok(kept::start(&config.text, before, moment))
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

/// What a Deployment's pods were started for.
fn process_of(deployment: &DynamicObject) -> Option<&str> {
    let annotations = deployment.data.pointer("/spec/template/metadata/annotations")?;
    annotations.get(PROCESS_CONFIG)?.as_str()
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

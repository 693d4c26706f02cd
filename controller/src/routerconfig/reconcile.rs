//! The loop: each `RouterConfig` through dereference, validate, build and apply, again whenever something of it moves.
//!
//! Every replica reads and serves views; the one that leads writes.

use std::{collections::BTreeSet, convert::Infallible, pin::pin, sync::Arc, time::Duration};

use continuum_crds::{RouterConfig, conditions::Reason};
use futures::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, join_all},
    stream::BoxStream,
};
use k8s_openapi::api::{
    apps::v1::Deployment,
    autoscaling::v2::HorizontalPodAutoscaler,
    core::v1::{ConfigMap, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    runtime::{
        controller::{self, Action, Controller},
        reflector::Store,
        utils::Backoff,
        watcher,
    },
};
use serde::de::DeserializeOwned;
use tokio::{
    sync::{Mutex, watch},
    time::Instant,
};
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;

pub use super::metrics::Metrics;
use super::{
    MANAGER, Settings,
    apply::{Applier, reason_of},
    build, child_name,
    limits::{API_CHECKED_EVERY, CONCURRENCY, DEBOUNCE, RESYNC, RETRY_FIRST, RETRY_MOST, WATCH_PAUSE},
    memory::{Entry, InForce, Memory},
    render::CONFIG_KEY,
    validate::validate,
};
use crate::{
    certs::Serving,
    cli::Namespaces,
    fleet::Fleets,
    push::{Hub, Key},
    status::{
        facts::{Applied, Verdict},
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
    let reconciler = Arc::new(Reconciler {
        memory: Arc::clone(&memory),
        pod_monitors: Mutex::new(None),
        context,
    });
    let context = &reconciler.context;
    let namespaces: Vec<Option<&str>> = match &context.served {
        Namespaces::All => vec![None],
        Namespaces::Some(names) => names.iter().map(|name| Some(name.as_str())).collect(),
    };
    let controllers: Vec<_> = namespaces
        .into_iter()
        .map(|namespace| reconciler.controller(namespace, &stop))
        .collect();
    let stores: Vec<Store<RouterConfig>> = controllers.iter().map(Controller::store).collect();
    let running: Vec<BoxFuture<'static, ()>> = controllers
        .into_iter()
        .map(|controller| drive(controller, Arc::clone(&reconciler)).boxed())
        .collect();
    let first = async {
        reconciler.first_list(&stores).await;
        std::future::pending::<()>().await;
    };
    let writer = Writer::new(context, Arc::clone(&memory));
    tokio::select! {
        _ = join_all(running) => stop.cancelled().await,
        () = first => {}
        () = writer.run() => {}
        () = stop.cancelled() => {}
    }
}

async fn drive(controller: Controller<RouterConfig>, reconciler: Arc<Reconciler>) {
    let results = controller.run(
        |object, reconciler: Arc<Reconciler>| {
            let reconciling: BoxFuture<'static, Result<Action, Infallible>> =
                async move { Ok(reconciler.reconcile(object).await) }.boxed();
            reconciling
        },
        |_, never, _| match *never {},
        Arc::clone(&reconciler),
    );
    let mut results = pin!(results);
    while let Some(result) = results.next().await {
        match result {
            Ok(_) => {}
            Err(controller::Error::ObjectNotFound(gone)) => {
                let key = Key {
                    namespace: gone.namespace.as_deref().unwrap_or_default().into(),
                    name: gone.name.as_str().into(),
                };
                reconciler.forget(&key).await;
            }
            Err(error) => tracing::debug!(%error, "a watch of the reconciler failed and is tried again"),
        }
    }
}

/// The pause after a failed watch. One for all watches of a controller, and while it lasts none of them is heard: so it
/// is short and does not grow, or ten watches that fail once would make a minute's silence of a second's outage.
struct Pause;

impl Iterator for Pause {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(WATCH_PAUSE)
    }
}

impl Backoff for Pause {
    fn reset(&mut self) {}
}

/// The one that reconciles.
struct Reconciler {
    context: Context,
    memory: Arc<Memory>,
    /// Whether the PodMonitor API exists, and when that was asked.
    pod_monitors: Mutex<Option<(Instant, bool)>>,
}

impl Reconciler {
    fn controller(&self, namespace: Option<&str>, stop: &CancellationToken) -> Controller<RouterConfig> {
        let client = &self.context.client;
        let children = watcher::Config::default().labels(&format!("app.kubernetes.io/managed-by={MANAGER}"));
        let config = controller::Config::default()
            .debounce(DEBOUNCE)
            .concurrency(CONCURRENCY);
        // A new leader applies everything; a new authority goes into every ConfigMap.
        let leads: BoxStream<'static, ()> = WatchStream::from_changes(self.context.leads.clone())
            .map(drop)
            .boxed();
        let serving: BoxStream<'static, ()> = WatchStream::from_changes(self.context.serving.clone())
            .map(drop)
            .boxed();
        Controller::new(api::<RouterConfig>(client, namespace), watcher::Config::default())
            .with_config(config)
            .trigger_backoff(Pause)
            .owns(api::<Deployment>(client, namespace), children.clone())
            .owns(api::<Service>(client, namespace), children.clone())
            .owns(api::<ConfigMap>(client, namespace), children.clone())
            .owns(api::<ServiceAccount>(client, namespace), children.clone())
            .owns(api::<PodDisruptionBudget>(client, namespace), children.clone())
            .owns(
                api::<HorizontalPodAutoscaler>(client, namespace),
                children.clone(),
            )
            .owns(api::<NetworkPolicy>(client, namespace), children.clone())
            .owns(api::<Role>(client, namespace), children.clone())
            .owns(api::<RoleBinding>(client, namespace), children)
            .reconcile_all_on(leads)
            .reconcile_all_on(serving)
            .graceful_shutdown_on(stop.clone().cancelled_owned())
    }

    /// Once everything is listed and understood, routers may be sent here.
    async fn first_list(&self, stores: &[Store<RouterConfig>]) {
        for store in stores {
            if store.wait_until_ready().await.is_err() {
                return;
            }
            for object in store.state() {
                if object.metadata.deletion_timestamp.is_none() {
                    self.understand(&object).await;
                }
            }
        }
        tracing::info!("every RouterConfig has been read once");
        self.context.listed.send_replace(true);
    }

    async fn reconcile(&self, object: Arc<RouterConfig>) -> Action {
        self.context.metrics.reconciled();
        let key = key_of(&object);
        if object.metadata.deletion_timestamp.is_some() {
            return self.leave(&key, &object).await;
        }
        let mut entry = self.understand(&object).await;
        if !*self.context.leads.borrow() {
            return Action::requeue(RESYNC);
        }
        let Some(bundle) = self.bundle() else {
            // The certificate comes with a word of its own.
            return Action::requeue(RESYNC);
        };
        self.apply(&mut entry, &bundle).await;
        let failed = match &entry.applied {
            Applied::Failed { reason, message } => {
                if entry.failures == 0 {
                    tracing::warn!(routerconfig = %key, reason = reason.as_str(), message, "resources could not be applied");
                }
                self.context.metrics.failed(*reason);
                entry.failures = entry.failures.saturating_add(1);
                true
            }
            Applied::All | Applied::Nothing => {
                if std::mem::take(&mut entry.failures) > 0 {
                    tracing::info!(routerconfig = %key, "resources are applied again");
                }
                false
            }
        };
        let wait = if failed { retry(entry.failures) } else { RESYNC };
        // The status was written meanwhile, perhaps.
        if let Some(now) = self.memory.of(&key) {
            entry.written = now.written;
            entry.counted = now.counted;
        }
        self.memory.keep(key, entry);
        Action::requeue(wait)
    }

    /// Judges a RouterConfig and gives its routers what is in force. Asks the cluster for nothing but, for a rejected
    /// one of an earlier life, its ConfigMap.
    async fn understand(&self, object: &Arc<RouterConfig>) -> Entry {
        let key = key_of(object);
        let before = self.memory.of(&key);
        let same_object = |entry: &Entry| entry.object.metadata.uid == object.metadata.uid;
        let before = before.filter(same_object);
        let mut settings = self.context.settings.clone();
        settings.pod_monitors = self.pod_monitors().await;
        let older = before.as_ref().and_then(|entry| entry.in_force.clone());
        let (verdict, in_force) = match validate(object, &settings) {
            Ok(accepted) => {
                let warnings = accepted.warnings.clone();
                let in_force = InForce::of(Arc::clone(object), accepted);
                (Verdict::Accepted { warnings }, Some(in_force))
            }
            Err(rejected) => {
                let older = match older {
                    Some(older) => Some(older),
                    None => self.restored(object).await,
                };
                // A fleet that may not be read any more is not read, whatever was accepted before.
                let older = older.filter(|_| rejected.reason != Reason::FleetNamespaceNotAllowed);
                let verdict = Verdict::Rejected {
                    reason: rejected.reason,
                    message: rejected.message,
                    older_in_force: older.is_some(),
                };
                (verdict, older)
            }
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
                if let Err(error) = fleets.follow(&key, config.pushed.as_deref()) {
                    tracing::error!(routerconfig = %key, %error, "the fleet cannot be followed");
                }
                self.context.hub.set_config(&key, config.generation, &config.text);
            }
            None => self.context.fleets.lock().await.remove(&key),
        }
        let entry = match before {
            Some(before) => Entry {
                object: Arc::clone(object),
                verdict,
                in_force,
                ..before
            },
            None => Entry {
                object: Arc::clone(object),
                verdict,
                in_force,
                applied: Applied::Nothing,
                rollout: None,
                pruned: BTreeSet::new(),
                failures: 0,
                written: None,
                counted: None,
            },
        };
        self.memory.keep(key, entry.clone());
        entry
    }

    async fn apply(&self, entry: &mut Entry, bundle: &str) {
        let object = Arc::clone(&entry.object);
        let applier = self.applier(&object);
        let made_of = entry.in_force.as_ref().and_then(|config| config.made_of.clone());
        let Some((built_from, accepted)) = made_of else {
            // What an earlier life applied stays as it is.
            if entry.in_force.is_none() {
                entry.applied = Applied::Nothing;
            } else {
                entry.applied = Applied::All;
                entry.rollout = self.rollout(&object).await.or(entry.rollout);
            }
            return;
        };
        let mut settings = self.context.settings.clone();
        settings.pod_monitors = self.pod_monitors().await;
        let children = build::children(&built_from, &accepted, &settings, bundle);
        let foreign = children.iter().find(|child| child.foreign);
        let foreign = foreign.and_then(|child| child.object.namespace());
        if foreign.is_some()
            && let Err(error) = applier.finalizer(true).await
        {
            entry.applied = failed("finalizer", &error);
            return;
        }
        let outcome = applier.apply(&children, &mut entry.pruned).await;
        entry.applied = outcome.applied;
        entry.rollout = outcome.rollout.or(entry.rollout);
        if applier.has_finalizer() {
            let left = applier
                .leave_foreign(&self.context.settings.fleet_namespaces, foreign.as_deref())
                .await;
            let done = match left {
                Ok(()) if foreign.is_none() => applier.finalizer(false).await,
                left => left,
            };
            if let Err(error) = done {
                entry.applied = failed("the namespace of another fleet", &error);
            }
        }
    }

    /// A RouterConfig that is being deleted: what it owns goes with it, what is elsewhere is deleted here.
    async fn leave(&self, key: &Key, object: &RouterConfig) -> Action {
        self.forget(key).await;
        let applier = self.applier(object);
        if !applier.has_finalizer() || !*self.context.leads.borrow() {
            return Action::await_change();
        }
        let left = applier
            .leave_foreign(&self.context.settings.fleet_namespaces, None)
            .await;
        let done = match left {
            Ok(()) => applier.finalizer(false).await,
            Err(error) => Err(error),
        };
        match done {
            Ok(()) => Action::await_change(),
            // It is gone already.
            Err(kube::Error::Api(status)) if status.code == 404 => Action::await_change(),
            Err(error) => {
                let reason = reason_of(&error);
                self.context.metrics.failed(reason);
                tracing::warn!(routerconfig = %key, %error, "what is in the namespace of its fleet cannot be deleted yet");
                Action::requeue(RETRY_MOST)
            }
        }
    }

    async fn forget(&self, key: &Key) {
        if self.memory.forget(key) {
            tracing::info!(routerconfig = %key, "gone");
            self.context.fleets.lock().await.remove(key);
        }
    }

    /// The config of an earlier life, from the ConfigMap that it made.
    async fn restored(&self, object: &RouterConfig) -> Option<InForce> {
        let namespace = object.metadata.namespace.as_deref()?;
        let name = child_name(object.metadata.name.as_deref()?);
        let api: Api<ConfigMap> = Api::namespaced(self.context.client.clone(), namespace);
        let map = api.get_opt(&name).await.ok()??;
        let uid = object.metadata.uid.as_deref();
        map.owner_references()
            .iter()
            .find(|owner| Some(owner.uid.as_str()) == uid)?;
        InForce::restored(map.data.as_ref()?.get(CONFIG_KEY)?)
    }

    async fn rollout(&self, object: &RouterConfig) -> Option<crate::status::facts::Rollout> {
        let namespace = object.metadata.namespace.as_deref()?;
        let name = child_name(object.metadata.name.as_deref()?);
        super::apply::rollout(&self.context.client, namespace, &name).await
    }

    /// Whether PodMonitors exist here: asked again from time to time, since a monitoring stack comes and goes.
    async fn pod_monitors(&self) -> bool {
        let mut known = self.pod_monitors.lock().await;
        if let Some((at, exists)) = *known
            && at.elapsed() < API_CHECKED_EVERY
        {
            return exists;
        }
        let listed = self
            .context
            .client
            .list_api_group_resources("monitoring.coreos.com/v1")
            .await;
        let exists = match (listed, *known) {
            (Ok(list), _) => list
                .resources
                .iter()
                .any(|resource| resource.kind == "PodMonitor"),
            (Err(kube::Error::Api(status)), _) if status.code == 404 => false,
            (Err(_), before) => before.is_some_and(|(_, exists)| exists),
        };
        *known = Some((Instant::now(), exists));
        exists
    }

    fn applier<'a>(&'a self, object: &'a RouterConfig) -> Applier<'a> {
        Applier {
            client: &self.context.client,
            leads: &self.context.leads,
            object,
        }
    }

    fn bundle(&self) -> Option<String> {
        self.context
            .serving
            .borrow()
            .as_ref()
            .map(|serving| serving.bundle.clone())
    }
}

fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()> + DeserializeOwned,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

fn key_of(object: &RouterConfig) -> Key {
    Key {
        namespace: object.metadata.namespace.as_deref().unwrap_or_default().into(),
        name: object.metadata.name.as_deref().unwrap_or_default().into(),
    }
}

fn failed(what: &str, error: &kube::Error) -> Applied {
    Applied::Failed {
        reason: reason_of(error),
        message: format!("{what}: {error}"),
    }
}

fn retry(failures: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1).min(16));
    RETRY_FIRST.saturating_mul(doubled).min(RETRY_MOST)
}

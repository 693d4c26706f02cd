//! What wakes the reconciler: the watches of RouterConfigs and of their children, and what those have seen.

mod guarded;
mod patience;

use std::{
    convert::Infallible,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    pin::pin,
    sync::Arc,
};

use continuum_crds::RouterConfig;
use futures::{
    FutureExt as _, StreamExt as _, TryStreamExt as _,
    future::{BoxFuture, ready},
    stream::BoxStream,
};
use kube::{
    Api,
    core::ApiResource,
    runtime::{
        WatchStreamExt as _,
        controller::{self, Action, Controller},
        reflector::{self, Store, store::Writer},
        watcher,
    },
};
use tokio::sync::{Semaphore, watch};
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;

use self::{
    guarded::{Filter, Guarded},
    patience::Patience,
};
use super::{Context, Reconciler, first::First, key_of};
use crate::{
    cli::Namespaces,
    push::Key,
    routerconfig::{
        MANAGED_BY, MANAGER,
        build::{kinds, pod_monitor},
        limits::{CONCURRENCY, DEBOUNCE, LISTS, PAGE},
        live::{self, Live, Look},
        memory::Memory,
        metrics::Watched,
    },
};

/// The watches of one namespace, or of all namespaces.
pub(super) struct Watches {
    objects: BoxStream<'static, Result<RouterConfig, watcher::Error>>,
    store: Store<RouterConfig>,
    refused: watch::Receiver<bool>,
    namespace: Option<String>,
    children: Vec<(ApiResource, BoxStream<'static, Result<Look, watcher::Error>>)>,
}

impl Watches {
    /// The watches of every served namespace, and what those of children will have seen.
    pub(super) fn of(context: &Context, memory: &Arc<Memory>) -> (Vec<Self>, Live) {
        let mut live = Live::default();
        let lists = Arc::new(Semaphore::new(LISTS));
        let namespaces: Vec<Option<&str>> = match &context.served {
            Namespaces::All => vec![None],
            Namespaces::Some(names) => names.iter().map(|name| Some(name.as_str())).collect(),
        };
        let watches = namespaces
            .into_iter()
            .map(|namespace| Self::new(context, namespace, memory, &lists, &mut live))
            .collect();
        (watches, live)
    }

    fn new(
        context: &Context,
        namespace: Option<&str>,
        memory: &Arc<Memory>,
        lists: &Arc<Semaphore>,
        live: &mut Live,
    ) -> Self {
        let Context { client, metrics, .. } = context;
        let (store, writer) = reflector::store();
        let api: Api<Guarded> = match namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        let memory = Arc::clone(memory);
        let (told, refused) = watch::channel(false);
        let mut filter = Filter::new(store.clone(), metrics.clone());
        let objects = Patience::new(Watched::RouterConfigs, namespace, metrics)
            .telling(told)
            .of(watcher(api, watcher::Config::default().page_size(PAGE)))
            .filter_map(move |event| ready(filter.take(event)))
            .map(Ok)
            .reflect(writer)
            .applied_objects()
            .inspect_ok(move |object| memory.seen(&key_of(object), object))
            // Our own statuses come back here, and are no reason to look again.
            .predicate_filter(but_for_the_status, Default::default())
            .boxed();
        let ours = watcher::Config::default()
            .labels(&format!("{MANAGED_BY}={MANAGER}"))
            .page_size(PAGE);
        let children = kinds()
            .into_iter()
            // Their API may be missing.
            .filter(|kind| *kind != pod_monitor())
            .map(|kind| {
                let api: Api<Look> = match namespace {
                    Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
                    None => Api::all_with(client.clone(), &kind),
                };
                let writer = Writer::new(kind.clone());
                live.add(namespace, &kind, writer.as_reader());
                let stream = Patience::new(Watched::Children, namespace, metrics)
                    .listing(Arc::clone(lists))
                    .of(watcher(api, ours.clone()))
                    .filter_map(|event| ready(live::kept(event)))
                    .map(Ok)
                    .reflect(writer)
                    .touched_objects()
                    .boxed();
                (kind, stream)
            })
            .collect();
        Self {
            objects,
            store,
            refused,
            namespace: namespace.map(str::to_owned),
            children,
        }
    }

    /// What is to be waited for before routers are sent here.
    pub(super) fn first(&self) -> First {
        First {
            namespace: self.namespace.clone(),
            store: self.store.clone(),
            refused: self.refused.clone(),
        }
    }

    /// Reconciles whatever they tell.
    pub(super) fn drive(
        self,
        reconciler: Arc<Reconciler>,
        stop: &CancellationToken,
    ) -> BoxFuture<'static, ()> {
        let config = controller::Config::default()
            .debounce(DEBOUNCE)
            .concurrency(CONCURRENCY);
        let context = &reconciler.context;
        // A new leader applies everything; a new authority goes into every ConfigMap.
        let leads = WatchStream::from_changes(context.leads.clone()).map(drop).boxed();
        let serving = WatchStream::from_changes(context.serving.clone())
            .map(drop)
            .boxed();
        let mut controller = Controller::for_stream(self.objects, self.store)
            .with_config(config)
            .reconcile_all_on(leads)
            .reconcile_all_on(serving)
            .graceful_shutdown_on(stop.clone().cancelled_owned());
        for (kind, stream) in self.children {
            controller = controller.owns_stream_with(stream, kind);
        }
        run(controller, reconciler).boxed()
    }
}

async fn run(controller: Controller<RouterConfig>, reconciler: Arc<Reconciler>) {
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
            Err(error) => tracing::debug!(%error, "the reconciler was told of a failure"),
        }
    }
}

/// A number that stays while nothing but the status of a RouterConfig moves.
fn but_for_the_status(object: &RouterConfig) -> Option<u64> {
    let metadata = &object.metadata;
    let mut hasher = DefaultHasher::new();
    metadata.uid.hash(&mut hasher);
    metadata.generation.hash(&mut hasher);
    metadata.labels.hash(&mut hasher);
    metadata.annotations.hash(&mut hasher);
    metadata.finalizers.hash(&mut hasher);
    metadata.deletion_timestamp.is_some().hash(&mut hasher);
    Some(hasher.finish())
}

//! Keeps one watcher running that serves the present config.

use std::{collections::BTreeMap, future::pending, sync::Arc};

use continuum_config::{
    Config,
    plan::{Reason, ViewOf, WatcherSwap, plan},
};
use continuum_fleet::{EventKind, ids::Graph, view::FleetView};
use continuum_runtime::{
    backoff::Backoff,
    cell::Cell,
    tasks::{Spawner, Task},
};
use prometheus::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "etcd")]
use crate::etcd::Etcd;
#[cfg(feature = "kubernetes")]
use crate::k8s::{self, Kubernetes, KubernetesPods};
use crate::{
    feed::SharedFeed,
    file::FileStore,
    k8s::Credentials,
    limits::STOP_GRACE,
    metrics::Metrics,
    pushed::{self, Pushed},
    session::{Outlet, drive},
    settings::{Place, Settings},
    source::Signals,
    state::{self, Keep, Mirror},
    status::Status,
};

/// Discovery of this process: what it finds, and how it fares. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Discovery {
    fleet: Arc<Cell<FleetView>>,
    status: Arc<Cell<Status>>,
}

impl Discovery {
    /// Starts discovery, which follows `config` from now on, and registers its metrics.
    ///
    /// # Errors
    /// When discovery metrics are registered already.
    pub fn spawn(
        spawner: &Spawner,
        config: watch::Receiver<Arc<Config>>,
        registry: &Registry,
    ) -> Result<Self, prometheus::Error> {
        Self::spawn_with(spawner, config, registry, None)
    }

    /// As [`Self::spawn`], with credentials for the Kubernetes sources other than those that are found.
    ///
    /// # Errors
    /// When discovery metrics are registered already.
    pub fn spawn_as(
        spawner: &Spawner,
        config: watch::Receiver<Arc<Config>>,
        registry: &Registry,
        credentials: Credentials,
    ) -> Result<Self, prometheus::Error> {
        Self::begin(spawner, config, registry, None, credentials)
    }

    /// As [`Self::spawn`]; with the source `controller` the fleet is what `pushed` holds.
    ///
    /// # Errors
    /// When discovery metrics are registered already.
    pub fn spawn_with(
        spawner: &Spawner,
        config: watch::Receiver<Arc<Config>>,
        registry: &Registry,
        pushed: Option<watch::Receiver<Pushed>>,
    ) -> Result<Self, prometheus::Error> {
        Self::begin(spawner, config, registry, pushed, Credentials::default())
    }

    fn begin(
        spawner: &Spawner,
        config: watch::Receiver<Arc<Config>>,
        registry: &Registry,
        pushed: Option<watch::Receiver<Pushed>>,
        credentials: Credentials,
    ) -> Result<Self, prometheus::Error> {
        let this = Self {
            fleet: Arc::default(),
            status: Arc::default(),
        };
        let metrics = Metrics::register(registry, &this.fleet, &this.status)?;
        let supervisor = Supervisor {
            spawner: spawner.clone(),
            fleet: Arc::clone(&this.fleet),
            status: Arc::clone(&this.status),
            metrics,
            pushed,
            credentials,
            running: None,
        };
        spawner.essential("discovery", |stop| async move {
            supervisor.run(config, stop).await;
            Ok(())
        });
        Ok(this)
    }

    /// The present fleet; empty while discovery is off.
    #[must_use]
    pub fn fleet(&self) -> Arc<Cell<FleetView>> {
        Arc::clone(&self.fleet)
    }

    /// How discovery fares.
    #[must_use]
    pub fn status(&self) -> Arc<Cell<Status>> {
        Arc::clone(&self.status)
    }
}

struct Supervisor {
    spawner: Spawner,
    fleet: Arc<Cell<FleetView>>,
    status: Arc<Cell<Status>>,
    metrics: Metrics,
    pushed: Option<watch::Receiver<Pushed>>,
    /// Who we are to the API server.
    #[cfg_attr(
        not(feature = "kubernetes"),
        expect(dead_code, reason = "a build without the Kubernetes sources")
    )]
    credentials: Credentials,
    running: Option<Running>,
}

/// A watcher and what it works with.
struct Running {
    config: Arc<Config>,
    settings: Settings,
    /// `None` where controllers push the view.
    feed: Option<SharedFeed>,
    /// `None` for a source that this build cannot read.
    task: Option<Task>,
    /// The Dynamo namespaces that the watcher looks for.
    names: watch::Sender<Vec<Graph>>,
}

impl Supervisor {
    async fn run(mut self, mut config: watch::Receiver<Arc<Config>>, stop: CancellationToken) {
        loop {
            // Marked as seen when it is read: a reload during a transition is seen right after it.
            let wanted = Arc::clone(&config.borrow_and_update());
            self.become_like(wanted).await;
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                changed = config.changed() => if changed.is_err() {
                    stop.cancelled().await;
                    break;
                },
                () = ended(self.running.as_mut().and_then(|running| running.task.as_mut())) => {
                    if stop.is_cancelled() {
                        break;
                    }
                    tracing::error!("the discovery watcher has ended by itself, starting it again");
                    self.running = None;
                }
            }
        }
        if let Some(Running { task: Some(task), .. }) = self.running.take() {
            task.stop(STOP_GRACE).await;
        }
    }

    /// Stops, starts or replaces the watcher.
    async fn become_like(&mut self, config: Arc<Config>) {
        let wanted = Settings::of(&config);
        let swap = match (&self.running, &wanted) {
            (None, None) => return,
            (None, Some(_)) => WatcherSwap {
                reason: Reason::Enabled,
                view: ViewOf::Cleared,
                starts: true,
            },
            (Some(running), Some(wanted)) if running.settings == *wanted => return,
            (Some(running), Some(wanted))
                if running.settings.differs_by_names_alone(wanted)
                    && plan(&running.config, &config).watcher.is_some_and(keeps_others) =>
            {
                self.rename(config, wanted.clone()).await;
                return;
            }
            (Some(running), _) => {
                // Two spellings of one setting differ here and mean the same to the plan.
                plan(&running.config, &config).watcher.unwrap_or(WatcherSwap {
                    reason: Reason::Other,
                    view: ViewOf::Kept,
                    starts: wanted.is_some(),
                })
            }
        };
        let Some(settings) = wanted.filter(|_| swap.starts) else {
            self.stop().await;
            self.turned_off(swap.reason);
            return;
        };
        let feed = self.stop().await;
        let first = self.status.load().restarts == 0 && self.status.load().passes == 0;
        if first {
            tracing::info!(
                source = settings.kind().as_str(),
                scope = settings.scope(),
                "discovery starts"
            );
        } else {
            self.metrics.count(EventKind::Restart, 1);
            tracing::info!(
                source = settings.kind().as_str(),
                reason = swap.reason.as_str(),
                "discovery restarts"
            );
        }
        self.status.update(|status| {
            status.enabled = true;
            status.source = Some(settings.kind());
            status.upstream = settings.upstream();
            if status.upstream.is_none() {
                status.pushed = 0;
            }
            status.supported =
                settings.supported() && (settings.upstream().is_none() || self.pushed.is_some());
            status.signals = if status.supported {
                settings.signals()
            } else {
                Signals::default()
            };
            status.namespaces.clone_from(&settings.namespaces);
            status.connected = false;
            status.synced = false;
            status.looked_for.clear();
            status.last_error = None;
            status.restarts += u64::from(!first);
        });
        let (names, looked_for) = watch::channel(settings.namespaces.clone());
        let (feed, task) = match (&settings.place, &self.pushed) {
            (Place::Controller { origins, .. }, Some(pushed)) => {
                let cleared = swap.view == ViewOf::Cleared;
                (
                    None,
                    Some(self.follow_pushed(origins.clone(), pushed.clone(), cleared)),
                )
            }
            (Place::Controller { .. }, None) => (None, self.unsupported(&settings)),
            (
                Place::Etcd { .. }
                | Place::File { .. }
                | Place::Kubernetes { .. }
                | Place::KubernetesPods { .. },
                _,
            ) => {
                let feed = self.feed(&settings, feed, swap.view).await;
                let task = self.start(&settings, &feed, looked_for);
                (Some(feed), task)
            }
        };
        self.running = Some(Running {
            config,
            settings,
            feed,
            task,
            names,
        });
    }

    /// Other Dynamo namespaces of the same source: its watch goes on, and for those that stay nothing changes.
    async fn rename(&mut self, config: Arc<Config>, settings: Settings) {
        let Some(running) = &mut self.running else { return };
        let Some(feed) = &running.feed else { return };
        let keep = keep_of(&settings);
        let come = settings
            .namespaces
            .iter()
            .any(|name| !running.settings.namespaces.contains(name));
        // What is kept on disk is filled by a list.
        let list = come || keep.is_some();
        feed.retain(settings.namespaces.clone()).await;
        feed.lock().set_mirror(keep.map(Mirror::new));
        self.status.update(|status| {
            status.namespaces.clone_from(&settings.namespaces);
            status
                .looked_for
                .retain(|name| settings.namespaces.contains(name));
            status.synced &= !come;
        });
        running.names.send_if_modified(|names| {
            names.clone_from(&settings.namespaces);
            list
        });
        tracing::info!(
            source = settings.kind().as_str(),
            reason = Reason::Namespaces.as_str(),
            list,
            "discovery goes on with other Dynamo namespaces"
        );
        running.config = config;
        running.settings = settings;
    }

    async fn stop(&mut self) -> Option<SharedFeed> {
        let Running { feed, task, .. } = self.running.take()?;
        if let Some(task) = task {
            task.stop(STOP_GRACE).await;
            if let Some(feed) = &feed {
                feed.settled().await;
            }
        }
        feed
    }

    fn clear(&self) {
        self.fleet.publish(FleetView::default());
        self.status.update(|status| status.stale = false);
    }

    fn turned_off(&self, reason: Reason) {
        self.clear();
        self.status.update(|status| {
            let (restarts, passes) = (status.restarts, status.passes);
            *status = Status {
                restarts,
                passes,
                ..Status::default()
            };
        });
        tracing::info!(reason = reason.as_str(), "discovery is off");
    }

    /// The feed of the next watcher: the one before, or a new one.
    async fn feed(&self, settings: &Settings, before: Option<SharedFeed>, view: ViewOf) -> SharedFeed {
        let keep = keep_of(settings);
        let mirror = keep.clone().map(Mirror::new);
        let new = || {
            SharedFeed::new(
                settings.reducer(),
                Arc::clone(&self.fleet),
                self.metrics.clone(),
                None,
            )
        };
        let feed = match (before, view) {
            (Some(feed), ViewOf::Kept | ViewOf::Pruned(_)) => {
                // Namespaces that are gone leave now; for the others nothing changes.
                feed.lock().retain(settings.namespaces.clone());
                let caps_stay = feed.lock().limits() == settings.limits;
                if caps_stay { feed } else { new() }
            }
            (Some(_) | None, ViewOf::Kept | ViewOf::Pruned(_) | ViewOf::Cleared) => {
                self.clear();
                let feed = new();
                if let Some(keep) = keep {
                    self.restore(keep, &feed).await;
                }
                feed
            }
        };
        feed.lock().set_mirror(mirror);
        feed
    }

    /// Begins with the view that an earlier process kept.
    async fn restore(&self, keep: Keep, feed: &SharedFeed) {
        let Some(entries) = state::load(keep).await else {
            return;
        };
        let records = entries.len();
        feed.lock().restore(crate::source::Seed {
            entries,
            ..Default::default()
        });
        let workers = self.fleet.load().workers.len();
        self.status.update(|status| status.stale = true);
        tracing::info!(
            records,
            workers,
            "began with the kept view of the fleet, stale until the first sync"
        );
    }

    fn start(
        &self,
        settings: &Settings,
        feed: &SharedFeed,
        names: watch::Receiver<Vec<Graph>>,
    ) -> Option<Task> {
        let outlet = Outlet {
            kind: settings.kind(),
            feed: feed.clone(),
            status: Arc::clone(&self.status),
            metrics: self.metrics.clone(),
            names,
        };
        let (initial, max) = settings.backoff;
        let backoff = Backoff::new(initial, max);
        let keep = settings.state_dir.is_some();
        match &settings.place {
            #[cfg(feature = "etcd")]
            Place::Etcd { .. } => {
                let source = Etcd::new(settings.etcd()?, usize::from(rand::random::<u8>()));
                Some(self.watcher(source, outlet, backoff, keep))
            }
            Place::File { root } => {
                let most = u64::try_from(settings.limits.record_bytes).unwrap_or(u64::MAX);
                Some(self.watcher(FileStore::new(root.clone(), most), outlet, backoff, keep))
            }
            #[cfg(feature = "kubernetes")]
            Place::Kubernetes { namespace, limits } => {
                let source = Kubernetes::new(self.cluster(namespace, *limits));
                Some(self.watcher(source, outlet, backoff, keep))
            }
            #[cfg(feature = "kubernetes")]
            Place::KubernetesPods { namespace, fleet } => {
                let source = KubernetesPods::new(self.cluster(namespace, fleet.limits), fleet.clone());
                Some(self.watcher(source, outlet, backoff, keep))
            }
            #[cfg(not(feature = "kubernetes"))]
            Place::Kubernetes { .. } | Place::KubernetesPods { .. } => self.unsupported(settings),
            #[cfg(not(feature = "etcd"))]
            Place::Etcd { .. } => self.unsupported(settings),
            Place::Controller { .. } => self.unsupported(settings),
        }
    }

    #[cfg(feature = "kubernetes")]
    fn cluster(&self, namespace: &str, limits: continuum_fleet::kubernetes::Limits) -> k8s::Settings {
        k8s::Settings::new(self.credentials.clone(), namespace.to_owned(), limits)
    }

    /// Shows what controllers push, as far as it is of what is configured.
    fn follow_pushed(
        &self,
        origins: BTreeMap<Graph, String>,
        pushed: watch::Receiver<Pushed>,
        cleared: bool,
    ) -> Task {
        let follower = pushed::Follower {
            fleet: Arc::clone(&self.fleet),
            status: Arc::clone(&self.status),
            origins,
            cleared,
            pushed,
        };
        self.spawner.spawn("discovery watcher", |stop| async move {
            stop.run_until_cancelled(follower.run()).await;
        })
    }

    fn watcher<S: crate::source::Source + 'static>(
        &self,
        source: S,
        outlet: Outlet,
        backoff: Backoff,
        keep: bool,
    ) -> Task {
        self.spawner.spawn("discovery watcher", |stop| async move {
            let feed = outlet.feed.clone();
            let watching = drive(source, outlet, backoff, stop.clone());
            if keep {
                tokio::join!(watching, state::keep(feed, stop));
            } else {
                watching.await;
            }
        })
    }

    fn unsupported(&self, settings: &Settings) -> Option<Task> {
        let error = crate::error::Error::Unsupported(settings.kind().as_str()).to_string();
        tracing::warn!(
            source = settings.kind().as_str(),
            error,
            "discovery finds nothing"
        );
        self.status.update(|status| status.last_error = Some(error));
        None
    }
}

/// Whether namespaces that stay go on.
fn keeps_others(swap: WatcherSwap) -> bool {
    matches!(swap.view, ViewOf::Pruned(_))
}

fn keep_of(settings: &Settings) -> Option<Keep> {
    let dir = settings.state_dir.clone()?;
    Some(Keep {
        dir,
        scope: settings.scope(),
        namespaces: settings.namespaces.clone(),
    })
}

/// The end of a watcher, which has none by itself.
async fn ended(task: Option<&mut Task>) {
    match task {
        Some(task) => task.ended().await,
        None => pending().await,
    }
}

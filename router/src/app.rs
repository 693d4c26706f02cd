//! The process as one picture: what a request can reach, and how it is started.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};
#[cfg(feature = "dynamo")]
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use continuum_config::Config;
use continuum_runtime::tasks::Spawner;
use prometheus::Registry;
use tokio::sync::watch;

use crate::{
    backends::{self, Backends},
    dispatch,
    live::Live,
    metrics::Requests,
    proxy::{Bodies, InFlight},
};
#[cfg(feature = "dynamo")]
use crate::{
    controllers::Controllers,
    fleet::Fleet,
    metrics::{FleetCollector, Selections},
};

/// Pauses before the lists of frontends are read again after a change of what the fleet serves: a rollout is many
/// changes, and one look at the end of a pause sees all of them.
#[cfg(feature = "dynamo")]
const LIST_AGAIN: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];

/// Everything that serves requests.
pub struct App {
    /// Metrics of this process.
    pub registry: Registry,
    /// Counters of requests.
    pub requests: Requests,
    /// Counters of selections.
    #[cfg(feature = "dynamo")]
    pub selections: Selections,
    /// Configured servers.
    pub backends: Backends,
    /// The fleet.
    #[cfg(feature = "dynamo")]
    pub fleet: Arc<Fleet>,
    /// The operator's controllers, where there are some.
    #[cfg(feature = "dynamo")]
    pub controllers: Controllers,
    /// Requests in flight.
    pub in_flight: InFlight,
    /// Bytes of their bodies.
    pub bodies: Arc<Bodies>,
    live: Arc<ArcSwap<Live>>,
    draining: AtomicBool,
    config: watch::Sender<Arc<Config>>,
}

/// Why this process should get no requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReady {
    /// It was asked to stop.
    Draining,
    /// The fleet has not been listed yet.
    FirstSync,
}

impl NotReady {
    /// The word of the admin view.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Draining => "draining",
            Self::FirstSync => "first_sync",
        }
    }
}

/// Why the process cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A family of metrics was registered twice.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The system gives no thread to read events on.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// A backend cannot be set up.
    #[error(transparent)]
    Backends(#[from] backends::Error),
}

impl App {
    /// Starts what works in the background. Listeners come after it.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn start(config: Config, spawner: &Spawner) -> Result<Arc<Self>, Error> {
        let config = Arc::new(config);
        let registry = Registry::new();
        let (config_sender, config_changes) = watch::channel(config.clone());
        let backends = Backends::new(spawner.clone(), dispatch::metrics::Metrics::new(&registry)?);
        backends.apply(&config)?;
        let live = Arc::new(ArcSwap::from_pointee(Live::new(config, 1)));
        #[cfg(feature = "dynamo")]
        let (controllers, pushed) = Controllers::start(spawner, &config_changes.borrow(), &registry)?;
        #[cfg(feature = "dynamo")]
        let fleet = Arc::new(Fleet::start(spawner, &config_changes, &registry, pushed)?);
        #[cfg(feature = "dynamo")]
        registry.register(Box::new(FleetCollector::new(fleet.clone(), live.clone())?))?;
        drop(config_changes);
        let app = Arc::new(Self {
            requests: Requests::register(&registry)?,
            #[cfg(feature = "dynamo")]
            selections: Selections::register(&registry)?,
            backends,
            #[cfg(feature = "dynamo")]
            fleet,
            #[cfg(feature = "dynamo")]
            controllers,
            in_flight: InFlight::default(),
            bodies: Bodies::register(&registry)?,
            live,
            draining: AtomicBool::new(false),
            config: config_sender,
            registry,
        });
        #[cfg(feature = "dynamo")]
        {
            let app = app.clone();
            spawner.essential("model lists", |stop| async move {
                stop.run_until_cancelled(app.lists_follow_the_fleet()).await;
                Ok(())
            });
        }
        Ok(app)
    }

    /// Frontends list what their fleet can serve: when the fleet changes, their lists are read again, and once more
    /// a little later, since a frontend may learn of the change after this router.
    #[cfg(feature = "dynamo")]
    async fn lists_follow_the_fleet(&self) {
        let mut changes = self.fleet.changes();
        let mut served = self.fleet.table().served();
        while changes.changed().await.is_ok() {
            let now = self.fleet.table().served();
            if now == served {
                continue;
            }
            served = now;
            for pause in LIST_AGAIN {
                tokio::time::sleep(pause).await;
                let set = self.backends.load();
                set.pools()
                    .flat_map(|pool| pool.replicas())
                    .for_each(|replica| replica.refresh_listing());
            }
        }
    }

    /// The configuration in force.
    #[must_use]
    pub fn live(&self) -> Guard<Arc<Live>> {
        self.live.load()
    }

    /// Takes over a configuration that has been checked.
    ///
    /// # Errors
    /// A backend cannot be set up; then nothing has changed.
    pub fn apply(&self, config: Config) -> Result<u64, backends::Error> {
        self.backends.apply(&config)?;
        let config = Arc::new(config);
        let version = self.live.load().version.saturating_add(1);
        self.live.store(Arc::new(Live::new(config.clone(), version)));
        #[cfg(feature = "dynamo")]
        self.fleet.reload(&config);
        #[cfg(feature = "dynamo")]
        self.controllers.reload(&config);
        self.config.send_replace(config);
        Ok(version)
    }

    /// From now on no request is taken.
    pub fn drain(&self) {
        self.draining.store(true, Relaxed);
    }

    /// Whether it was asked to stop.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// Why no request should come here; `None` when ready.
    #[must_use]
    pub fn not_ready(&self) -> Option<NotReady> {
        if self.is_draining() {
            return Some(NotReady::Draining);
        }
        #[cfg(feature = "dynamo")]
        if !self.fleet.status().ready() {
            return Some(NotReady::FirstSync);
        }
        None
    }
}

//! The configured servers: connections, health, model lists, and the choice among them.
//!
//! [`Backends`] follows the configuration; [`Set`] is one immutable state of it, loaded once per request. A
//! backend that leaves the configuration, or changes in it, keeps the exchanges that it has.

mod backend;
mod choose;
mod health;
mod listing;
pub(crate) mod pool;
mod stream;
mod tls;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use arc_swap::ArcSwap;
use continuum_config::Config;
use continuum_fleet::ids::Graph;
use continuum_runtime::{
    lookup::Lookups,
    tasks::{Spawner, Task},
};

pub use self::{backend::Backend, choose::ShimPool, listing::Listing};
pub(crate) use self::{backend::Exchange, choose::Tried};
use crate::dispatch::{limits::MAX_LOOKUPS, metrics::Metrics, retry::Budget};

/// Why a configuration cannot be followed. The running one stays.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The certificates of an `https` backend.
    #[error("backend `{backend}`: {reason}")]
    Tls {
        /// Its name.
        backend: String,
        /// What is wrong with them.
        reason: String,
    },
    /// A value that validation should have refused.
    #[error("backend `{backend}`: {reason}")]
    Invalid {
        /// Its name.
        backend: String,
        /// What is wrong.
        reason: &'static str,
    },
}

/// The servers of the running configuration.
pub struct Backends {
    current: ArcSwap<Set>,
    tasks: Mutex<BTreeMap<Arc<str>, Task>>,
    spawner: Spawner,
    metrics: Metrics,
    lookups: Lookups,
}

/// One state of the configured servers.
#[derive(Debug, Default)]
pub struct Set {
    backends: BTreeMap<Arc<str>, Arc<Backend>>,
    pools: BTreeMap<Graph, Arc<ShimPool>>,
    draws: AtomicU64,
    budget: Arc<Budget>,
}

impl Backends {
    /// No servers yet. Checks run as tasks of `spawner`.
    #[must_use]
    pub fn new(spawner: Spawner, metrics: Metrics) -> Self {
        Self::with_lookups(spawner, metrics, Lookups::new(MAX_LOOKUPS))
    }

    /// As [`Self::new`], with another name service than the system's.
    pub(crate) fn with_lookups(spawner: Spawner, metrics: Metrics, lookups: Lookups) -> Self {
        Self {
            current: ArcSwap::default(),
            tasks: Mutex::default(),
            spawner,
            metrics,
            lookups,
        }
    }

    /// The counters that it was made with.
    #[must_use]
    pub const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The servers as they are now.
    #[must_use]
    pub fn load(&self) -> Arc<Set> {
        self.current.load_full()
    }

    /// Follows a configuration: new servers are checked from now on, changed ones begin with fresh connections,
    /// removed ones finish what they have. Reads certificate files.
    ///
    /// # Errors
    /// A server cannot be set up; then nothing has changed.
    pub fn apply(&self, config: &Config) -> Result<(), Error> {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.load();
        let shims: BTreeSet<&str> = config
            .shim_pools()
            .into_iter()
            .flat_map(|(_, names)| names)
            .map(String::as_str)
            .collect();
        let mut backends = BTreeMap::new();
        let mut changed = Vec::new();
        for settings in &config.backends {
            let old = before.backends.get(settings.name.as_str());
            let shim = shims.contains(settings.name.as_str());
            let timeouts = config.timeouts_of(settings);
            let same = old.filter(|old| {
                // Certificate files may have changed behind an unchanged path.
                old.tls.is_none()
                    && old.settings() == settings
                    && *old.timeouts() == timeouts
                    && old.is_shim() == shim
            });
            let backend = match same {
                Some(same) => Arc::clone(same),
                None => {
                    let backend = Backend::new(
                        settings.clone(),
                        timeouts,
                        shim,
                        old.map(Arc::as_ref),
                        &self.metrics,
                        &self.lookups,
                    )?;
                    let backend = Arc::new(backend);
                    changed.push(Arc::clone(&backend));
                    backend
                }
            };
            backends.insert(Arc::clone(backend.name()), backend);
        }
        let pools = config
            .shim_pools()
            .into_iter()
            .map(|(namespace, names)| {
                let graph = Graph::from(namespace);
                let replicas = names
                    .iter()
                    .filter_map(|name| backends.get(name.as_str()).cloned())
                    .collect();
                let pool = ShimPool::new(graph.clone(), replicas, before.pools.get(&graph).map(Arc::as_ref));
                (graph, Arc::new(pool))
            })
            .collect();
        self.current.store(Arc::new(Set {
            backends,
            pools,
            draws: AtomicU64::new(rand::random()),
            budget: Arc::clone(&before.budget),
        }));
        let now = self.load();
        for gone in before
            .backends
            .keys()
            .filter(|name| !now.backends.contains_key(*name))
        {
            tasks.remove(gone);
            self.metrics.forget(gone);
        }
        for backend in changed {
            // Dropping the old task's handle stops it.
            tasks.remove(backend.name());
            if backend.settings().enabled {
                let task = self
                    .spawner
                    .spawn("backend", |stop| health::watch(Arc::clone(&backend), stop));
                tasks.insert(Arc::clone(backend.name()), task);
            }
        }
        Ok(())
    }
}

impl Set {
    /// The server of that name.
    #[must_use]
    pub fn backend(&self, name: &str) -> Option<&Arc<Backend>> {
        self.backends.get(name)
    }

    /// All servers, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Backend>> + Clone {
        self.backends.values()
    }

    /// The shim pool of a graph.
    #[must_use]
    pub fn pool(&self, graph: &Graph) -> Option<&Arc<ShimPool>> {
        self.pools.get(graph)
    }

    /// All shim pools, by graph.
    pub fn pools(&self) -> impl Iterator<Item = &Arc<ShimPool>> + Clone {
        self.pools.values()
    }

    /// Whether ordinary routing knows the model, whatever the health of the servers that serve it.
    #[must_use]
    pub fn serves(&self, model: &str) -> bool {
        self.iter().any(|backend| backend.serves(model))
    }

    /// The retry budget of requests without pins.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// One server for a request without pins; those named in `tried` are left out.
    #[must_use]
    pub fn choose(&self, model: &str, tried: &[Arc<str>]) -> Option<&Arc<Backend>> {
        let draw = scatter(self.draws.fetch_add(1, Relaxed));
        choose::weighted(self.iter(), model, tried, draw)
    }
}

/// The finaliser of SplitMix64: turns a counter into numbers that fall everywhere.
const fn scatter(counter: u64) -> u64 {
    let mut mixed = counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests;

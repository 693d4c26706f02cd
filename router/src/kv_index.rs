//! Which worker holds which blocks: the index of this process, and the subscriptions that fill it.
//!
//! Decoding and applying happen on a thread of their own, so that a busy fleet costs requests no time of theirs.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use continuum_config::Config;
use continuum_events::{BlockMetrics, Filled, Handle, Settings, apart, spawn_blocks, status::Row};
use continuum_fleet::view::FleetView;
use continuum_kv_index::{Index, Outcome, Stats};
use continuum_runtime::{cell::Cell, tasks::Spawner};
use prometheus::{
    IntGauge, Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use tokio::sync::watch;

use crate::app::Error;

/// The thread that block events are read on.
const THREAD: &str = "block-events";

/// The index of this process.
pub struct KvIndex {
    filled: Filled,
    subscriptions: Handle,
    settings: watch::Sender<Settings>,
}

impl KvIndex {
    /// Starts following `view`, as far as the configuration wants it.
    ///
    /// # Errors
    /// The metrics are registered already, or the system gives no thread.
    pub fn start(
        spawner: &Spawner,
        view: Arc<Cell<FleetView>>,
        config: &Config,
        registry: &Registry,
    ) -> Result<Self, Error> {
        let metrics = BlockMetrics::new()?;
        metrics.register(registry)?;
        let (settings, wanted) = watch::channel(settings(config));
        let (counted, seed) = (metrics.clone(), rand::random());
        let (subscriptions, filled) = apart::run(THREAD, spawner, || {
            spawn_blocks(spawner, view, wanted, seed, counted, None)
        })
        .map_err(Error::Thread)?;
        registry.register(Box::new(IndexCollector::new(filled.clone(), metrics)?))?;
        Ok(Self {
            filled,
            subscriptions,
            settings,
        })
    }

    /// The index; `None` while `dynamo.kv` is off.
    #[must_use]
    pub fn load(&self) -> Option<Arc<Index>> {
        self.filled.load()
    }

    /// The index as whoever keeps it sees it.
    pub(crate) const fn filled(&self) -> &Filled {
        &self.filled
    }

    /// All subscriptions to block events.
    #[must_use]
    pub fn subscriptions(&self) -> Vec<Row> {
        self.subscriptions.rows()
    }

    /// Takes over new settings.
    pub fn reload(&self, config: &Config) {
        let next = settings(config);
        self.settings.send_if_modified(|now| {
            let changed = *now != next;
            *now = next;
            changed
        });
    }
}

fn settings(config: &Config) -> Settings {
    let mut settings = Settings::of_blocks(&config.dynamo);
    settings.enabled &= cfg!(feature = "dynamo-kv");
    settings
}

/// Gauges of the index, with their help.
const GAUGES: [(&str, &str); 4] = [
    (
        "continuum_dynamo_kv_index_nodes",
        "Different blocks in the index.",
    ),
    (
        "continuum_dynamo_kv_index_ownerships",
        "Blocks that ranks hold, as far as the index knows: one rank holds one block in one tier.",
    ),
    (
        "continuum_dynamo_kv_index_ranks",
        "Ranks whose blocks are indexed.",
    ),
    ("continuum_dynamo_kv_index_bytes", "Memory of the index."),
];

/// Reads the index when the registry is scraped.
struct IndexCollector {
    filled: Filled,
    metrics: BlockMetrics,
    /// Evictions of this index that have been counted.
    evicted: AtomicU64,
    gauges: Vec<IntGauge>,
}

impl IndexCollector {
    fn new(filled: Filled, metrics: BlockMetrics) -> prometheus::Result<Self> {
        let gauge = |(name, help): (&str, &str)| IntGauge::new(name, help);
        Ok(Self {
            filled,
            metrics,
            evicted: AtomicU64::new(0),
            gauges: GAUGES.into_iter().map(gauge).collect::<Result<_, _>>()?,
        })
    }
}

impl Collector for IndexCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let stats = self.filled.load().map(|index| index.stats()).unwrap_or_default();
        let Stats {
            blocks,
            ownerships,
            ranks,
            bytes,
            evicted,
        } = stats;
        for (gauge, value) in self.gauges.iter().zip([blocks, ownerships, ranks, bytes]) {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
        // A new index counts from zero.
        let counted = self.evicted.swap(evicted, Relaxed);
        let more = evicted.checked_sub(counted).unwrap_or(evicted);
        self.metrics.count(Outcome::Evicted, more);
        self.gauges.iter().flat_map(Collector::collect).collect()
    }
}

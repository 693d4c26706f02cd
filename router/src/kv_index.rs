//! Which worker holds which blocks: the index of this process, and the subscriptions that fill it.
//!
//! Decoding and applying happen on a thread of their own, so that a busy fleet costs requests no time of theirs.

use std::sync::{Arc, Mutex, PoisonError, Weak};

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
        let index = {
            let filled = filled.clone();
            move || filled.load().map(asked)
        };
        registry.register(Box::new(IndexCollector::new(index, metrics)?))?;
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
struct IndexCollector<F> {
    index: F,
    metrics: BlockMetrics,
    counted: Mutex<Counted>,
    gauges: Vec<IntGauge>,
}

/// An index, and what it says of itself now.
fn asked(index: Arc<Index>) -> (Arc<Index>, Stats) {
    let stats = index.stats();
    (index, stats)
}

/// Evictions that have been counted.
#[derive(Default)]
struct Counted {
    /// The index that they are of. While this is kept, no other is at its address.
    of: Weak<Index>,
    evicted: u64,
}

impl<F: Fn() -> Option<(Arc<Index>, Stats)>> IndexCollector<F> {
    fn new(index: F, metrics: BlockMetrics) -> prometheus::Result<Self> {
        let gauge = |(name, help): (&str, &str)| IntGauge::new(name, help);
        Ok(Self {
            index,
            metrics,
            counted: Mutex::default(),
            gauges: GAUGES.into_iter().map(gauge).collect::<Result<_, _>>()?,
        })
    }

    /// Takes over what the index says of itself.
    fn read(&self) {
        // Scrapes may overlap: one reads and counts before the next one reads.
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let (index, stats) = (self.index)().unzip();
        let Stats {
            blocks,
            ownerships,
            ranks,
            bytes,
            evicted,
        } = stats.unwrap_or_default();
        for (gauge, value) in self.gauges.iter().zip([blocks, ownerships, ranks, bytes]) {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
        let Some(index) = index else { return };
        let of = Arc::downgrade(&index);
        if !of.ptr_eq(&counted.of) {
            *counted = Counted { of, evicted: 0 };
        }
        let more = evicted.saturating_sub(counted.evicted);
        counted.evicted = evicted;
        self.metrics.count(Outcome::Evicted, more);
    }
}

impl<F: Fn() -> Option<(Arc<Index>, Stats)> + Send + Sync> Collector for IndexCollector<F> {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.read();
        self.gauges.iter().flat_map(Collector::collect).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use continuum_kv_index::{Caps, RankKey};
    use continuum_testkit::view::worker;
    use continuum_wire::router_event::{Block, Data, Stored, Tier};

    use super::*;

    /// An index with room for one block, and a rank of it.
    fn small() -> (Arc<Index>, RankKey) {
        let rank = RankKey {
            worker: worker("dynamo", 1, continuum_fleet::view::Role::Aggregated)
                .key
                .clone(),
            rank: 0,
        };
        let index = Index::new(Caps {
            blocks: 1,
            ..Caps::default()
        });
        index.set_live(std::slice::from_ref(&rank));
        (Arc::new(index), rank)
    }

    /// So many more blocks make way for others.
    fn evict(index: &Index, rank: &RankKey, times: u64) {
        let until = index.stats().evicted + times;
        for number in 1.. {
            if index.stats().evicted >= until {
                return;
            }
            let block = Block {
                hash: until << 32 | number,
                tokens: until << 32 | number,
                multimodal: false,
            };
            let stored = Stored {
                parent: None,
                blocks: vec![block],
            };
            index.apply(rank, Tier::Device, &Data::Stored(stored));
        }
    }

    #[test]
    fn evictions_are_counted_once_however_many_ask_at_once() {
        let (index, rank) = small();
        let metrics = BlockMetrics::new().unwrap();
        let ((has_read, read), (go, gone)) = (mpsc::channel(), mpsc::channel::<()>());
        let gone = Mutex::new(gone);
        // Whoever has read the index waits before it counts.
        let slowly = || {
            let asked = asked(Arc::clone(&index));
            has_read.send(()).unwrap();
            let _ = gone.lock().unwrap().recv();
            Some(asked)
        };
        let collector = IndexCollector::new(slowly, metrics.clone()).unwrap();
        evict(&index, &rank, 10);
        thread::scope(|scope| {
            scope.spawn(|| collector.collect());
            read.recv().unwrap();
            assert!(collector.counted.try_lock().is_err(), "nobody else may read now");
            evict(&index, &rank, 10);
            scope.spawn(|| collector.collect());
            drop(go);
        });
        assert_eq!(metrics.counted(Outcome::Evicted), 20);
    }

    #[test]
    fn a_new_index_is_counted_from_zero_even_where_it_has_evicted_more() {
        let present = Mutex::new(None);
        let metrics = BlockMetrics::new().unwrap();
        let collector =
            IndexCollector::new(|| present.lock().unwrap().clone().map(asked), metrics.clone()).unwrap();
        let mut expected = 0;
        for evicted in [10, 30, 20] {
            let (index, rank) = small();
            evict(&index, &rank, evicted);
            expected += evicted;
            *present.lock().unwrap() = Some(index);
            for _ in 0..2 {
                let _ = collector.collect();
                assert_eq!(metrics.counted(Outcome::Evicted), expected);
            }
            *present.lock().unwrap() = None;
            let _ = collector.collect();
        }
    }
}

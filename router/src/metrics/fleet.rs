//! Gauges of the fleet: made from the store at each scrape, so that a departed rank leaves no series behind.

use std::{collections::BTreeMap, sync::Arc};

use continuum_fleet::{ids::Namespace, view::Role};
use continuum_routing::load::Row;
use prometheus::{
    Gauge, GaugeVec, Opts,
    core::{Collector, Desc},
    proto::MetricFamily,
};

use crate::{fleet::Fleet, live::Live};

const PER_RANK: [(&str, &str); 4] = [
    (
        "continuum_dynamo_load_active_decode_blocks",
        "KV blocks of running sequences, as the worker says.",
    ),
    (
        "continuum_dynamo_load_active_prefill_tokens",
        "Prompt tokens being read, as a publisher says.",
    ),
    (
        "continuum_dynamo_load_kv_used_blocks",
        "KV blocks in use, as the worker says.",
    ),
    (
        "continuum_dynamo_load_last_sample_age_seconds",
        "Age of the newest load sample.",
    ),
];
const PER_ROLE: [(&str, &str); 2] = [
    (
        "continuum_dynamo_inflight_booked",
        "Requests of this router that are booked on workers.",
    ),
    (
        "continuum_dynamo_suspect_workers",
        "Workers that are suspected to be dead.",
    ),
];

/// Reads the load store when the registry is scraped.
pub struct FleetCollector {
    fleet: Arc<Fleet>,
    live: Arc<arc_swap::ArcSwap<Live>>,
    descriptions: Vec<Desc>,
}

impl FleetCollector {
    /// A collector of that fleet.
    ///
    /// # Errors
    /// Never, with the names above.
    pub fn new(fleet: Arc<Fleet>, live: Arc<arc_swap::ArcSwap<Live>>) -> prometheus::Result<Self> {
        let mut descriptions = Vec::new();
        for family in families()? {
            descriptions.extend(family.desc().into_iter().cloned());
        }
        Ok(Self {
            fleet,
            live,
            descriptions,
        })
    }

    fn fill(&self) -> prometheus::Result<Vec<GaugeVec>> {
        let families = families()?;
        let live = self.live.load();
        let rows = self.fleet.store.rows(live.picker.max_staleness, self.fleet.now());
        let graphs = self.graphs();
        for row in &rows {
            let graph = graphs
                .get(&row.worker.namespace)
                .map_or_else(|| row.worker.namespace.as_str(), String::as_str);
            let labels = [graph, &row.worker.instance.hex(), &row.rank.0.to_string()];
            for (family, value) in families.iter().zip(of_rank(row)) {
                if let Some(value) = value {
                    family.with_label_values(&labels).set(value);
                }
            }
        }
        for ((graph, role), (booked, suspects)) in by_role(&rows, &graphs) {
            let labels = [graph, role.as_str()];
            for (family, value) in families.iter().skip(PER_RANK.len()).zip([booked, suspects]) {
                set(&family.with_label_values(&labels), value);
            }
        }
        Ok(families)
    }

    /// Metric labels carry the configured name, not a worker's generation of it.
    fn graphs(&self) -> BTreeMap<Namespace, String> {
        let view = self.fleet.view();
        let mut graphs = BTreeMap::new();
        for worker in view.workers.values() {
            if !graphs.contains_key(&worker.key.namespace) {
                graphs.insert(worker.key.namespace.clone(), worker.graph.as_str().to_owned());
            }
        }
        graphs
    }
}

impl Collector for FleetCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        match self.fill() {
            Ok(families) => families.iter().flat_map(Collector::collect).collect(),
            Err(_) => Vec::new(),
        }
    }
}

fn families() -> prometheus::Result<Vec<GaugeVec>> {
    let rank = PER_RANK
        .iter()
        .map(|(name, help)| GaugeVec::new(Opts::new(*name, *help), &["namespace", "worker", "dp_rank"]));
    let role = PER_ROLE
        .iter()
        .map(|(name, help)| GaugeVec::new(Opts::new(*name, *help), &["namespace", "role"]));
    rank.chain(role).collect()
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus values are floats")]
fn of_rank(row: &Row) -> [Option<f64>; PER_RANK.len()] {
    [
        row.active_decode_blocks.map(|v| v as f64),
        row.active_prefill_tokens.map(|v| v as f64),
        row.kv_used_blocks.map(|v| v as f64),
        row.sample_age_ms.map(|v| v as f64 / 1_000.0),
    ]
}

fn by_role<'a>(
    rows: &'a [Row],
    graphs: &'a BTreeMap<Namespace, String>,
) -> BTreeMap<(&'a str, Role), (u64, u64)> {
    let mut sums = BTreeMap::<(&str, Role), (u64, u64)>::new();
    let mut suspects = std::collections::BTreeSet::new();
    for row in rows {
        let graph = graphs
            .get(&row.worker.namespace)
            .map_or_else(|| row.worker.namespace.as_str(), String::as_str);
        let sum = sums.entry((graph, row.role)).or_default();
        sum.0 = sum.0.saturating_add(row.booked_requests);
        // A worker has a row per rank and is suspected as a whole.
        if row.suspect && suspects.insert(&row.worker) {
            sum.1 = sum.1.saturating_add(1);
        }
    }
    sums
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus values are floats")]
fn set(gauge: &Gauge, value: u64) {
    gauge.set(value as f64);
}

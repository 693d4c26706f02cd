//! The discovery families. Labels are closed: enums, and configured namespaces.
//!
//! What can be read off the present view and status is computed when it is asked for, so no series can outlive
//! what it counts.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use continuum_fleet::{
    EventKind,
    ids::Graph,
    view::{FleetView, Role, Topic},
};
use continuum_runtime::cell::Cell;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};

use crate::{source::SourceKind, status::Status};

/// Buckets of a full list, in seconds; the last is the seed timeout.
const RESYNC_BUCKETS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 30.0];

/// Counters of discovery. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    events: IntCounterVec,
    resync: HistogramVec,
}

impl Metrics {
    /// Registers every discovery family; gauges follow `fleet` and `status`.
    ///
    /// # Errors
    /// When a family of that name is registered already.
    pub fn register(
        registry: &Registry,
        fleet: &Arc<Cell<FleetView>>,
        status: &Arc<Cell<Status>>,
    ) -> Result<Self, prometheus::Error> {
        let events = IntCounterVec::new(
            Opts::new(
                "continuum_dynamo_discovery_events_total",
                "Records and events of the fleet's registry, by what became of them",
            ),
            &["kind"],
        )?;
        let resync = HistogramVec::new(
            HistogramOpts::new(
                "continuum_dynamo_discovery_resync_seconds",
                "Time from connecting to a complete list with its watch open",
            )
            .buckets(RESYNC_BUCKETS.to_vec()),
            &["source"],
        )?;
        for kind in EventKind::ALL {
            // Created, so that a rate over the first event is not lost.
            events.with_label_values(&[kind.as_str()]);
        }
        registry.register(Box::new(events.clone()))?;
        registry.register(Box::new(resync.clone()))?;
        registry.register(Box::new(Gauges::new(Arc::clone(fleet), Arc::clone(status))?))?;
        Ok(Self { events, resync })
    }

    /// Counts events.
    pub(crate) fn count(&self, kind: EventKind, count: u64) {
        self.events.with_label_values(&[kind.as_str()]).inc_by(count);
    }

    /// Records the time of a full list.
    pub(crate) fn resynced(&self, source: SourceKind, took: Duration) {
        self.resync
            .with_label_values(&[source.as_str()])
            .observe(took.as_secs_f64());
    }
}

/// Gauges that are computed from the view when they are collected.
struct Gauges {
    fleet: Arc<Cell<FleetView>>,
    status: Arc<Cell<Status>>,
    connected: IntGauge,
    workers: IntGaugeVec,
    publishers: IntGaugeVec,
}

impl Gauges {
    fn new(fleet: Arc<Cell<FleetView>>, status: Arc<Cell<Status>>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            fleet,
            status,
            connected: IntGauge::new(
                "continuum_dynamo_discovery_connected",
                "1 while the registry is listed and watched",
            )?,
            workers: IntGaugeVec::new(
                Opts::new(
                    "continuum_dynamo_discovery_workers",
                    "Workers in the view, by configured namespace and role",
                ),
                &["namespace", "role"],
            )?,
            publishers: IntGaugeVec::new(
                Opts::new(
                    "continuum_dynamo_discovery_publishers",
                    "Event channels in the view, by configured namespace and topic",
                ),
                &["namespace", "topic"],
            )?,
        })
    }
}

impl Collector for Gauges {
    fn desc(&self) -> Vec<&Desc> {
        [self.connected.desc(), self.workers.desc(), self.publishers.desc()]
            .into_iter()
            .flatten()
            .collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let (fleet, status) = (self.fleet.load(), self.status.load());
        self.connected.set(i64::from(status.connected));
        self.workers.reset();
        self.publishers.reset();
        for ((graph, role), count) in workers(&fleet, &status.namespaces) {
            self.workers
                .with_label_values(&[graph.as_str(), role.as_str()])
                .set(count);
        }
        for ((graph, topic), count) in publishers(&fleet, &status.namespaces) {
            self.publishers
                .with_label_values(&[graph.as_str(), topic.as_str()])
                .set(count);
        }
        [
            self.connected.collect(),
            self.workers.collect(),
            self.publishers.collect(),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Workers by graph and role; configured graphs without any count 0.
fn workers(fleet: &FleetView, namespaces: &[Graph]) -> BTreeMap<(Graph, Role), i64> {
    let mut counts: BTreeMap<_, _> = namespaces
        .iter()
        .flat_map(|g| Role::ALL.map(|role| ((g.clone(), role), 0)))
        .collect();
    for worker in fleet.workers.values() {
        *counts.entry((worker.graph.clone(), worker.role)).or_default() += 1;
    }
    counts
}

/// Publishers by graph and topic; configured graphs without any count 0.
fn publishers(fleet: &FleetView, namespaces: &[Graph]) -> BTreeMap<(Graph, Topic), i64> {
    let topics = [Topic::KvMetrics, Topic::KvEvents];
    let mut counts: BTreeMap<_, _> = namespaces
        .iter()
        .flat_map(|g| topics.map(|topic| ((g.clone(), topic), 0)))
        .collect();
    for publisher in fleet.publishers.values() {
        *counts
            .entry((publisher.graph.clone(), publisher.key.topic))
            .or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_its_closed_labels_from_the_start() {
        let (registry, fleet, status) = (Registry::new(), Arc::default(), Arc::<Cell<Status>>::default());
        status.update(|status: &mut Status| status.namespaces = vec![Graph::from("dynamo")]);
        let metrics = Metrics::register(&registry, &fleet, &status).unwrap();
        metrics.resynced(SourceKind::Etcd, Duration::from_millis(3));
        let series = |name: &str| {
            registry
                .gather()
                .iter()
                .find(|family| family.name() == name)
                .map(|family| family.get_metric().len())
        };
        assert_eq!(series("continuum_dynamo_discovery_connected"), Some(1));
        assert_eq!(
            series("continuum_dynamo_discovery_workers"),
            Some(Role::ALL.len())
        );
        assert_eq!(series("continuum_dynamo_discovery_publishers"), Some(2));
        assert_eq!(
            series("continuum_dynamo_discovery_events_total"),
            Some(EventKind::ALL.len())
        );
        assert_eq!(series("continuum_dynamo_discovery_resync_seconds"), Some(1));
        status.update(|status| status.namespaces.clear());
        assert_eq!(series("continuum_dynamo_discovery_workers"), None);
        assert!(Metrics::register(&registry, &fleet, &status).is_err());
    }
}

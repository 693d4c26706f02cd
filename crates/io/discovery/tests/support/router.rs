//! Discovery as a router runs it, and how a test waits for what it finds. Shared by the tests of every registry.

use std::{sync::Arc, time::Duration};

use continuum_config::Config;
use continuum_discovery::{Discovery, Status, k8s::Credentials};
use continuum_fleet::view::FleetView;
use continuum_runtime::tasks::Tasks;
use prometheus::Registry;
use tokio::{sync::watch, time::timeout};

/// How long a test waits for a state. Far above what is needed on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Discovery as a router runs it.
pub(crate) struct Router {
    pub(crate) discovery: Discovery,
    pub(crate) registry: Registry,
    config: watch::Sender<Arc<Config>>,
    tasks: Tasks,
}

impl Router {
    pub(crate) fn start_as(config: Config, credentials: Credentials) -> Self {
        let (tasks, registry) = (Tasks::new(), Registry::new());
        let (config, receiver) = watch::channel(Arc::new(config));
        let discovery = Discovery::spawn_as(&tasks.spawner(), receiver, &registry, credentials).unwrap();
        Self {
            discovery,
            registry,
            config,
            tasks,
        }
    }

    /// Waits for a fleet.
    pub(crate) async fn fleet(
        &self,
        what: &str,
        condition: impl FnMut(&FleetView) -> bool,
    ) -> Arc<FleetView> {
        let fleet = self.discovery.fleet();
        match timeout(PATIENCE, fleet.wait_for(condition)).await {
            Ok(view) => view,
            Err(_elapsed) => panic!("no {what}; status {:?}, view {:?}", self.status(), fleet.load()),
        }
    }

    /// Waits for these instance ids, no more and no less.
    pub(crate) async fn ids(&self, expected: &[u64]) -> Arc<FleetView> {
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        self.fleet(&format!("workers {expected:x?}"), |view| ids(view) == expected)
            .await
    }

    /// Waits for a state of discovery.
    pub(crate) async fn state(&self, what: &str, condition: impl FnMut(&Status) -> bool) -> Arc<Status> {
        match timeout(PATIENCE, self.discovery.status().wait_for(condition)).await {
            Ok(status) => status,
            Err(_elapsed) => panic!("never {what}; status {:?}", self.status()),
        }
    }

    pub(crate) fn status(&self) -> Arc<Status> {
        self.discovery.status().load()
    }

    pub(crate) fn reload(&self, edit: impl FnOnce(&mut Config)) {
        self.config.send_modify(|config| edit(Arc::make_mut(config)));
    }

    /// The value of `continuum_dynamo_discovery_events_total{kind=…}`.
    pub(crate) fn events(&self, kind: &str) -> u64 {
        self.registry
            .gather()
            .iter()
            .filter(|family| family.name() == "continuum_dynamo_discovery_events_total")
            .flat_map(|family| family.get_metric().to_vec())
            .filter(|metric| metric.get_label().iter().any(|label| label.value() == kind))
            .map(|metric| metric.get_counter().get_value() as u64)
            .sum()
    }

    /// Ends it; nothing may be left running.
    pub(crate) async fn stop(self) {
        let spawner = self.tasks.spawner();
        assert!(
            self.tasks.drain(PATIENCE, std::future::pending()).await,
            "discovery did not stop"
        );
        assert!(spawner.is_empty());
    }
}

/// Instance ids of a view, in order.
pub(crate) fn ids(view: &FleetView) -> Vec<u64> {
    let mut ids: Vec<u64> = view.workers.keys().map(|key| key.instance.raw()).collect();
    ids.sort_unstable();
    ids
}

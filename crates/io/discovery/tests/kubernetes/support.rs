//! A router's discovery of a fleet that is written to a real API server.

use std::{path::PathBuf, sync::Arc, time::Duration};

use continuum_config::{Config, model::DiscoverySource};
use continuum_discovery::{Discovery, Status, k8s::Credentials};
use continuum_fleet::view::FleetView;
use continuum_runtime::tasks::Tasks;
use continuum_testkit::kube::{Cluster, eventually};
use prometheus::Registry;
use tokio::{
    sync::{OnceCell, watch},
    time::timeout,
};

/// How long a test waits for a state. Far above what is needed on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The cluster of the tests that leave it as it is.
pub(crate) async fn cluster() -> &'static Cluster {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    CLUSTER
        .get_or_init(|| async {
            let cluster = Cluster::start().await;
            cluster.install_worker_metadata().await;
            cluster
        })
        .await
}

/// A config that finds the fleet of a Kubernetes namespace and does not wait long between passes.
pub(crate) fn config(source: DiscoverySource, namespace: &str) -> Config {
    let mut config = Config::default();
    config.dynamo.enabled = true;
    config.dynamo.discovery.source = source;
    let kubernetes = &mut config.dynamo.discovery.kubernetes;
    kubernetes.namespace = namespace.to_owned();
    kubernetes.dynamo_namespace = "dynamo".to_owned();
    kubernetes.watch_reconnect_backoff.initial = Duration::from_millis(50);
    kubernetes.watch_reconnect_backoff.max = Duration::from_millis(500);
    if source == DiscoverySource::KubernetesPods {
        kubernetes.model = Some("m".to_owned());
    }
    config
}

/// A running discovery.
pub(crate) struct Router {
    pub(crate) discovery: Discovery,
    pub(crate) config: watch::Sender<Arc<Config>>,
    pub(crate) registry: Registry,
    tasks: Tasks,
}

impl Router {
    pub(crate) fn start(config: Config, kubeconfig: PathBuf) -> Self {
        let (tasks, registry) = (Tasks::new(), Registry::new());
        let (sender, receiver) = watch::channel(Arc::new(config));
        let credentials = Credentials::Kubeconfig(kubeconfig);
        let discovery = Discovery::spawn_as(&tasks.spawner(), receiver, &registry, credentials).unwrap();
        Self {
            discovery,
            config: sender,
            registry,
            tasks,
        }
    }

    /// Ends it as a process does.
    pub(crate) async fn stop(self) {
        assert!(
            self.tasks.drain(PATIENCE, std::future::pending()).await,
            "discovery did not stop"
        );
    }

    /// Waits until the view is as wanted.
    pub(crate) async fn view(&self, what: &str, wanted: impl Fn(&FleetView) -> bool) {
        let fleet = self.discovery.fleet();
        let seen = timeout(PATIENCE, fleet.wait_for(|view| wanted(view))).await;
        assert!(
            seen.is_ok(),
            "{what}: {:?}, {:?}",
            ids(&self.discovery.fleet().load()),
            self.status()
        );
    }

    /// Waits until exactly these workers are there.
    pub(crate) async fn finds(&self, wanted: &[u64]) {
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        self.view(&format!("{wanted:?}"), |view| ids(view) == wanted)
            .await;
    }

    /// Waits until the status is as wanted.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&Status) -> bool) {
        let status = self.discovery.status();
        let seen = timeout(PATIENCE, status.wait_for(|status| wanted(status))).await;
        assert!(seen.is_ok(), "{what}: {:?}", self.status());
    }

    /// Since when a worker is known.
    pub(crate) fn first_seen(&self, id: u64) -> Option<jiff::Timestamp> {
        let view = self.discovery.fleet().load();
        let worker = view.workers.iter().find(|(key, _)| key.instance.raw() == id);
        worker.map(|(_, worker)| worker.seen.first)
    }

    pub(crate) fn status(&self) -> Status {
        Status::clone(&self.discovery.status().load())
    }

    /// Waits until a counter of events has reached a value.
    pub(crate) async fn until_events(&self, kind: &str, count: u64) {
        let reached = async || (self.events(kind) >= count).then_some(());
        eventually(kind, PATIENCE, reached).await;
    }

    /// The value of a series of `continuum_dynamo_discovery_events_total`.
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
}

pub(crate) fn ids(view: &FleetView) -> Vec<u64> {
    let mut ids: Vec<u64> = view.workers.keys().map(|key| key.instance.raw()).collect();
    ids.sort_unstable();
    ids
}

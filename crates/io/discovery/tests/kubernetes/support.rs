//! A real API server, and the configuration of a router that reads a fleet there.

use std::{path::PathBuf, time::Duration};

use continuum_config::{Config, model::DiscoverySource};
use continuum_discovery::k8s::Credentials;
use continuum_testkit::kube::{Cluster, eventually};
use tokio::sync::OnceCell;

pub(crate) use crate::router::{PATIENCE, Router};

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

impl Router {
    pub(crate) fn start(config: Config, kubeconfig: PathBuf) -> Self {
        Self::start_as(config, Credentials::Kubeconfig(kubeconfig))
    }

    /// Since when a worker is known.
    pub(crate) fn first_seen(&self, id: u64) -> Option<jiff::Timestamp> {
        let view = self.discovery.fleet().load();
        let worker = view.workers.iter().find(|(key, _)| key.instance.raw() == id);
        worker.map(|(_, worker)| worker.seen.first)
    }

    /// Waits until a counter of events has reached a value.
    pub(crate) async fn until_events(&self, kind: &str, count: u64) {
        let reached = async || (self.events(kind) >= count).then_some(());
        eventually(kind, PATIENCE, reached).await;
    }
}

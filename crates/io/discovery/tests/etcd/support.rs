//! A router's discovery and a fleet's writer, both on one etcd.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use continuum_config::{Config, value::Endpoint};
use continuum_discovery::{Discovery, Status};
use continuum_fleet::view::FleetView;
use continuum_runtime::tasks::Tasks;
use continuum_testkit::etcd::Etcd;
use etcd_client::{Client, DeleteOptions, PutOptions};
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::{sync::watch, time::timeout};

/// How long a test waits for a state. Far above what is needed on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A namespace that no other test and no other run uses.
pub(crate) fn namespace() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "test{}x{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// An etcd to write to: the one of `ETCD_ENDPOINTS`, or one of our own that lives as long as the value.
pub(crate) struct Registrar {
    pub(crate) endpoints: Vec<String>,
    pub(crate) own: Option<Etcd>,
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl Registrar {
    /// For tests that leave the cluster as it is.
    pub(crate) async fn shared() -> Self {
        match std::env::var("ETCD_ENDPOINTS") {
            Ok(list) if !list.is_empty() => {
                let endpoints: Vec<String> = list.split(',').map(|e| e.trim().to_owned()).collect();
                let client = Client::connect(&endpoints, None)
                    .await
                    .expect("ETCD_ENDPOINTS must be reachable");
                Self {
                    endpoints,
                    own: None,
                    client,
                    namespace: namespace(),
                }
            }
            Ok(_) | Err(_) => Self::own(Etcd::start()).await,
        }
    }

    /// For tests that restart, compact or lock the cluster.
    pub(crate) async fn own(etcd: Etcd) -> Self {
        let endpoints = vec![etcd.url().to_owned()];
        let client = Client::connect(&endpoints, None).await.unwrap();
        Self {
            endpoints,
            own: Some(etcd),
            client,
            namespace: namespace(),
        }
    }

    /// A config that finds this fleet.
    pub(crate) fn config(&self) -> Config {
        config(&self.endpoints, &self.namespace)
    }

    pub(crate) async fn put(&mut self, (key, value): (String, Value)) {
        self.client.put(key, value.to_string(), None).await.unwrap();
    }

    pub(crate) async fn put_leased(&mut self, (key, value): (String, Value), lease: i64) {
        self.client
            .put(key, value.to_string(), Some(PutOptions::new().with_lease(lease)))
            .await
            .unwrap();
    }

    pub(crate) async fn delete(&mut self, (key, _): (String, Value)) {
        self.client.delete(key, None).await.unwrap();
    }

    /// Removes what the test wrote to a cluster that is not its own.
    pub(crate) async fn clean(mut self) {
        if self.own.is_none() {
            let names = [self.namespace.clone(), format!("namespace/{}", self.namespace)];
            for bucket in ["instances", "mdc", "event_channels", "event_sources"] {
                for name in &names {
                    let prefix = format!("v1/{bucket}/{name}");
                    self.client
                        .delete(prefix, Some(DeleteOptions::new().with_prefix()))
                        .await
                        .unwrap();
                }
            }
        }
    }
}

/// A config that finds the fleet of `namespace` and does not wait long between passes.
pub(crate) fn config(endpoints: &[String], namespace: &str) -> Config {
    let mut config = Config::default();
    config.dynamo.enabled = true;
    let etcd = &mut config.dynamo.discovery.etcd;
    etcd.endpoints = endpoints.iter().map(|e| Endpoint::parse(e).unwrap()).collect();
    etcd.namespace = namespace.to_owned();
    etcd.watch_reconnect_backoff.initial = Duration::from_millis(50);
    etcd.watch_reconnect_backoff.max = Duration::from_millis(500);
    config
}

/// Discovery as a router runs it.
pub(crate) struct Router {
    pub(crate) discovery: Discovery,
    pub(crate) config: watch::Sender<Arc<Config>>,
    pub(crate) registry: Registry,
    tasks: Tasks,
}

impl Router {
    pub(crate) fn start(config: Config) -> Self {
        let (tasks, registry) = (Tasks::new(), Registry::new());
        let (config, receiver) = watch::channel(Arc::new(config));
        let discovery = Discovery::spawn(&tasks.spawner(), receiver, &registry).unwrap();
        Self {
            discovery,
            config,
            registry,
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
    pub(crate) fn events(&self, kind: &str) -> f64 {
        self.registry
            .gather()
            .iter()
            .filter(|family| family.name() == "continuum_dynamo_discovery_events_total")
            .flat_map(|family| family.get_metric().to_vec())
            .filter(|metric| metric.get_label().iter().any(|label| label.value() == kind))
            .map(|metric| metric.get_counter().get_value())
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
    view.workers
        .keys()
        .map(|key| u64::from_str_radix(&key.instance.hex(), 16).unwrap())
        .collect()
}

/// A `generate` instance of a component.
pub(crate) fn instance(namespace: &str, component: &str, id: u64) -> (String, Value) {
    (
        format!("v1/instances/{namespace}/{component}/generate/{id:x}"),
        json!({
            "type": "Endpoint", "namespace": namespace, "component": component, "endpoint": "generate",
            "instance_id": id, "transport": {"tcp": format!("127.0.0.1:1/{id:x}/{namespace}/{component}/generate")},
        }),
    )
}

/// The base card of that instance.
pub(crate) fn card(namespace: &str, component: &str, id: u64) -> (String, Value) {
    (
        format!("v1/mdc/{namespace}/{component}/generate/{id:x}"),
        json!({
            "type": "Model", "namespace": namespace, "component": component, "endpoint": "generate",
            "instance_id": id,
            "card_json": {
                "display_name": "test/model", "kv_cache_block_size": 16,
                "worker_type": if component == "prefill" { "prefill" } else { "decode" },
                "runtime_config": {
                    "total_kv_blocks": 1000, "data_parallel_start_rank": 0, "data_parallel_size": 1,
                    "runtime_data": {"padding": "x".repeat(512)},
                },
            },
        }),
    )
}

/// A `kv_metrics` channel of an instance's endpoint.
pub(crate) fn channel(namespace: &str, component: &str, publisher: u64) -> (String, Value) {
    let scope = format!("namespace/{namespace}/component/{component}/endpoint/generate");
    (
        format!("v1/event_channels/{scope}/topic/kv_metrics/{publisher:x}"),
        json!({
            "type": "EventChannel",
            "scope": {"kind": "endpoint", "endpoint": {"namespace": namespace, "component": component, "name": "generate"}},
            "topic": "kv_metrics", "instance_id": publisher,
            "transport": {"kind": "Zmq", "config": {"endpoint": "tcp://127.0.0.1:1"}},
        }),
    )
}

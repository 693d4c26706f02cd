//! A fleet's writer and the configuration of a router, both on one etcd.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use continuum_config::{Config, value::Endpoint};
use continuum_discovery::k8s::Credentials;
use continuum_testkit::etcd::Etcd;
use etcd_client::{Client, DeleteOptions, PutOptions};
use serde_json::{Value, json};

pub(crate) use crate::router::{Router, ids};

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

impl Router {
    pub(crate) fn start(config: Config) -> Self {
        Self::start_as(config, Credentials::default())
    }
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

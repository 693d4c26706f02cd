//! What a configuration is: plain values with the defaults filled in.
//!
//! The doc comments of fields are what users read in the reference, in the JSON Schema and in their editor.
//! A [`Config`] that came from [`crate::parse`] satisfies every rule that is written here; one that a test
//! built by hand should, too.

mod backends;
mod controller;
mod discovery;
mod dynamo;
mod event_bus;
mod kv;
mod server;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use backends::{
    Backend, BackendRole, BackendTls, BackendType, DisaggregatedServing, Health, Pool, TimeoutOverrides,
};
pub use controller::{Controller, Upstream};
pub use discovery::{
    Discovery, DiscoveryLimits, DiscoverySource, Etcd, EtcdAuth, EtcdTls, FileStore, Kubernetes,
    KubernetesModel, NamespaceMatch, WatchBackoff,
};
pub use dynamo::{Dynamo, Load, Picker, Shim, ShimPool, Ties, Transport, ZmqBroker};
pub use event_bus::{BusBroker, BusRole, BusTls, EventBus};
pub use kv::{BypassPolicy, ConditionalDisaggregation, Kv, KvLimits, TierWeights};
pub use server::{Admin, BindAddresses, Level, LogFormat, Logging, Server, ServerTls, Telemetry, Timeouts};

/// Configuration of Continuum Router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Continuum Router configuration")]
pub struct Config {
    /// Where clients connect, and what they may ask for.
    pub server: Server,
    /// The operators' listener: status, fleet view, dry runs, metrics.
    pub admin: Admin,
    /// What is measured, and where it is shown.
    pub telemetry: Telemetry,
    /// How the process logs.
    pub logging: Logging,
    /// Servers that requests are forwarded to: shim replicas of a Dynamo fleet, and any other server that
    /// speaks the OpenAI protocol. Names are unique.
    #[schemars(length(max = 1024))]
    pub backends: Vec<Backend>,
    /// Whether prefill and decode workers are chosen by this router.
    pub disaggregated_serving: DisaggregatedServing,
    /// The Dynamo fleet: how its workers are found, how their load is followed, how they are reached.
    pub dynamo: Dynamo,
    /// The controllers of the operator that started this router; written by the operator.
    pub controller: Option<Controller>,
}

impl Config {
    /// Whether workers are pinned: `disaggregated_serving.enabled`, by default whether a shim pool is
    /// configured.
    #[must_use]
    pub fn disaggregated(&self) -> bool {
        self.disaggregated_serving
            .enabled
            .unwrap_or_else(|| self.dynamo.shim.is_configured())
    }

    /// The backend of that name.
    #[must_use]
    pub fn backend(&self, name: &str) -> Option<&Backend> {
        self.backends.iter().find(|backend| backend.name == name)
    }

    /// The deadlines that hold for a backend: its own where it has some, else the server's.
    #[must_use]
    pub fn timeouts_of(&self, backend: &Backend) -> Timeouts {
        let server = &self.server.timeouts;
        let own = &backend.timeouts;
        Timeouts {
            header: own.header.unwrap_or(server.header),
            first_token: own.first_token.unwrap_or(server.first_token),
            idle: own.idle.unwrap_or(server.idle),
            request: own.request.or(server.request),
        }
    }

    /// The shim replicas of each configured Dynamo namespace, in configured order. With `shim.backends` the
    /// one namespace has them all.
    #[must_use]
    pub fn shim_pools(&self) -> Vec<(&str, &[String])> {
        let shim = &self.dynamo.shim;
        if shim.pools.is_empty() {
            let namespaces = self.dynamo.discovery.namespaces();
            return namespaces
                .first()
                .map(|name| (*name, shim.backends.as_slice()))
                .into_iter()
                .collect();
        }
        shim.pools
            .iter()
            .map(|pool| (pool.namespace.as_str(), pool.backends.as_slice()))
            .collect()
    }
}

//! The Dynamo fleet: load, shim, picking.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Discovery, EventBus, Kv};
use crate::value::{CidrText, DurationText, TcpEndpoint, TcpEndpointText, duration};

/// The Dynamo fleet: how its workers are found, how their load is followed, how they are reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Dynamo {
    /// Off: nothing is discovered and nothing is pinned.
    pub enabled: bool,
    /// Where workers are found.
    pub discovery: Discovery,
    /// How their load is followed.
    pub load: Load,
    /// Where pinned requests are sent: frontends started with `--router-mode direct`.
    pub shim: Shim,
    /// How a worker is chosen among equals.
    pub picker: Picker,
    /// Choosing the worker that holds a prompt's prefix in its cache.
    pub kv: Kv,
    /// The listener that brokers inside a GPU cluster connect to.
    pub event_bus: EventBus,
    /// A directory where the last view of the fleet is kept. A router that starts while its source is down
    /// begins with that view, marked stale, until the first sync. Without it nothing is kept.
    #[schemars(length(min = 1))]
    pub state_dir: Option<PathBuf>,
}

/// How the load of workers is followed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    /// How old the last sample of a worker may be and still count as fresh.
    #[serde(with = "duration")]
    #[schemars(with = "DurationText", extend("x-min" = "100ms", "x-max" = "5m"))]
    pub max_staleness: Duration,
    /// How the workers' publishers are reached.
    pub transport: Transport,
    /// Networks that publishers may be in, in direct mode. Addresses in the registry are written by the fleet:
    /// without this list the router connects wherever they point.
    #[schemars(with = "Vec<CidrText>", length(max = 64))]
    pub direct_allow_cidrs: Vec<IpNet>,
    /// A ZeroMQ broker between workers and subscribers (`DYN_ZMQ_BROKER_URL`), for fleets that register none.
    pub zmq_broker: ZmqBroker,
    /// Subscriptions at a time, of load and of cache events each. Whoever has one keeps it, while what it tells has a place;
    /// of those that wait the lowest publisher ids come first.
    #[schemars(range(min = 1, max = 65_536))]
    pub max_subscriptions: u32,
    /// (worker, rank) pairs that are followed. Those beyond it get no requests.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub max_ranks: u32,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            max_staleness: Duration::from_secs(3),
            transport: Transport::Direct,
            direct_allow_cidrs: Vec::new(),
            zmq_broker: ZmqBroker::default(),
            max_subscriptions: 4096,
            max_ranks: 65_536,
        }
    }
}

/// How publishers are reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Transport {
    /// By connecting to them, within `direct_allow_cidrs`.
    #[default]
    Direct,
    /// Only through brokers that connect to `dynamo.event_bus`.
    Broker,
}

/// A ZeroMQ broker between workers and subscribers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ZmqBroker {
    /// The brokers' XPUB endpoints, `tcp://host:port`; `direct_allow_cidrs` holds for them as well.
    #[schemars(with = "Vec<TcpEndpointText>", length(max = 16))]
    pub xpub_endpoints: Vec<TcpEndpoint>,
}

/// Where pinned requests are sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Shim {
    /// Names of backends that are replicas of one `dynamo.frontend --router-mode direct`, for a fleet of one
    /// namespace.
    #[schemars(length(max = 64), inner(length(min = 1)))]
    pub backends: Vec<String>,
    /// One pool of replicas for each namespace, instead of `backends`, when there are several.
    #[schemars(length(max = 16))]
    pub pools: Vec<ShimPool>,
    /// Client's model name to the fleet's, where they differ.
    #[schemars(extend("maxProperties" = 1024))]
    pub model_map: BTreeMap<String, String>,
}

impl Shim {
    /// Whether a replica is configured at all.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        !self.backends.is_empty() || self.pools.iter().any(|pool| !pool.backends.is_empty())
    }
}

/// The shim replicas of one namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShimPool {
    /// The configured Dynamo namespace.
    #[schemars(length(min = 1), example = &"dynamo")]
    pub namespace: String,
    /// Names of backends; each is in one pool only.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1)), example = vec!["backend"])]
    pub backends: Vec<String>,
}

/// How a worker is chosen among equals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Picker {
    /// What decides among workers of equal cost.
    pub ties: Ties,
}

/// What decides among workers of equal cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Ties {
    /// A cursor that goes round; it starts at a random place.
    #[default]
    Cursor,
    /// Chance.
    Random,
}

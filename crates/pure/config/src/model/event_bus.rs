//! The listener that brokers inside a GPU cluster connect to.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::{DurationText, SizeText, SocketText, TokenHash, TokenHashText, duration, size};

/// The listener that brokers inside a GPU cluster connect to, when the router runs outside of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EventBus {
    /// Off: nothing listens.
    pub enabled: bool,
    /// An IP address and a port that no `server.bind_address` has.
    #[schemars(with = "SocketText")]
    pub listen: SocketAddr,
    /// The certificate that brokers see; needed when enabled.
    pub tls: Option<BusTls>,
    /// Who may connect.
    #[schemars(length(max = 1024))]
    pub brokers: Vec<BusBroker>,
    /// Sessions at a time.
    #[schemars(range(min = 1, max = 4096))]
    pub max_sessions: u32,
    /// Streams of one session.
    #[schemars(range(min = 1, max = 65_536))]
    pub max_streams_per_session: u32,
    /// Memory of one session; at least 64 KiB for each of its streams.
    #[serde(with = "size")]
    #[schemars(with = "SizeText", extend("x-min" = "64KiB", "x-max" = "64GiB"))]
    pub max_session_buffer_bytes: u64,
    /// From one heartbeat to the next; less than `idle_timeout`.
    #[serde(with = "duration")]
    #[schemars(with = "DurationText", extend("x-min" = "1s", "x-max" = "5m"))]
    pub heartbeat_interval: Duration,
    /// A session that is silent for so long ends.
    #[serde(with = "duration")]
    #[schemars(with = "DurationText", extend("x-min" = "1s", "x-max" = "1h"))]
    pub idle_timeout: Duration,
}

impl Default for EventBus {
    fn default() -> Self {
        Self {
            enabled: false,
            listen: SocketAddr::from(([0, 0, 0, 0], 7443)),
            tls: None,
            brokers: Vec::new(),
            max_sessions: 64,
            max_streams_per_session: 1024,
            max_session_buffer_bytes: 64 << 20,
            heartbeat_interval: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(30),
        }
    }
}

/// The certificate that brokers see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BusTls {
    /// Certificate chain, PEM.
    #[schemars(length(min = 1), example = &"/tls.crt")]
    pub cert: PathBuf,
    /// Private key of that certificate, PEM.
    pub key: crate::value::KeyFile,
    /// Certificates that brokers' own certificates must chain to, PEM. A broker is then known by a DNS name in
    /// its certificate, and needs no token.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub client_ca: Option<PathBuf>,
}

/// One broker or listener that may connect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BusBroker {
    /// Its client id; unique. The name in its certificate, where it has one.
    #[schemars(length(min = 1, max = 253), example = &"broker")]
    pub id: String,
    /// What it does.
    #[serde(default)]
    pub role: BusRole,
    /// The SHA-256 of its token: `sha256:<64 lower-case hex digits>`. Needed without `tls.client_ca`.
    #[serde(default)]
    #[schemars(with = "Option<TokenHashText>")]
    pub token_hash: Option<TokenHash>,
    /// For brokers: the Dynamo namespaces that it may speak for; empty: all.
    #[serde(default)]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub namespaces: Vec<String>,
    /// For KV listeners: the backends whose events it may bring; at least one.
    #[serde(default)]
    #[schemars(length(max = 1024), inner(length(min = 1, max = 253)))]
    pub backends: Vec<String>,
}

/// What a client of the event bus does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum BusRole {
    /// Relays the publishers of a fleet.
    #[default]
    Broker,
    /// Relays the KV events of backends outside a fleet.
    KvListener,
}

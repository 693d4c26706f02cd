//! Servers that requests are forwarded to.

use std::{path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::{BackendUrl, BackendUrlText, DurationText, Secret, duration};

/// A server that requests are forwarded to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Backend {
    /// Its name in this file, in logs and in metrics; unique.
    #[schemars(length(min = 1, max = 253), example = &"backend")]
    pub name: String,
    /// `http://host:port`, `https://host:port` or `unix:/path`, without a path of its own.
    #[schemars(with = "BackendUrlText")]
    pub url: BackendUrl,
    /// The protocol it speaks.
    #[serde(default, rename = "type")]
    pub kind: BackendType,
    /// The model names that requests are sent here for. A shim replica needs none: its fleet says what it serves.
    #[serde(default)]
    #[schemars(length(max = 1024), inner(length(min = 1, max = 256)))]
    pub models: Vec<String>,
    /// What part of a request it does.
    #[serde(default)]
    pub role: BackendRole,
    /// Its share of the requests among backends that serve the same model.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 10_000))]
    pub weight: u32,
    /// Sent as bearer token instead of the client's `Authorization`.
    #[serde(default)]
    pub api_key: Option<Secret>,
    /// Off: it gets no request and no health check.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Not offered to clients by itself: it takes no part in ordinary routing and is not listed.
    #[serde(default)]
    pub internal: bool,
    /// How long connecting may take, TLS included.
    #[serde(default = "connect_timeout", with = "duration")]
    #[schemars(with = "DurationText", extend("x-min" = "1ms", "x-max" = "5m"))]
    pub connect_timeout: Duration,
    /// Idle connections that are kept.
    #[serde(default)]
    pub pool: Pool,
    /// Speak HTTP/2: by prior knowledge over plain text, by ALPN over TLS.
    #[serde(default)]
    pub http2: bool,
    /// Certificates for an `https` URL; without it the system's roots are trusted.
    #[serde(default)]
    pub tls: Option<BackendTls>,
    /// How many other replicas a request may try after a failed connection.
    #[serde(default = "retries")]
    #[schemars(range(max = 10))]
    pub retries: u8,
    /// How its health is watched.
    #[serde(default)]
    pub health: Health,
    /// Deadlines of its own; what is absent is taken from `server.timeouts`.
    #[serde(default)]
    pub timeouts: TimeoutOverrides,
}

const fn one() -> u32 {
    1
}

const fn yes() -> bool {
    true
}

const fn retries() -> u8 {
    2
}

const fn connect_timeout() -> Duration {
    Duration::from_secs(2)
}

impl Backend {
    /// A backend with the defaults of everything but its name and URL.
    #[must_use]
    pub fn new(name: impl Into<String>, url: BackendUrl) -> Self {
        Self {
            name: name.into(),
            url,
            kind: BackendType::default(),
            models: Vec::new(),
            role: BackendRole::default(),
            weight: one(),
            api_key: None,
            enabled: true,
            internal: false,
            connect_timeout: connect_timeout(),
            pool: Pool::default(),
            http2: false,
            tls: None,
            retries: retries(),
            health: Health::default(),
            timeouts: TimeoutOverrides::default(),
        }
    }
}

/// The protocol of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum BackendType {
    /// The OpenAI HTTP API.
    #[default]
    Openai,
}

/// What part of a request a backend does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum BackendRole {
    /// All of it. Shim replicas are unified: what happens behind them is Dynamo's.
    #[default]
    Unified,
    /// Reads prompts only.
    Prefill,
    /// Generates only.
    Decode,
}

/// Idle connections that are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Pool {
    /// How long an idle connection is kept. Below the 5 s after which uvicorn-like servers close theirs.
    #[serde(with = "duration")]
    #[schemars(with = "DurationText", extend("x-max" = "1h"))]
    pub idle_timeout: Duration,
    /// How many idle connections are kept.
    #[schemars(range(max = 65_536))]
    pub max_idle: u32,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(4),
            max_idle: 1024,
        }
    }
}

/// What is trusted of an `https` backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BackendTls {
    /// Certificates to trust instead of the system's, PEM.
    #[schemars(length(min = 1))]
    pub ca_cert: Option<PathBuf>,
    /// The name that its certificate must carry, where that is not the URL's host.
    #[schemars(length(min = 1, max = 253))]
    pub server_name: Option<String>,
}

/// How a backend's health is watched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Health {
    /// Off: it counts as healthy.
    pub enabled: bool,
    /// What is asked with `GET`; any 2xx is healthy.
    #[schemars(length(min = 1, max = 1024), regex(pattern = "^/[!-~]*$"))]
    pub path: String,
    /// From one check to the next.
    #[serde(with = "duration")]
    #[schemars(with = "DurationText", extend("x-min" = "100ms", "x-max" = "1h"))]
    pub interval: Duration,
    /// How long a check may take.
    #[serde(with = "duration")]
    #[schemars(with = "DurationText", extend("x-min" = "1ms", "x-max" = "5m"))]
    pub timeout: Duration,
    /// Failed checks in a row until it counts as down.
    #[schemars(range(min = 1, max = 1000))]
    pub down_after: u32,
    /// Successful checks in a row until it counts as up again.
    #[schemars(range(min = 1, max = 1000))]
    pub up_after: u32,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            enabled: true,
            path: "/health".to_owned(),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(3),
            down_after: 3,
            up_after: 1,
        }
    }
}

/// Deadlines of one backend; what is absent is taken from `server.timeouts`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TimeoutOverrides {
    /// As `server.timeouts.header`.
    #[serde(with = "duration::option")]
    #[schemars(with = "Option<DurationText>", extend("x-min" = "1ms"))]
    pub header: Option<Duration>,
    /// As `server.timeouts.first_token`.
    #[serde(with = "duration::option")]
    #[schemars(with = "Option<DurationText>", extend("x-min" = "1ms"))]
    pub first_token: Option<Duration>,
    /// As `server.timeouts.idle`.
    #[serde(with = "duration::option")]
    #[schemars(with = "Option<DurationText>", extend("x-min" = "1ms"))]
    pub idle: Option<Duration>,
    /// As `server.timeouts.request`.
    #[serde(with = "duration::option")]
    #[schemars(with = "Option<DurationText>", extend("x-min" = "1ms"))]
    pub request: Option<Duration>,
}

/// Whether prefill and decode workers are chosen by this router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DisaggregatedServing {
    /// On by default when a shim pool is configured (`dynamo.shim`), off otherwise.
    pub enabled: Option<bool>,
    /// When no workers can be chosen for a request, or those that were failed: send it, unpinned, to another backend that
    /// serves the model and is no shim replica. Off: the failure is answered. Timeouts, back-pressure (429, 503) and
    /// `disaggregated_prefill_decode_unavailable` are answered in any case.
    pub fallback_to_unified: bool,
}

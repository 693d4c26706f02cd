//! Listeners, logs and measurements.

use std::{path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::value::{
    BindAddress, BindAddressText, DurationText, KeyFile, Secret, SizeText, TokenHash, TokenHashText,
    duration, size,
};

/// Where clients connect, and what they may ask for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// One address or a list of up to 8: `host:port` with an IP address (IPv6 in brackets), or `unix:/path`.
    pub bind_address: BindAddresses,
    /// TLS for every TCP address above; without it they speak plain HTTP.
    pub tls: Option<ServerTls>,
    /// The largest request body. A larger one is answered with 413.
    #[serde(with = "size")]
    #[schemars(with = "SizeText", extend("x-min" = "1KiB", "x-max" = "1GiB"))]
    pub body_limit: u64,
    /// Bytes of all request bodies that are held at a time, from their first byte until their answer begins; at least
    /// four times `body_limit`, which is also the default, but no less than 256MiB. A request beyond it is answered with 503 and `Retry-After: 1`. The last eighth is for bodies
    /// of up to 64 KiB. A body that has to be changed on its way counts for each of its texts.
    #[serde(with = "size::option")]
    #[schemars(with = "Option<SizeText>", extend("x-min" = "4KiB", "x-max" = "64GiB"))]
    pub body_budget: Option<u64>,
    /// Deadlines of a request. Before the first byte of the answer they end in 504, after it in an error event.
    pub timeouts: Timeouts,
    /// How long requests in flight may go on after SIGTERM.
    #[serde(with = "duration")]
    #[schemars(with = "DurationText", extend("x-max" = "1h"))]
    pub graceful_period: Duration,
    /// Requests in flight at a time. One more is answered with 503 and `Retry-After: 1`.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_in_flight: u32,
    /// Worker threads; by default one for each core.
    #[schemars(range(min = 1, max = 1024))]
    pub threads: Option<u16>,
}

/// Bodies of the largest size that the budget has to hold: one with its texts (as it came, without what a client may not
/// say, and as one attempt is sent it) besides the part that is kept for small bodies.
const BODIES_IN_BUDGET: u64 = 4;

/// The budget where none is written, bytes: a quarter of the memory that the chart gives a router.
const BODY_BUDGET: u64 = 256 << 20;

impl Server {
    /// Bytes below which the budget cannot hold the largest body.
    #[must_use]
    pub const fn least_body_budget(&self) -> u64 {
        self.body_limit.saturating_mul(BODIES_IN_BUDGET)
    }

    /// Bytes of all request bodies that are held at a time.
    #[must_use]
    pub fn bodies(&self) -> u64 {
        self.body_budget
            .unwrap_or_else(|| self.least_body_budget().max(BODY_BUDGET))
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            bind_address: BindAddresses(vec![BindAddress::Tcp(([0, 0, 0, 0], 8080).into())]),
            tls: None,
            body_limit: 32 << 20,
            body_budget: None,
            timeouts: Timeouts::default(),
            graceful_period: Duration::from_secs(30),
            max_in_flight: 8192,
            threads: None,
        }
    }
}

/// The addresses of a listener, in configured order. Written as one address or as a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindAddresses(pub Vec<BindAddress>);

impl Serialize for BindAddresses {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [one] => one.serialize(to),
            many => many.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for BindAddresses {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            One(BindAddress),
            Many(Vec<BindAddress>),
        }
        Ok(Self(match Written::deserialize(from)? {
            Written::One(address) => vec![address],
            Written::Many(addresses) => addresses,
        }))
    }
}

impl JsonSchema for BindAddresses {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "BindAddresses".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let one = generator.subschema_for::<BindAddressText>();
        schemars::json_schema!({
            "anyOf": [one, { "type": "array", "items": one, "minItems": 1, "maxItems": 8 }],
        })
    }
}

/// The certificate that clients see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerTls {
    /// Certificate chain, PEM.
    #[schemars(length(min = 1), example = &"/tls.crt")]
    pub cert: PathBuf,
    /// Private key of that certificate, PEM.
    pub key: KeyFile,
}

/// Deadlines of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// From the last byte of the request to the head of the answer of a streamed request.
    #[serde(with = "duration")]
    #[schemars(with = "DurationText", extend("x-min" = "1ms"))]
    pub header: Duration,
    /// To the first byte of the answer's body, or to the whole head of a buffered answer.
    #[serde(with = "duration")]
    #[schemars(with = "DurationText", extend("x-min" = "1ms"))]
    pub first_token: Duration,
    /// Between two chunks of an answer.
    #[serde(with = "duration")]
    #[schemars(with = "DurationText", extend("x-min" = "1ms"))]
    pub idle: Duration,
    /// Over everything, retries included; none by default.
    #[serde(with = "duration::option")]
    #[schemars(with = "Option<DurationText>", extend("x-min" = "1ms"))]
    pub request: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            header: Duration::from_secs(60),
            first_token: Duration::from_secs(600),
            idle: Duration::from_secs(300),
            request: None,
        }
    }
}

/// The operators' listener: status, fleet view, dry runs, metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// Where operators connect. Anything but a loopback address or a Unix socket needs `token` or `token_hash`.
    #[schemars(with = "BindAddressText")]
    pub bind_address: BindAddress,
    /// The bearer token that operators send.
    pub token: Option<Secret>,
    /// The SHA-256 of that token instead of the token itself: `sha256:<64 lower-case hex digits>`.
    #[schemars(with = "Option<TokenHashText>")]
    pub token_hash: Option<TokenHash>,
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            bind_address: BindAddress::Tcp(([127, 0, 0, 1], 9090).into()),
            token: None,
            token_hash: None,
        }
    }
}

/// What is measured, and where it is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// A listener for `/metrics`, `/live`, `/ready`, `/health`, `/livez` and `/readyz` without a token. The admin listener serves the metrics in any
    /// case.
    #[schemars(with = "Option<BindAddressText>")]
    pub metrics_bind_address: Option<BindAddress>,
}

/// How the process logs, to standard error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Logging {
    /// The form of a log line.
    pub format: LogFormat,
    /// The least serious level that is written.
    pub level: Level,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum LogFormat {
    /// A line of text, for people.
    #[default]
    Text,
    /// A JSON object on a line, for machines.
    Json,
}

/// How serious a log line is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Level {
    /// Something does not work.
    Error,
    /// Something deserves a look.
    Warn,
    /// What an operator wants to know of a healthy router.
    #[default]
    Info,
    /// For those who look for a cause; may show addresses.
    Debug,
    /// Everything.
    Trace,
}

impl Level {
    /// The word that is written in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

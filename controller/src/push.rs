//! Fleet views and configs for router pods, over gRPC.
//!
//! The rest of the controller tells the [`Hub`] what is true: the config of each `RouterConfig`, the view of each
//! source. The [`Server`] gives every router pod its own `RouterConfig`'s part of it, as fast as that router takes
//! it: a slow one skips to the newest view and holds nobody else. What routers report stands in [`Sessions`].

mod auth;
mod connection;
mod counts;
mod filter;
mod hub;
pub mod limits;
mod metrics;
mod outgoing;
mod places;
mod refusals;
mod server;
mod session;
mod sessions;
mod strangers;
mod track;

use std::{fmt, sync::Arc};

pub use auth::{AuthError, Authenticator};
pub use hub::{Fleet, Hub, SourceId};
pub use metrics::Metrics;
pub use server::{Server, tls_config};
pub use sessions::{Session, Sessions};

/// A `RouterConfig`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

/// A router pod, as its token names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pod {
    /// Its name.
    pub name: Arc<str>,
    /// Its uid.
    pub uid: Arc<str>,
}

/// Who opened a session: a pod of a `RouterConfig`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The `RouterConfig` that its ServiceAccount belongs to.
    pub key: Key,
    /// The pod.
    pub pod: Pod,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Why a session ended. Closed: the label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The router went away.
    Closed,
    /// This replica stops.
    Stopping,
    /// A newer session of the same pod took its place.
    Replaced,
    /// The `RouterConfig` is gone.
    Removed,
    /// The session is old enough for the token to be checked again.
    Renew,
    /// Nothing came for too long.
    Silent,
    /// Nothing was taken for too long.
    Slow,
    /// What came is not this protocol.
    Malformed,
}

impl End {
    /// Every reason, in order.
    pub const ALL: [Self; 8] = [
        Self::Closed,
        Self::Stopping,
        Self::Replaced,
        Self::Removed,
        Self::Renew,
        Self::Silent,
        Self::Slow,
        Self::Malformed,
    ];

    /// The word for logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Stopping => "stopping",
            Self::Replaced => "replaced",
            Self::Removed => "removed",
            Self::Renew => "renew",
            Self::Silent => "silent",
            Self::Slow => "slow",
            Self::Malformed => "malformed",
        }
    }

    /// What the router is told.
    fn status(self) -> tonic::Status {
        match self {
            Self::Closed => tonic::Status::cancelled("the router closed the session"),
            Self::Stopping => tonic::Status::unavailable("this controller replica stops: use another"),
            Self::Replaced => tonic::Status::aborted("a newer session of this pod took its place"),
            Self::Removed => tonic::Status::not_found("the RouterConfig of this pod is gone"),
            Self::Renew => tonic::Status::unavailable("connect again, so that the token is checked again"),
            Self::Silent => tonic::Status::deadline_exceeded("nothing came from the router for too long"),
            Self::Slow => tonic::Status::deadline_exceeded("the router took nothing for too long"),
            Self::Malformed => tonic::Status::invalid_argument("a message is not of this protocol"),
        }
    }
}

/// Why a connection or a session was refused. Closed: the label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Too many connections: of routers, or without a good token; the oldest one without a session made way, if there
    /// was one.
    Full,
    /// The TLS handshake failed or took too long.
    Tls,
    /// No session was opened on a connection.
    Idle,
    /// There is no bearer token, or it is too long.
    NoToken,
    /// The token is not a router's.
    Token,
    /// The API server could not be asked about the token.
    Review,
    /// There were too many bad tokens from this address: the API server is not asked for a while.
    Pause,
    /// No such `RouterConfig` here, or not yet.
    Unknown,
    /// The first message is not a hello of this protocol, or did not come in time.
    Hello,
    /// The `RouterConfig` has too many sessions.
    Sessions,
}

impl Refusal {
    /// Every reason, in order.
    pub const ALL: [Self; 10] = [
        Self::Full,
        Self::Tls,
        Self::Idle,
        Self::NoToken,
        Self::Token,
        Self::Review,
        Self::Pause,
        Self::Unknown,
        Self::Hello,
        Self::Sessions,
    ];

    /// The word for metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Tls => "tls",
            Self::Idle => "idle",
            Self::NoToken => "no_token",
            Self::Token => "token",
            Self::Review => "review",
            Self::Pause => "pause",
            Self::Unknown => "unknown",
            Self::Hello => "hello",
            Self::Sessions => "sessions",
        }
    }
}

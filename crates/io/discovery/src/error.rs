//! Why a pass ended or could not begin. Texts are for operators and hold no secret.

use std::path::PathBuf;

#[cfg(feature = "etcd")]
use crate::limits::PEER_TEXT_BYTES;

/// The end of a pass.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No member of the cluster could be reached.
    #[error("no etcd member answers; the last one, {endpoint}: {why}")]
    Unreachable {
        /// The last one that was tried.
        endpoint: String,
        /// What happened there.
        why: String,
    },
    /// The user or password is wrong, the token is not accepted, or authentication is off.
    #[error("etcd refused the credentials: {why}")]
    Unauthenticated {
        /// As the server says.
        why: String,
    },
    /// The user may not read what the router needs.
    #[error("etcd does not permit reading `{prefix}`: grant read permission on this prefix")]
    Denied {
        /// The key prefix.
        prefix: String,
    },
    /// Listing took too long.
    #[error("the source did not deliver its full list within {} s", crate::limits::SEED_TIMEOUT.as_secs())]
    SeedTimeout,
    /// The start of the watch has been compacted away: a full list follows.
    #[error("etcd has compacted the revision that the watch started from")]
    Compacted,
    /// The server ended a watch.
    #[error("etcd canceled a watch: {reason}")]
    Canceled {
        /// As the server says.
        reason: String,
    },
    /// The member has no leader.
    #[error("the etcd member has lost its leader")]
    LostLeader,
    /// The stream ended.
    #[error("the connection has been closed: {why}")]
    Closed {
        /// As far as known.
        why: String,
    },
    /// The connection stands but nothing answers on it.
    #[error("the watch has gone silent")]
    Silent,
    /// A certificate or key cannot be used.
    #[error("TLS file {}: {why}", path.display())]
    Tls {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file store cannot be read.
    #[error("file store {}: {why}", path.display())]
    Store {
        /// Which directory.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The source is known to the config but not to this build or release.
    #[error("this build cannot read the source `{0}`")]
    Unsupported(&'static str),
    /// Anything else that the server said.
    #[error("etcd answered: {why}")]
    Server {
        /// As the server says.
        why: String,
    },
}

/// The kind of an error, to log each kind once while it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// [`Error::Unreachable`]
    Unreachable,
    /// [`Error::Unauthenticated`]
    Unauthenticated,
    /// [`Error::Denied`]
    Denied,
    /// [`Error::SeedTimeout`]
    SeedTimeout,
    /// [`Error::Compacted`]
    Compacted,
    /// [`Error::Canceled`]
    Canceled,
    /// [`Error::LostLeader`]
    LostLeader,
    /// [`Error::Closed`]
    Closed,
    /// [`Error::Silent`]
    Silent,
    /// [`Error::Tls`]
    Tls,
    /// [`Error::Store`]
    Store,
    /// [`Error::Unsupported`]
    Unsupported,
    /// [`Error::Server`]
    Server,
}

impl Error {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Unreachable { .. } => ErrorKind::Unreachable,
            Self::Unauthenticated { .. } => ErrorKind::Unauthenticated,
            Self::Denied { .. } => ErrorKind::Denied,
            Self::SeedTimeout => ErrorKind::SeedTimeout,
            Self::Compacted => ErrorKind::Compacted,
            Self::Canceled { .. } => ErrorKind::Canceled,
            Self::LostLeader => ErrorKind::LostLeader,
            Self::Closed { .. } => ErrorKind::Closed,
            Self::Silent => ErrorKind::Silent,
            Self::Tls { .. } => ErrorKind::Tls,
            Self::Store { .. } => ErrorKind::Store,
            Self::Unsupported(_) => ErrorKind::Unsupported,
            Self::Server { .. } => ErrorKind::Server,
        }
    }
}

#[cfg(feature = "etcd")]
/// Text of a peer, cut to a length that a log line can bear and freed of control characters.
pub(crate) fn peer_text(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(PEER_TEXT_BYTES)
        .collect()
}

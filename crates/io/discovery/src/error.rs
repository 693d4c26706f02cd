//! Why a pass ended or could not begin. Texts are for operators and hold no secret.

use std::path::PathBuf;

#[cfg(any(feature = "etcd", feature = "kubernetes"))]
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
    /// Neither a ServiceAccount nor a kubeconfig that can be used.
    #[error("no usable Kubernetes credentials: {why}; mount a ServiceAccount token, or set KUBECONFIG")]
    NoCredentials {
        /// What is wrong with each.
        why: String,
    },
    /// The API server could not be reached.
    #[error("the Kubernetes API server cannot be reached: {why}")]
    ApiUnreachable {
        /// What happened.
        why: String,
    },
    /// The API server does not know us.
    #[error(
        "the Kubernetes API server does not accept the credentials: renew the token or the kubeconfig's user"
    )]
    Unauthorized,
    /// A Role is missing.
    #[error(
        "the Kubernetes API server does not permit to {verb} {resource} in namespace `{namespace}`: grant get, list and \
         watch on `{resource}` (API group `{group}`) there with a Role and a RoleBinding"
    )]
    Forbidden {
        /// `list` or `watch`.
        verb: &'static str,
        /// The resource's plural.
        resource: &'static str,
        /// Its API group; empty for the core group.
        group: &'static str,
        /// The Kubernetes namespace.
        namespace: String,
    },
    /// Dynamo's custom resource is not there.
    #[error(
        "the cluster does not know dynamoworkermetadatas.nvidia.com: install Dynamo's custom resource definitions, or \
         use `source: kubernetes_pods`"
    )]
    NotInstalled,
    /// The start of a list or watch has been compacted away: a full list follows.
    #[error(
        "the Kubernetes API server no longer has the resource version that the list or watch started from"
    )]
    Expired,
    /// An object, or the answer around it, is larger than we read.
    #[error("an answer with {resource} is larger than the router reads")]
    TooLarge {
        /// The resource's plural.
        resource: &'static str,
    },
    /// An answer that is no Kubernetes list or event.
    #[error("the answer with {resource} cannot be read: {why}; is this a Kubernetes API server?")]
    Garbled {
        /// The resource's plural.
        resource: &'static str,
        /// Where reading failed.
        why: String,
    },
    /// Anything else that the API server said.
    #[error("the Kubernetes API server answered: {why}")]
    ApiServer {
        /// As it says.
        why: String,
    },
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
    /// [`Error::NoCredentials`]
    NoCredentials,
    /// [`Error::ApiUnreachable`]
    ApiUnreachable,
    /// [`Error::Unauthorized`]
    Unauthorized,
    /// [`Error::Forbidden`]
    Forbidden,
    /// [`Error::NotInstalled`]
    NotInstalled,
    /// [`Error::Expired`]
    Expired,
    /// [`Error::TooLarge`]
    TooLarge,
    /// [`Error::Garbled`]
    Garbled,
    /// [`Error::ApiServer`]
    ApiServer,
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
            Self::NoCredentials { .. } => ErrorKind::NoCredentials,
            Self::ApiUnreachable { .. } => ErrorKind::ApiUnreachable,
            Self::Unauthorized => ErrorKind::Unauthorized,
            Self::Forbidden { .. } => ErrorKind::Forbidden,
            Self::NotInstalled => ErrorKind::NotInstalled,
            Self::Expired => ErrorKind::Expired,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::Garbled { .. } => ErrorKind::Garbled,
            Self::ApiServer { .. } => ErrorKind::ApiServer,
            Self::Server { .. } => ErrorKind::Server,
        }
    }
}

#[cfg(any(feature = "etcd", feature = "kubernetes"))]
/// Text of a peer, cut to a length that a log line can bear and freed of control characters.
pub(crate) fn peer_text(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(PEER_TEXT_BYTES)
        .collect()
}

//! etcd: list everything at one revision, watch from the next one.
//!
//! One pass talks to one member of the cluster, so that pages and watches agree on what they see; each pass starts
//! with the next member. What the pass may not read is asked for in a smaller prefix, or left out where the
//! fleet can be understood without it.

#[cfg(feature = "etcd")]
mod client;
#[cfg(feature = "etcd")]
mod list;
#[cfg(feature = "etcd")]
mod ranges;
#[cfg(feature = "etcd")]
mod source;
#[cfg(feature = "etcd")]
mod tls;
#[cfg(feature = "etcd")]
mod watch;

use std::{fmt, path::PathBuf};

use continuum_fleet::{graphs::NamespaceMatch, ids::Graph};

#[cfg(feature = "etcd")]
pub use self::{source::Etcd, watch::EtcdWatch};
use crate::limits::PAGE_KEYS;

/// How to reach a cluster and what to read there.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// Members: `http(s)://host:port` or `host:port`, at least one.
    pub endpoints: Vec<String>,
    /// Certificates. With TLS, endpoints without a scheme are `https`.
    pub tls: Option<Tls>,
    /// User and password.
    pub auth: Option<Auth>,
    /// Configured namespaces.
    pub namespaces: Vec<Graph>,
    /// How they match.
    pub namespace_match: NamespaceMatch,
    /// Keys of one page.
    pub page_keys: i64,
}

/// Files of a TLS connection. They are read again at each pass, so a renewed certificate needs no reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Authorities to trust; the system's when absent.
    pub ca_cert: Option<PathBuf>,
    /// Our certificate and key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Name to expect in the server's certificate instead of the endpoint's host.
    pub server_name: Option<String>,
}

/// A user of etcd.
#[derive(Clone, PartialEq, Eq)]
pub struct Auth {
    /// User.
    pub username: String,
    /// Password.
    pub password: String,
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("endpoints", &self.endpoints)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// A plain-text cluster without users.
    #[must_use]
    pub fn new(endpoints: Vec<String>, namespaces: Vec<Graph>, namespace_match: NamespaceMatch) -> Self {
        Self {
            endpoints,
            tls: None,
            auth: None,
            namespaces,
            namespace_match,
            page_keys: PAGE_KEYS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_shows_no_password() {
        let mut settings = Settings::new(vec!["h:1".into()], vec![], NamespaceMatch::Generation);
        settings.auth = Some(Auth {
            username: "router".into(),
            password: "hunter2".into(),
        });
        assert!(!format!("{:?} {:?}", settings, settings.auth).contains("hunter2"));
    }
}

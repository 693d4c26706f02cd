//! etcd: list everything at one revision, watch from the next one.
//!
//! One pass talks to one member of the cluster, so that pages and watches agree on what they see; each pass starts
//! with the next member. What the pass may not read is asked for in a smaller prefix, or left out where the
//! fleet can be understood without it.

mod client;
mod list;
mod ranges;
mod tls;
mod watch;

use std::{collections::BTreeSet, fmt, path::PathBuf, time::Duration};

use continuum_fleet::{graphs::NamespaceMatch, ids::Graph, keys::Bucket};
use tokio::time::timeout;

use self::{
    client::{Member, ReadError},
    ranges::Ranges,
    watch::EtcdWatch,
};
use crate::{
    error::Error,
    limits::{CONTACT_TIMEOUT, PAGE_KEYS, SEED_TIMEOUT},
    source::{Seed, Source},
};

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
        f.debug_struct("Auth").field("username", &self.username).finish_non_exhaustive()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

impl Settings {
    /// A plain-text cluster without users.
    #[must_use]
    pub fn new(endpoints: Vec<String>, namespaces: Vec<Graph>, namespace_match: NamespaceMatch) -> Self {
        Self { endpoints, tls: None, auth: None, namespaces, namespace_match, page_keys: PAGE_KEYS }
    }
}

/// The etcd source.
#[derive(Debug)]
pub struct Etcd {
    settings: Settings,
    /// The member that the next pass tries first.
    next: usize,
    /// Prefixes whose narrowing or absence has been logged.
    said: BTreeSet<(Bucket, String)>,
}

impl Etcd {
    /// A source that starts with the member number `first` (modulo their count), so that a fleet of routers
    /// spreads over a cluster.
    #[must_use]
    pub const fn new(settings: Settings, first: usize) -> Self {
        Self { settings, next: first, said: BTreeSet::new() }
    }

    /// Connects to the first member that answers, starting with the next one in turn.
    async fn contact(&mut self) -> Result<Member, Error> {
        let count = self.settings.endpoints.len().max(1);
        let share = share(count);
        let tls = match &self.settings.tls {
            Some(tls) => Some(tls::read(tls).await?),
            None => None,
        };
        let mut last = Error::Unreachable { endpoint: "none".into(), why: "no endpoint is configured".into() };
        for _ in 0..count {
            let index = self.next % count;
            self.next = index + 1;
            let Some(endpoint) = self.settings.endpoints.get(index) else { break };
            let probe = Bucket::Instances.range_prefix(
                self.settings.namespaces.first().unwrap_or(&Graph::from("")),
                self.settings.namespace_match,
            );
            let member = Member::contact(endpoint, tls.clone(), self.settings.auth.as_ref(), &probe);
            last = match timeout(share, member).await {
                Ok(Ok(member)) => {
                    tracing::debug!(endpoint, "contacted an etcd member");
                    return Ok(member);
                }
                Ok(Err(ReadError::Fatal(error))) => return Err(error),
                Ok(Err(error)) => {
                    Error::Unreachable { endpoint: endpoint.clone(), why: error.to_string() }
                }
                Err(_elapsed) => Error::Unreachable {
                    endpoint: endpoint.clone(),
                    why: format!("no answer within {} ms", share.as_millis()),
                },
            };
            tracing::debug!(endpoint, error = %last, "an etcd member does not answer");
        }
        Err(last)
    }
}

/// The time that one of `count` members gets to answer.
fn share(count: usize) -> Duration {
    CONTACT_TIMEOUT.min(SEED_TIMEOUT / u32::try_from(count.saturating_add(1)).unwrap_or(u32::MAX))
}

impl Source for Etcd {
    type Watch = EtcdWatch;

    async fn open(&mut self) -> Result<(Seed, EtcdWatch), Error> {
        let mut member = self.contact().await?;
        let ranges = Ranges::new(&self.settings.namespaces, self.settings.namespace_match);
        let listed = list::list(&mut member, &ranges, self.settings.page_keys, &mut self.said).await?;
        let watch = EtcdWatch::open(&member, &listed.prefixes, listed.revision + 1).await?;
        Ok((listed.seed, watch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_silent_members_still_fit_in_a_seed() {
        for count in 1..=16_u32 {
            assert!(share(count as usize) * count < SEED_TIMEOUT, "{count}");
        }
        assert_eq!(share(1), CONTACT_TIMEOUT);
    }

    #[test]
    fn debug_output_shows_no_password() {
        let mut settings = Settings::new(vec!["h:1".into()], vec![], NamespaceMatch::Generation);
        settings.auth = Some(Auth { username: "router".into(), password: "hunter2".into() });
        assert!(!format!("{:?} {:?}", settings, settings.auth).contains("hunter2"));
    }
}

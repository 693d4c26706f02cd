//! Passes over one member after the other.

use std::{collections::BTreeSet, time::Duration};

use continuum_fleet::{ids::Graph, keys::Bucket};
use tokio::time::timeout;

use super::{
    Settings,
    client::{Member, ReadError},
    list,
    ranges::Ranges,
    tls,
    watch::EtcdWatch,
};
use crate::{
    error::Error,
    limits::{CONTACT_TIMEOUT, SEED_TIMEOUT},
    source::{Seed, Source},
};

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
        Self {
            settings,
            next: first,
            said: BTreeSet::new(),
        }
    }

    /// Connects to the first member that answers, starting with the next one in turn.
    async fn contact(&mut self) -> Result<Member, Error> {
        let count = self.settings.endpoints.len().max(1);
        let share = share(count);
        let tls = match &self.settings.tls {
            Some(tls) => Some(tls::read(tls).await?),
            None => None,
        };
        let mut last = Error::Unreachable {
            endpoint: "none".into(),
            why: "no endpoint is configured".into(),
        };
        for _ in 0..count {
            let index = self.next % count;
            self.next = index + 1;
            let Some(endpoint) = self.settings.endpoints.get(index) else {
                break;
            };
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
                Ok(Err(error)) => Error::Unreachable {
                    endpoint: endpoint.clone(),
                    why: error.to_string(),
                },
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
mod tests;

//! What the log says of connections that are down. A broken network is one condition, however many publishers are
//! behind it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use continuum_fleet::{
    ids::{Namespace, PublisherId},
    view::Topic,
};

use crate::connector::Target;

/// Reasons for which connections are down, and how many are down for each.
#[derive(Debug, Default)]
pub(crate) struct Outages {
    down: Mutex<BTreeMap<String, Outage>>,
}

#[derive(Debug, Default)]
struct Outage {
    connections: usize,
    /// Connections that the log was told of last.
    said: usize,
}

/// What is worth a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// Nothing: the condition is known.
    Known,
    /// It is the first for this reason.
    First,
    /// Ten times as many as were told of before.
    Many(usize),
}

impl Outages {
    fn begins(&self, reason: &str) -> News {
        let mut down = self.lock();
        let outage = down.entry(reason.to_owned()).or_default();
        outage.connections += 1;
        match outage.said {
            0 => {
                outage.said = 1;
                News::First
            }
            said if outage.connections >= said.saturating_mul(10) => {
                outage.said = outage.connections;
                News::Many(outage.connections)
            }
            _ => News::Known,
        }
    }

    /// Whether it was the last connection that was down for this reason.
    fn ends(&self, reason: &str) -> bool {
        let mut down = self.lock();
        let Some(outage) = down.get_mut(reason) else {
            return false;
        };
        outage.connections = outage.connections.saturating_sub(1);
        let last = outage.connections == 0;
        if last {
            down.remove(reason);
        }
        last
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Outage>> {
        self.down.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one connection has added to the outages.
#[derive(Debug)]
pub(crate) struct Complaint {
    outages: Arc<Outages>,
    reason: Option<String>,
}

impl Complaint {
    pub(crate) fn new(outages: &Arc<Outages>) -> Self {
        Self {
            outages: Arc::clone(outages),
            reason: None,
        }
    }

    /// The connection ended, or there was none.
    pub(crate) fn down(&mut self, target: &Target, reason: String) {
        let (publisher, namespace) = named(target);
        tracing::debug!(publisher, namespace, endpoint = %target.endpoint, reason, "{} down", one(target));
        if self.reason.as_ref() == Some(&reason) {
            return;
        }
        self.withdraw();
        match self.outages.begins(&reason) {
            News::Known => {}
            News::First => tracing::warn!(
                publisher,
                namespace,
                reason,
                "{} down, connecting again",
                one(target)
            ),
            News::Many(subscriptions) => {
                tracing::warn!(subscriptions, reason, "{} down, connecting again", many(target));
            }
        }
        self.reason = Some(reason);
    }

    /// The connection stands.
    pub(crate) fn up(&mut self, target: &Target) {
        let (publisher, namespace) = named(target);
        tracing::debug!(publisher, namespace, endpoint = %target.endpoint, "{} up", one(target));
        if let Some(reason) = self.reason.take()
            && self.outages.ends(&reason)
        {
            tracing::info!(reason, "{} up again", many(target));
        }
    }

    fn withdraw(&mut self) {
        if let Some(reason) = self.reason.take() {
            self.outages.ends(&reason);
        }
    }
}

impl Drop for Complaint {
    fn drop(&mut self) {
        self.withdraw();
    }
}

const fn one(target: &Target) -> &'static str {
    match target.family {
        Topic::KvMetrics => "load subscription",
        Topic::KvEvents => "subscription to block events",
    }
}

const fn many(target: &Target) -> &'static str {
    match target.family {
        Topic::KvMetrics => "load subscriptions",
        Topic::KvEvents => "subscriptions to block events",
    }
}

fn named(target: &Target) -> (Option<String>, Option<&str>) {
    (
        target.publisher.map(PublisherId::hex),
        target.namespace.as_ref().map(Namespace::as_str),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_of_a_fleet_is_a_handful_of_lines() {
        let outages = Outages::default();
        let news: Vec<_> = (0..4096)
            .map(|_| outages.begins("no route"))
            .filter(|news| *news != News::Known)
            .collect();
        assert_eq!(
            news,
            [News::First, News::Many(10), News::Many(100), News::Many(1000)]
        );
        assert_eq!(outages.begins("refused"), News::First, "another condition");
        for _ in 1..4096 {
            assert!(!outages.ends("no route"));
        }
        assert!(outages.ends("no route"), "the last one tells");
        assert_eq!(outages.begins("no route"), News::First, "a new outage is told");
    }

    #[test]
    fn a_connection_that_is_given_up_leaves_no_outage() {
        let target = Target {
            family: Topic::KvMetrics,
            namespace: None,
            publisher: None,
            endpoint: "tcp://10.0.0.1:1".into(),
        };
        let outages = Arc::new(Outages::default());
        let mut complaint = Complaint::new(&outages);
        complaint.down(&target, "refused".into());
        complaint.down(&target, "no route".into());
        assert_eq!(outages.lock().keys().collect::<Vec<_>>(), ["no route"]);
        complaint.up(&target);
        assert!(outages.lock().is_empty());
        complaint.down(&target, "refused".into());
        drop(complaint);
        assert!(outages.lock().is_empty());
    }
}

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

/// What one stream of block events has added to those that were away for so long that what they said is forgotten.
#[derive(Debug)]
pub(crate) struct Forgotten {
    outages: Arc<Outages>,
    counted: bool,
}

/// The condition that all forgotten streams share.
const FORGOTTEN: &str = "no block events for long";

impl Forgotten {
    /// `outages` is shared by the streams, and has no other conditions.
    pub(crate) fn new(outages: &Arc<Outages>) -> Self {
        Self {
            outages: Arc::clone(outages),
            counted: false,
        }
    }

    /// So many ranks of the stream were emptied. A set of brokers names no publisher.
    pub(crate) fn emptied(
        &mut self,
        ranks: usize,
        publisher: Option<PublisherId>,
        namespace: Option<&Namespace>,
    ) {
        let publisher = publisher.map(PublisherId::hex);
        let namespace = namespace.map(Namespace::as_str);
        tracing::debug!(publisher, namespace, ranks, "{FORGOTTEN}");
        match self.begins() {
            News::Known => {}
            News::First => tracing::warn!(
                publisher,
                namespace,
                ranks,
                "{FORGOTTEN}: what these ranks hold is not known any more"
            ),
            News::Many(subscriptions) => tracing::warn!(
                subscriptions,
                "{FORGOTTEN}: what the ranks of these subscriptions hold is not known any more"
            ),
        }
    }

    /// The stream says something again.
    pub(crate) fn speaks(&mut self) {
        if self.ends() {
            tracing::info!("block events arrive again from all that were away for long");
        }
    }

    fn begins(&mut self) -> News {
        if std::mem::replace(&mut self.counted, true) {
            News::Known
        } else {
            self.outages.begins(FORGOTTEN)
        }
    }

    /// Whether it was the last stream that was away.
    fn ends(&mut self) -> bool {
        std::mem::take(&mut self.counted) && self.outages.ends(FORGOTTEN)
    }
}

impl Drop for Forgotten {
    fn drop(&mut self) {
        self.ends();
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
    fn streams_that_are_forgotten_are_a_handful_of_lines() {
        let outages = Arc::new(Outages::default());
        let mut streams: Vec<_> = (0..1000).map(|_| Forgotten::new(&outages)).collect();
        let all = |streams: &mut Vec<Forgotten>| -> Vec<_> {
            let news = streams.iter_mut().map(Forgotten::begins);
            news.filter(|news| *news != News::Known).collect()
        };
        let told = [News::First, News::Many(10), News::Many(100), News::Many(1000)];
        assert_eq!(all(&mut streams), told);
        assert_eq!(all(&mut streams), [], "they are still away");
        let last = streams.pop();
        assert!(streams.iter_mut().all(|stream| !stream.ends()));
        assert!(last.is_some_and(|mut last| last.ends()), "the last one tells");
        assert!(!streams.iter_mut().any(Forgotten::ends), "once");
        assert_eq!(all(&mut streams), told[..3], "another time");
        drop(streams);
        assert!(outages.lock().is_empty());
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

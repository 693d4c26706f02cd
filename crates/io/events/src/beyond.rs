//! What caps keep out of the subscriptions, and how the log hears of it.

use continuum_fleet::view::Topic;

use crate::{
    limits::{MAX_BROKER_ENDPOINTS, MAX_BROKER_SUBJECTS},
    metrics::Lines,
};

/// What caps keep out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beyond {
    /// Publishers that wait for a subscription.
    pub(crate) publishers: usize,
    /// Endpoints of brokers that are not connected to.
    pub(crate) endpoints: usize,
    /// Sets of brokers that are not asked for every subject.
    pub(crate) subjects: usize,
}

impl Beyond {
    /// Counts and says what was not kept out `before`: once for as long as it lasts.
    pub(crate) fn complain(self, before: Self, max_subscriptions: usize, kind: Topic, lines: &Lines) {
        for (before, now, what, cap) in [
            (
                before.publishers,
                self.publishers,
                "publishers (`dynamo.load.max_subscriptions`)",
                max_subscriptions,
            ),
            (
                before.endpoints,
                self.endpoints,
                "endpoints of event brokers",
                MAX_BROKER_ENDPOINTS,
            ),
            (
                before.subjects,
                self.subjects,
                "subjects of event brokers",
                MAX_BROKER_SUBJECTS,
            ),
        ] {
            if now > 0 && before == 0 {
                lines.over_capacity();
                tracing::warn!(
                    what,
                    cap,
                    "{}",
                    match kind {
                        Topic::KvMetrics =>
                            "a cap of load subscriptions is reached: workers beyond it are picked by our own bookings alone",
                        Topic::KvEvents =>
                            "a cap of subscriptions to block events is reached: what workers beyond it hold is not known",
                    }
                );
            }
        }
    }
}

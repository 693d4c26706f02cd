//! What caps keep out of the subscriptions, and how the log hears of it.

use crate::{
    limits::{MAX_BROKER_ENDPOINTS, MAX_BROKER_SUBJECTS},
    metrics::{Metrics, Outcome},
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
    pub(crate) fn complain(self, before: Self, max_subscriptions: usize, metrics: &Metrics) {
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
                metrics.count(Outcome::OverCapacity);
                tracing::warn!(
                    what,
                    cap,
                    "a cap of load subscriptions is reached: workers beyond it are picked by our own bookings alone"
                );
            }
        }
    }
}

//! Whose events fill a rank.

use std::{cmp::Ordering, time::Duration};

use continuum_fleet::ids::PublisherId;

use super::cursors::Stream;
use crate::limits::FEEDER_SILENT_AFTER;

/// Where the content of a rank comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Feeder {
    pub(super) stream: Stream,
    /// When its publisher was heard last, on whatever way.
    pub(super) heard: Duration,
}

/// What a stream may do with a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// It feeds the rank.
    Has,
    /// It feeds the rank from now on.
    Takes,
    /// It repeats the stream that feeds the rank.
    Echo,
    /// Another one feeds the rank.
    Foreign,
}

/// The claim of a stream that may speak of the rank, and is heard now. `order` tells when a publisher was registered, 0
/// for one that is not.
pub(super) fn claim(feeder: Option<&Feeder>, me: &Feeder, order: impl Fn(PublisherId) -> u64) -> Claim {
    let Some(feeder) = feeder else {
        return Claim::Takes;
    };
    let (first, mine) = (&feeder.stream, &me.stream);
    if first.publisher == mine.publisher {
        return match (first.subscription == mine.subscription, first.since == mine.since) {
            (true, true) => Claim::Has,
            // It had lost its place.
            (true, false) => Claim::Takes,
            // The same stream on another way: the way that was first is read as long as it lives.
            (false, _) => Claim::Echo,
        };
    }
    let silent = me.heard.saturating_sub(feeder.heard) >= FEEDER_SILENT_AFTER;
    match (order(mine.publisher).cmp(&order(first.publisher)), silent) {
        // Registered before unregistered, then the latest.
        (Ordering::Greater, _) => Claim::Takes,
        (Ordering::Less, _) => Claim::Foreign,
        // Of neither is there a record, and each is whoever it says: who feeds the rank is believed while it speaks.
        (Ordering::Equal, true) => Claim::Takes,
        (Ordering::Equal, false) => Claim::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_feed_a_rank() {
        let stream = |publisher, subscription, since| Stream {
            publisher: PublisherId::new(publisher),
            subscription,
            since,
        };
        let at = |stream, heard| Feeder { stream, heard };
        let (early, late) = (
            FEEDER_SILENT_AFTER - Duration::from_millis(1),
            FEEDER_SILENT_AFTER,
        );
        // Publishers from 10 on are registered, in their order.
        let order = |id: PublisherId| if id.raw() < 10 { 0 } else { id.raw() };
        for (what, feeder, me, heard, expected) in [
            ("nobody feeds it", None, stream(1, 1, 1), early, Claim::Takes),
            (
                "the feeder",
                Some(stream(1, 1, 1)),
                stream(1, 1, 1),
                late,
                Claim::Has,
            ),
            (
                "the feeder, begun anew",
                Some(stream(1, 1, 1)),
                stream(1, 1, 2),
                early,
                Claim::Takes,
            ),
            (
                "on another way",
                Some(stream(1, 1, 1)),
                stream(1, 2, 1),
                early,
                Claim::Echo,
            ),
            (
                "on another way, late",
                Some(stream(1, 1, 1)),
                stream(1, 2, 9),
                late,
                Claim::Echo,
            ),
            (
                "unknown",
                Some(stream(1, 1, 1)),
                stream(2, 1, 2),
                early,
                Claim::Foreign,
            ),
            (
                "unknown, after silence",
                Some(stream(1, 1, 2)),
                stream(2, 1, 1),
                late,
                Claim::Takes,
            ),
            (
                "registered first",
                Some(stream(1, 1, 1)),
                stream(10, 2, 1),
                early,
                Claim::Takes,
            ),
            (
                "registered later",
                Some(stream(10, 1, 1)),
                stream(11, 2, 1),
                early,
                Claim::Takes,
            ),
            (
                "registered earlier",
                Some(stream(11, 1, 1)),
                stream(10, 2, 1),
                late,
                Claim::Foreign,
            ),
            (
                "unknown after registered",
                Some(stream(11, 1, 1)),
                stream(1, 2, 1),
                late,
                Claim::Foreign,
            ),
        ] {
            let feeder = feeder.map(|stream| at(stream, Duration::ZERO));
            assert_eq!(claim(feeder.as_ref(), &at(me, heard), order), expected, "{what}");
        }
    }
}

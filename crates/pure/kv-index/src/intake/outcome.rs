//! What became of events, as it is counted.

use continuum_wire::Refusal;

/// What became of an event, of a message, or of a connection: values of label `result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Blocks were stored.
    Stored,
    /// Blocks were removed.
    Removed,
    /// A rank was emptied, because its worker said so.
    Cleared,
    /// The event had been seen.
    Duplicate,
    /// Events before this one were missed: the rank was emptied.
    Gap,
    /// The blocks continue one that the rank is not known to hold.
    MissingParent,
    /// Some of the blocks to remove were not known to be held.
    UnknownBlock,
    /// The blocks continue one of themselves.
    InvalidSequence,
    /// The tier is not indexed.
    OtherTier,
    /// A block made way for another one.
    Evicted,
    /// The worker's blocks cannot be compared with a prompt.
    UnscoredWorker,
    /// The blocks are not the worker's own, or nobody knows whose.
    UnsupportedDomain,
    /// Another publisher feeds the rank.
    Foreign,
    /// A rule of the wire refused the message or the event, or its worker or rank is not in the view.
    Refused(Refusal),
    /// A cap left no room.
    OverCapacity,
    /// A message did not fit into what all subscriptions may hold.
    OverBudget,
    /// The endpoint is not allowed, or its peer broke the protocol.
    TransportRefused,
}

impl Outcome {
    /// Every outcome, in order.
    pub const ALL: [Self; 21] = [
        Self::Stored,
        Self::Removed,
        Self::Cleared,
        Self::Duplicate,
        Self::Gap,
        Self::MissingParent,
        Self::UnknownBlock,
        Self::InvalidSequence,
        Self::OtherTier,
        Self::Evicted,
        Self::UnscoredWorker,
        Self::UnsupportedDomain,
        Self::Foreign,
        Self::Refused(Refusal::Malformed),
        Self::Refused(Refusal::UnknownVersion),
        Self::Refused(Refusal::TopicMismatch),
        Self::Refused(Refusal::Oversized),
        Self::Refused(Refusal::IdentityMismatch),
        Self::OverCapacity,
        Self::OverBudget,
        Self::TransportRefused,
    ];

    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Removed => "removed",
            Self::Cleared => "cleared",
            Self::Duplicate => "duplicate",
            Self::Gap => "gap",
            Self::MissingParent => "missing_parent",
            Self::UnknownBlock => "unknown_block",
            Self::InvalidSequence => "invalid_sequence",
            Self::OtherTier => "other_tier",
            Self::Evicted => "evicted",
            Self::UnscoredWorker => "unscored_worker",
            Self::UnsupportedDomain => "unsupported_domain",
            Self::Foreign => "foreign",
            Self::Refused(refusal) => refusal.as_str(),
            Self::OverCapacity => "over_capacity",
            Self::OverBudget => "over_budget",
            Self::TransportRefused => "transport_refused",
        }
    }
}

/// How often each outcome occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally([u32; Outcome::ALL.len()]);

impl Tally {
    /// Counts one.
    pub fn count(&mut self, outcome: Outcome) {
        let at = Outcome::ALL.iter().position(|known| *known == outcome);
        if let Some(count) = at.and_then(|at| self.0.get_mut(at)) {
            *count = count.saturating_add(1);
        }
    }

    /// How often it occurred.
    #[must_use]
    pub fn of(&self, outcome: Outcome) -> u32 {
        self.iter()
            .find(|(known, _)| *known == outcome)
            .map_or(0, |(_, count)| count)
    }

    /// What occurred at all, in the order of [`Outcome::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Outcome, u32)> {
        Outcome::ALL
            .into_iter()
            .zip(self.0)
            .filter(|(_, count)| *count > 0)
    }
}

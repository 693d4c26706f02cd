//! The index: one state behind one lock that is only ever held for microseconds.

use continuum_wire::router_event::{Data, Tier};

use crate::{Caps, Matches, RankKey};

/// Which rank holds which blocks.
#[derive(Debug)]
pub struct Index {
    caps: Caps,
}

/// What became of one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Blocks that the rank holds now and did not hold before.
    pub stored: u32,
    /// Blocks that the rank held before and holds no more, because the event says so.
    pub removed: u32,
    /// Why some or all of the event was not applied.
    pub refused: Option<Refusal>,
    /// Blocks of the event that were not applied for that reason.
    pub refused_blocks: u32,
}

/// Why an event, or the rest of one, was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// The rank does not hold the block that the event continues.
    UnknownParent,
    /// The event continues one of its own blocks.
    InvalidSequence,
    /// A cap leaves no room, and nothing older could make way.
    OverCapacity,
    /// The rank is not live.
    IdentityMismatch,
    /// The tier is not indexed.
    OtherTier,
}

impl Refusal {
    /// Every refusal.
    pub const ALL: [Self; 5] = [
        Self::UnknownParent,
        Self::InvalidSequence,
        Self::OverCapacity,
        Self::IdentityMismatch,
        Self::OtherTier,
    ];

    /// The word in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownParent => "unknown_parent",
            Self::InvalidSequence => "invalid_sequence",
            Self::OverCapacity => "over_capacity",
            Self::IdentityMismatch => "identity_mismatch",
            Self::OtherTier => "other_tier",
        }
    }
}

/// How much the index holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Different blocks.
    pub blocks: usize,
    /// Ownerships: one rank holds one block in one tier.
    pub ownerships: usize,
    /// Live ranks.
    pub ranks: usize,
    /// Memory, in bytes.
    pub bytes: usize,
    /// Ownerships that made way for newer ones because a cap was reached, since the start.
    pub evicted: u64,
}

impl Index {
    /// An empty index whose hashes are not secret: for tests and benches.
    #[must_use]
    pub fn new(caps: Caps) -> Self {
        Self::seeded(caps, 0)
    }

    /// An empty index. Who does not know `seed`, a random number, cannot make blocks collide.
    #[must_use]
    pub fn seeded(caps: Caps, _seed: u64) -> Self {
        Self { caps }
    }

    /// The caps.
    #[must_use]
    pub const fn caps(&self) -> &Caps {
        &self.caps
    }

    /// Names the ranks that exist. Others lose all that they own, and their events are refused.
    ///
    /// Beyond the cap of ranks the first ones count.
    pub fn set_live(&self, _live: &[RankKey]) {}

    /// Applies one event of a rank.
    pub fn apply(&self, _rank: &RankKey, _tier: Tier, _data: &Data) -> Applied {
        Applied::default()
    }

    /// Forgets all that a rank owns, in all tiers: what is known of it may be wrong.
    pub fn clear(&self, _rank: &RankKey) {}

    /// Does a bounded part of the cleaning that clears and departed ranks leave behind. True while some is left.
    ///
    /// Events do it along their way; this is for a fleet that is silent.
    pub fn tidy(&self) -> bool {
        false
    }

    /// For each rank, how many blocks from the beginning of a prompt it holds; all of one state of the index.
    pub fn find(&self, _local_hashes: &[u64], _out: &mut Matches) {}

    /// How much the index holds.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::default()
    }
}

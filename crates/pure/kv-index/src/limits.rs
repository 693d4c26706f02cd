//! Every limit of the index, with its unit and its reason.

use std::time::Duration;

/// Different blocks in the index: 64 million tokens at 64 tokens a block, in about 50 MiB.
pub const MAX_INDEX_BLOCKS: usize = 1_048_576;

/// Blocks of one rank in one tier: a quarter of the index, so that no rank can fill it with one tier. Those of all ranks
/// of a worker together are not bounded: a large one holds that much.
pub const MAX_BLOCKS_PER_RANK: usize = 262_144;

/// Ownerships (one rank holds one block in one tier): eight ranks for each block.
pub const MAX_INDEX_OWNERSHIPS: usize = 8_388_608;

/// Ranks that may own blocks, and so the most owners of one block.
pub const MAX_RANKS: usize = 4_096;

/// Parts of the places for ranks, one of which is a worker's own. Its further ranks are indexed while nobody else wants
/// their places: one worker may have as many ranks as its card says.
pub const RANK_SHARES: usize = 4;

/// Publishers of one rank whose events one subscription keeps apart. One is usual, two while a worker's publisher is
/// replaced; messages that are relayed say themselves who published them, and may say anything.
pub const MAX_STREAMS_PER_RANK: usize = 4;

/// Without a record of either, a publisher takes a rank over from another one that has said nothing of it for this long: as
/// long as it takes to forget what a lost subscription said.
pub const FEEDER_SILENT_AFTER: Duration = Duration::from_secs(60);

/// So long after an event of a rank was lost, or one continued blocks that the index does not know, the rank is taken to
/// hold more than the index knows. By then most of what it held then has been asked for, and told, again or made way for
/// others. Longer, and what was only seen to be read would speak against events that are whole again.
pub const MISSES_FOR: Duration = Duration::from_secs(600);

/// The number of a publisher's first event: who is heard from it on is known whole.
pub const FIRST_EVENT: u64 = 1;

/// Names by which one rank may know one block: engines give two now and then; more have no use.
pub const MAX_NAMES_PER_OWNERSHIP: usize = 8;

/// Former seats of a rank that may wait to be swept. A rank that is cleared more often waits with them: it alone.
pub const MAX_OLD_SEATS: usize = 2;

/// Sets of owners that are kept for a while after their last use: fleets make the same ones again and again.
pub const MAX_IDLE_SETS: usize = 4_096;

/// Blocks of a prompt that a lookup compares: a million tokens at 16 tokens a block. Bounds the time of a lookup.
pub const MAX_LOOKUP_BLOCKS: usize = 65_536;

/// Blocks that are stored or removed while the index is locked and lookups are under way: they wait for no more, less than
/// one takes.
pub const BLOCKS_PER_LOCK: usize = 2;

/// The same while no lookup had to wait lately. More at once are quicker: their waits for memory overlap.
pub const BLOCKS_PER_QUIET_LOCK: usize = 32;

/// Blocks that are looked at for one that makes way, in the whole index. The least used of them goes.
pub const MAX_HAND_STEPS: usize = 64;

/// Blocks that are looked at for one of a rank's own that makes way. A rank at its cap owns a quarter of a full index,
/// so the first few hold one mostly. Where its blocks lie together elsewhere, one of those that it got last goes: see
/// [`MAX_RECENT`].
pub const MAX_OWN_HAND_STEPS: usize = 256;

/// Blocks that a rank got last in one tier. Where these are most of what it owns, since its cap is low, they make way in
/// their order, and without a search. They are noted from half its cap on, in four bytes each.
pub const MAX_RECENT: usize = 1_024;

/// Blocks that are looked at in one part of a sweep; one whose owners change counts more.
pub const SWEEP_BUDGET: usize = 512;

/// Blocks that make way in one part of a sweep while an index is larger than its caps, because these were changed.
pub const SHRINK_BUDGET: usize = 16;

/// Blocks of its own that make way for one of a rank while it has more than its cap, because that was changed.
pub const OWN_SHRINK: usize = 2;

/// Most that the cap of blocks can be set to, so that ids of sets and numbers of blocks have room.
pub const MOST_BLOCKS: usize = 1 << 25;

/// Most that the cap of ranks can be set to, so that seats are 15-bit numbers.
pub const MOST_RANKS: usize = 10_000;

/// The caps of one index. What a cap leaves no room for takes the place of what was not used for longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Different blocks.
    pub blocks: usize,
    /// Blocks of one rank in one tier.
    pub blocks_per_rank: usize,
    /// Ownerships: one rank holds one block in one tier.
    pub ownerships: usize,
    /// Live ranks.
    pub ranks: usize,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            blocks: MAX_INDEX_BLOCKS,
            blocks_per_rank: MAX_BLOCKS_PER_RANK,
            ownerships: MAX_INDEX_OWNERSHIPS,
            ranks: MAX_RANKS,
        }
    }
}

impl Caps {
    /// The same, within what the index can do.
    pub(crate) fn bounded(self) -> Self {
        Self {
            blocks: self.blocks.clamp(1, MOST_BLOCKS),
            blocks_per_rank: self.blocks_per_rank.max(1),
            ownerships: self.ownerships.max(1),
            ranks: self.ranks.min(MOST_RANKS),
        }
    }
}

//! Every limit of the index, with its unit and its reason.

/// Different blocks in the index: half a prompt of 64 million tokens at 64 tokens a block, in about 50 MiB.
pub const MAX_INDEX_BLOCKS: usize = 1_048_576;

/// Blocks of one rank in one tier: a quarter of the index, so that no rank can fill it alone.
pub const MAX_BLOCKS_PER_RANK: usize = 262_144;

/// Ownerships (one rank holds one block in one tier): eight ranks for each block.
pub const MAX_INDEX_OWNERSHIPS: usize = 8_388_608;

/// Ranks that may own blocks, and so the most owners of one block.
pub const MAX_RANKS: usize = 4_096;

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

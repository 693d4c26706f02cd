//! What a lookup answers.

use crate::RankKey;

/// Blocks of a prompt that one rank holds: `device` from the beginning, then `host` that continue those, then `disk`
/// that continue those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overlap {
    /// Blocks in memory of the accelerator.
    pub device: u32,
    /// Blocks in memory of the host, behind those.
    pub host: u32,
    /// Blocks on disk, behind those.
    pub disk: u32,
}

impl Overlap {
    /// Blocks in all tiers.
    #[must_use]
    pub const fn total(self) -> u32 {
        self.device.saturating_add(self.host).saturating_add(self.disk)
    }
}

/// The answer to one lookup. Made once and used again, it costs a lookup no memory.
#[derive(Clone, Debug, Default)]
pub struct Matches {}

impl Matches {
    /// An empty answer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What a rank holds of the prompt; nothing for a rank that is not known.
    #[must_use]
    pub fn of(&self, _key: &RankKey) -> Overlap {
        Overlap::default()
    }

    /// Ranks that hold at least one block, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&RankKey, Overlap)> {
        std::iter::empty()
    }

    /// No rank holds anything of the prompt.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        true
    }
}

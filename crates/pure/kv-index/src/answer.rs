//! What a lookup answers.

use std::sync::Arc;

use crate::{
    RankKey, RankRef,
    seats::{Roster, nobody},
    sets::SetId,
};

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
#[derive(Clone, Debug)]
pub struct Matches {
    roster: Arc<Roster>,
    /// By a rank's number.
    pub(crate) device: Vec<u32>,
    /// Host and disk by a rank's number; empty when no block of the prompt is there.
    pub(crate) lower: Vec<(u32, u32)>,
    /// Seats that hold all blocks so far, while the lookup goes on.
    pub(crate) active: Vec<u64>,
    /// Where the owners in lower tiers change.
    pub(crate) stretches: Vec<Stretch>,
    /// Where the blocks of the device end, and the seats that hold them, in order.
    pub(crate) begins: Vec<(u32, u16)>,
    /// Members that are owners no more where the owners in lower tiers change.
    pub(crate) dropped: Vec<u16>,
    /// Members of lower tiers that the last lookup looked at one by one.
    #[cfg(test)]
    pub(crate) looked_at: usize,
}

/// From one block on, the owners in lower tiers are these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) from: u32,
    pub(crate) owners: SetId,
}

impl Default for Matches {
    fn default() -> Self {
        Self {
            roster: nobody(),
            device: Vec::new(),
            lower: Vec::new(),
            active: Vec::new(),
            stretches: Vec::new(),
            begins: Vec::new(),
            dropped: Vec::new(),
            #[cfg(test)]
            looked_at: 0,
        }
    }
}

impl Matches {
    /// An empty answer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What a rank holds of the prompt; nothing for a rank that is not known.
    #[must_use]
    pub fn of<'k>(&self, rank: impl Into<RankRef<'k>>) -> Overlap {
        let number = self.roster.number(rank);
        number.map_or_else(Overlap::default, |number| self.at(usize::from(number)))
    }

    /// Ranks that hold at least one block, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&RankKey, Overlap)> {
        let all = (0..self.device.len()).map(|number| (number, self.at(number)));
        let some = all.filter(|(_, overlap)| *overlap != Overlap::default());
        some.filter_map(|(number, overlap)| Some((self.roster.key(number)?, overlap)))
    }

    /// No rank holds anything of the prompt.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.device.iter().all(|blocks| *blocks == 0) && self.lower.iter().all(|blocks| *blocks == (0, 0))
    }

    fn at(&self, number: usize) -> Overlap {
        let (host, disk) = self.lower.get(number).copied().unwrap_or_default();
        Overlap {
            device: self.device.get(number).copied().unwrap_or_default(),
            host,
            disk,
        }
    }

    /// Forgets the last answer, for one with this roster.
    pub(crate) fn reset(&mut self, roster: &Arc<Roster>) {
        if !Arc::ptr_eq(&self.roster, roster) {
            self.roster = Arc::clone(roster);
        }
        self.device.clear();
        self.device.resize(roster.len(), 0);
        self.lower.clear();
        self.active.clear();
        self.stretches.clear();
    }
}

//! An index that is slow, without caps, and easy to see to be right: what tests compare [`crate::Index`] with.

use std::collections::{BTreeMap, BTreeSet};

use continuum_wire::router_event::{Data, Stored, Tier};

use crate::{Applied, Overlap, RankKey, Refusal, seats::Level};

/// The blocks of each rank, by the engine's names, each with all local hashes up to it.
#[derive(Clone, Debug, Default)]
pub struct Reference {
    ranks: BTreeMap<RankKey, BTreeMap<Level, Names>>,
}

type Names = BTreeMap<u64, Vec<u64>>;

impl Reference {
    /// As [`crate::Index::set_live`].
    pub fn set_live(&mut self, live: &[RankKey]) {
        let live: BTreeSet<_> = live.iter().cloned().collect();
        self.ranks.retain(|rank, _| live.contains(rank));
        for rank in live {
            self.ranks.entry(rank).or_default();
        }
    }

    /// As [`crate::Index::apply`].
    pub fn apply(&mut self, rank: &RankKey, tier: Tier, data: &Data) -> Applied {
        let mut applied = Applied::default();
        let blocks = match data {
            Data::Stored(stored) => stored.blocks.len(),
            Data::Removed(names) => names.len(),
            Data::Cleared => 0,
        };
        let refused = |refusal| Applied {
            refused: Some(refusal),
            refused_blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
            ..Applied::default()
        };
        let level = match tier {
            Tier::Device => Level::Device,
            Tier::HostPinned => Level::Host,
            Tier::Disk => Level::Disk,
            Tier::External => return refused(Refusal::OtherTier),
        };
        if let Data::Stored(Stored {
            parent: Some(parent),
            blocks,
        }) = data
            && blocks.iter().any(|block| block.hash == *parent)
        {
            return refused(Refusal::InvalidSequence);
        }
        let Some(levels) = self.ranks.get_mut(rank) else {
            return refused(Refusal::IdentityMismatch);
        };
        let held = |levels: &BTreeMap<Level, Names>| {
            let one = |(level, names): (&Level, &Names)| {
                let level = *level;
                let paths: BTreeSet<_> = names.values().cloned().map(|path| (level, path)).collect();
                paths
            };
            levels.iter().flat_map(one).collect::<BTreeSet<_>>()
        };
        match data {
            Data::Stored(stored) => {
                let mut path = Vec::new();
                if let Some(parent) = stored.parent {
                    let own = [level].into_iter().chain(Level::ALL);
                    let mut found = own.filter_map(|level| levels.get(&level)?.get(&parent));
                    match found.next() {
                        Some(found) => path.clone_from(found),
                        None => return refused(Refusal::UnknownParent),
                    }
                }
                for block in &stored.blocks {
                    path.push(block.tokens);
                    let names = levels.entry(level).or_default();
                    applied.stored += u32::from(!names.values().any(|held| *held == path));
                    names.insert(block.hash, path.clone());
                }
            }
            Data::Removed(gone) => {
                let before = held(levels).len();
                for name in gone {
                    levels.entry(level).or_default().remove(name);
                }
                applied.removed = u32::try_from(before - held(levels).len()).unwrap_or(u32::MAX);
            }
            Data::Cleared => {
                applied.removed = u32::try_from(held(levels).len()).unwrap_or(u32::MAX);
                levels.clear();
            }
        }
        applied
    }

    /// As [`crate::Index::find`], for one rank.
    #[must_use]
    pub fn find(&self, rank: &RankKey, local_hashes: &[u64]) -> Overlap {
        let holds = |level: Level, blocks: u32| {
            let end = usize::try_from(blocks).unwrap_or(usize::MAX);
            let Some(path) = local_hashes.get(..end) else {
                return false;
            };
            let names = self.ranks.get(rank).and_then(|levels| levels.get(&level));
            names.is_some_and(|names| names.values().any(|held| held == path))
        };
        let mut overlap = Overlap::default();
        while holds(Level::Device, overlap.device + 1) {
            overlap.device += 1;
        }
        while holds(Level::Host, overlap.total() + 1) {
            overlap.host += 1;
        }
        while holds(Level::Disk, overlap.total() + 1) {
            overlap.disk += 1;
        }
        overlap
    }
}

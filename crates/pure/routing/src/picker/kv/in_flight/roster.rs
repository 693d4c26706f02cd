//! Which ranks exist, and the numbers that stand for them among the prompts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use continuum_kv_index::{RankKey, RankRef};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Bits of a number that count how often a rank was emptied; those above them are its own.
const EMPTIED_BITS: u32 = 32;

/// Who holds blocks: the open requests of a rank, or what is remembered there of those that ended. In order, a rank's
/// open requests come first, and then what is remembered, the oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number(u64);

/// A rank, as a request that comes now knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder(u64);

/// Ranks that exist. Only their numbers change.
#[derive(Debug, Default)]
pub(super) struct Roster {
    holders: HashMap<RankKey, AtomicU64, FixedState>,
}

impl Number {
    /// Whether it stands for what is remembered.
    pub(super) const fn is_read(self) -> bool {
        self.0 > self.0 >> EMPTIED_BITS << EMPTIED_BITS
    }
}

impl Holder {
    /// The rank that comes after `last` others.
    const fn after(last: u64) -> Self {
        Self(((last + 1) << EMPTIED_BITS) + 1)
    }

    /// Its open requests.
    pub(super) const fn open(self) -> Number {
        Number(self.0 >> EMPTIED_BITS << EMPTIED_BITS)
    }

    /// What is remembered of those that end.
    pub(super) const fn read(self) -> Number {
        Number(self.0)
    }
}

impl Roster {
    /// No rank exists.
    pub(super) const fn seeded(seed: u64) -> Self {
        Self {
            holders: HashMap::with_hasher(FixedState::with_seed(seed)),
        }
    }

    /// A rank, if it exists.
    pub(super) fn holder<'k>(&self, rank: impl Into<RankRef<'k>>) -> Option<Holder> {
        let number = self.holders.get(&rank.into())?;
        Some(Holder(number.load(Relaxed)))
    }

    /// The roster in which `live` exist, if that is another. `last`: how many ranks have had a number; one that leaves
    /// and comes back has another.
    pub(super) fn next(&self, live: &[RankKey], last: &mut u64) -> Option<Self> {
        if live.len() == self.holders.len() && live.iter().all(|rank| self.holders.contains_key(rank)) {
            return None;
        }
        let mut holders = HashMap::with_capacity_and_hasher(live.len(), self.holders.hasher().clone());
        for rank in live {
            let holder = self.holder(rank).unwrap_or_else(|| {
                let fresh = Holder::after(*last);
                *last += 1;
                fresh
            });
            holders.insert(rank.clone(), AtomicU64::new(holder.0));
        }
        Some(Self { holders })
    }

    /// What was remembered of a rank stands for nobody from now on. Were one emptied each second, its numbers would last
    /// for a century.
    pub(super) fn empty(&self, rank: &RankKey) {
        if let Some(number) = self.holders.get(rank) {
            number.fetch_add(1, Relaxed);
        }
    }
}

//! Which blocks the requests that this router has dispatched hold on their ranks.
//!
//! A second index of the same kind, fed by dispatches instead of events: a block is there while a request that contains
//! it is open. Two requests that share a prefix on one rank hold it once.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use continuum_kv_index::{Caps, Index, Matches, RankKey};
use continuum_wire::router_event::{Block, Data, Stored, Tier};

use crate::limits::IN_FLIGHT_BLOCKS;

/// Blocks of open requests, by rank.
#[derive(Debug)]
pub struct InFlight {
    index: Index,
    ranks: Mutex<Ranks>,
}

#[derive(Debug, Default)]
struct Ranks {
    open: BTreeMap<RankKey, Open>,
    /// Number of the next [`Open`].
    next: u64,
}

/// The open requests of a rank. A rank that leaves and comes back has others.
#[derive(Debug, Default)]
struct Open {
    number: u64,
    /// How many of them hold a block.
    counts: HashMap<u64, u32>,
}

/// One open request. Dropping it lets its blocks go.
#[derive(Debug)]
#[must_use = "dropping an entry ends it"]
pub struct Entry {
    all: Arc<InFlight>,
    rank: RankKey,
    number: u64,
    /// Names of its blocks: each stands for all before it, too.
    names: Box<[u64]>,
}

impl InFlight {
    /// No requests. `seed` is a random number, see [`Index::seeded`].
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            index: Index::seeded(Caps::default(), seed),
            ranks: Mutex::default(),
        }
    }

    /// Takes over which ranks exist. Entries of others count no more.
    pub fn set_live(&self, live: &[RankKey]) {
        let mut ranks = self.lock();
        self.index.set_live(live);
        ranks.open.retain(|rank, _| live.binary_search(rank).is_ok());
    }

    /// Opens a request on a rank. `hashes`: the local hashes of its blocks; of a long one, the first
    /// [`IN_FLIGHT_BLOCKS`] count.
    pub fn enter(self: &Arc<Self>, rank: RankKey, hashes: &[u64]) -> Entry {
        let hashes = hashes.get(..IN_FLIGHT_BLOCKS).unwrap_or(hashes);
        let mut name = 0;
        let names: Box<[u64]> = hashes
            .iter()
            .map(|hash| {
                name = chained(name, *hash);
                name
            })
            .collect();
        let mut ranks = self.lock();
        let next = ranks.next;
        ranks.next = next.wrapping_add(1);
        let Open { number, counts } = ranks.open.entry(rank.clone()).or_insert_with(|| Open {
            number: next,
            ..Open::default()
        });
        let number = *number;
        let mut fresh = names.len();
        for (at, name) in names.iter().enumerate() {
            let count = counts.entry(*name).or_insert(0);
            *count = count.saturating_add(1);
            if *count == 1 {
                fresh = fresh.min(at);
            }
        }
        // Who holds a block holds all before it: what is new is the end.
        let blocks: Vec<Block> = names
            .iter()
            .zip(hashes)
            .skip(fresh)
            .map(|(name, hash)| Block {
                hash: *name,
                tokens: *hash,
                multimodal: false,
            })
            .collect();
        if !blocks.is_empty() {
            let parent = fresh.checked_sub(1).and_then(|before| names.get(before)).copied();
            let stored = Data::Stored(Stored { parent, blocks });
            let _refused_when_full = self.index.apply(&rank, Tier::Device, &stored);
        }
        drop(ranks);
        Entry {
            all: Arc::clone(self),
            rank,
            number,
            names,
        }
    }

    /// What each rank holds of a prompt.
    pub fn find(&self, hashes: &[u64], out: &mut Matches) {
        self.index.find(hashes, out);
    }

    fn lock(&self) -> MutexGuard<'_, Ranks> {
        self.ranks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut ranks = self.all.lock();
        let mine = ranks.open.get_mut(&self.rank);
        let Some(Open { counts, .. }) = mine.filter(|open| open.number == self.number) else {
            return;
        };
        let mut gone = Vec::new();
        for name in &self.names {
            if let Some(count) = counts.get_mut(name) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    counts.remove(name);
                    gone.push(*name);
                }
            }
        }
        if counts.is_empty() {
            ranks.open.remove(&self.rank);
        }
        if !gone.is_empty() {
            let _unknown_when_it_was_full =
                self.all
                    .index
                    .apply(&self.rank, Tier::Device, &Data::Removed(gone));
        }
    }
}

/// The name of a block behind the one named `before`.
const fn chained(before: u64, hash: u64) -> u64 {
    let mut z = before.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash.rotate_left(31);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use continuum_fleet::ids::{InstanceId, WorkerKey};
    use continuum_kv_index::Overlap;

    use super::*;

    fn rank(instance: u64) -> RankKey {
        RankKey {
            worker: WorkerKey {
                namespace: "dynamo".into(),
                instance: InstanceId::new(instance),
            },
            rank: 0,
        }
    }

    fn held(all: &InFlight, hashes: &[u64], of: &RankKey) -> u32 {
        let mut found = Matches::new();
        all.find(hashes, &mut found);
        let Overlap { device, host, disk } = found.of(of);
        assert_eq!((host, disk), (0, 0));
        device
    }

    #[test]
    fn a_block_is_held_while_a_request_that_contains_it_is_open() {
        let all = Arc::new(InFlight::new(7));
        let (a, b) = (rank(1), rank(2));
        all.set_live(&[a.clone(), b.clone()]);
        let long = all.enter(a.clone(), &[1, 2, 3, 4]);
        let other = all.enter(a.clone(), &[1, 2, 9]);
        let there = all.enter(b.clone(), &[1]);
        assert_eq!(held(&all, &[1, 2, 3, 4, 5], &a), 4);
        assert_eq!(held(&all, &[1, 2, 9], &a), 3);
        assert_eq!(held(&all, &[1, 2, 3], &b), 1);
        drop(long);
        assert_eq!(held(&all, &[1, 2, 3, 4, 5], &a), 2);
        assert_eq!(held(&all, &[1, 2, 9], &a), 3);
        drop(other);
        assert_eq!(held(&all, &[1, 2, 9], &a), 0);
        drop(there);
        assert!(all.lock().open.is_empty());
    }

    #[test]
    fn a_rank_that_left_takes_its_requests_along() {
        let all = Arc::new(InFlight::new(7));
        let a = rank(1);
        all.set_live(std::slice::from_ref(&a));
        let open = all.enter(a.clone(), &[1, 2]);
        all.set_live(&[]);
        assert!(all.lock().open.is_empty());
        all.set_live(std::slice::from_ref(&a));
        let again = all.enter(a.clone(), &[1]);
        // The old request ends: the new one still holds its block.
        drop(open);
        assert_eq!(held(&all, &[1, 2], &a), 1);
        drop(again);
        assert_eq!(held(&all, &[1], &a), 0);
    }
}

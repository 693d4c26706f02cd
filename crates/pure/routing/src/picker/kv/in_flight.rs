//! Which blocks the requests that this router has dispatched hold on their ranks.
//!
//! A block is in use while a request that contains it is open. Two requests that share a prefix on one rank hold it once.
//! Where a rank's events do not tell all that it caches, a prompt that it has read is remembered for a while.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arc_swap::ArcSwap;
use continuum_kv_index::{RankKey, RankRef};

use self::{
    roster::{Holder, Number, Roster},
    tree::{Node, Tree},
};
use crate::{
    Millis,
    limits::{FORGOTTEN_AT_ONCE, IN_FLIGHT_BLOCKS, READ_BLOCKS, READ_FOR_MS, READ_PLACES},
};

mod roster;
mod tree;

/// Blocks of open requests, by rank.
#[derive(Debug, Default)]
pub struct InFlight {
    roster: ArcSwap<Roster>,
    /// How many ranks have had a number; held while they change, and by no request.
    ranks: Mutex<u64>,
    /// Held for microseconds: a prompt is one path of few nodes, however many blocks it has.
    state: Mutex<State>,
}

/// One open request. Dropping it lets its blocks go.
#[derive(Debug)]
#[must_use = "dropping an entry ends it"]
pub struct Entry {
    all: Arc<InFlight>,
    /// Its rank and the end of its path; `None` on a rank that is not known.
    place: Option<(Holder, Node)>,
    shared: u32,
}

/// Blocks of a prompt that open requests hold, or that ended ones have left, by rank.
#[derive(Clone, Debug, Default)]
pub struct InUse {
    roster: Arc<Roster>,
    /// In order.
    found: Vec<(Number, u32)>,
}

/// A prompt that was read.
#[derive(Debug)]
struct Read {
    until: Millis,
    by: Number,
    end: Node,
}

#[derive(Debug, Default)]
struct State {
    tree: Tree,
    /// The oldest first.
    read: VecDeque<Read>,
}

/// What is known of one rank and a prompt, in blocks from the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankInUse {
    /// In use by open requests.
    pub open: u32,
    /// Read lately, if that is remembered.
    pub read: u32,
}

impl InFlight {
    /// None are open. Who does not know `seed`, a random number, cannot make ranks collide.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self {
            roster: ArcSwap::from_pointee(Roster::seeded(seed)),
            ..Self::default()
        }
    }

    /// Takes over which ranks exist, in order. Entries of others count no more.
    ///
    /// Requests come and go meanwhile.
    pub fn set_live(&self, live: &[RankKey]) {
        let mut ranks = lock(&self.ranks);
        let next = self.roster.load().next(live, &mut ranks);
        if let Some(next) = next {
            self.roster.store(Arc::new(next));
        }
    }

    /// These ranks hold nothing any more of what they have read, and of what open requests have sent there nothing will
    /// be remembered. Open requests stay open.
    pub fn empty<'r>(&self, ranks: impl IntoIterator<Item = &'r RankKey>) {
        // The next roster is made of the numbers of this one.
        let _unchanged = lock(&self.ranks);
        let roster = self.roster.load();
        ranks.into_iter().for_each(|rank| roster.empty(rank));
    }

    /// Opens a request on a rank. `hashes`: the local hashes of its blocks; of a long one, the first
    /// [`IN_FLIGHT_BLOCKS`] count.
    pub fn enter(self: &Arc<Self>, rank: &RankKey, hashes: &[u64]) -> Entry {
        let hashes = hashes.get(..IN_FLIGHT_BLOCKS).unwrap_or(hashes);
        let holder = self.roster.load().holder(rank);
        let entered = holder.map(|holder| (holder, lock(&self.state).tree.enter(holder.open(), hashes)));
        Entry {
            all: Arc::clone(self),
            place: entered.map(|(holder, (end, _))| (holder, end)),
            shared: entered.map_or(0, |(_, (_, shared))| count(shared)),
        }
    }

    /// What open requests hold of a prompt, and what is remembered of ended ones.
    #[must_use]
    pub fn find(&self, hashes: &[u64], now: Millis) -> InUse {
        let mut state = lock(&self.state);
        state.forget(now);
        let found = state.tree.find(hashes);
        drop(state);
        InUse {
            roster: self.roster.load_full(),
            found,
        }
    }
}

impl State {
    /// Forgets prompts that were read long ago, and the oldest of too many; some of them at a time.
    fn forget(&mut self, now: Millis) {
        for _ in 0..FORGOTTEN_AT_ONCE {
            let is_full = self.is_full();
            let due = self.read.pop_front_if(|oldest| is_full || oldest.until <= now);
            let Some(oldest) = due else { return };
            self.tree.leave(oldest.by, oldest.end);
        }
    }

    fn is_full(&self) -> bool {
        let remembered = self.tree.remembered();
        remembered.blocks > READ_BLOCKS || remembered.places + self.read.len() > READ_PLACES
    }
}

impl Entry {
    /// Blocks of the request that others held open on its rank when it came.
    #[must_use]
    pub const fn shared(&self) -> u32 {
        self.shared
    }

    /// Ends the request. Blocks of it that others hold open there.
    pub fn leave(mut self) -> u32 {
        self.end()
    }

    /// Ends the request, whose prompt the rank has read, and remembers its blocks for [`READ_FOR_MS`]. Blocks of it that
    /// others hold open there.
    pub fn remember(mut self, now: Millis) -> u32 {
        let Some((holder, end)) = self.place.take() else {
            return 0;
        };
        let mut state = lock(&self.all.state);
        let kept = state.tree.hand_over(holder.open(), holder.read(), end);
        state.read.push_back(Read {
            until: now.plus(READ_FOR_MS),
            by: holder.read(),
            end,
        });
        state.forget(now);
        count(kept)
    }

    fn end(&mut self) -> u32 {
        let place = self.place.take();
        place.map_or(0, |(holder, end)| {
            count(lock(&self.all.state).tree.leave(holder.open(), end))
        })
    }
}

impl InUse {
    /// What is known of a rank.
    #[must_use]
    pub fn of<'k>(&self, rank: impl Into<RankRef<'k>>) -> RankInUse {
        if self.found.is_empty() {
            return RankInUse::default();
        }
        self.roster
            .holder(rank)
            .map_or_else(RankInUse::default, |holder| self.held(holder))
    }

    fn held(&self, holder: Holder) -> RankInUse {
        // The numbers of a rank are neighbours.
        let from = self.found.partition_point(|(number, _)| *number < holder.open());
        let mine = self.found.iter().skip(from);
        let mut held = RankInUse::default();
        for (number, blocks) in mine.take_while(|(number, _)| *number <= holder.read()) {
            if *number == holder.open() {
                held.open = *blocks;
            } else if *number == holder.read() {
                held.read = *blocks;
            }
        }
        held
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.end();
    }
}

fn count(blocks: usize) -> u32 {
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

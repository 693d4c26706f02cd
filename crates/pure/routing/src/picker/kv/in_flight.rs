//! Which blocks the requests that this router has dispatched hold on their ranks.
//!
//! A block is in use while a request that contains it is open. Two requests that share a prefix on one rank hold it once.
//! Where a rank's events do not tell all that it caches, a prompt that it has read is remembered for a while.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use continuum_kv_index::{RankKey, RankRef};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use self::tree::{Node, Number, Tree};
use crate::{
    Millis,
    limits::{IN_FLIGHT_BLOCKS, READ_BLOCKS, READ_FOR_MS},
};

mod tree;

/// Blocks of open requests, by rank.
#[derive(Debug, Default)]
pub struct InFlight {
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

/// A rank, as its requests know it.
#[derive(Clone, Copy, Debug)]
struct Holder(u64);

impl Holder {
    /// What its open requests hold in the tree.
    const fn open(self) -> Number {
        self.0 * 2
    }

    /// What is remembered of those that ended.
    const fn read(self) -> Number {
        self.0 * 2 + 1
    }
}

/// A prompt that was read.
#[derive(Debug)]
struct Read {
    until: Millis,
    holder: Holder,
    end: Node,
    blocks: usize,
}

#[derive(Debug, Default)]
struct State {
    roster: Arc<Roster>,
    /// Number of the next rank: one that leaves and comes back has another.
    next: u64,
    tree: Tree,
    /// The oldest first.
    read: VecDeque<Read>,
    /// Their blocks.
    read_blocks: usize,
}

type Roster = HashMap<RankKey, Holder, FixedState>;

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
        let roster = Arc::new(Roster::with_hasher(FixedState::with_seed(seed)));
        let state = State {
            roster,
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// Takes over which ranks exist, in order. Entries of others count no more.
    pub fn set_live(&self, live: &[RankKey]) {
        let mut state = self.lock();
        let State { roster, next, .. } = &mut *state;
        let number = |key: &RankKey| {
            let known = roster.get(key).copied();
            let number = known.unwrap_or_else(|| {
                *next += 1;
                Holder(*next)
            });
            (key.clone(), number)
        };
        let mut fresh = Roster::with_hasher(roster.hasher().clone());
        fresh.extend(live.iter().map(number));
        let before = std::mem::replace(roster, Arc::new(fresh));
        drop(state);
        drop(before);
    }

    /// Opens a request on a rank. `hashes`: the local hashes of its blocks; of a long one, the first
    /// [`IN_FLIGHT_BLOCKS`] count.
    pub fn enter(self: &Arc<Self>, rank: &RankKey, hashes: &[u64]) -> Entry {
        let hashes = hashes.get(..IN_FLIGHT_BLOCKS).unwrap_or(hashes);
        let mut state = self.lock();
        let holder = state.roster.get(rank).copied();
        let entered = holder.map(|holder| (holder, state.tree.enter(holder.open(), hashes)));
        drop(state);
        Entry {
            all: Arc::clone(self),
            place: entered.map(|(holder, (end, _))| (holder, end)),
            shared: entered.map_or(0, |(_, (_, shared))| count(shared)),
        }
    }

    /// What open requests hold of a prompt, and what is remembered of ended ones.
    #[must_use]
    pub fn find(&self, hashes: &[u64], now: Millis) -> InUse {
        let mut state = self.lock();
        state.forget(now);
        InUse {
            roster: Arc::clone(&state.roster),
            found: state.tree.find(hashes),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Forgets prompts that were read long ago, and the oldest of too many.
    fn forget(&mut self, now: Millis) {
        let is_due = |read: &Read, blocks: usize| read.until <= now || blocks > READ_BLOCKS;
        while self
            .read
            .front()
            .is_some_and(|oldest| is_due(oldest, self.read_blocks))
        {
            let Some(oldest) = self.read.pop_front() else {
                return;
            };
            self.read_blocks = self.read_blocks.saturating_sub(oldest.blocks);
            self.tree.leave(oldest.holder.read(), oldest.end);
        }
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
        let mut state = self.all.lock();
        let kept = state.tree.hand_over(holder.open(), holder.read(), end);
        let blocks = state.tree.depth(end);
        state.read_blocks += blocks;
        state.read.push_back(Read {
            until: now.plus(READ_FOR_MS),
            holder,
            end,
            blocks,
        });
        state.forget(now);
        count(kept)
    }

    fn end(&mut self) -> u32 {
        let place = self.place.take();
        place.map_or(0, |(holder, end)| {
            count(self.all.lock().tree.leave(holder.open(), end))
        })
    }
}

fn count(blocks: usize) -> u32 {
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

impl InUse {
    /// What is known of a rank.
    #[must_use]
    pub fn of<'k>(&self, rank: impl Into<RankRef<'k>>) -> RankInUse {
        if self.found.is_empty() {
            return RankInUse::default();
        }
        self.roster
            .get(&rank.into())
            .map_or_else(RankInUse::default, |holder| self.held(*holder))
    }

    fn held(&self, holder: Holder) -> RankInUse {
        // Both numbers of a rank are neighbours.
        let from = self.found.partition_point(|(number, _)| *number < holder.open());
        let mut held = RankInUse::default();
        for (number, blocks) in self.found.iter().skip(from).take(2) {
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

#[cfg(test)]
mod tests {
    use continuum_fleet::ids::{InstanceId, WorkerKey};
    use proptest::prelude::*;

    use super::*;

    const NOW: Millis = Millis(1_000);

    fn rank(instance: u64) -> RankKey {
        RankKey {
            worker: WorkerKey {
                namespace: "dynamo".into(),
                instance: InstanceId::new(instance),
            },
            rank: 0,
        }
    }

    #[test]
    fn a_block_is_held_while_a_request_that_contains_it_is_open() {
        let all = Arc::new(InFlight::default());
        let (a, b) = (rank(1), rank(2));
        all.set_live(&[a.clone(), b.clone()]);
        let long = all.enter(&a, &[1, 2, 3, 4]);
        let other = all.enter(&a, &[1, 2, 9]);
        let there = all.enter(&b, &[1]);
        assert_eq!(all.find(&[1, 2, 3, 4, 5], NOW).of(&a).open, 4);
        assert_eq!(all.find(&[1, 2, 9], NOW).of(&a).open, 3);
        assert_eq!(all.find(&[1, 2, 3], NOW).of(&b).open, 1);
        drop(long);
        assert_eq!(all.find(&[1, 2, 3, 4, 5], NOW).of(&a).open, 2);
        assert_eq!(all.find(&[1, 2, 9], NOW).of(&a).open, 3);
        drop(other);
        assert_eq!(all.find(&[1, 2, 9], NOW).of(&a).open, 0);
        drop(there);
        assert!(all.lock().tree.is_empty());
    }

    #[test]
    fn a_rank_that_left_takes_its_requests_along() {
        let all = Arc::new(InFlight::default());
        let a = rank(1);
        let early = all.enter(&a, &[1, 2]);
        all.set_live(std::slice::from_ref(&a));
        let open = all.enter(&a, &[1, 2]);
        all.set_live(&[]);
        assert_eq!(all.find(&[1, 2], NOW).of(&a).open, 0);
        all.set_live(std::slice::from_ref(&a));
        assert_eq!(all.find(&[1, 2], NOW).of(&a).open, 0);
        let again = all.enter(&a, &[1]);
        // The old requests end: the new one still holds its block.
        drop((early, open));
        assert_eq!(all.find(&[1, 2], NOW).of(&a).open, 1);
        drop(again);
        assert_eq!(all.find(&[1], NOW).of(&a).open, 0);
        assert!(all.lock().tree.is_empty());
    }

    #[test]
    fn a_prompt_that_was_read_is_remembered_for_a_while() {
        let all = Arc::new(InFlight::default());
        let (a, b) = (rank(1), rank(2));
        all.set_live(&[a.clone(), b.clone()]);
        let open = all.enter(&a, &[1, 2, 3]);
        all.enter(&a, &[1, 2, 9]).remember(NOW);
        let found = all.find(&[1, 2, 9], NOW);
        assert_eq!(
            (found.of(&a), found.of(&b).read),
            (RankInUse { open: 2, read: 3 }, 0)
        );
        drop(open);
        let last = Millis(NOW.0 + READ_FOR_MS - 1);
        let found = all.find(&[1, 2, 9], last);
        assert_eq!(found.of(&a), RankInUse { open: 0, read: 3 });
        assert_eq!(all.find(&[1, 2, 9], last.plus(1)).of(&a).read, 0);
        assert!(all.lock().tree.is_empty());
    }

    #[test]
    fn of_too_many_prompts_that_were_read_the_oldest_are_forgotten() {
        let all = Arc::new(InFlight::default());
        let a = rank(1);
        all.set_live(std::slice::from_ref(&a));
        let prompt = |number: u64| -> Vec<u64> {
            let blocks = number * 8192..(number + 1) * 8192;
            blocks.collect()
        };
        let fit = u64::try_from(READ_BLOCKS / 8192).unwrap();
        for number in 0..=fit {
            all.enter(&a, &prompt(number)).remember(NOW);
        }
        assert_eq!(all.find(&prompt(0), NOW).of(&a).read, 0);
        assert_eq!(all.find(&prompt(1), NOW).of(&a).read, 8192);
        assert_eq!(all.lock().read_blocks, READ_BLOCKS);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Enter(u64, Vec<u64>),
        Leave(usize),
        Remember(usize),
        Live(Vec<u64>),
    }

    fn prompt() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(0..3_u64, 0..8)
    }

    fn step() -> impl Strategy<Value = Step> {
        let live = prop::sample::subsequence(vec![0, 1, 2, 3], 0..=4);
        prop_oneof![
            6 => (0..4_u64, prompt()).prop_map(|(rank, hashes)| Step::Enter(rank, hashes)),
            4 => any::<usize>().prop_map(Step::Leave),
            2 => any::<usize>().prop_map(Step::Remember),
            1 => live.prop_map(Step::Live),
        ]
    }

    proptest! {
        /// What is booked when requests come and let go when they end is what they hold, each block once.
        #[test]
        fn shared_blocks_are_counted_once_whoever_ends_first(
            steps in prop::collection::vec((any::<bool>(), any::<bool>(), any::<usize>(), prompt()), 0..60),
        ) {
            let all = Arc::new(InFlight::default());
            let a = rank(1);
            all.set_live(std::slice::from_ref(&a));
            let (mut open, mut booked) = (Vec::<(Vec<u64>, Entry)>::new(), 0);
            for (comes, read, at, hashes) in steps {
                if comes || open.is_empty() {
                    let entry = all.enter(&a, &hashes);
                    booked += hashes.len() - entry.shared() as usize;
                    open.push((hashes, entry));
                } else {
                    let (hashes, entry) = open.swap_remove(at % open.len());
                    let kept = if read { entry.remember(NOW) } else { entry.leave() };
                    booked -= hashes.len() - kept as usize;
                }
                let held: std::collections::BTreeSet<&[u64]> = open
                    .iter()
                    .flat_map(|(hashes, _)| (1..=hashes.len()).map(|end| &hashes[..end]))
                    .collect();
                prop_assert_eq!(booked, held.len());
            }
        }

        /// Against a list of the open requests.
        #[test]
        fn what_is_found_is_the_longest_common_prefix(
            steps in prop::collection::vec(step(), 0..60),
            asked in prop::collection::vec(prompt(), 4),
        ) {
            let all = Arc::new(InFlight::default());
            let mut live = vec![0, 1, 2, 3];
            let ranks = |live: &[u64]| live.iter().copied().map(rank).collect::<Vec<_>>();
            all.set_live(&ranks(&live));
            let mut open: Vec<(Option<u64>, Vec<u64>, Entry)> = Vec::new();
            let mut read: Vec<(Option<u64>, Vec<u64>)> = Vec::new();
            for step in steps {
                match step {
                    Step::Enter(of, hashes) => {
                        let entry = all.enter(&rank(of), &hashes);
                        open.push((Some(of).filter(|of| live.contains(of)), hashes, entry));
                    }
                    Step::Leave(at) if !open.is_empty() => drop(open.swap_remove(at % open.len())),
                    Step::Remember(at) if !open.is_empty() => {
                        let (of, hashes, entry) = open.swap_remove(at % open.len());
                        entry.remember(NOW);
                        read.push((of, hashes));
                    }
                    Step::Leave(_) | Step::Remember(_) => {}
                    Step::Live(next) => {
                        live = next;
                        all.set_live(&ranks(&live));
                        let all_of = open.iter_mut().map(|(of, ..)| of).chain(read.iter_mut().map(|(of, _)| of));
                        for of in all_of {
                            *of = of.filter(|of| live.contains(of));
                        }
                    }
                }
                for asked in &asked {
                    let found = all.find(asked, NOW);
                    for of in 0..4 {
                        let common = |hashes: &[u64]| hashes.iter().zip(asked).take_while(|(a, b)| a == b).count();
                        let mine = open.iter().filter(|(rank, ..)| *rank == Some(of));
                        let most = mine.map(|(_, hashes, _)| common(hashes)).max().unwrap_or(0);
                        prop_assert_eq!(found.of(&rank(of)).open as usize, most);
                        let mine = read.iter().filter(|(rank, _)| *rank == Some(of));
                        let most = mine.map(|(_, hashes)| common(hashes)).max().unwrap_or(0);
                        prop_assert_eq!(found.of(&rank(of)).read as usize, most);
                    }
                }
            }
            drop(open);
            let _ = all.find(&[], NOW.plus(READ_FOR_MS));
            prop_assert!(all.lock().tree.is_empty());
        }
    }
}

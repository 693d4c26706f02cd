//! Which blocks the requests that this router has dispatched hold on their ranks.
//!
//! A block is there while a request that contains it is open. Two requests that share a prefix on one rank hold it once.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, DefaultHasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use continuum_kv_index::RankKey;

use self::tree::{Node, Number, Tree};
use crate::limits::IN_FLIGHT_BLOCKS;

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
    place: Option<(Number, Node)>,
}

/// Blocks of a prompt that open requests hold, by rank.
#[derive(Clone, Debug, Default)]
pub struct InUse {
    roster: Arc<Roster>,
    /// In order.
    found: Vec<(Number, u32)>,
}

#[derive(Debug, Default)]
struct State {
    roster: Arc<Roster>,
    /// Number of the next rank: one that leaves and comes back has another.
    next: Number,
    tree: Tree,
}

type Roster = HashMap<RankKey, Number, BuildHasherDefault<DefaultHasher>>;

impl InFlight {
    /// Takes over which ranks exist, in order. Entries of others count no more.
    pub fn set_live(&self, live: &[RankKey]) {
        let mut state = self.lock();
        let State { roster, next, .. } = &mut *state;
        let number = |key: &RankKey| {
            let known = roster.get(key).copied();
            let number = known.unwrap_or_else(|| {
                *next += 1;
                *next
            });
            (key.clone(), number)
        };
        let fresh: Roster = live.iter().map(number).collect();
        let before = std::mem::replace(roster, Arc::new(fresh));
        drop(state);
        drop(before);
    }

    /// Opens a request on a rank. `hashes`: the local hashes of its blocks; of a long one, the first
    /// [`IN_FLIGHT_BLOCKS`] count.
    pub fn enter(self: &Arc<Self>, rank: &RankKey, hashes: &[u64]) -> Entry {
        let hashes = hashes.get(..IN_FLIGHT_BLOCKS).unwrap_or(hashes);
        let mut state = self.lock();
        let number = state.roster.get(rank).copied();
        let place = number.map(|number| (number, state.tree.enter(number, hashes)));
        drop(state);
        Entry {
            all: Arc::clone(self),
            place,
        }
    }

    /// What open requests hold of a prompt.
    #[must_use]
    pub fn find(&self, hashes: &[u64]) -> InUse {
        let state = self.lock();
        InUse {
            roster: Arc::clone(&state.roster),
            found: state.tree.find(hashes),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InUse {
    /// Blocks from the beginning of the prompt that are in use on a rank.
    #[must_use]
    pub fn of(&self, rank: &RankKey) -> u32 {
        if self.found.is_empty() {
            return 0;
        }
        let found = self.roster.get(rank).and_then(|number| {
            let at = self.found.binary_search_by_key(number, |(number, _)| *number);
            self.found.get(at.ok()?)
        });
        found.map_or(0, |(_, blocks)| *blocks)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some((number, end)) = self.place {
            self.all.lock().tree.leave(number, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use continuum_fleet::ids::{InstanceId, WorkerKey};
    use proptest::prelude::*;

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

    #[test]
    fn a_block_is_held_while_a_request_that_contains_it_is_open() {
        let all = Arc::new(InFlight::default());
        let (a, b) = (rank(1), rank(2));
        all.set_live(&[a.clone(), b.clone()]);
        let long = all.enter(&a, &[1, 2, 3, 4]);
        let other = all.enter(&a, &[1, 2, 9]);
        let there = all.enter(&b, &[1]);
        assert_eq!(all.find(&[1, 2, 3, 4, 5]).of(&a), 4);
        assert_eq!(all.find(&[1, 2, 9]).of(&a), 3);
        assert_eq!(all.find(&[1, 2, 3]).of(&b), 1);
        drop(long);
        assert_eq!(all.find(&[1, 2, 3, 4, 5]).of(&a), 2);
        assert_eq!(all.find(&[1, 2, 9]).of(&a), 3);
        drop(other);
        assert_eq!(all.find(&[1, 2, 9]).of(&a), 0);
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
        assert_eq!(all.find(&[1, 2]).of(&a), 0);
        all.set_live(std::slice::from_ref(&a));
        assert_eq!(all.find(&[1, 2]).of(&a), 0);
        let again = all.enter(&a, &[1]);
        // The old requests end: the new one still holds its block.
        drop((early, open));
        assert_eq!(all.find(&[1, 2]).of(&a), 1);
        drop(again);
        assert_eq!(all.find(&[1]).of(&a), 0);
        assert!(all.lock().tree.is_empty());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Enter(u64, Vec<u64>),
        Leave(usize),
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
            1 => live.prop_map(Step::Live),
        ]
    }

    proptest! {
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
            for step in steps {
                match step {
                    Step::Enter(of, hashes) => {
                        let entry = all.enter(&rank(of), &hashes);
                        open.push((Some(of).filter(|of| live.contains(of)), hashes, entry));
                    }
                    Step::Leave(at) if !open.is_empty() => drop(open.swap_remove(at % open.len())),
                    Step::Leave(_) => {}
                    Step::Live(next) => {
                        live = next;
                        all.set_live(&ranks(&live));
                        for (of, ..) in &mut open {
                            *of = of.filter(|of| live.contains(of));
                        }
                    }
                }
                for asked in &asked {
                    let found = all.find(asked);
                    for of in 0..4 {
                        let mine = open.iter().filter(|(rank, ..)| *rank == Some(of));
                        let common = |hashes: &[u64]| hashes.iter().zip(asked).take_while(|(a, b)| a == b).count();
                        let most = mine.map(|(_, hashes, _)| common(hashes)).max().unwrap_or(0);
                        prop_assert_eq!(found.of(&rank(of)) as usize, most);
                    }
                }
            }
            drop(open);
            prop_assert!(all.lock().tree.is_empty());
        }
    }
}

//! How ranks stand with the index, for whoever must not wait while a view is taken over.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use continuum_fleet::ids::WorkerKey;

use crate::{RankKey, limits::MISSES_FOR};

/// How the ranks of one view stand with the index.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// Of each rank that is indexed, whether it may hold more than the index knows. The gate sets it.
    pub(super) misses: BTreeMap<RankKey, Arc<Misses>>,
    /// Workers with ranks for which there was no room.
    pub(super) beyond: BTreeSet<WorkerKey>,
}

impl Standing {
    pub(super) fn misses(&self, rank: &RankKey, now: Duration) -> bool {
        self.misses.get(rank).is_some_and(|misses| misses.at(now))
    }
}

/// Until when a rank may hold more than the index knows, in milliseconds; 0 for one that does not.
#[derive(Debug, Default)]
pub(super) struct Misses(AtomicU64);

impl Misses {
    pub(super) fn renew(&self, now: Duration) {
        self.0.store(millis(now + MISSES_FOR), Relaxed);
    }

    pub(super) fn end(&self) {
        self.0.store(0, Relaxed);
    }

    fn at(&self, now: Duration) -> bool {
        millis(now) < self.0.load(Relaxed)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Ranks that hold nothing any more of what they held before, until somebody asks.
#[derive(Debug, Default)]
pub(super) struct Gone(Mutex<BTreeSet<RankKey>>);

impl Gone {
    pub(super) fn add(&self, rank: &RankKey) {
        self.lock().insert(rank.clone());
    }

    /// Nobody asks for others, and there may be any number of them.
    pub(super) fn keep(&self, is_live: impl Fn(&RankKey) -> bool) {
        self.lock().retain(is_live);
    }

    pub(super) fn take(&self) -> BTreeSet<RankKey> {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<RankKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

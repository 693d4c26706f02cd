//! How ranks stand with the index, for whoever must not wait while a view is taken over.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use continuum_fleet::ids::WorkerKey;

use crate::RankKey;

/// How the ranks of one view stand with the index.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// Of each rank that is indexed, whether it may hold more than the index knows. The gate sets it.
    pub(super) misses: BTreeMap<RankKey, Arc<AtomicBool>>,
    /// Workers with ranks for which there was no room.
    pub(super) beyond: BTreeSet<WorkerKey>,
}

impl Standing {
    pub(super) fn misses(&self, rank: &RankKey) -> bool {
        self.misses.get(rank).is_some_and(|misses| misses.load(Relaxed))
    }
}

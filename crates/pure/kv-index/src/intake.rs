//! From events to the index: whose they are, whether one is missing, and whether they count.
//!
//! [`Intake`] is shared by all subscriptions. Each subscription has [`Cursors`] of its own, which outlive its
//! connections. What the index knows of a rank comes from one stream at a time, without a hole in it: a hole, or
//! another publisher, empties the rank first. So the index may hold less than a worker does, and never more than the
//! worker held at the event that was read last.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use arc_swap::ArcSwap;
use continuum_fleet::{ids::WorkerKey, view::FleetView};
use continuum_wire::{Limits, router_event::Batch};

pub use self::{
    cursors::Cursors,
    gate::Origin,
    outcome::{Outcome, Tally},
    unscored::{Unscored, unscored},
};
use self::{
    gate::Gate,
    standing::{Gone, Standing},
};
use crate::{Index, RankKey};

mod claim;
mod cursors;
mod gate;
mod outcome;
mod standing;
mod unscored;

/// What stands between subscriptions and the index.
#[derive(Debug)]
pub struct Intake {
    /// Events hold it for reading, so that none is applied by the rules of an older view.
    gate: RwLock<Gate>,
    /// What is asked on the path of requests, which must not wait for a view to be taken over.
    standing: ArcSwap<Standing>,
    gone: Arc<Gone>,
}

impl Intake {
    /// Nobody is known yet.
    #[must_use]
    pub fn new(index: Arc<Index>) -> Self {
        let gone = Arc::default();
        Self {
            gate: RwLock::new(Gate::new(index, Arc::clone(&gone))),
            gone,
            standing: ArcSwap::default(),
        }
    }

    /// The index that is filled.
    #[must_use]
    pub fn index(&self) -> Arc<Index> {
        Arc::clone(&self.read().index)
    }

    /// Fills this index from now on. It begins empty. `now` is as in [`Origin`], here and below.
    pub fn fill(&self, index: Arc<Index>, now: Duration) {
        self.write().fill(index, now);
    }

    /// From now on one subscription may have cursors of at most so many ranks. Cursors that are there already stay.
    pub fn bound_cursors(&self, ranks: usize) {
        self.write().cursors = ranks;
    }

    /// Takes over a view: ranks that left it lose all that they own, and so do ranks whose source record now names
    /// somebody else. Says for how many ranks the index has no room.
    ///
    /// [`Index::tidy`] is to be called afterwards: nobody else cleans up while the fleet is silent.
    pub fn follow(&self, view: &FleetView, now: Duration) -> usize {
        let mut gate = self.write();
        let beyond = gate.follow(view, now);
        self.standing.store(Arc::new(gate.standing()));
        beyond
    }

    /// Whether a rank may hold blocks that the index does not know of: it was there before anybody listened, what was known
    /// of it was forgotten because an event was lost, or it continues blocks of which no event came; all of that within
    /// [`MISSES_FOR`](crate::limits::MISSES_FOR). Waits for nobody.
    #[must_use]
    pub fn misses(&self, rank: &RankKey, now: Duration) -> bool {
        self.standing.load().misses(rank, now)
    }

    /// Whether a rank has a place in the index. Waits for nobody.
    #[must_use]
    pub fn has_place(&self, rank: &RankKey) -> bool {
        self.standing.load().misses.contains_key(rank)
    }

    /// Whether the index has no room for some of a worker's ranks. Waits for nobody.
    #[must_use]
    pub fn is_beyond(&self, worker: &WorkerKey) -> bool {
        self.standing.load().beyond.contains(worker)
    }

    /// Ranks that hold nothing any more of what they held before, since this was asked last: they say so, or somebody else
    /// speaks for them now. Waits for nobody.
    #[must_use]
    pub fn take_gone(&self) -> BTreeSet<RankKey> {
        self.gone.take()
    }

    /// Applies the payload of one message of a publisher.
    pub fn accept(&self, cursors: &mut Cursors, from: Origin<'_>, payload: &[u8], limits: &Limits) -> Tally {
        let mut tally = Tally::default();
        match Batch::open(payload, limits) {
            Ok(batch) => {
                for event in batch {
                    match event {
                        // Event by event, so that a new view waits for one event and not for a message.
                        Ok(event) => self.read().event(cursors, from, &event, &mut tally),
                        Err(refusal) => tally.count(Outcome::Refused(refusal)),
                    }
                }
            }
            Err(refusal) => tally.count(Outcome::Refused(refusal)),
        }
        tally
    }

    /// Empties the ranks that a subscription feeds, because it has not been connected for long. Its cursors stay: they
    /// tell a repeated event from a new one when it is connected again. Says how many ranks were emptied.
    pub fn age(&self, cursors: &Cursors, now: Duration) -> usize {
        self.read().release(cursors, now)
    }

    /// Empties the ranks that a subscription feeds, because it has ended for good.
    pub fn end(&self, cursors: &mut Cursors, now: Duration) -> usize {
        let emptied = self.read().release(cursors, now);
        cursors.clear();
        emptied
    }

    fn read(&self) -> RwLockReadGuard<'_, Gate> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Gate> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;

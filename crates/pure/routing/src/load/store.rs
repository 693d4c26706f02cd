//! The store of all ranks: who is live, who speaks for whom, and the door for samples and bookings.

use std::sync::{
    Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicU64, Ordering},
};

use continuum_fleet::{
    ids::{Namespace, PublisherId, Rank, WorkerKey},
    view::{FleetView, Role},
};

use super::{
    Applied, Booking, Dispatch, Followed, Row, Sample,
    booking::Agenda,
    index::Index,
    slot::{AsOf, Reading, Slot},
};
use crate::{
    Millis,
    limits::{RANKS, SUSPECT_MS},
    picker::Pick,
};

/// The load of the whole fleet. Shared by `Arc`.
#[derive(Debug)]
pub struct Store {
    index: RwLock<Index>,
    agenda: Arc<Agenda>,
    /// When the last suspicion ends, milliseconds.
    suspicion_ends: AtomicU64,
}

impl Default for Store {
    fn default() -> Self {
        Self::with_capacity(RANKS)
    }
}

impl Store {
    /// An empty store of at most [`RANKS`] keys.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store of at most `ranks` keys.
    #[must_use]
    pub fn with_capacity(ranks: usize) -> Self {
        Self {
            index: RwLock::new(Index::new(ranks)),
            agenda: Arc::default(),
            suspicion_ends: AtomicU64::new(0),
        }
    }

    /// Changes the cap of keys. Ranks that have a key keep it until they leave; the next view to follow, which may be
    /// the same one, hands out what became free.
    pub fn set_capacity(&self, ranks: usize) {
        self.write().set_capacity(ranks);
    }

    /// Takes over the set of live ranks from a view: new ones get a key, departed ones leave with their samples
    /// and series, in this one call. Publishers that left the view are forgotten.
    /// [`Table::follow`](crate::picker::Table::follow) calls it, so that a table and its store never differ.
    pub(crate) fn follow(&self, view: &FleetView) -> Followed {
        self.write().follow(view)
    }

    /// Merges a sample. `namespace` is the worker's own (the publisher's scope).
    pub fn apply(
        &self,
        publisher: PublisherId,
        namespace: &Namespace,
        sequence: u64,
        sample: &Sample,
        now: Millis,
    ) -> Applied {
        let key = WorkerKey {
            namespace: namespace.clone(),
            instance: sample.worker,
        };
        let index = self.read();
        let Some(entry) = index.entry(&key) else {
            return Applied::IdentityMismatch;
        };
        let Some(slot) = entry.slot(sample.rank) else {
            return if entry.declares(sample.rank) {
                Applied::OverCapacity
            } else {
                Applied::IdentityMismatch
            };
        };
        let was_suspect = slot.is_suspect(now);
        if !slot.apply(publisher, sequence, sample, now) {
            return Applied::Duplicate;
        }
        if was_suspect {
            entry.slots().for_each(|slot| slot.suspect(None));
        }
        if !entry.hears(publisher) {
            drop(index);
            self.write().learn(publisher, &key);
        }
        Applied::Applied
    }

    /// Drops every field that this publisher fed: it may have missed a change (each new connection, each gap).
    pub fn forget(&self, publisher: PublisherId) {
        self.read().forget(publisher);
    }

    /// Says whether a subscription to this publisher is connected. A rank that no live subscription can speak
    /// for is unknown, never quiet. Fields are kept; [`Self::forget`] drops them, and so does the end of a
    /// subscription whose publisher has left the view.
    ///
    /// Which worker a publisher speaks for is learned from its samples. Until then the workers of its component
    /// that nobody speaks for yet are covered when every such publisher is connected.
    pub fn subscribed(&self, publisher: PublisherId, live: bool) {
        self.write().subscribed(publisher, live);
    }

    /// Says whether a broker subscription covers all workers of a namespace.
    pub fn broker_covers(&self, namespace: &Namespace, live: bool) {
        self.write().broker_covers(namespace, live);
    }

    /// Books a dispatch on its ranks. The booking ends when it is dropped, whatever the reason.
    pub fn book(&self, pick: &Pick, dispatch: Dispatch, now: Millis) -> Booking {
        Booking::open(&self.agenda, pick, dispatch, now)
    }

    /// A re-pick without this worker succeeded where a pin on it had failed: it is not picked while others can
    /// serve, until one of its ranks speaks or 30 seconds pass.
    pub fn suspect(&self, worker: &WorkerKey, now: Millis) {
        let until = now.plus(SUSPECT_MS);
        self.suspicion_ends.fetch_max(until.0, Ordering::Relaxed);
        if let Some(entry) = self.read().entry(worker) {
            entry.slots().for_each(|slot| slot.suspect(Some(until)));
        }
    }

    /// A pin on this worker was answered: it is not suspect any more.
    pub fn trust(&self, worker: &WorkerKey) {
        if let Some(entry) = self.read().entry(worker) {
            entry.slots().for_each(|slot| slot.trust());
        }
    }

    /// Whether the worker is suspect.
    #[must_use]
    pub fn is_suspect(&self, worker: &WorkerKey, now: Millis) -> bool {
        self.read()
            .entry(worker)
            .is_some_and(|entry| entry.slots().any(|slot| slot.is_suspect(now)))
    }

    /// Whether a live subscription speaks for the worker. A process that was killed loses its own at once.
    #[must_use]
    pub fn is_covered(&self, worker: &WorkerKey) -> bool {
        self.read()
            .entry(worker)
            .is_some_and(|entry| entry.slots().any(|slot| slot.is_covered()))
    }

    /// Ends the prefill part of buffered requests whose time has come. Picks and [`Self::rows`] call it.
    pub fn advance(&self, now: Millis) {
        self.agenda.advance(now);
    }

    /// All ranks in order, for gauges and the admin view. `max_staleness` in milliseconds.
    #[must_use]
    pub fn rows(&self, max_staleness: u64, now: Millis) -> Vec<Row> {
        self.advance(now);
        let at = AsOf::new(now, max_staleness);
        let index = self.read();
        let row = |key: &WorkerKey, role: Role, rank: Rank, slot: &Slot| {
            let sums = slot.sums();
            let reading = read(slot, role, at);
            Row {
                worker: key.clone(),
                rank,
                role,
                active_decode_blocks: sums.active_decode_blocks,
                active_prefill_tokens: sums.active_prefill_tokens,
                kv_used_blocks: sums.kv_used_blocks,
                sample_age_ms: sums.newest.map(|at| now.since(at)),
                freshness: reading.freshness(),
                booked_requests: sums.requests,
                booked_blocks: sums.blocks,
                booked_tokens: sums.tokens,
                suspect: reading.suspect,
            }
        };
        index
            .entries()
            .flat_map(|(key, entry)| {
                entry
                    .ranks()
                    .map(move |(rank, slot)| row(key, entry.role, rank, slot))
            })
            .collect()
    }

    /// Nothing waits for a foreseen end of a prefill.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.agenda.is_empty()
    }

    /// Whether somebody may be suspect: false is certain.
    #[must_use]
    pub fn may_suspect(&self, now: Millis) -> bool {
        self.suspicion_ends.load(Ordering::Relaxed) > now.0
    }

    /// The slots of a worker, first rank first.
    pub(crate) fn slots_of(&self, worker: &WorkerKey) -> Vec<Arc<Slot>> {
        self.read()
            .entry(worker)
            .map(|entry| entry.slots().cloned().collect())
            .unwrap_or_default()
    }

    fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The phase of a slot that counts for a role.
pub(crate) fn read(slot: &Slot, role: Role, at: AsOf) -> Reading {
    match role {
        Role::Prefill => slot.prefill(at),
        Role::Decode | Role::Aggregated | Role::Encode | Role::Unknown => slot.decode(at),
    }
}

#[cfg(test)]
mod tests;

//! Who may say what of whom, and what follows from one event.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use continuum_fleet::{
    ids::{InstanceId, Namespace, PublisherId, WorkerKey},
    view::{Blocks, Card, FleetView, Publisher, PublisherKey, Topic, Worker},
};
use continuum_wire::{
    Refusal as Unlawful,
    router_event::{Data, Domain, RouterEvent, Tier},
};

use super::{Cursors, Outcome, Tally, unscored};
use crate::{Index, RankKey, Refusal};

/// Who may say what of whom, by the newest view.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) index: Arc<Index>,
    workers: BTreeMap<WorkerKey, Known>,
    ranks: BTreeMap<RankKey, Rank>,
    publishers: BTreeMap<PublisherId, Registered>,
    registrations: u64,
    generation: u64,
}

/// A worker of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    first: u32,
    ranks: u32,
    /// `None` for a worker whose blocks a prompt cannot be compared with.
    blocks: Option<Blocks>,
}

/// A rank that is scored.
#[derive(Debug)]
struct Rank {
    blocks: Blocks,
    /// Whom its source record names.
    source: Option<PublisherId>,
    feeder: Mutex<Option<Feeder>>,
    /// It may hold more than the index knows.
    misses: AtomicBool,
}

/// Where the content of a rank comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Feeder {
    publisher: PublisherId,
    subscription: u64,
    since: u64,
}

/// A publisher of the view.
#[derive(Clone, Copy, Debug)]
struct Registered {
    order: u64,
    feeds: Option<InstanceId>,
}

/// Who an event comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin<'a> {
    pub(super) publisher: PublisherId,
    pub(super) namespace: &'a Namespace,
}

impl Gate {
    pub(super) const fn new(index: Arc<Index>) -> Self {
        Self {
            index,
            workers: BTreeMap::new(),
            ranks: BTreeMap::new(),
            publishers: BTreeMap::new(),
            registrations: 0,
            generation: 0,
        }
    }

    /// Fills this index from now on.
    pub(super) fn fill(&mut self, index: Arc<Index>) {
        self.index = index;
        for rank in self.ranks.values() {
            if lock(&rank.feeder).take().is_some() {
                rank.misses.store(true, Relaxed);
            }
        }
        self.admit();
    }

    pub(super) fn follow(&mut self, view: &FleetView) {
        self.generation += 1;
        self.register(view);
        self.workers = view
            .workers
            .iter()
            .map(|(key, worker)| (key.clone(), known(worker)))
            .collect();
        let mut sources = BTreeMap::new();
        for publisher in kv_publishers(view) {
            if let Some((instance, rank)) = publisher.feeds {
                let instance = (publisher.namespace.clone(), instance);
                // With two records for one rank, the publisher that registered last is meant.
                let order = self.order(publisher.key.id);
                let named = sources
                    .entry((instance, rank.0))
                    .or_insert((order, publisher.key.id));
                *named = (*named).max((order, publisher.key.id));
            }
        }
        let mut before = std::mem::take(&mut self.ranks);
        let room = self.index.caps().ranks;
        for (worker, known) in &self.workers {
            let Some(blocks) = known.blocks else {
                continue;
            };
            for rank in known.first..known.first.saturating_add(known.ranks) {
                if self.ranks.len() >= room {
                    break;
                }
                let instance = (worker.namespace.clone(), worker.instance);
                let source = sources.get(&(instance, rank)).map(|(_, id)| *id);
                let key = RankKey {
                    worker: worker.clone(),
                    rank,
                };
                let (mut feeder, mut misses) = (None, false);
                if let Some(before) = before.remove(&key) {
                    feeder = *lock(&before.feeder);
                    misses = before.misses.into_inner();
                    let other = |feeder: &Feeder| source.is_some_and(|source| source != feeder.publisher);
                    if feeder.as_ref().is_some_and(other) || before.blocks != blocks {
                        self.index.clear(&key);
                        (feeder, misses) = (None, true);
                    }
                }
                let rank = Rank {
                    blocks,
                    source,
                    feeder: Mutex::new(feeder),
                    misses: AtomicBool::new(misses),
                };
                self.ranks.insert(key, rank);
            }
        }
        self.admit();
    }

    /// Publishers get a number when they appear, so that it is known who came last.
    fn register(&mut self, view: &FleetView) {
        let mut before = std::mem::take(&mut self.publishers);
        for publisher in kv_publishers(view) {
            let id = publisher.key.id;
            let order = before.remove(&id).map(|known| known.order).unwrap_or_else(|| {
                self.registrations += 1;
                self.registrations
            });
            let feeds = publisher.feeds.map(|(instance, _)| instance);
            self.publishers.insert(id, Registered { order, feeds });
        }
    }

    fn admit(&self) {
        let live: Vec<RankKey> = self.ranks.keys().cloned().collect();
        self.index.set_live(&live);
    }

    pub(super) fn event(
        &self,
        cursors: &mut Cursors,
        from: Origin<'_>,
        event: &RouterEvent,
        tally: &mut Tally,
    ) {
        let key = RankKey {
            worker: WorkerKey {
                namespace: from.namespace.clone(),
                instance: InstanceId::new(event.worker_id),
            },
            rank: event.rank,
        };
        let Some(rank) = self.ranks.get(&key) else {
            return tally.count(self.why_not(&key));
        };
        let live = |key: &RankKey| self.ranks.contains_key(key);
        let Some(cursor) = cursors.of(from.publisher, &key, self.generation, live) else {
            return tally.count(Outcome::OverCapacity);
        };
        let Some(step) = cursor.step(event.event_id) else {
            return tally.count(Outcome::Duplicate);
        };
        let me = Feeder {
            publisher: from.publisher,
            subscription: cursor.subscription,
            since: cursor.since,
        };
        let mut feeder = lock(&rank.feeder);
        match self.claim(&key, rank, &feeder, &me) {
            Claim::Has => {}
            Claim::Takes => {
                if feeder.replace(me).is_some() {
                    self.forget(&key, rank);
                }
            }
            Claim::Echo => return tally.count(Outcome::Duplicate),
            Claim::Foreign => return tally.count(Outcome::Foreign),
        }
        if step.gap {
            self.forget(&key, rank);
            tally.count(Outcome::Gap);
        }
        self.apply(&key, rank, event, tally);
    }

    pub(super) fn misses(&self, key: &RankKey) -> bool {
        self.ranks.get(key).is_some_and(|rank| rank.misses.load(Relaxed))
    }

    /// Empties a rank that may hold what is forgotten.
    fn forget(&self, key: &RankKey, rank: &Rank) {
        self.index.clear(key);
        rank.misses.store(true, Relaxed);
    }

    /// Why events of this rank are not looked at.
    fn why_not(&self, key: &RankKey) -> Outcome {
        match self.workers.get(&key.worker) {
            Some(known)
                if key
                    .rank
                    .checked_sub(known.first)
                    .is_some_and(|at| at < known.ranks) =>
            {
                if known.blocks.is_none() {
                    Outcome::UnscoredWorker
                } else {
                    Outcome::OverCapacity
                }
            }
            Some(_) | None => Outcome::Refused(Unlawful::IdentityMismatch),
        }
    }

    fn claim(&self, key: &RankKey, rank: &Rank, feeder: &Option<Feeder>, me: &Feeder) -> Claim {
        if feeder.as_ref() == Some(me) {
            return Claim::Has;
        }
        if rank.source.is_some_and(|source| source != me.publisher) {
            return Claim::Foreign;
        }
        // Whose record names one worker does not speak for another.
        let feeds = self.publishers.get(&me.publisher).and_then(|known| known.feeds);
        if feeds.is_some_and(|instance| instance != key.worker.instance) {
            return Claim::Foreign;
        }
        match feeder {
            None => Claim::Takes,
            // The same stream on another way: the way that was first is read as long as it lives.
            Some(first) if first.publisher == me.publisher && first.subscription != me.subscription => {
                Claim::Echo
            }
            Some(first) if self.rank_of(me) > self.rank_of(first) => Claim::Takes,
            Some(_) => Claim::Foreign,
        }
    }

    /// Among publishers of one rank the highest is believed: registered before unregistered, then the latest.
    fn rank_of(&self, feeder: &Feeder) -> (u64, u64) {
        (self.order(feeder.publisher), feeder.since)
    }

    /// When a publisher was registered; 0 for one that is not.
    fn order(&self, publisher: PublisherId) -> u64 {
        self.publishers.get(&publisher).map_or(0, |known| known.order)
    }

    fn apply(&self, key: &RankKey, rank: &Rank, event: &RouterEvent, tally: &mut Tally) {
        match event.domain {
            Domain::Legacy | Domain::Worker => {}
            Domain::CacheOwner | Domain::Unknown => return tally.count(Outcome::UnsupportedDomain),
        }
        let named = match &event.data {
            Data::Cleared => {
                self.index.clear(key);
                rank.misses.store(false, Relaxed);
                return tally.count(Outcome::Cleared);
            }
            Data::Stored(_) => None,
            Data::Removed(hashes) => Some(hashes.len()),
        };
        match event.tier {
            Tier::Device | Tier::HostPinned | Tier::Disk => {}
            Tier::External => return tally.count(Outcome::OtherTier),
        }
        let applied = self.index.apply(key, event.tier, &event.data);
        match (applied.refused, named) {
            (None, None) => tally.count(Outcome::Stored),
            (None, Some(hashes)) => {
                tally.count(Outcome::Removed);
                if usize::try_from(applied.removed).is_ok_and(|removed| removed < hashes) {
                    tally.count(Outcome::UnknownBlock);
                }
            }
            (Some(refusal), _) => tally.count(match refusal {
                Refusal::UnknownParent => {
                    rank.misses.store(true, Relaxed);
                    Outcome::MissingParent
                }
                Refusal::InvalidSequence => Outcome::InvalidSequence,
                Refusal::OverCapacity => Outcome::OverCapacity,
                Refusal::IdentityMismatch => Outcome::Refused(Unlawful::IdentityMismatch),
                Refusal::OtherTier => Outcome::OtherTier,
            }),
        }
    }

    pub(super) fn release(&self, cursors: &Cursors) -> usize {
        let mut emptied = 0;
        for (publisher, key) in cursors.ranks() {
            let Some(rank) = self.ranks.get(key) else { continue };
            let mut feeder = lock(&rank.feeder);
            let ours = |feeder: &Feeder| {
                feeder.publisher == publisher && feeder.subscription == cursors.subscription()
            };
            if feeder.as_ref().is_some_and(ours) {
                *feeder = None;
                self.forget(key, rank);
                emptied += 1;
            }
        }
        emptied
    }
}

/// What a stream may do with a rank.
enum Claim {
    /// It feeds the rank.
    Has,
    /// It feeds the rank from now on.
    Takes,
    /// It repeats the stream that feeds the rank.
    Echo,
    /// Another one feeds the rank.
    Foreign,
}

fn kv_publishers(view: &FleetView) -> impl Iterator<Item = &Publisher> {
    let key = |id| PublisherKey {
        topic: Topic::KvEvents,
        id: PublisherId::new(id),
    };
    let of_topic = view.publishers.range(key(0)..=key(u64::MAX));
    of_topic.map(|(_, publisher)| &**publisher)
}

/// What of a worker decides on its events.
fn known(worker: &Worker) -> Known {
    let card = worker.card.as_deref();
    let ranks = card.map(|card| card.ranks);
    Known {
        first: ranks.map_or(0, |ranks| ranks.start),
        ranks: ranks.map_or(0, |ranks| ranks.size),
        blocks: match unscored(worker) {
            None => card.and_then(Card::blocks),
            Some(_) => None,
        },
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Who may say what of whom, and what follows from one event.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use continuum_fleet::{
    ids::{InstanceId, Namespace, PublisherId, WorkerKey},
    view::{Blocks, Card, FleetView, Publisher, PublisherKey, Topic, Worker},
};
use continuum_wire::{
    Refusal as Unlawful,
    router_event::{Data, Domain, RouterEvent, Tier},
};

use self::places::{Sources, source_key, unsaid};
use super::{
    Cursors, Outcome, Tally,
    claim::{Claim, Feeder, claim},
    standing::{Gone, Misses, Standing},
    unscored,
};
use crate::{
    Index, RankKey, Refusal,
    limits::{FIRST_EVENT, MAX_RANKS},
};

mod places;

/// Who may say what of whom, by the newest view.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) index: Arc<Index>,
    /// Ranks of which one subscription may have cursors.
    pub(super) cursors: usize,
    workers: BTreeMap<WorkerKey, Known>,
    ranks: BTreeMap<RankKey, Rank>,
    /// Workers with ranks for which there is no room.
    beyond: BTreeSet<WorkerKey>,
    gone: Arc<Gone>,
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
    fed: Mutex<Fed>,
    /// It may hold more than the index knows. Requests read it: see [`Standing`].
    misses: Arc<Misses>,
}

/// Who fills a rank.
#[derive(Clone, Copy, Debug, Default)]
struct Fed {
    by: Option<Feeder>,
    /// Who did last, or was named to: when another one does, what the rank held is gone. It outlives the subscription.
    last: Option<PublisherId>,
}

/// A publisher of the view.
#[derive(Clone, Copy, Debug)]
struct Registered {
    order: u64,
    feeds: Option<InstanceId>,
}

/// Who a message comes from, and when.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The publisher: of a record, or who a message that was relayed says.
    pub publisher: PublisherId,
    /// The scope of its channel.
    pub namespace: &'a Namespace,
    /// The time now, since any moment that is the same for all.
    pub now: Duration,
}

impl Gate {
    pub(super) const fn new(index: Arc<Index>, gone: Arc<Gone>) -> Self {
        Self {
            index,
            cursors: MAX_RANKS,
            workers: BTreeMap::new(),
            ranks: BTreeMap::new(),
            beyond: BTreeSet::new(),
            gone,
            publishers: BTreeMap::new(),
            registrations: 0,
            generation: 0,
        }
    }

    /// Fills this index from now on.
    pub(super) fn fill(&mut self, index: Arc<Index>, now: Duration) {
        self.index = index;
        for rank in self.ranks.values() {
            if lock(&rank.fed).by.take().is_some() {
                rank.misses.renew(now);
            }
        }
        self.admit();
    }

    /// Says for how many ranks there is no room.
    pub(super) fn follow(&mut self, view: &FleetView, now: Duration) -> usize {
        self.generation += 1;
        self.register(view);
        self.workers = view
            .workers
            .iter()
            .map(|(key, worker)| (key.clone(), known(worker)))
            .collect();
        let mut sources = Sources::new();
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
        let (admitted, beyond) = self.places(&sources, &unsaid(view));
        self.beyond = beyond.iter().map(|key| key.worker.clone()).collect();
        let mut before = std::mem::take(&mut self.ranks);
        // Whoever is there in the first view was there before it.
        let first = before.is_empty();
        for (key, blocks) in admitted {
            let source = sources.get(&source_key(&key)).map(|(_, id)| *id);
            let (mut fed, mut misses) = (Fed::default(), Arc::<Misses>::default());
            if let Some(before) = before.remove(&key) {
                fed = *lock(&before.fed);
                misses = before.misses;
                let silenced = |feeder: &Feeder| !self.may_speak(feeder.stream.publisher, &key, source);
                let is_void = fed.by.as_ref().is_some_and(silenced) || before.blocks != blocks;
                if is_void {
                    self.index.clear(&key);
                    fed.by = None;
                    misses.renew(now);
                }
                let is_another = fed
                    .last
                    .is_some_and(|last| source.is_some_and(|source| source != last));
                if is_void || is_another {
                    self.gone.add(&key);
                    fed.last = None;
                }
            } else if first && source.is_some() {
                misses.renew(now);
            }
            fed.last = source.or(fed.last);
            let rank = Rank {
                blocks,
                source,
                fed: Mutex::new(fed),
                misses,
            };
            self.ranks.insert(key, rank);
        }
        self.gone.keep(|key| self.ranks.contains_key(key));
        self.admit();
        beyond.len()
    }

    /// How ranks stand with the index.
    pub(super) fn standing(&self) -> Standing {
        let misses = |(key, rank): (&RankKey, &Rank)| (key.clone(), Arc::clone(&rank.misses));
        Standing {
            misses: self.ranks.iter().map(misses).collect(),
            beyond: self.beyond.clone(),
        }
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
        if !cursors.admit(&key, self.cursors, self.generation, live) {
            return tally.count(Outcome::OverCapacity);
        }
        let mut fed = lock(&rank.fed);
        let feeding = fed.by.map(|feeder| feeder.stream);
        let Some(step) = cursors.step(from.publisher, &key, event.event_id, feeding, from.now) else {
            return tally.count(Outcome::Duplicate);
        };
        let me = Feeder {
            stream: step.stream,
            heard: from.now,
        };
        match self.claim(&key, rank, fed.by.as_ref(), &me) {
            Claim::Has => fed.by = Some(me),
            Claim::Takes => {
                let follows = fed.by.replace(me).is_some();
                if follows {
                    self.forget(&key, rank, from.now);
                }
                let last = fed.last.replace(from.publisher);
                if follows || last.is_some_and(|last| last != from.publisher) {
                    self.gone.add(&key);
                }
                match event.event_id {
                    // Nobody heard what it said before.
                    id if id > FIRST_EVENT => rank.misses.renew(from.now),
                    _ if !follows && last.is_none_or(|last| last == from.publisher) => rank.misses.end(),
                    _ => {}
                }
            }
            Claim::Echo => {
                if let Some(feeder) = fed.by.as_mut() {
                    feeder.heard = from.now;
                }
                return tally.count(Outcome::Duplicate);
            }
            Claim::Foreign => return tally.count(Outcome::Foreign),
        }
        if step.gap {
            self.forget(&key, rank, from.now);
            tally.count(Outcome::Gap);
        }
        self.apply(&key, rank, event, from.now, tally);
    }

    /// Empties a rank that may hold what is forgotten.
    fn forget(&self, key: &RankKey, rank: &Rank, now: Duration) {
        self.index.clear(key);
        rank.misses.renew(now);
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

    fn claim(&self, key: &RankKey, rank: &Rank, feeder: Option<&Feeder>, me: &Feeder) -> Claim {
        if self.may_speak(me.stream.publisher, key, rank.source) {
            claim(feeder, me, |publisher| self.order(publisher))
        } else {
            Claim::Foreign
        }
    }

    /// Whether a publisher may speak of a rank at all: whom the rank's source record names, and without one everybody
    /// whose own record names no other worker.
    fn may_speak(&self, publisher: PublisherId, key: &RankKey, source: Option<PublisherId>) -> bool {
        match source {
            Some(source) => source == publisher,
            None => {
                let feeds = self.publishers.get(&publisher).and_then(|known| known.feeds);
                feeds.is_none_or(|instance| instance == key.worker.instance)
            }
        }
    }

    /// When a publisher was registered; 0 for one that is not.
    fn order(&self, publisher: PublisherId) -> u64 {
        self.publishers.get(&publisher).map_or(0, |known| known.order)
    }

    fn apply(&self, key: &RankKey, rank: &Rank, event: &RouterEvent, now: Duration, tally: &mut Tally) {
        match event.domain {
            Domain::Legacy | Domain::Worker => {}
            Domain::CacheOwner | Domain::Unknown => return tally.count(Outcome::UnsupportedDomain),
        }
        let named = match &event.data {
            Data::Cleared => {
                self.index.clear(key);
                self.gone.add(key);
                rank.misses.end();
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
                    rank.misses.renew(now);
                    Outcome::MissingParent
                }
                Refusal::InvalidSequence => Outcome::InvalidSequence,
                Refusal::OverCapacity => Outcome::OverCapacity,
                Refusal::IdentityMismatch => Outcome::Refused(Unlawful::IdentityMismatch),
                Refusal::OtherTier => Outcome::OtherTier,
            }),
        }
    }

    pub(super) fn release(&self, cursors: &Cursors, now: Duration) -> usize {
        let mut emptied = 0;
        for (key, stream) in cursors.streams() {
            let Some(rank) = self.ranks.get(key) else { continue };
            let mut fed = lock(&rank.fed);
            if fed.by.is_some_and(|feeder| feeder.stream == stream) {
                fed.by = None;
                self.forget(key, rank, now);
                emptied += 1;
            }
        }
        emptied
    }
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

//! Block events: what workers say of their caches, brought to the index.
//!
//! A publisher's cursors belong to the router and not to a connection: they outlive reconnects and a change of the
//! transport, so that a repeated event is told from a new one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use arc_swap::{ArcSwap, ArcSwapOption};
use continuum_fleet::{
    ids::{Namespace, PublisherId, WorkerKey},
    view::{FleetView, Publisher, Topic},
};
use continuum_kv_index::{Caps, Cursors, Index, Intake, Origin, Outcome, RankKey, Unscored};
use continuum_wire::{Budget, Delivery, Expected, Refusal, zmtp::Message};
use tokio::{sync::watch, time::Instant};

use crate::{
    broker::Subjects,
    client::Handler,
    family::{Family, Relay},
    limits::{BLOCK_EVENTS_STALE_AFTER, RECONNECT_MAX},
    metrics::{BlockMetrics, Lines},
    outages::{Forgotten, Outages},
    settings::{BlockSettings, Settings},
    subscription::Session,
};

/// The index that block events fill, if they are wanted.
///
/// There is a new one when the operator turns it off and on again.
#[derive(Clone, Debug)]
pub struct Filled {
    index: Arc<ArcSwapOption<Index>>,
    intake: Arc<Intake>,
    /// Workers with publishers that wait for a subscription.
    unheard: Arc<ArcSwap<BTreeSet<WorkerKey>>>,
    /// The zero of the intake's time.
    started: Instant,
}

impl Filled {
    fn new(intake: Arc<Intake>, started: Instant) -> Self {
        Self {
            index: Arc::default(),
            intake,
            unheard: Arc::default(),
            started,
        }
    }

    /// The index now; `None` while block events are not wanted.
    #[must_use]
    pub fn load(&self) -> Option<Arc<Index>> {
        self.index.load_full()
    }

    /// Whether a rank holds blocks that the index does not know of: see [`Intake::misses`].
    #[must_use]
    pub fn misses(&self, rank: &RankKey) -> bool {
        self.intake.misses(rank, self.started.elapsed())
    }

    /// Ranks that hold nothing any more of what they held before: see [`Intake::take_gone`].
    #[must_use]
    pub fn take_gone(&self) -> BTreeSet<RankKey> {
        self.intake.take_gone()
    }

    /// Why some of a worker's ranks are credited with nothing here, whatever they hold; `None` where all are followed.
    #[must_use]
    pub fn unscored(&self, worker: &WorkerKey) -> Option<Unscored> {
        if self.intake.is_beyond(worker) {
            Some(Unscored::OverCapacity)
        } else {
            let is_unheard = self.unheard.load().contains(worker);
            is_unheard.then_some(Unscored::NotSubscribed)
        }
    }
}

/// The family of block events.
pub(crate) struct Blocks {
    intake: Arc<Intake>,
    filled: Filled,
    seed: u64,
    metrics: BlockMetrics,
    budget: Budget,
    /// Caps that were wanted for the index in use; `None` while it stands in for none.
    caps: Mutex<Option<Caps>>,
    /// Ranks that the index has no room for.
    beyond: AtomicUsize,
    /// Streams that were away for long.
    away: Arc<Outages>,
    subscriptions: AtomicU64,
    /// The zero of the intake's time.
    started: Instant,
    cursors: Mutex<BTreeMap<PublisherId, Arc<Mutex<Cursors>>>>,
}

impl Blocks {
    /// `seed` is random, so that nobody can make blocks collide.
    pub(crate) fn new(metrics: BlockMetrics, seed: u64) -> Self {
        let first = BlockSettings::default();
        let intake = Arc::new(Intake::new(Arc::new(Index::seeded(NOTHING, seed))));
        let started = Instant::now();
        Self {
            filled: Filled::new(Arc::clone(&intake), started),
            intake,
            seed,
            metrics,
            budget: Budget::new(first.budget),
            caps: Mutex::default(),
            beyond: AtomicUsize::new(0),
            away: Arc::default(),
            subscriptions: AtomicU64::default(),
            started,
            cursors: Mutex::default(),
        }
    }

    /// The index that they fill.
    pub(crate) fn filled(&self) -> Filled {
        self.filled.clone()
    }

    fn new_cursors(&self) -> Cursors {
        Cursors::new(self.subscriptions.fetch_add(1, Relaxed))
    }
}

/// Caps of the index that stands in while block events are not wanted.
const NOTHING: Caps = Caps {
    blocks: 0,
    blocks_per_rank: 0,
    ownerships: 0,
    ranks: 0,
};

impl Family for Blocks {
    const TOPIC: Topic = Topic::KvEvents;
    const TASK: &'static str = "block event subscription";
    type Direct = Stream;
    type Relay = Streams;

    fn lines(&self) -> &Lines {
        self.metrics.lines()
    }

    fn budget(&self) -> Option<Budget> {
        Some(self.budget.clone())
    }

    fn follow(&self, view: &FleetView, settings: &Settings) {
        let wanted = &settings.blocks;
        let now = self.started.elapsed();
        self.budget.set_limit(wanted.budget);
        self.intake.bound_cursors(wanted.cursors);
        let caps = settings.enabled.then_some(wanted.caps);
        match (std::mem::replace(&mut *lock(&self.caps), caps), caps) {
            (Some(before), Some(caps)) if before != caps => self.intake.index().set_caps(caps),
            (Some(_), Some(_)) | (None, None) => {}
            (None, Some(_)) | (Some(_), None) => {
                let index = Arc::new(Index::seeded(caps.unwrap_or(NOTHING), self.seed));
                self.intake.fill(Arc::clone(&index), now);
                self.filled.index.store(settings.enabled.then_some(index));
            }
        }
        let beyond = if settings.enabled {
            self.intake.follow(view, now)
        } else {
            self.intake.follow(&FleetView::default(), now)
        };
        // Once for as long as it lasts.
        if self.beyond.swap(beyond, Relaxed) == 0 && beyond > 0 {
            tracing::warn!(
                ranks = beyond,
                cap = wanted.caps.ranks,
                "more ranks than `dynamo.kv.limits.max_owners_per_node`: what the others hold is not known"
            );
        }
    }

    fn direct(&self, publisher: &Publisher, settings: &watch::Receiver<Settings>) -> Self::Direct {
        let cursors = lock(&self.cursors)
            .entry(publisher.key.id)
            .or_insert_with(|| Arc::new(Mutex::new(self.new_cursors())))
            .clone();
        Stream {
            id: publisher.key.id,
            namespace: publisher.namespace.clone(),
            settings: settings.clone(),
            intake: Arc::clone(&self.intake),
            started: self.started,
            metrics: self.metrics.clone(),
            cursors,
            forgotten: Forgotten::new(&self.away),
        }
    }

    fn relay(&self, settings: &watch::Receiver<Settings>) -> Self::Relay {
        Streams {
            settings: settings.clone(),
            intake: Arc::clone(&self.intake),
            started: self.started,
            metrics: self.metrics.clone(),
            shared: Mutex::new(Shared {
                subjects: Arc::default(),
                connected: 0,
                since: Instant::now(),
                delivered: false,
                lost: Instant::now(),
                forgotten: Forgotten::new(&self.away),
            }),
            cursors: Mutex::new(self.new_cursors()),
        }
    }

    fn is_of_use(&self, publisher: &Publisher) -> bool {
        rank_of(publisher).is_none_or(|rank| self.intake.has_place(&rank))
    }

    fn subscribed<'a, T>(
        &self,
        publishers: &BTreeMap<PublisherId, T>,
        pending: impl Iterator<Item = &'a Publisher>,
    ) {
        let unheard = pending.filter_map(rank_of).map(|rank| rank.worker).collect();
        self.filled.unheard.store(Arc::new(unheard));
        let mut known = lock(&self.cursors);
        for (_, cursors) in known.extract_if(.., |id, _| !publishers.contains_key(id)) {
            self.intake.end(&mut lock(&cursors), self.started.elapsed());
        }
    }

    fn tidy(&self) -> bool {
        self.intake.index().tidy()
    }
}

/// The rank that a publisher's record names.
fn rank_of(publisher: &Publisher) -> Option<RankKey> {
    let (instance, rank) = publisher.feeds?;
    let namespace = publisher.namespace.clone();
    let worker = WorkerKey { namespace, instance };
    Some(RankKey { worker, rank: rank.0 })
}

/// The stream of one publisher.
pub(crate) struct Stream {
    id: PublisherId,
    namespace: Namespace,
    settings: watch::Receiver<Settings>,
    intake: Arc<Intake>,
    started: Instant,
    metrics: BlockMetrics,
    cursors: Arc<Mutex<Cursors>>,
    forgotten: Forgotten,
}

impl Handler for Stream {
    fn ready(&mut self) {}

    fn message(&mut self, message: &Message<'_>) {
        let topic = Topic::KvEvents.as_str();
        let expected = Expected {
            topic,
            first_frame: Some(topic.as_bytes()),
            publisher: Some(self.id),
        };
        let limits = self.settings.borrow().limits(Topic::KvEvents);
        match Delivery::decode(message, &expected, &limits) {
            Ok(delivery) => {
                self.forgotten.speaks();
                let mut cursors = lock(&self.cursors);
                let from = Origin {
                    publisher: self.id,
                    namespace: &self.namespace,
                    now: self.started.elapsed(),
                };
                let tally = self.intake.accept(&mut cursors, from, &delivery.payload, &limits);
                self.metrics.add(&tally);
            }
            Err(refusal) => self.metrics.count(Outcome::Refused(refusal), 1),
        }
    }
}

impl Session for Stream {
    fn lost(&mut self) {}

    fn stale(&mut self) {
        let emptied = self.intake.age(&lock(&self.cursors), self.started.elapsed());
        if emptied > 0 {
            self.forgotten
                .emptied(emptied, Some(self.id), Some(&self.namespace));
        }
    }
}

/// The streams that a set of brokers relays. A message that came through one of them is a duplicate on the next.
pub(crate) struct Streams {
    settings: watch::Receiver<Settings>,
    intake: Arc<Intake>,
    started: Instant,
    metrics: BlockMetrics,
    shared: Mutex<Shared>,
    cursors: Mutex<Cursors>,
}

struct Shared {
    subjects: Arc<Subjects>,
    connected: usize,
    /// Since when there has been a connection, while one stands.
    since: Instant,
    /// Whether a message came since then.
    delivered: bool,
    /// When the last connection was lost, while none stands. Of connections that neither lasted nor delivered anything
    /// nothing is known here.
    lost: Instant,
    forgotten: Forgotten,
}

impl Streams {
    fn accept(&self, message: &Message<'_>) -> Result<(), Refusal> {
        let subject = message.frame(0).ok_or(Refusal::Malformed)?;
        let subjects = {
            let mut shared = lock(&self.shared);
            shared.delivered = true;
            Arc::clone(&shared.subjects)
        };
        let namespace = subjects.get(subject).ok_or(Refusal::TopicMismatch)?;
        let expected = Expected {
            topic: Topic::KvEvents.as_str(),
            first_frame: None,
            publisher: None,
        };
        let limits = self.settings.borrow().limits(Topic::KvEvents).brokered();
        let delivery = Delivery::decode(message, &expected, &limits)?;
        lock(&self.shared).forgotten.speaks();
        let from = Origin {
            publisher: delivery.publisher,
            namespace,
            now: self.started.elapsed(),
        };
        let mut cursors = lock(&self.cursors);
        let was_full = cursors.is_full();
        let tally = self.intake.accept(&mut cursors, from, &delivery.payload, &limits);
        self.metrics.add(&tally);
        if cursors.is_full() && !was_full {
            tracing::warn!(
                ranks = cursors.ranks(),
                "a set of event brokers relays more ranks than `dynamo.kv.limits.max_cursors_per_subscription`: what the others hold is not known"
            );
        }
        Ok(())
    }
}

impl Relay for Streams {
    fn ask(&self, subjects: Subjects) {
        lock(&self.shared).subjects = Arc::new(subjects);
    }

    fn connected(&self) {
        let mut shared = lock(&self.shared);
        if shared.connected == 0 {
            (shared.since, shared.delivered) = (Instant::now(), false);
        }
        shared.connected += 1;
    }

    fn lost(&self) {
        let mut shared = lock(&self.shared);
        shared.connected = shared.connected.saturating_sub(1);
        if shared.connected == 0 && (shared.delivered || shared.since.elapsed() >= RECONNECT_MAX) {
            shared.lost = Instant::now();
        }
    }

    fn stale(&self) {
        let shared = lock(&self.shared);
        if shared.connected > 0 || shared.lost.elapsed() < BLOCK_EVENTS_STALE_AFTER {
            return;
        }
        drop(shared);
        let emptied = self.intake.age(&lock(&self.cursors), self.started.elapsed());
        if emptied > 0 {
            lock(&self.shared).forgotten.emptied(emptied, None, None);
        }
    }

    fn message(&self, message: &Message<'_>) {
        if let Err(refusal) = self.accept(message) {
            self.metrics.count(Outcome::Refused(refusal), 1);
        }
    }

    fn end(&self) {
        self.intake.end(&mut lock(&self.cursors), self.started.elapsed());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

//! Which ranks are live, and which publishers speak for them.
//!
//! A publisher's record does not say which worker it belongs to; its samples do. A worker whose publisher has
//! spoken is covered while that subscription is connected. The silent ones of a component cannot be told apart:
//! they are covered when every publisher of the component that has not spoken yet is connected.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use continuum_fleet::{
    ids::{Namespace, PublisherId, Rank, WorkerKey},
    view::{FleetView, Publisher, PublisherKey, RankRange, Role, Topic, Worker},
};
use imbl::{OrdMap, ordmap::DiffItem};

use super::{Followed, slot::Slot};
use crate::limits::{PUBLISHERS, RANKS_PER_WORKER};

/// Live ranks and their publishers.
#[derive(Debug)]
pub(super) struct Index {
    capacity: usize,
    ranks: usize,
    /// Ranks of live workers that have no key.
    lacking: usize,
    entries: BTreeMap<WorkerKey, Entry>,
    /// Workers that want more keys than they got.
    short: BTreeSet<WorkerKey>,
    publishers: BTreeMap<PublisherId, Heard>,
    scopes: BTreeMap<Scope, Silent>,
    brokered: BTreeSet<Namespace>,
    seen_workers: OrdMap<WorkerKey, Arc<Worker>>,
    seen_publishers: OrdMap<PublisherKey, Arc<Publisher>>,
}

/// One live worker.
#[derive(Debug)]
pub(super) struct Entry {
    /// What it does.
    pub(super) role: Role,
    component: Arc<str>,
    range: RankRange,
    slots: Vec<Arc<Slot>>,
    publishers: Vec<PublisherId>,
}

/// Where a publisher belongs: a namespace, and a component when its scope names one.
type Scope = (Namespace, Option<Arc<str>>);

/// One publisher.
#[derive(Debug, Default)]
struct Heard {
    scope: Option<Scope>,
    live: bool,
    speaks_for: BTreeSet<WorkerKey>,
}

/// Publishers of a scope that have not spoken yet.
#[derive(Debug, Default)]
struct Silent {
    known: usize,
    live: usize,
}

impl Silent {
    const fn covers(&self) -> bool {
        self.known > 0 && self.live == self.known
    }
}

impl Entry {
    /// The slot of a rank.
    pub(super) fn slot(&self, rank: Rank) -> Option<&Arc<Slot>> {
        let place = rank.0.checked_sub(self.range.start)?;
        self.slots.get(usize::try_from(place).ok()?)
    }

    /// Whether the card declares this rank.
    pub(super) const fn declares(&self, rank: Rank) -> bool {
        rank.0 >= self.range.start && rank.0 - self.range.start < self.range.size
    }

    /// Slots, first rank first.
    pub(super) fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        self.slots.iter()
    }

    /// Ranks with their slots.
    pub(super) fn ranks(&self) -> impl Iterator<Item = (Rank, &Slot)> {
        (self.range.start..u32::MAX)
            .zip(&self.slots)
            .map(|(rank, slot)| (Rank(rank), slot.as_ref()))
    }

    /// Ranks without a key.
    fn lacking(&self) -> usize {
        usize::try_from(self.range.size)
            .unwrap_or(usize::MAX)
            .saturating_sub(self.slots.len())
    }

    /// Whether this publisher is known to speak for the worker.
    pub(super) fn hears(&self, publisher: PublisherId) -> bool {
        self.publishers.contains(&publisher)
    }
}

impl Index {
    /// Nobody is live; at most `capacity` ranks may be.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            ranks: 0,
            lacking: 0,
            entries: BTreeMap::new(),
            short: BTreeSet::new(),
            publishers: BTreeMap::new(),
            scopes: BTreeMap::new(),
            brokered: BTreeSet::new(),
            seen_workers: OrdMap::new(),
            seen_publishers: OrdMap::new(),
        }
    }

    /// A live worker.
    pub(super) fn entry(&self, key: &WorkerKey) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Live workers in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&WorkerKey, &Entry)> {
        self.entries.iter()
    }

    /// See [`super::Store::follow`].
    pub(super) fn follow(&mut self, view: &FleetView) -> Followed {
        let mut followed = Followed::default();
        let before = std::mem::replace(&mut self.seen_publishers, view.publishers.clone());
        for change in before.diff(&view.publishers) {
            match change {
                DiffItem::Add(_, new) => self.publisher_came(new),
                DiffItem::Update {
                    old: (_, old),
                    new: (_, new),
                } => {
                    if (&old.namespace, &old.component, old.feeds)
                        != (&new.namespace, &new.component, new.feeds)
                    {
                        self.publisher_left(old);
                        self.publisher_came(new);
                    }
                }
                DiffItem::Remove(_, old) => self.publisher_left(old),
            }
        }
        let before = std::mem::replace(&mut self.seen_workers, view.workers.clone());
        // Departures first: they make room.
        for change in before.diff(&view.workers) {
            match change {
                DiffItem::Remove(key, _) => self.remove(key, &mut followed),
                DiffItem::Update {
                    old: (key, old),
                    new: (_, new),
                } => {
                    if old.ranks() != new.ranks() || old.component != new.component {
                        self.remove(key, &mut followed);
                    }
                }
                DiffItem::Add(..) => {}
            }
        }
        for change in before.diff(&view.workers) {
            match change {
                DiffItem::Add(key, new) | DiffItem::Update { new: (key, new), .. } => {
                    self.ensure(key, new, &mut followed);
                }
                DiffItem::Remove(..) => {}
            }
        }
        for key in std::mem::take(&mut self.short) {
            if let Some(worker) = view.workers.get(&key) {
                self.ensure(&key, worker, &mut followed);
            }
        }
        followed.over_capacity = self.lacking;
        followed
    }

    /// Remembers that a publisher speaks for a worker.
    pub(super) fn learn(&mut self, publisher: PublisherId, key: &WorkerKey) {
        if !self.publishers.contains_key(&publisher) && self.publishers.len() >= PUBLISHERS {
            return;
        }
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        if !entry.publishers.contains(&publisher) {
            entry.publishers.push(publisher);
        }
        let heard = self.publishers.entry(publisher).or_default();
        let first = heard.speaks_for.is_empty();
        heard.speaks_for.insert(key.clone());
        let (scope, live) = (heard.scope.clone(), heard.live);
        if first && let Some(scope) = scope {
            self.count(&scope, -1, live);
        }
        self.refresh(key);
    }

    /// See [`super::Store::forget`].
    pub(super) fn forget(&self, publisher: PublisherId) {
        let Some(heard) = self.publishers.get(&publisher) else {
            return;
        };
        for entry in heard.speaks_for.iter().filter_map(|key| self.entries.get(key)) {
            entry.slots().for_each(|slot| slot.forget(publisher));
        }
    }

    /// See [`super::Store::subscribed`].
    pub(super) fn subscribed(&mut self, publisher: PublisherId, live: bool) {
        if !self.publishers.contains_key(&publisher) && (!live || self.publishers.len() >= PUBLISHERS) {
            return;
        }
        let heard = self.publishers.entry(publisher).or_default();
        if heard.live == live {
            return;
        }
        heard.live = live;
        let speaks_for = heard.speaks_for.clone();
        if let Some(scope) = heard.scope.clone().filter(|_| speaks_for.is_empty()) {
            let silent = self.scopes.entry(scope.clone()).or_default();
            let before = silent.covers();
            silent.live = if live {
                silent.live + 1
            } else {
                silent.live.saturating_sub(1)
            };
            if silent.covers() != before {
                self.refresh_scope(&scope);
            }
        }
        speaks_for.iter().for_each(|key| self.refresh(key));
        self.tidy(publisher);
    }

    /// See [`super::Store::broker_covers`].
    pub(super) fn broker_covers(&mut self, namespace: &Namespace, live: bool) {
        let changed = if live {
            self.brokered.insert(namespace.clone())
        } else {
            self.brokered.remove(namespace)
        };
        if changed {
            self.refresh_scope(&(namespace.clone(), None));
        }
    }

    fn publisher_came(&mut self, record: &Publisher) {
        if record.key.topic != Topic::KvMetrics {
            return;
        }
        let scope = (record.namespace.clone(), record.component.clone());
        let heard = self.publishers.entry(record.key.id).or_default();
        heard.scope = Some(scope.clone());
        let (silent, live) = (heard.speaks_for.is_empty(), heard.live);
        if silent {
            self.count(&scope, 1, live);
        }
        if let Some((instance, _)) = record.feeds {
            self.learn(
                record.key.id,
                &WorkerKey {
                    namespace: record.namespace.clone(),
                    instance,
                },
            );
        }
    }

    fn publisher_left(&mut self, record: &Publisher) {
        if record.key.topic != Topic::KvMetrics {
            return;
        }
        self.forget(record.key.id);
        let Some(heard) = self.publishers.remove(&record.key.id) else {
            return;
        };
        if let Some(scope) = heard.scope.filter(|_| heard.speaks_for.is_empty()) {
            self.count(&scope, -1, heard.live);
        }
        for key in heard.speaks_for {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.publishers.retain(|publisher| *publisher != record.key.id);
            }
            self.refresh(&key);
        }
    }

    fn remove(&mut self, key: &WorkerKey, followed: &mut Followed) {
        self.short.remove(key);
        let Some(entry) = self.entries.remove(key) else {
            return;
        };
        self.ranks = self.ranks.saturating_sub(entry.slots.len());
        self.lacking = self.lacking.saturating_sub(entry.lacking());
        followed
            .departed
            .extend(entry.ranks().map(|(rank, _)| (key.clone(), rank)));
        for publisher in entry.publishers {
            let Some(heard) = self.publishers.get_mut(&publisher) else {
                continue;
            };
            heard.speaks_for.remove(key);
            let (silent, scope, live) = (heard.speaks_for.is_empty(), heard.scope.clone(), heard.live);
            if silent && let Some(scope) = scope {
                self.count(&scope, 1, live);
            }
            self.tidy(publisher);
        }
    }

    /// Gives a worker its keys, as many as there is room for.
    fn ensure(&mut self, key: &WorkerKey, worker: &Worker, followed: &mut Followed) {
        let range = worker.ranks().unwrap_or(RankRange { start: 0, size: 1 });
        if !self.entries.contains_key(key) {
            self.lacking = self
                .lacking
                .saturating_add(usize::try_from(range.size).unwrap_or(usize::MAX));
        }
        let entry = self.entries.entry(key.clone()).or_insert_with(|| Entry {
            role: worker.role,
            component: Arc::clone(&worker.component),
            range,
            slots: Vec::new(),
            publishers: Vec::new(),
        });
        entry.role = worker.role;
        let room = self.capacity.saturating_sub(self.ranks);
        let lacks = wanted(range).saturating_sub(entry.slots.len());
        let given = lacks.min(room);
        entry.slots.extend((0..given).map(|_| Arc::<Slot>::default()));
        self.ranks += given;
        self.lacking = self.lacking.saturating_sub(given);
        followed.added += given;
        if given < lacks {
            self.short.insert(key.clone());
        }
        self.refresh(key);
    }

    /// Adds a publisher that has not spoken to its scope, or takes it out.
    fn count(&mut self, scope: &Scope, step: isize, live: bool) {
        let silent = self.scopes.entry(scope.clone()).or_default();
        let before = silent.covers();
        silent.known = silent.known.saturating_add_signed(step);
        if live {
            silent.live = silent.live.saturating_add_signed(step);
        }
        let (after, empty) = (silent.covers(), silent.known == 0);
        if empty {
            self.scopes.remove(scope);
        }
        if before != after {
            self.refresh_scope(scope);
        }
    }

    fn refresh_scope(&self, scope: &Scope) {
        let first = WorkerKey {
            namespace: scope.0.clone(),
            instance: continuum_fleet::ids::InstanceId::new(0),
        };
        for (key, entry) in self
            .entries
            .range(first..)
            .take_while(|(key, _)| key.namespace == scope.0)
        {
            if scope
                .1
                .as_ref()
                .is_none_or(|component| *component == entry.component)
            {
                self.refresh_entry(key, entry);
            }
        }
    }

    fn refresh(&self, key: &WorkerKey) {
        if let Some(entry) = self.entries.get(key) {
            self.refresh_entry(key, entry);
        }
    }

    fn refresh_entry(&self, key: &WorkerKey, entry: &Entry) {
        let live = |publisher: &PublisherId| self.publishers.get(publisher).is_some_and(|heard| heard.live);
        let silent = |component: Option<&Arc<str>>| {
            self.scopes
                .get(&(key.namespace.clone(), component.cloned()))
                .is_some_and(Silent::covers)
        };
        let covered = self.brokered.contains(&key.namespace)
            || entry.publishers.iter().any(live)
            || (entry.publishers.is_empty() && (silent(Some(&entry.component)) || silent(None)));
        entry.slots().for_each(|slot| slot.cover(covered));
    }

    /// Drops what is known of a publisher that has no record, no subscription and nobody to speak for.
    fn tidy(&mut self, publisher: PublisherId) {
        let idle = |heard: &Heard| heard.scope.is_none() && !heard.live && heard.speaks_for.is_empty();
        if self.publishers.get(&publisher).is_some_and(idle) {
            self.publishers.remove(&publisher);
        }
    }
}

/// Keys that a worker with these ranks should have. The last number of 32 bits is no rank: frontends take it as unset.
pub(crate) fn wanted(range: RankRange) -> usize {
    let size = range.size.min(RANKS_PER_WORKER).min(u32::MAX - range.start);
    usize::try_from(size).unwrap_or(usize::MAX)
}

//! Which ranks are live. A view brings them, a cap may keep some out until there is room.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use continuum_fleet::{
    ids::{Namespace, PublisherId, Rank, WorkerKey},
    limits::MAX_RANKS_PER_WORKER,
    view::{FleetView, Publisher, PublisherKey, RankRange, Role, Worker},
};
use imbl::{OrdMap, ordmap::DiffItem};

use self::coverage::{Heard, Scope, Silent};
use super::{Followed, slot::Slot};

mod coverage;

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
    /// Publishers by the worker that their event source names.
    fed: BTreeMap<WorkerKey, BTreeSet<PublisherId>>,
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
            fed: BTreeMap::new(),
            scopes: BTreeMap::new(),
            brokered: BTreeSet::new(),
            seen_workers: OrdMap::new(),
            seen_publishers: OrdMap::new(),
        }
    }

    /// Another cap. Ranks that have a key keep it; the next view hands out what became free.
    pub(super) const fn set_capacity(&mut self, ranks: usize) {
        self.capacity = ranks;
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
        for key in std::mem::take(&mut self.short) {
            if let Some(worker) = view.workers.get(&key) {
                self.ensure(&key, worker, &mut followed);
            }
        }
        followed.over_capacity = self.lacking;
        followed
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
        let new = !self.entries.contains_key(key);
        if new {
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
        if new {
            self.introduce(key);
        }
        self.refresh(key);
    }
}

/// Keys that a worker with these ranks should have. The last number of 32 bits is no rank: frontends take it as unset.
pub(crate) fn wanted(range: RankRange) -> usize {
    let size = range.size.min(MAX_RANKS_PER_WORKER).min(u32::MAX - range.start);
    usize::try_from(size).unwrap_or(usize::MAX)
}

//! Changes of the registry in, views and notes out.
//!
//! Records are kept under whom they are about, so that one change re-joins one worker or one publisher, however
//! large the fleet. A record that cannot be read is skipped: what its key said before stays.

use std::collections::BTreeMap;

use jiff::Timestamp;

use self::intake::Skipped;
use crate::{
    cards::Cards,
    claims::{Claims, WorkerClaims},
    graphs::{Graphs, NamespaceMatch},
    ids::{Graph, WorkerKey},
    keys::Bucket,
    limits::Limits,
    notes::{EventKind, Notes, Refused},
    said::{Mark, Said},
    sets::Sets,
    view::{Capped, FleetView, PublisherKey},
};

mod intake;
mod rejoin;

/// What a reducer is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Configured namespaces.
    pub namespaces: Vec<Graph>,
    /// How they match the namespaces of workers.
    pub namespace_match: NamespaceMatch,
    /// Caps.
    pub limits: Limits,
}

/// One change of the registry. Keys are full keys of etcd, bucket included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A key has this value now.
    Put {
        /// Key.
        key: String,
        /// Value, as written.
        value: Vec<u8>,
    },
    /// A key is gone.
    Delete {
        /// Key.
        key: String,
    },
}

/// Joins records to workers and publishers, one change at a time.
#[derive(Debug)]
pub struct Reducer {
    settings: Settings,
    graphs: Graphs,
    claims: Claims,
    cards: Cards,
    sets: Sets,
    said: Said,
    full: FullSpaces,
    view: FleetView,
    /// Workers and publishers joined so far: the work done.
    joins: u64,
    /// Cards tell names and roles alone.
    cardless: bool,
    /// Keys whose present value could not be taken in, by hash; at most [`MAX_SAID`] of them.
    unread: BTreeMap<Mark, EventKind>,
    /// Some worker or publisher was found odd since none was.
    odd: bool,
}

/// Key spaces that refused something.
#[derive(Clone, Copy, Debug, Default)]
struct FullSpaces {
    /// Keys refused since the last full list.
    refused: u64,
    /// Buckets that refused a key since the last full list.
    buckets: [bool; Bucket::ALL.len()],
    /// Buckets of which the log knows that they are full.
    said: [bool; Bucket::ALL.len()],
}

/// What a change touched.
enum Touched {
    Nothing,
    Worker(WorkerKey),
    Publishers(Vec<PublisherKey>),
}

impl Reducer {
    /// A reducer that knows nobody.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            graphs: Graphs::new(settings.namespaces.iter().cloned(), settings.namespace_match),
            claims: Claims::default(),
            cards: Cards::new(&settings.limits),
            sets: Sets::default(),
            said: Said::default(),
            full: FullSpaces::default(),
            view: FleetView::default(),
            joins: 0,
            cardless: false,
            unread: BTreeMap::new(),
            odd: false,
            settings,
        }
    }

    /// For a source whose cards are made up of what is configured: they name the worker's role and model, and the
    /// worker has no card, so that nobody takes their defaults (one rank, no capacity) for what it declared.
    #[must_use]
    pub const fn without_cards(mut self) -> Self {
        self.cardless = true;
        self
    }

    /// Applies one change at the cost of the one worker or publisher that it touches.
    pub fn apply(&mut self, change: Change, now: Timestamp) -> Notes {
        self.apply_all([change], now)
    }

    /// Applies changes that are published together, as one pass.
    pub fn apply_all(&mut self, changes: impl IntoIterator<Item = Change>, now: Timestamp) -> Notes {
        let mut notes = Notes::default();
        for change in changes {
            let touched = match change {
                Change::Put { key, value } => match self.put(&key, &value, &mut notes) {
                    Ok(touched) => {
                        notes.add(EventKind::Put);
                        touched
                    }
                    Err(Skipped) => Touched::Nothing,
                },
                Change::Delete { key } => self.delete(&key, &mut notes),
            };
            match touched {
                Touched::Nothing => {}
                Touched::Worker(key) => self.rejoin_worker(&key, Some(now), &mut notes),
                Touched::Publishers(keys) => {
                    keys.into_iter()
                        .for_each(|key| self.rejoin_publisher(key, &mut notes));
                }
            }
        }
        self.settle(&mut notes);
        notes
    }

    /// Replaces everything with a full list: keys that are not in it are gone, `first` times of workers that
    /// are still there stay, and [`Self::view`] changes once.
    pub fn reset<K, V>(&mut self, entries: impl IntoIterator<Item = (K, V)>, now: Timestamp) -> Notes
    where
        K: AsRef<str>,
        V: AsRef<[u8]>,
    {
        let mut notes = Notes::default();
        notes.add(EventKind::Resync);
        let mut old = std::mem::take(&mut self.claims);
        self.full.refused = 0;
        self.full.buckets = Default::default();
        self.unread.clear();
        for (key, value) in entries {
            let (key, value) = (key.as_ref(), value.as_ref());
            if self.put(key, value, &mut notes).is_err() {
                self.carry_over(key, &old);
            }
        }
        self.full.said = self.full.buckets;

        let keys: Vec<WorkerKey> = self.claims.workers.keys().cloned().collect();
        for key in &keys {
            let before = old.workers.remove(key);
            let changed = self.inherit_worker(key, before.as_ref());
            self.rejoin_worker(key, changed.then_some(now), &mut notes);
            before.iter().for_each(|before| self.release_cards(before));
        }
        let keys: Vec<PublisherKey> = self.claims.publishers.keys().copied().collect();
        for key in keys {
            let before = old.publishers.remove(&key);
            if let (Some(claims), Some(before)) = (self.claims.publishers.get_mut(&key), before) {
                claims.conflicts = before.conflicts;
            }
            self.rejoin_publisher(key, &mut notes);
        }
        for (key, gone) in old.workers {
            self.forget_worker(&key, &gone, &mut notes);
        }
        for (key, gone) in old.publishers {
            self.forget_publisher(key, &gone, &mut notes);
        }
        self.settle(&mut notes);
        notes
    }

    /// Takes over a new set of configured namespaces. Workers and publishers of graphs that are gone leave; the
    /// others stay as they are. Namespaces that are new stay empty until their records are put.
    pub fn retain_namespaces(&mut self, namespaces: Vec<Graph>, now: Timestamp) -> Notes {
        let mut notes = Notes::default();
        self.graphs = Graphs::new(namespaces.iter().cloned(), self.settings.namespace_match);
        self.settings.namespaces = namespaces;
        let workers: Vec<WorkerKey> = self.claims.workers.keys().cloned().collect();
        for key in workers {
            match self.graphs.graph_of(key.namespace.as_str()) {
                None => self.claims.remove_worker(&key, &mut self.cards),
                // A namespace may move to a graph that now names it exactly.
                Some((graph, _))
                    if self
                        .view
                        .workers
                        .get(&key)
                        .is_some_and(|worker| worker.graph != graph) => {}
                Some(_) => continue,
            }
            self.rejoin_worker(&key, Some(now), &mut notes);
        }
        let publishers: Vec<PublisherKey> = self.claims.publishers.keys().copied().collect();
        for key in publishers {
            let Self { claims, graphs, .. } = self;
            claims.retain_publisher(key, |namespace| graphs.graph_of(namespace.as_str()).is_some());
            self.rejoin_publisher(key, &mut notes);
        }
        self.settle(&mut notes);
        notes
    }

    /// Whether a full key space refused records that would fit by now: a full list would bring them back.
    #[must_use]
    pub fn wants_reset(&self) -> bool {
        Bucket::ALL
            .into_iter()
            .zip(self.full.buckets)
            .any(|(bucket, full)| full && self.claims.count(bucket) < self.settings.limits.keys_in(bucket))
    }

    /// The present view; cloning shares all of it.
    #[must_use]
    pub fn view(&self) -> FleetView {
        self.view.clone()
    }

    /// What is kept out of the view now, or is in it as it was before. While something is odd, this looks at every
    /// worker and publisher.
    pub fn refused(&mut self) -> Refused {
        let mut refused = Refused::default();
        if self.odd {
            for claims in self.claims.workers.values() {
                refused.add(EventKind::Duplicate, claims.conflicts.len() as u64);
                refused.add(EventKind::Mismatch, u64::from(claims.role_conflict));
            }
            for claims in self.claims.publishers.values() {
                refused.add(EventKind::Duplicate, claims.conflicts.len() as u64);
            }
            self.odd = !refused.is_empty();
        }
        refused.add(EventKind::OverCapacity, self.full.refused);
        for kind in self.unread.values() {
            refused.add(*kind, 1);
        }
        refused
    }

    /// What it was made for.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Gives a worker of a full list what is known of it; whether its records changed.
    fn inherit_worker(&mut self, key: &WorkerKey, before: Option<&WorkerClaims>) -> bool {
        let (Some(claims), Some(before)) = (self.claims.workers.get_mut(key), before) else {
            return true;
        };
        claims.seen = before.seen.filter(|_| !claims.instances.is_empty());
        claims.conflicts.clone_from(&before.conflicts);
        claims.release_said = before.release_said;
        !claims.same_records(before)
    }

    fn settle(&mut self, notes: &mut Notes) {
        self.sets.settle(notes);
        self.view.capped = Capped {
            records: self.full.refused,
            cards: self.cards.dropped(),
        };
    }
}

#[cfg(test)]
mod tests;

//! Which publishers speak for which workers, and whether somebody listens to them.
//!
//! A publisher's record does not say which worker it belongs to; its samples do. A worker whose publisher has
//! spoken is covered while that subscription is connected. The silent ones of a component cannot be told apart:
//! they are covered when every publisher of the component that has not spoken yet is connected.

use std::{collections::BTreeSet, sync::Arc};

use continuum_fleet::{
    ids::{InstanceId, Namespace, PublisherId, WorkerKey},
    view::{Publisher, Topic},
};

use super::{Entry, Index};
use crate::limits::{PUBLISHERS, PUBLISHERS_PER_WORKER};

/// Where a publisher belongs: a namespace, and a component when its scope names one.
pub(super) type Scope = (Namespace, Option<Arc<str>>);

/// One publisher.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) scope: Option<Scope>,
    pub(super) live: bool,
    pub(super) speaks_for: BTreeSet<WorkerKey>,
}

/// Publishers of a scope that have not spoken yet.
#[derive(Debug, Default)]
pub(super) struct Silent {
    known: usize,
    live: usize,
}

impl Silent {
    const fn covers(&self) -> bool {
        self.known > 0 && self.live == self.known
    }
}

impl Index {
    /// Remembers that a publisher speaks for a worker.
    pub(in crate::load) fn learn(&mut self, publisher: PublisherId, key: &WorkerKey) {
        let Some(entry) = self.entries.get(key) else {
            return;
        };
        if !entry.hears(publisher) && entry.publishers.len() >= PUBLISHERS_PER_WORKER {
            let unrecorded = |publisher: &&PublisherId| {
                self.publishers
                    .get(publisher)
                    .is_none_or(|heard| heard.scope.is_none() && !heard.live)
            };
            let Some(oldest) = entry.publishers.iter().find(unrecorded).copied() else {
                return;
            };
            self.part(oldest, key);
        }
        if !self.publishers.contains_key(&publisher) && self.publishers.len() >= PUBLISHERS {
            return;
        }
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        if !entry.hears(publisher) {
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

    /// See [`crate::load::Store::subscribed`].
    pub(in crate::load) fn subscribed(&mut self, publisher: PublisherId, live: bool) {
        if !live
            && self
                .publishers
                .get(&publisher)
                .is_some_and(|heard| heard.scope.is_none())
        {
            // Its record left before its subscription ended: what it told in between goes as well.
            return self.leave(publisher);
        }
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

    /// See [`crate::load::Store::broker_covers`].
    pub(in crate::load) fn broker_covers(&mut self, namespace: &Namespace, live: bool) {
        let changed = if live {
            self.brokered.insert(namespace.clone())
        } else {
            self.brokered.remove(namespace)
        };
        if changed {
            self.refresh_scope(&(namespace.clone(), None));
        }
    }

    pub(super) fn publisher_came(&mut self, record: &Publisher) {
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
        if let Some(key) = fed_by(record) {
            self.learn(record.key.id, &key);
            self.fed.entry(key).or_default().insert(record.key.id);
        }
    }

    pub(super) fn publisher_left(&mut self, record: &Publisher) {
        if record.key.topic != Topic::KvMetrics {
            return;
        }
        if let Some(key) = fed_by(record)
            && let Some(publishers) = self.fed.get_mut(&key)
        {
            publishers.remove(&record.key.id);
            if publishers.is_empty() {
                self.fed.remove(&key);
            }
        }
        self.leave(record.key.id);
    }

    /// Lets a new worker know the publishers whose records name it.
    pub(super) fn introduce(&mut self, key: &WorkerKey) {
        for publisher in self.fed.get(key).cloned().unwrap_or_default() {
            self.learn(publisher, key);
        }
    }

    /// Drops a publisher and what it told.
    fn leave(&mut self, publisher: PublisherId) {
        self.forget(publisher);
        let Some(heard) = self.publishers.remove(&publisher) else {
            return;
        };
        if let Some(scope) = heard.scope.filter(|_| heard.speaks_for.is_empty()) {
            self.count(&scope, -1, heard.live);
        }
        for key in heard.speaks_for {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.publishers.retain(|known| *known != publisher);
            }
            self.refresh(&key);
        }
    }

    /// A publisher without a record does not count as a voice of the worker any more.
    fn part(&mut self, publisher: PublisherId, key: &WorkerKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.slots().for_each(|slot| slot.forget(publisher));
            entry.publishers.retain(|known| *known != publisher);
        }
        if let Some(heard) = self.publishers.get_mut(&publisher) {
            heard.speaks_for.remove(key);
        }
        self.tidy(publisher);
    }

    /// Adds a publisher that has not spoken to its scope, or takes it out.
    pub(super) fn count(&mut self, scope: &Scope, step: isize, live: bool) {
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
            instance: InstanceId::new(0),
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

    pub(super) fn refresh(&self, key: &WorkerKey) {
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
    pub(super) fn tidy(&mut self, publisher: PublisherId) {
        let idle = |heard: &Heard| heard.scope.is_none() && !heard.live && heard.speaks_for.is_empty();
        if self.publishers.get(&publisher).is_some_and(idle) {
            self.publishers.remove(&publisher);
        }
    }
}

/// The worker that a publisher's event source names.
fn fed_by(record: &Publisher) -> Option<WorkerKey> {
    let (instance, _) = record.feeds?;
    Some(WorkerKey {
        namespace: record.namespace.clone(),
        instance,
    })
}

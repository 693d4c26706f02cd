//! Joining again what a change touched, and what there is to say about it.

use jiff::Timestamp;

use super::Reducer;
use crate::{
    claims::{PublisherClaims, Reported, WorkerClaims},
    ids::WorkerKey,
    join::{self, Conflict, Joined},
    limits::MAX_KEYS_IN_REPORT,
    notes::{ConflictKind, EventKind, Note, Notes, TooWide},
    records::Slot,
    said::Said,
    view::{PublisherKey, Seen, Worker},
};

impl Reducer {
    /// Joins one worker again. `changed`: when its records changed, if they did.
    pub(super) fn rejoin_worker(&mut self, key: &WorkerKey, changed: Option<Timestamp>, notes: &mut Notes) {
        self.joins += 1;
        let Some(claims) = self.claims.workers.get_mut(key) else {
            return;
        };
        if claims.is_empty() {
            let gone = self.claims.workers.remove(key).unwrap_or_default();
            return self.forget_worker(key, &gone, notes);
        }
        if claims.instances.is_empty() {
            claims.seen = None;
        } else if let Some(now) = changed {
            let first = claims.seen.map_or(now, |seen| seen.first);
            claims.seen = Some(Seen { first, updated: now });
        }
        let mut joined = match (self.graphs.graph_of(key.namespace.as_str()), claims.seen) {
            (Some(graph), Some(seen)) => join::worker(key, graph, seen, &claims.instances, &claims.cards),
            (Some(graph), None) => {
                // Cards before their instance: conflicts count, a worker there is not.
                let never = Seen {
                    first: Timestamp::UNIX_EPOCH,
                    updated: Timestamp::UNIX_EPOCH,
                };
                join::worker(key, graph, never, &claims.instances, &claims.cards)
            }
            (None, _) => Joined::default(),
        };
        if self.cardless
            && let Some(worker) = &mut joined.worker
        {
            worker.card = None;
        }
        claims.role_conflict = joined.role_conflict.is_some();
        self.odd |= claims.role_conflict || !joined.conflicts.is_empty();
        report(
            &mut claims.conflicts,
            &joined.conflicts,
            &mut self.said,
            notes,
            |conflict| identity_of_worker(key, conflict),
        );
        self.speak(key, &joined, notes);
        self.replace_worker(key, joined.worker);
    }

    /// Takes a worker without records out of the view.
    pub(super) fn forget_worker(&mut self, key: &WorkerKey, gone: &WorkerClaims, notes: &mut Notes) {
        self.release_cards(gone);
        report(
            &mut gone.conflicts.clone(),
            &[],
            &mut self.said,
            notes,
            |conflict| identity_of_worker(key, conflict),
        );
        self.replace_worker(key, None);
    }

    /// Joins one publisher again.
    pub(super) fn rejoin_publisher(&mut self, key: PublisherKey, notes: &mut Notes) {
        self.joins += 1;
        let Some(claims) = self.claims.publishers.get_mut(&key) else {
            return;
        };
        if claims.is_empty() {
            let gone = self.claims.publishers.remove(&key).unwrap_or_default();
            return self.forget_publisher(key, &gone, notes);
        }
        let graph_of =
            |namespace: &crate::ids::Namespace| self.graphs.graph_of(namespace.as_str()).map(|(g, _)| g);
        let (publisher, conflicts) = join::publisher(key, graph_of, &claims.channels, &claims.sources);
        self.odd |= !conflicts.is_empty();
        report(&mut claims.conflicts, &conflicts, &mut self.said, notes, |_| {
            identity_of_publisher(key)
        });
        match publisher {
            Some(publisher) => {
                if self
                    .view
                    .publishers
                    .get(&key)
                    .is_none_or(|known| **known != publisher)
                {
                    self.view.publishers.insert(key, publisher.into());
                }
            }
            None => drop(self.view.publishers.remove(&key)),
        }
    }

    /// Takes a publisher without records out of the view.
    pub(super) fn forget_publisher(&mut self, key: PublisherKey, gone: &PublisherClaims, notes: &mut Notes) {
        report(&mut gone.conflicts.clone(), &[], &mut self.said, notes, |_| {
            identity_of_publisher(key)
        });
        self.view.publishers.remove(&key);
    }

    pub(super) fn release_cards(&mut self, claims: &WorkerClaims) {
        claims
            .cards
            .values()
            .for_each(|card| self.cards.release(&card.digest));
    }

    /// Replaces the worker of the view where it differs: an equal one keeps its place in memory.
    fn replace_worker(&mut self, key: &WorkerKey, next: Option<Worker>) {
        let known = self.view.workers.get(key);
        let unchanged = match (known, &next) {
            (Some(known), Some(next)) => **known == *next && known.seen.is(&next.seen),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if unchanged {
            return;
        }
        self.sets.replaced(known.map(AsRef::as_ref), next.as_ref());
        match next {
            Some(worker) => drop(self.view.workers.insert(key.clone(), worker.into())),
            None => drop(self.view.workers.remove(key)),
        }
    }

    /// Says what is odd about one worker.
    fn speak(&mut self, key: &WorkerKey, joined: &Joined, notes: &mut Notes) {
        let name = || identity_of_instance(key);
        if let Some(conflict) = joined.role_conflict {
            let words = [
                conflict.component.as_str().as_bytes(),
                conflict.card.as_str().as_bytes(),
            ];
            if self
                .said
                .first_time([b"role".as_slice(), name().as_bytes()].into_iter().chain(words))
            {
                notes.add(EventKind::Mismatch);
                notes.say(Note::RoleConflict {
                    worker: key.clone(),
                    component: conflict.component,
                    card: conflict.card,
                });
            }
        }
        let ranks_cut = joined.base.as_ref().is_some_and(|base| base.ranks_cut);
        for (is, what) in [(ranks_cut, TooWide::Ranks), (joined.names_cut, TooWide::Names)] {
            if is
                && self
                    .said
                    .first_time([b"wide".as_slice(), what.as_str().as_bytes(), name().as_bytes()])
            {
                notes.add(EventKind::OverCapacity);
                notes.say(Note::WorkerTooWide {
                    worker: key.clone(),
                    what,
                });
            }
        }
        let release = joined
            .base
            .as_ref()
            .filter(|_| joined.worker.is_some())
            .and_then(|base| base.release.clone());
        if let Some((field, version)) = release
            && let Some(claims) = self.claims.workers.get_mut(key)
            && !std::mem::replace(&mut claims.release_said, true)
        {
            notes.say(Note::Release {
                worker: key.clone(),
                field,
                version,
            });
        }
    }
}

/// Brings the known conflicts of one identity up to date. A set of keys is counted when it appears, and logged
/// if the log has not had it; beyond four keys only when their number is a power of two, so that a flood of keys
/// is no flood of lines.
fn report(
    known: &mut Vec<Reported>,
    now: &[Conflict],
    said: &mut Said,
    notes: &mut Notes,
    identity: impl Fn(&Conflict) -> String,
) {
    let before = std::mem::take(known);
    for reported in before.iter().filter(|reported| reported.said) {
        let conflict = &reported.conflict;
        if !now.iter().any(|now| now.same_identity(conflict)) {
            notes.say(Note::Resolved {
                kind: conflict.kind,
                identity: identity(conflict),
            });
        }
    }
    for conflict in now {
        let before = before
            .iter()
            .find(|before| before.conflict.same_identity(conflict));
        if let Some(before) = before.filter(|before| before.conflict.set == conflict.set) {
            known.push(before.clone());
            continue;
        }
        notes.add(EventKind::Duplicate);
        let identity = identity(conflict);
        let loud = conflict.count <= MAX_KEYS_IN_REPORT || conflict.count.is_power_of_two();
        let speak = loud
            && said.first_time([
                conflict.kind.as_str().as_bytes(),
                identity.as_bytes(),
                conflict.set.as_slice(),
            ]);
        if speak {
            notes.say(Note::Duplicate {
                kind: conflict.kind,
                identity,
                count: conflict.count,
                keys: conflict.keys.clone(),
            });
        }
        known.push(Reported {
            conflict: conflict.clone(),
            said: speak || before.is_some_and(|before| before.said),
        });
    }
}

fn identity_of_worker(key: &WorkerKey, conflict: &Conflict) -> String {
    let instance = identity_of_instance(key);
    match (conflict.kind, &conflict.slot) {
        (ConflictKind::BaseCard | ConflictKind::AdapterCard, Some(Slot::Scoped { component, suffix })) => {
            format!(
                "{instance} card {component}{}",
                suffix.as_ref().map(|s| format!("/{s}")).unwrap_or_default()
            )
        }
        (ConflictKind::BaseCard | ConflictKind::AdapterCard, Some(Slot::Unscoped { suffix })) => {
            format!(
                "{instance} card{}",
                suffix.as_ref().map(|s| format!(" {s}")).unwrap_or_default()
            )
        }
        (
            ConflictKind::Instance
            | ConflictKind::BaseCard
            | ConflictKind::AdapterCard
            | ConflictKind::Channel
            | ConflictKind::Source,
            _,
        ) => instance,
    }
}

fn identity_of_instance(key: &WorkerKey) -> String {
    format!("{}/{}", key.namespace.as_str(), key.instance.hex())
}

fn identity_of_publisher(key: PublisherKey) -> String {
    format!("{}/{}", key.topic.as_str(), key.id.hex())
}

//! Publishers behind ZeroMQ brokers: a set of XPUB endpoints that all relay the same publishers.
//!
//! A fleet in broker mode registers no publisher, so one connection carries many: frame 1 tells the scope, the
//! publisher is whoever the message names, and a message that came through one broker is a duplicate on the
//! next.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use continuum_fleet::{
    ids::{Namespace, PublisherId},
    view::Topic,
};
use continuum_wire::{ActiveLoad, Delivery, Expected, Limits, Refusal, zmtp::Message};

use crate::{
    family::Relay,
    limits::MAX_BROKER_PUBLISHERS,
    metrics::{Metrics, Outcome},
    sequence::{Step, step},
    sink::LoadSink,
};

pub(crate) use self::sets::{Sets, Subjects, sets};

mod sets;

/// How many connected sets of brokers relay each namespace. The sink hears of the first and of the last one.
pub(crate) struct Coverage {
    sink: Arc<dyn LoadSink>,
    sets: Mutex<BTreeMap<Namespace, usize>>,
}

impl Coverage {
    pub(crate) fn new(sink: Arc<dyn LoadSink>) -> Self {
        Self {
            sink,
            sets: Mutex::default(),
        }
    }

    fn gains(&self, namespace: &Namespace) {
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let count = sets.entry(namespace.clone()).or_default();
        *count += 1;
        if *count == 1 {
            self.sink.broker_covers(namespace, true);
        }
    }

    fn loses(&self, namespace: &Namespace) {
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = sets.get_mut(namespace) else {
            return;
        };
        *count = count.saturating_sub(1);
        if *count == 0 {
            sets.remove(namespace);
            self.sink.broker_covers(namespace, false);
        }
    }
}

/// What the connections to one set of brokers share.
pub(crate) struct Group {
    sink: Arc<dyn LoadSink>,
    coverage: Arc<Coverage>,
    metrics: Metrics,
    shared: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    subjects: Arc<Subjects>,
    connected: usize,
    recent: Recent,
}

impl Group {
    pub(crate) fn new(coverage: Arc<Coverage>, metrics: Metrics) -> Self {
        Self {
            sink: Arc::clone(&coverage.sink),
            coverage,
            metrics,
            shared: Mutex::default(),
        }
    }

    fn accept(&self, message: &Message<'_>) -> Result<Outcome, Refusal> {
        let subject = message.frame(0).ok_or(Refusal::Malformed)?;
        let subjects = Arc::clone(&self.lock().subjects);
        let namespace = subjects.get(subject).ok_or(Refusal::TopicMismatch)?;
        let topic = Topic::KvMetrics.as_str();
        let expected = Expected {
            topic,
            first_frame: None,
            publisher: None,
        };
        let limits = Limits::KV_METRICS.brokered();
        let delivery = Delivery::decode(message, &expected, &limits)?;
        let load = ActiveLoad::decode(&delivery.payload, &limits)?;
        match self.lock().recent.step(delivery.publisher, delivery.sequence) {
            Step::Duplicate => return Ok(Outcome::Duplicate),
            Step::Gap => {
                self.metrics.count(Outcome::Gap, 1);
                self.sink.forget(delivery.publisher);
            }
            Step::First | Step::Next => {}
        }
        Ok(self
            .sink
            .apply(delivery.publisher, namespace, delivery.sequence, &load)
            .into())
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn covered(subjects: &Subjects) -> BTreeSet<Namespace> {
    subjects.values().cloned().collect()
}

impl Relay for Group {
    fn ask(&self, subjects: Subjects) {
        let mut shared = self.lock();
        let before = covered(&shared.subjects);
        let after = covered(&subjects);
        shared.subjects = Arc::new(subjects);
        if shared.connected > 0 {
            before
                .difference(&after)
                .for_each(|namespace| self.coverage.loses(namespace));
            after
                .difference(&before)
                .for_each(|namespace| self.coverage.gains(namespace));
        }
    }

    fn connected(&self) {
        let mut shared = self.lock();
        shared.connected += 1;
        if shared.connected == 1 {
            // While no broker was connected, any publisher may have spoken.
            for publisher in shared.recent.drain() {
                self.sink.forget(publisher);
            }
            covered(&shared.subjects)
                .iter()
                .for_each(|namespace| self.coverage.gains(namespace));
        }
    }

    fn lost(&self) {
        let mut shared = self.lock();
        shared.connected = shared.connected.saturating_sub(1);
        if shared.connected == 0 {
            covered(&shared.subjects)
                .iter()
                .for_each(|namespace| self.coverage.loses(namespace));
        }
    }

    fn stale(&self) {}

    fn message(&self, message: &Message<'_>) {
        let outcome = self.accept(message).unwrap_or_else(Outcome::Refused);
        self.metrics.count(outcome, 1);
    }

    fn end(&self) {}
}

/// The last sequence of each publisher, in two generations: when the young one is full the old one, with
/// everybody who was silent since, is let go.
#[derive(Debug, Default)]
struct Recent {
    young: HashMap<PublisherId, u64>,
    old: HashMap<PublisherId, u64>,
}

impl Recent {
    /// Judges a number and, unless it is a duplicate, remembers it.
    fn step(&mut self, publisher: PublisherId, sequence: u64) -> Step {
        let last = self
            .young
            .get(&publisher)
            .or_else(|| self.old.get(&publisher))
            .copied();
        let step = step(last, sequence);
        if step != Step::Duplicate {
            if self.young.len() >= MAX_BROKER_PUBLISHERS / 2 && !self.young.contains_key(&publisher) {
                self.old = std::mem::take(&mut self.young);
            }
            self.young.insert(publisher, sequence);
        }
        step
    }

    fn drain(&mut self) -> BTreeSet<PublisherId> {
        self.young
            .drain()
            .chain(self.old.drain())
            .map(|(publisher, _)| publisher)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        client::Handler as _,
        family::Relayed,
        subscription::Session as _,
        testing::{Recorder, Told},
    };

    #[test]
    fn a_namespace_is_covered_while_any_of_its_sets_is_connected() {
        let recorder = Arc::new(Recorder::default());
        let coverage = Arc::new(Coverage::new(Arc::clone(&recorder) as Arc<dyn LoadSink>));
        let metrics = Metrics::new().unwrap();
        let subjects: Subjects = [(b"s".as_slice().into(), Namespace::from("dynamo"))].into();
        let set = || {
            let group = Arc::new(Group::new(Arc::clone(&coverage), metrics.clone()));
            group.ask(subjects.clone());
            (Arc::clone(&group), Relayed::new(group))
        };
        let ((_, mut one), (others, mut other)) = (set(), set());
        one.ready();
        other.ready();
        one.lost();
        assert_eq!(recorder.told(), [Told::Covers("dynamo".into(), true)]);
        one.ready();
        // No subject is left to the second set: the first one still covers.
        others.ask(Subjects::new());
        drop(other);
        assert_eq!(recorder.told(), [Told::Covers("dynamo".into(), true)]);
        drop(one);
        assert_eq!(
            recorder.told(),
            [
                Told::Covers("dynamo".into(), true),
                Told::Covers("dynamo".into(), false)
            ]
        );
    }

    #[test]
    fn memory_of_publishers_is_bounded_and_keeps_the_active() {
        let mut recent = Recent::default();
        let active = PublisherId::new(u64::MAX);
        for id in 0..4 * MAX_BROKER_PUBLISHERS as u64 {
            recent.step(PublisherId::new(id), 0);
            assert_ne!(recent.step(active, id), Step::Gap, "{id}");
            assert!(recent.young.len() + recent.old.len() <= MAX_BROKER_PUBLISHERS);
        }
        assert_eq!(recent.step(active, 7), Step::Duplicate);
        assert!(recent.drain().contains(&active));
        assert_eq!(recent.step(active, 7), Step::First);
    }
}

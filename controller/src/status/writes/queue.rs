//! Which statuses are written next: one namespace whose writes hang holds up no other.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use crate::{
    push::Key,
    status::limits::{MAX_WRITES, MAX_WRITES_PER_NAMESPACE},
};

/// What waits, and what is being written.
#[derive(Debug)]
pub(super) struct Queue<T> {
    waiting: VecDeque<(Key, T)>,
    busy: BTreeSet<Key>,
    /// The numbers of the last turns.
    keys: BTreeMap<Key, u64>,
    namespaces: BTreeMap<Arc<str>, u64>,
    next: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            busy: BTreeSet::new(),
            keys: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<T> Queue<T> {
    pub(super) fn is_busy(&self, key: &Key) -> bool {
        self.busy.contains(key)
    }

    /// What waits from now on, in place of all that did.
    pub(super) fn put(&mut self, wanted: Vec<(Key, T)>) {
        self.waiting = wanted.into();
    }

    /// The next one, if there is room for it: of the namespace of which the fewest are being written, and among equals
    /// whoever had its turn before the others.
    pub(super) fn begin(&mut self) -> Option<(Key, T)> {
        if self.busy.len() >= MAX_WRITES {
            return None;
        }
        let waiting = self.waiting.iter().enumerate();
        let ranked = waiting.filter_map(|(at, (key, _))| {
            let beside = self.busy.iter().filter(|busy| busy.namespace == key.namespace);
            let beside = beside.count();
            let has_room = beside < MAX_WRITES_PER_NAMESPACE && !self.busy.contains(key);
            let turns = (self.namespaces.get(&key.namespace), self.keys.get(key));
            has_room.then_some(((beside, turns), at))
        });
        let (_, at) = ranked.min()?;
        let (key, work) = self.waiting.remove(at)?;
        self.keys.insert(key.clone(), self.next);
        self.namespaces.insert(Arc::clone(&key.namespace), self.next);
        self.next = self.next.wrapping_add(1);
        self.busy.insert(key.clone());
        Some((key, work))
    }

    pub(super) fn ended(&mut self, key: &Key) {
        self.busy.remove(key);
    }

    /// Forgets the turns of those that are gone.
    pub(super) fn retain(&mut self, there: impl Fn(&Key) -> bool) {
        self.keys.retain(|key, _| there(key));
        let keys = &self.keys;
        self.namespaces
            .retain(|namespace, _| keys.keys().any(|key| key.namespace == *namespace));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: usize) -> Key {
        Key {
            namespace: namespace.into(),
            name: name.to_string().into(),
        }
    }

    fn wanted(of: &[(&str, usize)]) -> Vec<(Key, ())> {
        let keys = of
            .iter()
            .flat_map(|(namespace, count)| (0..*count).map(|name| key(namespace, name)));
        keys.map(|key| (key, ())).collect()
    }

    fn begun(queue: &mut Queue<()>) -> Vec<Key> {
        std::iter::from_fn(|| queue.begin())
            .map(|(key, ())| key)
            .collect()
    }

    #[test]
    fn a_namespace_leaves_room_for_others_and_nobody_is_written_twice_at_once() {
        let mut queue = Queue::default();
        queue.put(wanted(&[("a", 100), ("b", 2)]));
        let first = begun(&mut queue);
        let of_a = first.iter().filter(|key| *key.namespace == *"a").count();
        assert_eq!(
            (of_a, first.len()),
            (MAX_WRITES_PER_NAMESPACE, MAX_WRITES_PER_NAMESPACE + 2)
        );
        queue.put(wanted(&[("a", 1), ("c", 100)]));
        assert_eq!(begun(&mut queue).len(), MAX_WRITES - first.len());
        assert!(queue.is_busy(&key("a", 0)));
        queue.ended(&key("a", 0));
        queue.put(wanted(&[("a", 1)]));
        assert_eq!(begun(&mut queue), [key("a", 0)]);
    }

    #[test]
    fn whoever_had_its_turn_last_comes_last() {
        let mut queue = Queue::default();
        let all = [("a", 6), ("b", 6), ("c", 1)];
        queue.put(wanted(&all[..2]));
        let first = begun(&mut queue);
        assert_eq!(first.len(), MAX_WRITES);
        // One of them hangs until it is given up, and many others like it wait.
        queue.put(wanted(&all));
        queue.ended(&first[0]);
        assert_eq!(begun(&mut queue), [key("c", 0)]);
        first.iter().for_each(|key| queue.ended(key));
        let second = begun(&mut queue);
        let beginning: Vec<_> = [("a", 4), ("b", 4), ("a", 5), ("b", 5)]
            .map(|(of, name)| key(of, name))
            .into();
        assert_eq!(second[..4], beginning);
        queue.retain(|key| *key.namespace == *"c");
        assert_eq!((queue.keys.len(), queue.namespaces.len()), (1, 1));
    }

    #[test]
    fn of_many_namespaces_that_hang_each_has_its_turn_before_the_others_come_again() {
        let mut queue = Queue::default();
        let names: Vec<String> = (0..20).map(|number| format!("n{number:02}")).collect();
        let all: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 50)).collect();
        let mut came = BTreeSet::new();
        for _ in 0..3 {
            queue.put(wanted(&all));
            for key in begun(&mut queue) {
                queue.ended(&key);
                came.insert(key.namespace);
            }
        }
        assert_eq!(came.len(), all.len());
    }
}

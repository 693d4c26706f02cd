//! Places of connections on which a good token was shown, by `RouterConfig`.
//!
//! A session is what keeps a place: connections without one make way for others, of their own `RouterConfig` when that
//! has too many, else of the one that has most of them. Whoever opens connections and says nothing on them keeps nobody
//! out. Where sessions have all places, those who have less than their share of them get one of whoever has most: the
//! namespaces share all places, and the `RouterConfig`s of a namespace those that it has.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

use super::{
    Key,
    limits::{MAX_CONNECTIONS, MAX_CONNECTIONS_PER_KEY},
};

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    count: usize,
    /// By age.
    keys: BTreeMap<Key, BTreeMap<u64, Held>>,
}

#[derive(Debug)]
struct Held {
    sessions: usize,
    end: CancellationToken,
}

/// One of them; free when this is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    table: Arc<Places>,
    key: Key,
    number: u64,
}

impl Places {
    /// Takes one for a connection that ends when `end` is cancelled. `None`: all are kept by sessions, and `key` has its
    /// share of them.
    pub(super) fn take(self: &Arc<Self>, key: &Key, end: CancellationToken) -> Option<Taken> {
        let mut inner = self.lock();
        let of_key = inner.keys.get(key).map_or(0, BTreeMap::len);
        if of_key >= MAX_CONNECTIONS_PER_KEY {
            let oldest = inner.idle(key).next()?;
            inner.end(key, oldest);
        } else if inner.count >= MAX_CONNECTIONS {
            let (from, number) = inner.spare(key)?;
            inner.end(&from, number);
        }
        let number = inner.next;
        inner.next = inner.next.wrapping_add(1);
        inner.count = inner.count.saturating_add(1);
        let held = Held { sessions: 0, end };
        inner.keys.entry(key.clone()).or_default().insert(number, held);
        drop(inner);
        Some(Taken {
            table: Arc::clone(self),
            key: key.clone(),
            number,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Connections without a session, by age.
    fn idle(&self, key: &Key) -> impl Iterator<Item = u64> {
        let of_key = self.keys.get(key).into_iter().flatten();
        of_key
            .filter(|(_, held)| held.sessions == 0)
            .map(|(number, _)| *number)
    }

    /// The one that makes way for `taker`.
    fn spare(&self, taker: &Key) -> Option<(Key, u64)> {
        let key = self.idlest().or_else(|| self.richest(taker))?;
        let number = match self.idle(&key).next() {
            Some(oldest) => oldest,
            None => *self.keys.get(&key)?.last_key_value()?.0,
        };
        Some((key, number))
    }

    /// Who has most that are idle; `None` when nobody has any.
    fn idlest(&self) -> Option<Key> {
        let counts = self
            .keys
            .iter()
            .map(|(key, held)| (self.idle(key).count(), held.len(), key));
        let (most, _, key) = counts.max_by_key(|(idle, all, _)| (*idle, *all))?;
        (most > 0).then(|| key.clone())
    }

    /// Who gives a session up to `taker`; `None` when that has its share.
    fn richest(&self, taker: &Key) -> Option<Key> {
        let of_namespaces = self.keys.iter().map(|(key, held)| (&*key.namespace, held.len()));
        let Some(namespace) = giver(of_namespaces, &*taker.namespace) else {
            return giver(self.of(&taker.namespace), taker).cloned();
        };
        let (most, _) = self.of(namespace).max_by_key(|(_, count)| *count)?;
        Some(most.clone())
    }

    fn of(&self, namespace: &str) -> impl Iterator<Item = (&Key, usize)> {
        let of_namespace = self
            .keys
            .iter()
            .filter(move |(key, _)| *key.namespace == *namespace);
        of_namespace.map(|(key, held)| (key, held.len()))
    }

    fn end(&mut self, key: &Key, number: u64) {
        if let Some(held) = self.remove(key, number) {
            held.end.cancel();
        }
    }

    fn remove(&mut self, key: &Key, number: u64) -> Option<Held> {
        let of_key = self.keys.get_mut(key)?;
        let held = of_key.remove(&number)?;
        if of_key.is_empty() {
            self.keys.remove(key);
        }
        self.count = self.count.saturating_sub(1);
        Some(held)
    }
}

/// Who of those that share has most, when `taker` has less than its share of what they have. Whoever gives has its share
/// still: it cannot take it back.
fn giver<T: Ord + Copy>(held: impl Iterator<Item = (T, usize)>, taker: T) -> Option<T> {
    let mut counts = BTreeMap::from([(taker, 0_usize)]);
    for (who, count) in held {
        let of = counts.entry(who).or_default();
        *of = of.saturating_add(count);
    }
    let share = counts.values().sum::<usize>().checked_div(counts.len())?;
    let has = counts.get(&taker).copied()?;
    let (most, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    (has < share).then_some(most)
}

impl Taken {
    /// A session has begun on the connection.
    pub(super) fn begun(&self) {
        self.change(|sessions| sessions.saturating_add(1));
    }

    /// One that had begun has ended.
    pub(super) fn ended(&self) {
        self.change(|sessions| sessions.saturating_sub(1));
    }

    fn change(&self, change: impl FnOnce(usize) -> usize) {
        let mut inner = self.table.lock();
        let of_key = inner.keys.get_mut(&self.key);
        if let Some(held) = of_key.and_then(|of_key| of_key.get_mut(&self.number)) {
            held.sessions = change(held.sessions);
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.table.lock().remove(&self.key, self.number);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::push::limits::MAX_SESSIONS_PER_KEY;

    /// `name`, or `namespace/name`.
    fn key(name: &str) -> Key {
        let (namespace, name) = name.split_once('/').unwrap_or(("ns", name));
        Key {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// A connection, and how it is told to end.
    fn connect(table: &Arc<Places>, name: &str) -> Option<(Taken, CancellationToken)> {
        let end = CancellationToken::new();
        Some((table.take(&key(name), end.clone())?, end))
    }

    fn connections(table: &Arc<Places>, name: &str, count: usize) -> Vec<(Taken, CancellationToken)> {
        (0..count).map(|_| connect(table, name).unwrap()).collect()
    }

    fn ended(of: &[(Taken, CancellationToken)]) -> usize {
        of.iter().filter(|(_, end)| end.is_cancelled()).count()
    }

    #[test]
    fn who_says_nothing_keeps_nobody_out() {
        let table = Arc::new(Places::default());
        let silent = connections(&table, "silent", MAX_CONNECTIONS);
        // It made way for itself alone.
        assert_eq!(ended(&silent), MAX_CONNECTIONS - MAX_CONNECTIONS_PER_KEY);
        assert!(!silent.last().unwrap().1.is_cancelled(), "the oldest ones went");
        let others = connections(&table, "other", MAX_CONNECTIONS_PER_KEY);
        others.iter().for_each(|(place, _)| place.begun());
        let third = connections(&table, "third", MAX_SESSIONS_PER_KEY);
        assert_eq!(ended(&others), 0);
        assert_eq!(table.lock().count, MAX_CONNECTIONS);
        third.iter().for_each(|(place, _)| place.begun());
        drop((silent, others, third));
        let inner = table.lock();
        assert!(inner.count == 0 && inner.keys.is_empty());
    }

    #[test]
    fn of_one_routerconfig_those_with_a_session_stay() {
        let table = Arc::new(Places::default());
        let routers = connections(&table, "chat", MAX_SESSIONS_PER_KEY);
        routers.iter().for_each(|(place, _)| place.begun());
        let silent = connections(&table, "chat", MAX_CONNECTIONS_PER_KEY);
        assert_eq!(ended(&routers), 0);
        assert_eq!(ended(&silent), MAX_SESSIONS_PER_KEY);
        // One whose session has ended is as good as any other without.
        routers[3].0.ended();
        let _next = connect(&table, "chat").unwrap();
        assert!(routers[3].1.is_cancelled() && ended(&routers) == 1);
    }

    /// Sessions, as many as are let in of so many that come.
    fn sessions(table: &Arc<Places>, name: &str, count: usize) -> Vec<(Taken, CancellationToken)> {
        let come = (0..count).filter_map(|_| connect(table, name));
        come.inspect(|(place, _)| place.begun()).collect()
    }

    /// Places by holder.
    fn counts(table: &Places) -> BTreeMap<Key, usize> {
        let inner = table.lock();
        inner
            .keys
            .iter()
            .map(|(key, held)| (key.clone(), held.len()))
            .collect()
    }

    #[test]
    fn the_routerconfigs_of_one_namespace_keep_no_other_namespace_out() {
        let table = Arc::new(Places::default());
        let greedy = ["greedy/one", "greedy/two", "greedy/three"];
        let all = greedy.map(|name| sessions(&table, name, MAX_SESSIONS_PER_KEY));
        let oldest = |of: &Vec<(Taken, CancellationToken)>| !of[0].1.is_cancelled();
        let quiet = sessions(&table, "quiet/chat", 200);
        assert!(
            quiet.len() == 200 && all.iter().all(oldest),
            "the newest ones went"
        );
        for name in greedy {
            assert!(connect(&table, name).is_none(), "who gave one takes it back");
        }
        // Beyond its share nobody takes anything from those who have no more than theirs.
        let beyond = ["quiet/chat", "quiet/other"].map(|name| sessions(&table, name, MAX_SESSIONS_PER_KEY));
        let has = counts(&table);
        let of = |name: &str| has[&key(name)];
        assert_eq!(of("quiet/chat") + of("quiet/other"), MAX_CONNECTIONS / 2);
        assert_eq!(of("quiet/chat"), of("quiet/other"));
        drop((all, quiet, beyond));
        assert_eq!(table.lock().count, 0);
    }

    #[test]
    fn who_is_idle_goes_before_any_session() {
        let table = Arc::new(Places::default());
        let all = ["one", "two"].map(|name| sessions(&table, name, MAX_CONNECTIONS_PER_KEY));
        let third = connect(&table, "three").unwrap();
        assert_eq!(ended(&all[0]) + ended(&all[1]), 1);
        let _other = connect(&table, "elsewhere/four").unwrap();
        assert!(third.1.is_cancelled());
        assert_eq!(ended(&all[0]) + ended(&all[1]), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn a_session_ends_only_where_one_has_more_than_its_share_and_the_other_less(
            before in prop::collection::vec((0..4_u8, 0..4_u8, 0..600_usize), 3..8),
            after in prop::collection::vec((0..5_u8, 0..5_u8), 1..40),
        ) {
            let name = |namespace, name| format!("{namespace}/{name}");
            let table = Arc::new(Places::default());
            let mut held = Vec::new();
            for (namespace, router, count) in before {
                held.extend(sessions(&table, &name(namespace, router), count));
            }
            for (namespace, router) in after {
                let key = key(&name(namespace, router));
                let mut has = counts(&table);
                has.entry(key.clone()).or_default();
                let full = table.lock().count >= MAX_CONNECTIONS;
                // Compared with its share: of a namespace, and of a RouterConfig of the same one.
                let namespace_of = |of: &Key| {
                    let there: std::collections::BTreeSet<_> = has.keys().map(|key| &key.namespace).collect();
                    let of_it = has.iter().filter(|(key, _)| key.namespace == of.namespace);
                    (of_it.map(|(_, count)| count).sum::<usize>(), MAX_CONNECTIONS / there.len())
                };
                let in_namespace = |of: &Key| {
                    let there = has.keys().filter(|key| key.namespace == of.namespace).count();
                    (has[of], namespace_of(of).0 / there)
                };
                let less = |(has, share): (usize, usize)| has < share;
                let more = |(has, share): (usize, usize)| has > share;
                let capped = has[&key] >= MAX_CONNECTIONS_PER_KEY;
                let wants = less(namespace_of(&key)) || less(in_namespace(&key));

                let came = sessions(&table, &key.to_string(), 1);
                prop_assert_eq!(came.len() == 1, !capped && (!full || wants));
                held.extend(came);
                let now = counts(&table);
                let lost = |of: &&Key| **of != key && now.get(*of).copied().unwrap_or_default() < has[*of];
                let lost: Vec<&Key> = has.keys().filter(lost).collect();
                prop_assert!(lost.len() <= 1 && table.lock().count <= MAX_CONNECTIONS);
                for from in lost {
                    prop_assert!(full);
                    if from.namespace == key.namespace {
                        prop_assert!(less(in_namespace(&key)) && more(in_namespace(from)));
                    } else {
                        prop_assert!(less(namespace_of(&key)) && more(namespace_of(from)));
                    }
                }
            }
        }
    }
}

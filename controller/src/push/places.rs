//! Places of connections on which a good token was shown, by `RouterConfig`.
//!
//! A session is what keeps a place: connections without one make way for others, of their own `RouterConfig` when that
//! has too many, else of the one that has most of them. Whoever opens connections and says nothing on them keeps nobody
//! out.

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
    /// Takes one for a connection that ends when `end` is cancelled. `None`: all are kept by sessions.
    pub(super) fn take(self: &Arc<Self>, key: &Key, end: CancellationToken) -> Option<Taken> {
        let mut inner = self.lock();
        let of_key = inner.keys.get(key).map_or(0, BTreeMap::len);
        let from = if of_key >= MAX_CONNECTIONS_PER_KEY {
            Some(key.clone())
        } else if inner.count >= MAX_CONNECTIONS {
            Some(inner.idlest()?)
        } else {
            None
        };
        if let Some(from) = from {
            let oldest = inner.idle(&from).next()?;
            if let Some(held) = inner.remove(&from, oldest) {
                held.end.cancel();
            }
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

    /// Who has most of them; `None` when nobody has any.
    fn idlest(&self) -> Option<Key> {
        let counts = self.keys.keys().map(|key| (self.idle(key).count(), key));
        let (most, key) = counts.max_by_key(|(count, _)| *count)?;
        (most > 0).then(|| key.clone())
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
    use super::*;
    use crate::push::limits::MAX_SESSIONS_PER_KEY;

    fn key(name: &str) -> Key {
        Key {
            namespace: "ns".into(),
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

    #[test]
    fn where_every_place_is_kept_by_a_session_none_is_taken() {
        let table = Arc::new(Places::default());
        let mut all = Vec::new();
        for name in ["one", "two"] {
            all.extend(connections(&table, name, MAX_CONNECTIONS_PER_KEY));
        }
        all.iter().for_each(|(place, _)| place.begun());
        assert!(connect(&table, "one").is_none() && connect(&table, "three").is_none());
        all.pop();
        assert!(connect(&table, "three").is_some());
    }
}

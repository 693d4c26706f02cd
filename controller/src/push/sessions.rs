//! What the routers that are connected to this replica report.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use continuum_messages::{ConfigId, ViewId, push};
use jiff::Timestamp;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{Identity, Key, Pod, limits::MAX_SESSIONS_PER_KEY};

/// The sessions of this replica, by `RouterConfig` and pod.
#[derive(Debug, Default)]
pub struct Sessions {
    inner: Mutex<Inner>,
    changes: watch::Sender<u64>,
}

/// One router pod that is connected.
#[derive(Clone, Debug)]
pub struct Session {
    /// The pod.
    pub pod: Pod,
    /// Version of the router program.
    pub version: Arc<str>,
    /// When the session began.
    pub since: Timestamp,
    /// The router takes views and config from this replica.
    pub followed: bool,
    /// The view that it has in force.
    pub view: Option<ViewId>,
    /// Since when it has said that.
    pub view_since: Instant,
    /// The config that it has in force.
    pub config: Option<ConfigId>,
    /// Everything that it said last, and when; `None` before its first report.
    pub report: Option<(Arc<push::Report>, Instant)>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    keys: BTreeMap<Key, BTreeMap<Arc<str>, Open>>,
}

#[derive(Debug)]
struct Open {
    serial: u64,
    session: Session,
    replaced: CancellationToken,
}

/// A place in the table; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    table: Arc<super::Hub>,
    identity: Identity,
    serial: u64,
    /// Cancelled when a newer session of the pod takes the place.
    pub(super) replaced: CancellationToken,
}

impl Sessions {
    /// The connected routers of a `RouterConfig`, by pod uid.
    #[must_use]
    pub fn of(&self, key: &Key) -> Vec<Session> {
        let inner = self.lock();
        let open = inner.keys.get(key).into_iter().flat_map(BTreeMap::values);
        open.map(|open| open.session.clone()).collect()
    }

    /// Moves on when a session begins or ends, or a report says something else than the one before. A report that
    /// only says that nothing has changed does not count, nor do its age and its requests in flight.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Sessions that follow this replica, and those that only report.
    #[must_use]
    pub fn count(&self) -> (usize, usize) {
        let inner = self.lock();
        let open = || inner.keys.values().flat_map(BTreeMap::values);
        let followed = open().filter(|open| open.session.followed).count();
        (followed, open().count().saturating_sub(followed))
    }

    fn changed(&self) {
        self.changes
            .send_modify(|number| *number = number.wrapping_add(1));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Takes a place; an older session of the same pod is told that it was replaced. `None` when the
    /// `RouterConfig` has too many.
    pub(super) fn take(hub: &Arc<super::Hub>, identity: Identity, version: &str) -> Option<Self> {
        let replaced = CancellationToken::new();
        let serial = {
            let mut inner = hub.sessions.lock();
            inner.next = inner.next.wrapping_add(1);
            let serial = inner.next;
            let pods = inner.keys.entry(identity.key.clone()).or_default();
            if pods.len() >= MAX_SESSIONS_PER_KEY && !pods.contains_key(&identity.pod.uid) {
                return None;
            }
            let open = Open {
                serial,
                session: Session {
                    pod: identity.pod.clone(),
                    version: version.into(),
                    since: Timestamp::now(),
                    followed: false,
                    view: None,
                    view_since: Instant::now(),
                    config: None,
                    report: None,
                },
                replaced: replaced.clone(),
            };
            if let Some(before) = pods.insert(Arc::clone(&identity.pod.uid), open) {
                before.replaced.cancel();
            }
            serial
        };
        hub.sessions.changed();
        Some(Self {
            table: Arc::clone(hub),
            identity,
            serial,
            replaced,
        })
    }

    pub(super) fn followed(&self, followed: bool) {
        self.update(|session| std::mem::replace(&mut session.followed, followed) != followed);
    }

    pub(super) fn report(&self, report: push::Report, view: Option<ViewId>, config: Option<ConfigId>) {
        self.update(|session| {
            let differs = session.view != view
                || session.config != config
                || session
                    .report
                    .as_ref()
                    .is_none_or(|(before, _)| !same(before, &report));
            let content = |view: Option<ViewId>| view.map(|view| view.digest);
            if content(session.view) != content(view) {
                session.view_since = Instant::now();
            }
            session.view = view;
            session.config = config;
            session.report = Some((Arc::new(report), Instant::now()));
            differs
        });
    }

    fn update(&self, change: impl FnOnce(&mut Session) -> bool) {
        let differs = {
            let mut inner = self.table.sessions.lock();
            let open = inner
                .keys
                .get_mut(&self.identity.key)
                .and_then(|pods| pods.get_mut(&self.identity.pod.uid))
                .filter(|open| open.serial == self.serial);
            open.is_some_and(|open| change(&mut open.session))
        };
        if differs {
            self.table.sessions.changed();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        {
            let mut inner = self.table.sessions.lock();
            let Some(pods) = inner.keys.get_mut(&self.identity.key) else {
                return;
            };
            if pods
                .get(&self.identity.pod.uid)
                .is_none_or(|open| open.serial != self.serial)
            {
                return;
            }
            pods.remove(&self.identity.pod.uid);
            if pods.is_empty() {
                inner.keys.remove(&self.identity.key);
            }
        }
        self.table.sessions.changed();
    }
}

/// Equal but for what moves all the time.
fn same(a: &push::Report, b: &push::Report) -> bool {
    let still = |report: &push::Report| push::Report {
        view_age_ms: 0,
        in_flight: 0,
        ..report.clone()
    };
    still(a) == still(b)
}

#[cfg(test)]
mod tests {
    use continuum_crds::spec::MAX_REPLICAS;
    use continuum_messages::Epoch;
    use prometheus::Registry;

    use super::*;
    use crate::push::{Hub, Metrics};

    #[test]
    fn as_many_routers_as_a_routerconfig_may_have_get_in_while_as_many_drain() {
        let metrics = Metrics::register(&Registry::new()).unwrap();
        let hub = Hub::new("controller-0", Epoch::from_raw([1; 16]), metrics);
        let take = |name: &str, pod: i32| {
            let identity = Identity {
                key: Key {
                    namespace: "ns".into(),
                    name: name.into(),
                },
                pod: Pod {
                    name: format!("pod-{pod}").into(),
                    uid: format!("uid-{pod}").into(),
                },
            };
            Place::take(&hub, identity, "1")
        };
        let places: Vec<_> = (0..=2 * MAX_REPLICAS).map(|pod| take("chat", pod)).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(take("chat", -1).is_none());
        assert!(
            take("chat", 0).is_some(),
            "a pod that comes back takes its own place"
        );
        assert!(take("other", 0).is_some());
    }
}

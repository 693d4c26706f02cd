//! The fleets that this replica watches: one watch set per distinct source, shared by all that name it.
//!
//! What makes a source: its kind, the Kubernetes namespace, the way names match and, for Pods, the models. Its
//! limits are the operator's. The RouterConfigs of one namespace have so many of them and no more.
//! The Dynamo namespaces of all its users are followed together; each user is shown its own.

pub mod limits;
mod metrics;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use continuum_config::{
    Config,
    model::{Discovery as Wanted, DiscoveryLimits, DiscoverySource, Dynamo},
};
use continuum_discovery::{Discovery, Status, k8s::Credentials};
use continuum_fleet::{Graphs, Refused, ids::Graph, view::FleetView};
use continuum_messages::push::SourceState;
use continuum_runtime::{cell::Cell, tasks::Tasks};
use prometheus::Registry;
use tokio::sync::watch;

pub use self::metrics::Metrics;
use self::{
    limits::{MAX_FLEET_BYTES, MAX_SOURCES_PER_NAMESPACE},
    metrics::Shown,
};
use crate::push::{Fleet, Hub, Key, SourceId};

/// How long a source may take to stop.
const STOP_GRACE: std::time::Duration = std::time::Duration::from_secs(5);

/// What makes two sources the same one.
#[derive(Clone, Debug, PartialEq)]
struct Place(Wanted);

/// All sources of this replica.
pub struct Fleets {
    hub: Arc<Hub>,
    credentials: Credentials,
    metrics: Metrics,
    sources: Vec<Source>,
    /// Those whose fleet is one too many for their namespace.
    beyond: BTreeSet<Key>,
    changed: watch::Sender<u64>,
}

/// One watch set.
struct Source {
    place: Place,
    id: SourceId,
    users: BTreeMap<Key, Vec<String>>,
    config: watch::Sender<Arc<Config>>,
    status: Arc<Cell<Status>>,
    tasks: Tasks,
}

impl Fleets {
    /// None yet; all are read with these credentials.
    #[must_use]
    pub fn new(hub: Arc<Hub>, credentials: Credentials, metrics: Metrics) -> Self {
        Self {
            hub,
            credentials,
            metrics,
            sources: Vec::new(),
            beyond: BTreeSet::new(),
            changed: watch::Sender::new(0),
        }
    }

    /// Moves when a view or the state of a source has changed.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// How the source of a `RouterConfig` fares for it, and what is kept out of the source's view.
    #[must_use]
    pub fn source_of(&self, key: &Key) -> Option<(SourceState, Refused)> {
        let mut sources = self.sources.iter();
        let (source, names) = sources.find_map(|source| Some((source, source.users.get(key)?)))?;
        let status = source.status.load();
        let listed = |name: &String| status.looked_for.iter().any(|graph| graph.as_str() == name);
        let state = SourceState {
            synced: names.iter().all(listed),
            ..state_of(&status)
        };
        Some((state, status.refused.clone()))
    }

    /// Whether its fleet is not read, since the RouterConfigs of its namespace name too many.
    #[must_use]
    pub fn is_beyond(&self, key: &Key) -> bool {
        self.beyond.contains(key)
    }

    /// From now on `key` is shown this fleet; `None`: its routers read theirs themselves. One too many for its namespace is
    /// shown to nobody.
    ///
    /// # Errors
    /// When the metrics of a source cannot be registered.
    pub fn follow(&mut self, key: &Key, discovery: Option<&Wanted>) -> Result<(), prometheus::Error> {
        let place = discovery.map(Place::of);
        let is_there = |place: &Place| self.sources.iter().any(|source| source.place == *place);
        let too_many = place.as_ref().is_some_and(|place| !is_there(place)) && !self.has_room(key);
        self.refuse(key, too_many);
        let (Some(discovery), Some(place), false) = (discovery, place, too_many) else {
            self.leave(key, None);
            self.hub.set_fleet(key, None);
            return Ok(());
        };
        let names: Vec<String> = discovery.namespaces().into_iter().map(str::to_owned).collect();
        let at = match self.sources.iter().position(|source| source.place == place) {
            Some(at) => at,
            None => {
                let source = self.start(place.clone(), &names)?;
                self.sources.push(source);
                self.sources.len().saturating_sub(1)
            }
        };
        let Some(source) = self.sources.get_mut(at) else {
            return Ok(());
        };
        source.users.insert(key.clone(), names.clone());
        source.refresh();
        let graphs = names.iter().map(|name| Graph::from(name.as_str()));
        let fleet = Fleet {
            source: source.id,
            graphs: Graphs::new(graphs, discovery.namespace_match.of_fleet()),
            origins: discovery.origins(discovery.source).into_values().collect(),
        };
        self.hub.set_fleet(key, Some(fleet));
        self.leave(key, Some(&place));
        Ok(())
    }

    /// `key` is gone.
    pub fn remove(&mut self, key: &Key) {
        self.refuse(key, false);
        self.leave(key, None);
        self.hub.remove(key);
    }

    /// Whether the RouterConfigs of its namespace may have one more. What it alone has now, it gives up for that.
    fn has_room(&self, key: &Key) -> bool {
        let beside = |user: &Key| user.namespace == key.namespace && user != key;
        let of_others = self
            .sources
            .iter()
            .filter(|source| source.users.keys().any(beside));
        of_others.count() < MAX_SOURCES_PER_NAMESPACE
    }

    fn refuse(&mut self, key: &Key, refused: bool) {
        let differs = if refused {
            self.beyond.insert(key.clone())
        } else {
            self.beyond.remove(key)
        };
        if differs {
            if refused {
                tracing::warn!(
                    routerconfig = %key,
                    most = MAX_SOURCES_PER_NAMESPACE,
                    "its fleet is not read: the RouterConfigs of its namespace name too many different ones"
                );
            }
            self.changed
                .send_modify(|number| *number = number.wrapping_add(1));
        }
    }

    /// Takes `key` off every source but one; a source without users stops.
    fn leave(&mut self, key: &Key, but: Option<&Place>) {
        for source in &mut self.sources {
            if Some(&source.place) != but && source.users.remove(key).is_some() {
                source.refresh();
            }
        }
        for source in self.sources.extract_if(.., |source| source.users.is_empty()) {
            self.hub.remove_source(source.id);
            tokio::spawn(source.tasks.drain(STOP_GRACE, std::future::pending()));
        }
    }

    fn start(&self, place: Place, names: &[String]) -> Result<Source, prometheus::Error> {
        let tasks = Tasks::new();
        let spawner = tasks.spawner();
        let (config, receiver) = watch::channel(place.config(names.to_vec()));
        // Of its own: the families of a router's discovery speak of one source.
        let discovery = Discovery::spawn_as(&spawner, receiver, &Registry::new(), self.credentials.clone())?;
        let id = self.hub.add_source();
        let status = discovery.status();
        spawner.essential("fleet view to routers", {
            let publisher = Publisher {
                hub: Arc::clone(&self.hub),
                id,
                fleet: discovery.fleet(),
                status: Arc::clone(&status),
                changed: self.changed.clone(),
                shown: self.metrics.clone().source(),
            };
            |stop| async move {
                stop.run_until_cancelled(publisher.run()).await;
                Ok(())
            }
        });
        Ok(Source {
            place,
            id,
            users: BTreeMap::new(),
            config,
            status,
            tasks,
        })
    }
}

impl Source {
    /// Follows the Dynamo namespaces of its present users.
    fn refresh(&self) {
        let mut names: Vec<String> = self.users.values().flatten().cloned().collect();
        names.sort();
        names.dedup();
        if names.is_empty() {
            return;
        }
        let next = self.place.config(names);
        self.config.send_if_modified(|now| {
            let differs = **now != *next;
            *now = next;
            differs
        });
    }
}

/// The limits of every source, whatever a `RouterConfig` says: one tenant must not take the memory of all, and limits of
/// one's own would be another watch of the same fleet.
fn limits() -> DiscoveryLimits {
    DiscoveryLimits {
        max_resource_bytes: MAX_FLEET_BYTES,
        ..DiscoveryLimits::default()
    }
}

impl Place {
    fn of(discovery: &Wanted) -> Self {
        let mut place = discovery.clone();
        place.kubernetes.dynamo_namespace = String::new();
        place.kubernetes.dynamo_namespaces = Vec::new();
        if place.source == DiscoverySource::Kubernetes {
            // Cards tell the models.
            place.kubernetes.model = None;
            place.kubernetes.models = Vec::new();
        }
        place.limits = limits();
        place.kubernetes.watch_reconnect_backoff = Wanted::default().kubernetes.watch_reconnect_backoff;
        // Nothing of the other sources matters.
        place.etcd = Wanted::default().etcd;
        place.file = Wanted::default().file;
        Self(place)
    }

    /// The configuration of its watcher. Always a list: coming and going namespaces then leave the others alone.
    fn config(&self, names: Vec<String>) -> Arc<Config> {
        let mut discovery = self.0.clone();
        discovery.kubernetes.dynamo_namespaces = names;
        Arc::new(Config {
            dynamo: Dynamo {
                enabled: true,
                discovery,
                ..Dynamo::default()
            },
            ..Config::default()
        })
    }
}

/// Hands what one source finds to the hub.
struct Publisher {
    hub: Arc<Hub>,
    id: SourceId,
    fleet: Arc<Cell<FleetView>>,
    status: Arc<Cell<Status>>,
    changed: watch::Sender<u64>,
    shown: Shown,
}

impl Publisher {
    async fn run(mut self) {
        let (mut views, mut states) = (self.fleet.subscribe(), self.status.subscribe());
        loop {
            views.borrow_and_update();
            states.borrow_and_update();
            let status = self.status.load();
            self.shown.update(&status);
            let listed = status.looked_for.as_slice().into();
            self.hub.set_source(self.id, state_of(&status), Some(listed));
            // Before the first full list there is nothing that a router should take for the fleet.
            if status.first_sync {
                self.hub.set_view(self.id, &self.fleet.load());
            }
            self.changed
                .send_modify(|number| *number = number.wrapping_add(1));
            tokio::select! {
                changed = views.changed() => if changed.is_err() { return },
                changed = states.changed() => if changed.is_err() { return },
            }
        }
    }
}

fn state_of(status: &Status) -> SourceState {
    SourceState {
        kind: status
            .source
            .map(|kind| kind.as_str().to_owned())
            .unwrap_or_default(),
        connected: status.connected,
        synced: status.synced,
        stale: status.stale,
        last_error: status.last_error.clone().unwrap_or_default(),
        origins: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use continuum_messages::Epoch;

    use super::*;

    #[tokio::test]
    async fn one_fleet_that_is_written_in_many_ways_is_no_watch_for_each() {
        let metrics = crate::metrics::Metrics::new().unwrap();
        let hub = Hub::new("controller-0", Epoch::from_raw([1; 16]), metrics.push);
        let mut fleets = Fleets::new(Arc::clone(&hub), Credentials::Found, metrics.sources);
        let key = |namespace: &str, number: usize| Key {
            namespace: namespace.into(),
            name: number.to_string().into(),
        };
        let of = |model: usize| {
            let mut discovery = Wanted {
                source: DiscoverySource::KubernetesPods,
                ..Wanted::default()
            };
            discovery.kubernetes.model = Some(model.to_string());
            discovery
        };
        let most = MAX_SOURCES_PER_NAMESPACE;
        for number in 0..3 * most {
            fleets.follow(&key("many", number), Some(&of(number))).unwrap();
        }
        assert_eq!(fleets.sources.len(), most);
        let refused = |fleets: &Fleets, number| fleets.is_beyond(&key("many", number));
        assert!(!refused(&fleets, most - 1) && refused(&fleets, most));
        assert!(fleets.source_of(&key("many", most)).is_none());
        // Others have theirs; one that is read already is no further one, and one that changes has its own to give up.
        fleets.follow(&key("other", 0), Some(&of(100))).unwrap();
        fleets.follow(&key("many", most), Some(&of(0))).unwrap();
        fleets.follow(&key("many", 1), Some(&of(101))).unwrap();
        assert!(fleets.source_of(&key("other", 0)).is_some());
        assert!(!refused(&fleets, most) && !refused(&fleets, 1));
        assert_eq!(fleets.sources.len(), most + 1);
        // There is room for one that was refused before when another one has gone.
        fleets.remove(&key("many", 2));
        fleets
            .follow(&key("many", most + 1), Some(&of(most + 1)))
            .unwrap();
        fleets
            .follow(&key("many", most + 2), Some(&of(most + 2)))
            .unwrap();
        assert!(!refused(&fleets, most + 1) && refused(&fleets, most + 2));
        fleets.remove(&key("many", most + 2));
        assert!(!refused(&fleets, most + 2));
    }

    #[test]
    fn limits_of_ones_own_make_no_source_and_raise_nothing() {
        let of = |change: fn(&mut DiscoveryLimits)| {
            let mut discovery = Wanted {
                source: DiscoverySource::Kubernetes,
                ..Wanted::default()
            };
            change(&mut discovery.limits);
            Place::of(&discovery)
        };
        let plain = of(|_| ());
        let changes: [fn(&mut DiscoveryLimits); 6] = [
            |limits| limits.max_record_bytes = 1 << 30,
            |limits| limits.max_retained_card_bytes = 7,
            |limits| limits.max_retained_cards_total_bytes = 7,
            |limits| limits.max_records_per_keyspace = 1_048_576,
            |limits| limits.max_resources = 1_048_576,
            |limits| limits.max_resource_bytes = 1 << 20,
        ];
        for change in changes {
            assert!(of(change) == plain, "{:?}", of(change).0.limits);
        }
        assert_eq!(plain.0.limits.max_resources, 16_384);
    }
}

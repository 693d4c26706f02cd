//! A fleet that controllers push: the view is theirs, and how it fares.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use continuum_fleet::{ids::Graph, view::FleetView};
use continuum_runtime::cell::Cell;
use tokio::sync::watch;

use crate::status::Status;

/// Why the newest pushed view is not shown.
const ANOTHER_FLEET: &str = "the controller's view is of another fleet than the one that is configured";

/// What controllers tell.
#[derive(Clone, Debug, Default)]
pub struct Pushed {
    /// Moves on with each change of the view; 0 while there is none.
    pub number: u64,
    /// The view.
    pub view: FleetView,
    /// What the view is of: see `continuum_config::model::Discovery::origins`. Empty: its sender does not tell.
    pub origins: Arc<[String]>,
    /// A controller is followed and its source is connected.
    pub connected: bool,
    /// The controller has listed the whole fleet.
    pub synced: bool,
    /// Nobody has confirmed the view yet.
    pub stale: bool,
    /// Why it is not connected.
    pub last_error: Option<String>,
}

/// Takes pushed views over, as far as they are of what this configuration names: views and configurations come on
/// different ways, so that either may be ahead of the other.
pub(crate) struct Follower {
    pub(crate) fleet: Arc<Cell<FleetView>>,
    pub(crate) status: Arc<Cell<Status>>,
    /// The configured namespaces, and what a view must be of for the workers of each to be shown.
    pub(crate) origins: BTreeMap<Graph, String>,
    /// What is in the cell now is of another fleet.
    pub(crate) cleared: bool,
    pub(crate) pushed: watch::Receiver<Pushed>,
}

impl Follower {
    pub(crate) async fn run(mut self) {
        if !self.fits(&self.pushed.borrow()) {
            let left = if self.cleared {
                FleetView::default()
            } else {
                only(FleetView::clone(&self.fleet.load()), &self.namespaces(&[]))
            };
            let nothing = left.workers.is_empty() && left.publishers.is_empty();
            self.fleet.publish(left);
            if nothing {
                self.status.update(|status| status.pushed = 0);
            }
        }
        let mut shown = None;
        loop {
            let told = self.pushed.borrow_and_update().clone();
            if self.fits(&told) {
                let what = (told.number, Arc::clone(&told.origins));
                if shown.as_ref() != Some(&what) {
                    self.fleet
                        .publish(only(told.view, &self.namespaces(&told.origins)));
                    shown = Some(what);
                }
                self.status.update(|status| {
                    status.connected = told.connected;
                    status.synced = told.synced && !told.stale;
                    status.first_sync |= status.synced;
                    status.stale = told.stale;
                    status.pushed = told.number;
                    status.last_error = told.last_error;
                });
            } else {
                // What is shown stays, and nobody says any more that it is the present one.
                let waits = (told.number > 0).then(|| ANOTHER_FLEET.to_owned());
                self.status.update(|status| {
                    status.connected = told.connected && told.number == 0;
                    status.synced = false;
                    status.stale = status.pushed > 0;
                    status.last_error = told.last_error.or(waits);
                });
            }
            if self.pushed.changed().await.is_err() {
                // Nobody pushes any more: the last view stays.
                self.status.update(|status| status.connected = false);
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Follower {
    /// Whether there is a view, and it is of a namespace that is configured.
    fn fits(&self, told: &Pushed) -> bool {
        told.number > 0 && (told.origins.is_empty() || !self.namespaces(&told.origins).is_empty())
    }

    /// The namespaces whose workers are shown of a view of `origins`.
    fn namespaces(&self, origins: &[String]) -> BTreeSet<Graph> {
        self.origins
            .iter()
            .filter(|(_, origin)| origins.is_empty() || origins.contains(origin))
            .map(|(graph, _)| graph.clone())
            .collect()
    }
}

/// The view without what belongs to other namespaces.
fn only(mut view: FleetView, namespaces: &BTreeSet<Graph>) -> FleetView {
    let foreign = |graph: &Graph| !namespaces.contains(graph);
    if view.workers.values().any(|worker| foreign(&worker.graph)) {
        view.workers = view
            .workers
            .into_iter()
            .filter(|(_, worker)| !foreign(&worker.graph))
            .collect();
    }
    if view
        .publishers
        .values()
        .any(|publisher| foreign(&publisher.graph))
    {
        view.publishers = view
            .publishers
            .into_iter()
            .filter(|(_, publisher)| !foreign(&publisher.graph))
            .collect();
    }
    view
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use continuum_config::{Build, Config, model::DiscoverySource};
    use continuum_fleet::ids::WorkerKey;
    use continuum_runtime::tasks::Tasks;
    use prometheus::Registry;

    use super::*;
    use crate::{Discovery, SourceKind, testing};

    fn config(upstream: &str, namespaces: &[&str]) -> Arc<Config> {
        let text = format!(
            "dynamo: {{enabled: true, discovery: {{source: controller, kubernetes: {{model: m}}}}}}\n\
             controller: {{endpoint: 'https://c:1', ca_file: /ca, token_file: /t, generation: 1, upstream: {upstream}}}"
        );
        let mut config = continuum_config::parse(&text, &|_| None, Build::FULL)
            .unwrap_or_else(|error| panic!("{error}"))
            .config;
        config.dynamo.discovery.kubernetes.dynamo_namespaces =
            namespaces.iter().map(|name| (*name).to_owned()).collect();
        Arc::new(config)
    }

    fn within(namespace: &str) -> Arc<Config> {
        let mut config = Config::clone(&config("kubernetes", &["dynamo", "other"]));
        config.dynamo.discovery.kubernetes.namespace = namespace.to_owned();
        Arc::new(config)
    }

    fn origins(config: &Config) -> Arc<[String]> {
        let discovery = &config.dynamo.discovery;
        discovery
            .origins(DiscoverySource::Kubernetes)
            .into_values()
            .collect()
    }

    /// Worker of namespace `dynamo`, as the fleet of `config` has it.
    fn told(number: u64, config: &Config) -> Pushed {
        Pushed {
            number,
            view: testing::view(&["dynamo"]),
            origins: origins(config),
            connected: true,
            synced: true,
            ..Pushed::default()
        }
    }

    fn graphs(view: &FleetView) -> Vec<String> {
        view.workers
            .keys()
            .map(|key: &WorkerKey| key.namespace.to_string())
            .collect()
    }

    #[tokio::test]
    async fn a_pushed_view_is_shown_with_the_signals_of_what_stands_behind_it() {
        let tasks = Tasks::new();
        let (to_config, configs) = watch::channel(config("kubernetes", &[]));
        let (to_pushed, pushed) = watch::channel(Pushed::default());
        let registry = Registry::new();
        let discovery = Discovery::spawn_with(&tasks.spawner(), configs, &registry, Some(pushed)).unwrap();
        let status = discovery.status();
        let before = status.wait_for(|status| status.enabled).await;
        assert_eq!(
            (before.source, before.upstream),
            (Some(SourceKind::Controller), Some(SourceKind::Kubernetes))
        );
        assert!(before.supported && before.signals.load && !before.ready());

        let view = testing::view(&["dynamo"]);
        to_pushed.send_replace(Pushed {
            number: 1,
            view: view.clone(),
            stale: true,
            ..Pushed::default()
        });
        let kept = status.wait_for(|status| status.pushed == 1).await;
        assert!(kept.stale && kept.ready() && !kept.synced && !kept.connected);
        assert_eq!(graphs(&discovery.fleet().load()), ["dynamo"]);

        let generation = discovery.fleet().generation();
        to_pushed.send_replace(Pushed {
            number: 1,
            view,
            connected: true,
            synced: true,
            ..Pushed::default()
        });
        status
            .wait_for(|status| status.synced && status.connected && !status.stale)
            .await;
        assert_eq!(
            discovery.fleet().generation(),
            generation,
            "an equal view wakes nobody"
        );

        to_config.send_replace(config("kubernetes_pods", &[]));
        let pods = status
            .wait_for(|status| status.upstream == Some(SourceKind::KubernetesPods))
            .await;
        assert!(!pods.signals.load);
        tasks.drain(Duration::from_secs(1), pending()).await;
    }

    #[tokio::test]
    async fn workers_of_a_namespace_that_is_configured_no_longer_leave_at_once() {
        let tasks = Tasks::new();
        let (to_config, configs) = watch::channel(config("kubernetes", &["a", "b"]));
        let (_to_pushed, pushed) = watch::channel(Pushed {
            number: 1,
            view: testing::view(&["a", "b"]),
            ..Pushed::default()
        });
        let discovery =
            Discovery::spawn_with(&tasks.spawner(), configs, &Registry::new(), Some(pushed)).unwrap();
        discovery.fleet().wait_for(|view| view.workers.len() == 2).await;
        to_config.send_replace(config("kubernetes", &["b"]));
        let view = discovery.fleet().wait_for(|view| view.workers.len() == 1).await;
        assert_eq!(graphs(&view), ["b"]);
        tasks.drain(Duration::from_secs(1), pending()).await;
    }

    #[tokio::test]
    async fn a_fleet_that_is_configured_no_longer_is_not_shown_and_the_new_one_is_waited_for() {
        let tasks = Tasks::new();
        let (one, two) = (within("one"), within("two"));
        let (to_config, configs) = watch::channel(one.clone());
        let (to_pushed, pushed) = watch::channel(told(1, &one));
        let discovery =
            Discovery::spawn_with(&tasks.spawner(), configs, &Registry::new(), Some(pushed)).unwrap();
        let (fleet, status) = (discovery.fleet(), discovery.status());
        fleet.wait_for(|view| !view.workers.is_empty()).await;

        to_config.send_replace(two.clone());
        fleet.wait_for(|view| view.workers.is_empty()).await;
        let waiting = status.wait_for(|status| status.last_error.is_some()).await;
        assert!(!waiting.connected && !waiting.synced && !waiting.stale && waiting.pushed == 0);
        assert!(
            waiting.ready(),
            "what was ready stays so: other backends may serve"
        );

        // What the fleet before still does.
        to_pushed.send_replace(Pushed {
            last_error: Some("from the one before".to_owned()),
            ..told(2, &one)
        });
        status
            .wait_for(|status| status.last_error.as_deref() == Some("from the one before"))
            .await;
        assert!(fleet.load().workers.is_empty());

        to_pushed.send_replace(told(3, &two));
        fleet.wait_for(|view| !view.workers.is_empty()).await;
        status
            .wait_for(|status| status.connected && status.synced && status.pushed == 3)
            .await;

        // The content is the same one, and its number: only what it is of has changed.
        to_config.send_replace(one.clone());
        fleet.wait_for(|view| view.workers.is_empty()).await;
        to_pushed.send_replace(told(3, &one));
        fleet.wait_for(|view| !view.workers.is_empty()).await;
        tasks.drain(Duration::from_secs(1), pending()).await;
    }

    #[tokio::test]
    async fn a_view_that_is_ahead_of_its_configuration_waits_for_it() {
        let tasks = Tasks::new();
        let (one, two) = (within("one"), within("two"));
        let (to_config, configs) = watch::channel(one.clone());
        let (to_pushed, pushed) = watch::channel(told(1, &one));
        let discovery =
            Discovery::spawn_with(&tasks.spawner(), configs, &Registry::new(), Some(pushed)).unwrap();
        let (fleet, status) = (discovery.fleet(), discovery.status());
        status
            .wait_for(|status| status.synced && status.pushed == 1)
            .await;

        let mut ahead = told(2, &two);
        ahead.view = testing::view(&["dynamo", "other"]);
        let next = ahead.view.clone();
        to_pushed.send_replace(ahead);
        let stale = status.wait_for(|status| status.stale).await;
        assert!(
            stale.pushed == 1 && !stale.connected && stale.last_error.is_some(),
            "{stale:?}"
        );
        assert_eq!(graphs(&fleet.load()), ["dynamo"]);

        let before = fleet.generation();
        to_config.send_replace(two);
        let now = status.wait_for(|status| status.synced).await;
        assert_eq!(
            (now.pushed, now.stale, now.last_error.as_deref()),
            (2, false, None)
        );
        assert_eq!(*fleet.load(), next);
        assert_eq!(fleet.generation(), before + 1, "it was never empty");
        tasks.drain(Duration::from_secs(1), pending()).await;
    }

    #[tokio::test]
    async fn of_a_list_of_namespaces_those_that_stay_go_on() {
        let tasks = Tasks::new();
        let first = config("kubernetes", &["a", "b"]);
        let (to_config, configs) = watch::channel(first.clone());
        let (_to_pushed, pushed) = watch::channel(Pushed {
            view: testing::view(&["a", "b"]),
            ..told(1, &first)
        });
        let discovery =
            Discovery::spawn_with(&tasks.spawner(), configs, &Registry::new(), Some(pushed)).unwrap();
        let (fleet, status) = (discovery.fleet(), discovery.status());
        fleet.wait_for(|view| view.workers.len() == 2).await;
        to_config.send_replace(config("kubernetes", &["b", "c"]));
        let view = fleet.wait_for(|view| view.workers.len() == 1).await;
        assert_eq!(graphs(&view), ["b"]);
        // Nobody of the view is left, and what there was before is not shown again.
        to_config.send_replace(config("kubernetes", &["c", "d"]));
        fleet.wait_for(|view| view.workers.is_empty()).await;
        status
            .wait_for(|status| status.last_error.is_some() && status.pushed == 0)
            .await;
        tasks.drain(Duration::from_secs(1), pending()).await;
    }
}

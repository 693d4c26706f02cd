//! A fleet that controllers push: the view is theirs, and how it fares.

use std::{collections::BTreeSet, sync::Arc};

use continuum_fleet::{ids::Graph, view::FleetView};
use continuum_runtime::cell::Cell;
use tokio::sync::watch;

use crate::status::Status;

/// What controllers tell.
#[derive(Clone, Debug, Default)]
pub struct Pushed {
    /// Moves on with each change of the view; 0 while there is none.
    pub number: u64,
    /// The view.
    pub view: FleetView,
    /// A controller is followed and its source is connected.
    pub connected: bool,
    /// The controller has listed the whole fleet.
    pub synced: bool,
    /// Nobody has confirmed the view yet.
    pub stale: bool,
    /// Why it is not connected.
    pub last_error: Option<String>,
}

/// Takes pushed views over.
pub(crate) struct Follower {
    pub(crate) fleet: Arc<Cell<FleetView>>,
    pub(crate) status: Arc<Cell<Status>>,
    /// Workers of other configured namespaces are not shown: the configuration may be ahead of the view.
    pub(crate) namespaces: Vec<Graph>,
    pub(crate) pushed: watch::Receiver<Pushed>,
}

impl Follower {
    pub(crate) async fn run(mut self) {
        let namespaces: BTreeSet<Graph> = self.namespaces.drain(..).collect();
        let mut shown = None;
        loop {
            let told = self.pushed.borrow_and_update().clone();
            if told.number > 0 && shown != Some(told.number) {
                shown = Some(told.number);
                self.fleet.publish(only(told.view, &namespaces));
            }
            self.status.update(|status| {
                status.connected = told.connected;
                status.synced = told.synced && told.number > 0 && !told.stale;
                status.first_sync |= status.synced;
                status.stale = told.stale && told.number > 0;
                status.pushed = told.number;
                status.last_error = told.last_error;
            });
            if self.pushed.changed().await.is_err() {
                // Nobody pushes any more: the last view stays.
                self.status.update(|status| status.connected = false);
                std::future::pending::<()>().await;
            }
        }
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

    use continuum_config::{Build, Config};
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
}

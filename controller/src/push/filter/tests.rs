use continuum_fleet::{
    Generation, NamespaceMatch,
    ids::{Graph, InstanceId, Namespace, PublisherId, WorkerKey},
    view::{PublisherKey, Role, Seen, Topic, Transport},
};
use jiff::Timestamp;
use proptest::prelude::*;

use super::*;

/// All names that `RouterConfig`s have, as a source matches them.
fn all(how: NamespaceMatch) -> Graphs {
    graphs(&["prod", "prod-eu", "prod-legacy", "dev"], how)
}

fn graphs(names: &[&str], how: NamespaceMatch) -> Graphs {
    Graphs::new(names.iter().map(|name| Graph::from(*name)), how)
}

/// What a source that knows these names alone would show.
fn view(namespaces: &[(&str, u64)], graphs: &Graphs) -> FleetView {
    let mut view = FleetView::default();
    for (namespace, id) in namespaces {
        let Some((graph, generation)) = graphs.graph_of(namespace) else {
            continue;
        };
        let worker = worker(namespace, *id, graph.clone(), generation);
        view.workers.insert(worker.key.clone(), worker);
        let publisher = Publisher {
            key: PublisherKey {
                topic: Topic::KvMetrics,
                id: PublisherId::new(*id),
            },
            namespace: Namespace::from(*namespace),
            graph,
            component: None,
            transport: Transport::Zmq {
                endpoint: "tcp://10.0.0.1:1".into(),
            },
            feeds: None,
        };
        view.publishers.insert(publisher.key, Arc::new(publisher));
    }
    view
}

fn worker(namespace: &str, id: u64, graph: Graph, generation: Generation) -> Arc<Worker> {
    Arc::new(Worker {
        key: WorkerKey {
            namespace: Namespace::from(namespace),
            instance: InstanceId::new(id),
        },
        graph,
        component: "backend".into(),
        endpoint: "generate".into(),
        generation,
        role: Role::Aggregated,
        names: [].into(),
        card: None,
        seen: Seen {
            first: Timestamp::UNIX_EPOCH,
            updated: Timestamp::UNIX_EPOCH,
        },
    })
}

fn how() -> impl Strategy<Value = NamespaceMatch> {
    prop_oneof![
        Just(NamespaceMatch::Generation),
        Just(NamespaceMatch::Exact),
        Just(NamespaceMatch::Prefix)
    ]
}

const NAMESPACES: [&str; 7] = [
    "prod",
    "prod-legacy",
    "prod-0123abcd",
    "prod-eu",
    "prod-eu-legacy",
    "dev",
    "dev-x",
];

proptest! {
    /// A RouterConfig sees what it would see if it had the source for itself, whoever shares it.
    #[test]
    fn the_part_is_what_a_source_of_its_own_would_show(
        how in how(),
        mine in proptest::sample::subsequence(vec!["prod", "prod-eu", "prod-legacy", "dev"], 1..4),
        history in proptest::collection::vec(proptest::collection::vec((0..7_usize, 0..6_u64), 0..8), 1..8),
    ) {
        let own = graphs(&mine, how);
        let mut filter = Filter::new(own.clone());
        for fleet in history {
            // An id belongs to one namespace, as a publisher does.
            let fleet: std::collections::BTreeMap<u64, &str> =
                fleet.into_iter().map(|(namespace, id)| (id, NAMESPACES[namespace])).collect();
            let fleet: Vec<(&str, u64)> = fleet.into_iter().map(|(id, namespace)| (namespace, id)).collect();
            prop_assert_eq!(filter.apply(&view(&fleet, &all(how))), view(&fleet, &own));
        }
    }
}

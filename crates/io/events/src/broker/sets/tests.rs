use continuum_fleet::{
    graphs::Generation,
    ids::{InstanceId, PublisherId, WorkerKey},
    view::{PublisherKey, Role, Seen, Worker},
};
use jiff::Timestamp;

use super::*;

fn settings(configured: &[&str]) -> Settings {
    Settings {
        reach: Reach::Direct,
        allowed: Arc::default(),
        max_subscriptions: 100,
        xpub_endpoints: configured.iter().map(|endpoint| Arc::from(*endpoint)).collect(),
        ..Settings::default()
    }
}

fn worker(id: u64, namespace: &str, component: &str) -> Worker {
    Worker {
        key: WorkerKey {
            namespace: namespace.into(),
            instance: InstanceId::new(id),
        },
        graph: namespace.into(),
        component: component.into(),
        endpoint: "generate".into(),
        generation: Generation::Base,
        role: Role::Aggregated,
        names: Arc::default(),
        card: None,
        seen: Seen {
            first: Timestamp::UNIX_EPOCH,
            updated: Timestamp::UNIX_EPOCH,
        },
    }
}

fn view(workers: impl IntoIterator<Item = Worker>) -> FleetView {
    FleetView {
        workers: workers
            .into_iter()
            .map(|worker| (worker.key.clone(), Arc::new(worker)))
            .collect(),
        ..FleetView::default()
    }
}

fn brokered(id: u64, namespace: &str, endpoints: &[String]) -> Arc<Publisher> {
    Arc::new(Publisher {
        key: PublisherKey {
            topic: Topic::KvMetrics,
            id: PublisherId::new(id),
        },
        namespace: namespace.into(),
        graph: namespace.into(),
        component: None,
        transport: Transport::ZmqBroker {
            xpub_endpoints: endpoints.to_vec().into(),
        },
        feeds: None,
    })
}

#[test]
fn each_set_is_asked_for_its_own_namespaces() {
    let view = view([worker(1, "a", "decode"), worker(2, "b", "decode")]);
    let records = [brokered(9, "a", &["tcp://x:1".into()])];
    let (sets, beyond) = sets(&view, Topic::KvMetrics, records.iter(), &settings(&["tcp://y:1"]));
    assert_eq!(beyond, Beyond::default());
    let of = |endpoint: &str| {
        let subjects = &sets[&BTreeSet::from([Arc::from(endpoint)])];
        subjects.values().map(Namespace::as_str).collect::<Vec<_>>()
    };
    assert_eq!(of("tcp://x:1"), ["a"; 3]);
    assert_eq!(of("tcp://y:1"), ["a", "a", "a", "b", "b", "b"]);
}

#[test]
fn records_name_no_more_connections_than_the_cap_and_never_crowd_out_the_operators_own() {
    let view = view([worker(1, "a", "decode")]);
    let records: Vec<_> = (0..MAX_BROKER_ENDPOINTS as u64 + 5)
        .map(|id| brokered(id, "a", &[format!("tcp://a{id}:1")]))
        .collect();
    let (sets, beyond) = sets(
        &view,
        Topic::KvMetrics,
        records.iter(),
        &settings(&["tcp://z:1", "tcp://z:2"]),
    );
    assert_eq!(
        sets.keys().map(BTreeSet::len).sum::<usize>(),
        MAX_BROKER_ENDPOINTS
    );
    assert!(sets.keys().any(|set| set.contains("tcp://z:1")));
    assert_eq!(beyond.endpoints, 7);
}

#[test]
fn a_small_set_still_fits_behind_one_that_does_not() {
    let view = view([worker(1, "a", "decode")]);
    let large: Vec<String> = (0..=MAX_BROKER_ENDPOINTS)
        .map(|port| format!("tcp://a:{port}"))
        .collect();
    let records = [brokered(1, "a", &large), brokered(2, "a", &["tcp://b:1".into()])];
    let (sets, beyond) = sets(&view, Topic::KvMetrics, records.iter(), &settings(&[]));
    assert_eq!(sets.len(), 1);
    assert_eq!(beyond.endpoints, large.len());
}

#[test]
fn subjects_are_capped_and_the_cut_is_known() {
    let workers = |components: u64| view((0..components).map(|id| worker(id, "a", &format!("c{id}"))));
    // One subject of the namespace, two of each component.
    let fits = (MAX_BROKER_SUBJECTS as u64 - 1) / 2;
    let (found, beyond) = sets(
        &workers(fits),
        Topic::KvMetrics,
        [].iter(),
        &settings(&["tcp://z:1"]),
    );
    assert_eq!(beyond.subjects, 0);
    assert_eq!(
        found.values().map(BTreeMap::len).sum::<usize>() as u64,
        1 + 2 * fits
    );
    let (found, beyond) = sets(
        &workers(fits + 1),
        Topic::KvMetrics,
        [].iter(),
        &settings(&["tcp://z:1"]),
    );
    assert_eq!(beyond.subjects, 1);
    assert_eq!(
        found.values().map(BTreeMap::len).sum::<usize>(),
        MAX_BROKER_SUBJECTS
    );
}

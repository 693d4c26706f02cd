//! Who is in the view of the source `kubernetes`.

use continuum_config::model::DiscoverySource::Kubernetes;
use continuum_fleet::{EventKind, NamespaceMatch, Reducer, ids::Graph};
use continuum_testkit::kube::fleet::{Worker, instance, records};
use serde_json::Value;

use crate::support::{Router, cluster, config};

#[tokio::test]
async fn a_worker_is_there_while_its_pod_is_ready() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("join").await;
    let mut prefill = Worker::new(&namespace, "p-0", "prefill", "m");
    let decode = Worker::new(&namespace, "d-0", "decode", "m");
    cluster.write_worker(&prefill).await;
    let router = Router::start(config(Kubernetes, &namespace), cluster.kubeconfig());
    router.ids(&[prefill.instance()]).await;
    cluster.write_worker(&decode).await;
    router.ids(&[prefill.instance(), decode.instance()]).await;
    prefill.ready = false;
    cluster.write_worker(&prefill).await;
    router.ids(&[decode.instance()]).await;
    prefill.ready = true;
    cluster.write_worker(&prefill).await;
    router.ids(&[prefill.instance(), decode.instance()]).await;
    cluster.remove_worker(&decode).await;
    router.ids(&[prefill.instance()]).await;
    assert!(router.status().connected && router.status().passes == 1);
}

#[tokio::test]
async fn containers_are_joined_by_their_pods_status() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("containers").await;
    let plain = Worker::new(&namespace, "w-0", "worker", "m");
    let uid = cluster.write_worker(&plain).await;
    let router = Router::start(config(Kubernetes, &namespace), cluster.kubeconfig());
    router.ids(&[plain.instance()]).await;

    // Pods are not watched yet: the first container's resource makes the source list them.
    let data = records("dynamo", "backend", "w-0-main", "worker", "m");
    cluster
        .write_metadata(&namespace, "w-0-main", "w-0", &uid, &data)
        .await;
    router.ids(&[plain.instance(), instance("w-0-main")]).await;
    router
        .state("the pass with Pods", |status| {
            status.passes == 2 && status.connected
        })
        .await;

    let mut gone = plain.clone();
    gone.ready = false;
    cluster.write_pod(&gone).await;
    // The slice still says ready: where containers register one by one, their own word counts.
    router.ids(&[]).await;
    cluster.write_pod(&plain).await;
    router.ids(&[plain.instance(), instance("w-0-main")]).await;
}

#[tokio::test]
async fn a_resource_without_data_keeps_its_worker_and_a_wrong_id_is_refused() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("malformed").await;
    let worker = Worker::new(&namespace, "w-0", "worker", "m");
    let uid = cluster.write_worker(&worker).await;
    let mut foreign = Worker::new(&namespace, "w-1", "worker", "m");
    foreign.data = Some(records("dynamo", "backend", "somebody-else", "worker", "m"));
    cluster.write_worker(&foreign).await;
    let router = Router::start(config(Kubernetes, &namespace), cluster.kubeconfig());
    router.ids(&[worker.instance()]).await;
    assert_eq!(router.events("mismatch"), 1);
    let refused = |router: &Router| router.status().refused.iter().collect::<Vec<_>>();
    assert_eq!(refused(&router), [(EventKind::Mismatch, 1)]);

    cluster
        .write_metadata(&namespace, "w-0", "w-0", &uid, &Value::Null)
        .await;
    router.until_events("malformed", 1).await;
    router.ids(&[worker.instance()]).await;
    let both = [(EventKind::Malformed, 1), (EventKind::Mismatch, 1)];
    router
        .state("both faults", |status| status.refused.iter().eq(both))
        .await;
    cluster.remove_worker(&worker).await;
    router.ids(&[]).await;
    cluster.remove_worker(&foreign).await;
    router.state("no fault", |status| status.refused.is_empty()).await;
}

#[tokio::test]
async fn another_namespace_is_another_fleet() {
    let cluster = cluster().await;
    let (here, there) = (cluster.namespace("here").await, cluster.namespace("there").await);
    let (near, far) = (
        Worker::new(&here, "w-0", "worker", "m"),
        Worker::new(&there, "w-9", "worker", "m"),
    );
    cluster.write_worker(&near).await;
    cluster.write_worker(&far).await;
    let router = Router::start(config(Kubernetes, &here), cluster.kubeconfig());
    router.ids(&[near.instance()]).await;
    // A reload to the other namespace clears the view; one of `model` alone does nothing under this source.
    let mut changed = config(Kubernetes, &here);
    changed.dynamo.discovery.kubernetes.model = Some("other".into());
    router.reload(|running| *running = changed);
    router.reload(|running| *running = config(Kubernetes, &there));
    router.ids(&[far.instance()]).await;
    assert_eq!(router.status().restarts, 1);
}

#[tokio::test]
async fn five_thousand_resources_are_listed_in_one_pass() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("many").await;
    let workers: Vec<Worker> = (0..5_000)
        .map(|number| Worker::new(&namespace, &format!("w-{number}"), "worker", "m"))
        .collect();
    cluster.write_fleet(&workers).await;
    let router = Router::start(config(Kubernetes, &namespace), cluster.kubeconfig());
    router
        .fleet("all", |view| view.workers.len() == workers.len())
        .await;
    assert_eq!(router.status().passes, 1);
}

/// What real workers of Dynamo 1.6.1 wrote, stored by a real API server, is the fleet that the same records make in etcd.
#[tokio::test]
async fn a_stored_fleet_is_the_fleet_of_its_records() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("fixture").await;
    let read = |text: &str| -> Vec<Value> {
        let list: Value = serde_json::from_str(text).unwrap();
        list["items"].as_array().unwrap().clone()
    };
    let resources = read(include_str!(
        "../../../../pure/fleet/tests/fixtures/kubernetes/1.6.1-cr-pod-mode.json"
    ));
    let slices = read(include_str!(
        "../../../../pure/fleet/tests/fixtures/kubernetes/1.6.1-endpointslices.json"
    ));
    let mut entries = Vec::new();
    for (map, bucket) in [
        ("endpoints", "v1/instances"),
        ("model_cards", "v1/mdc"),
        ("event_channels", "v1/event_channels"),
        ("event_sources", "v1/event_sources"),
    ] {
        for resource in &resources {
            for (path, value) in resource["spec"]["data"][map].as_object().into_iter().flatten() {
                entries.push((format!("{bucket}/{path}"), value.to_string()));
            }
        }
    }
    let mut reducer = Reducer::new(continuum_fleet::Settings {
        namespaces: vec![Graph::from("dynamo")],
        namespace_match: NamespaceMatch::Generation,
        limits: Default::default(),
    });
    reducer.reset(entries, jiff::Timestamp::UNIX_EPOCH);
    let wanted = reducer.view();
    assert_eq!(wanted.workers.len(), 2);

    for mut object in resources.into_iter().chain(slices) {
        let metadata = object["metadata"].as_object_mut().unwrap();
        for field in [
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "managedFields",
        ] {
            metadata.remove(field);
        }
        metadata.insert("namespace".into(), namespace.clone().into());
        cluster.apply(&object.to_string()).await;
    }
    let router = Router::start(config(Kubernetes, &namespace), cluster.kubeconfig());
    router
        .fleet("the fixture's fleet", |view| {
            view.workers == wanted.workers && view.publishers == wanted.publishers
        })
        .await;
}

//! The tests' own Kubernetes: what it promises to tests.

use std::time::Duration;

use continuum_testkit::kube::{Cluster, Options, eventually, fleet::Worker};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api,
    api::{ListParams, WatchEvent, WatchParams},
};
use tokio::sync::OnceCell;

static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();

fn map(namespace: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: one, namespace: {namespace}}}\ndata: {{value: \"{value}\"}}\n"
    )
}

#[tokio::test]
async fn applies_objects_with_their_status_and_deletes_them() {
    let cluster = CLUSTER.get_or_init(Cluster::start).await;
    let namespace = cluster.namespace("objects").await;
    let yaml = format!(
        "{}---\napiVersion: v1\nkind: Pod\nmetadata: {{name: worker-0, namespace: {namespace}}}\n\
         spec: {{containers: [{{name: main, image: x}}]}}\nstatus: {{phase: Running}}\n",
        map(&namespace, "a")
    );
    cluster.apply(&yaml).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client().await, &namespace);
    let status = pods.get("worker-0").await.unwrap().status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    cluster.delete(&yaml).await;
    cluster.delete(&yaml).await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client().await, &namespace);
    assert!(maps.get_opt("one").await.unwrap().is_none());
}

#[tokio::test]
async fn a_service_account_may_do_what_it_was_granted() {
    let cluster = CLUSTER.get_or_init(Cluster::start).await;
    let namespace = cluster.namespace("rbac").await;
    let token: Api<Pod> = Api::namespaced(cluster.service_account(&namespace, "reader").await, &namespace);
    let impersonated: Api<Pod> =
        Api::namespaced(cluster.impersonating(&namespace, "reader").await, &namespace);
    assert!(token.list(&ListParams::default()).await.is_err());
    assert!(impersonated.list(&ListParams::default()).await.is_err());
    cluster
        .apply(&format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: r, namespace: {namespace}}}\n\
             rules: [{{apiGroups: [\"\"], resources: [pods], verbs: [list]}}]\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: r, namespace: {namespace}}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}}\n\
             subjects: [{{kind: ServiceAccount, name: reader, namespace: {namespace}}}]\n"
        ))
        .await;
    for pods in [token, impersonated] {
        eventually("the grant works", Duration::from_secs(10), || async {
            pods.list(&ListParams::default()).await.ok()
        })
        .await;
    }
}

#[tokio::test]
async fn a_watch_from_a_compacted_revision_is_gone() {
    let cluster = Cluster::start_with(Options {
        watch_cache: false,
        ..Options::default()
    })
    .await;
    let namespace = cluster.namespace("gone").await;
    cluster.apply(&map(&namespace, "a")).await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client().await, &namespace);
    let old = maps.list(&ListParams::default()).await.unwrap().metadata;
    for value in ["b", "c"] {
        cluster.apply(&map(&namespace, value)).await;
    }
    cluster.compact();
    let watch = maps
        .watch(&WatchParams::default(), &old.resource_version.unwrap())
        .await;
    let code = match watch {
        Err(kube::Error::Api(status)) => status.code,
        Err(other) => unreachable!("{other}"),
        Ok(stream) => {
            let mut stream = std::pin::pin!(stream);
            match futures::StreamExt::next(&mut stream).await {
                Some(Ok(WatchEvent::Error(status))) => status.code,
                other => unreachable!("{other:?}"),
            }
        }
    };
    assert_eq!(code, 410);
}

#[tokio::test]
async fn a_restarted_server_has_what_was_stored_and_a_frozen_one_is_silent() {
    let cluster = Cluster::start().await;
    let namespace = cluster.namespace("restart").await;
    cluster.apply(&map(&namespace, "a")).await;
    cluster.restart().await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client().await, &namespace);
    assert!(maps.get_opt("one").await.unwrap().is_some());
    cluster.freeze();
    let silent = tokio::time::timeout(Duration::from_millis(300), maps.get("one")).await;
    assert!(silent.is_err());
    cluster.thaw();
    maps.get("one").await.unwrap();
}

#[tokio::test]
async fn controllers_make_children_and_take_them_along() {
    let cluster = Cluster::start_with_controllers().await;
    let namespace = cluster.namespace("children").await;
    let yaml = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d, namespace: {namespace}}}\n\
         spec: {{replicas: 2, selector: {{matchLabels: {{app: d}}}}, template: {{metadata: {{labels: {{app: d}}}}, \
         spec: {{containers: [{{name: main, image: x}}]}}}}}}\n"
    );
    cluster.apply(&yaml).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client().await, &namespace);
    let count = |wanted: usize| {
        let pods = pods.clone();
        move || {
            let pods = pods.clone();
            async move {
                let found = pods.list(&ListParams::default()).await.ok()?.items.len();
                (found == wanted).then_some(())
            }
        }
    };
    eventually("the pods are made", Duration::from_secs(20), count(2)).await;
    cluster.delete(&yaml).await;
    eventually("the pods are gone", Duration::from_secs(30), count(0)).await;
}

#[tokio::test]
async fn a_worker_is_written_and_removed() {
    let cluster = CLUSTER.get_or_init(Cluster::start).await;
    cluster.install_worker_metadata().await;
    let namespace = cluster.namespace("fleet").await;
    let mut worker = Worker::new(&namespace, "worker-0", "decode", "m");
    assert_eq!(worker.instance(), 1_186_445_869_714_687);
    let uid = cluster.write_worker(&worker).await;
    worker.ready = false;
    assert_eq!(cluster.write_worker(&worker).await, uid);
    let path = format!("/apis/nvidia.com/v1alpha1/namespaces/{namespace}/dynamoworkermetadatas");
    assert!(cluster.raw(&path).await.contains("generate/437"));
    cluster.remove_worker(&worker).await;
    assert!(!cluster.raw(&path).await.contains("worker-0"));
    let pods: Api<Pod> = Api::namespaced(cluster.client().await, &namespace);
    assert!(pods.get_opt("worker-0").await.unwrap().is_none());
}

#[tokio::test]
async fn a_big_fleet_is_written_fast() {
    let cluster = CLUSTER.get_or_init(Cluster::start).await;
    cluster.install_worker_metadata().await;
    let namespace = cluster.namespace("big").await;
    let workers: Vec<Worker> = (0..250)
        .map(|n| Worker::new(&namespace, &format!("worker-{n}"), "worker", "m"))
        .collect();
    let begun = std::time::Instant::now();
    let uids = cluster.write_fleet(&workers).await;
    println!("{} workers in {:?}", workers.len(), begun.elapsed());
    assert_eq!(uids.iter().filter(|uid| !uid.is_empty()).count(), 250);
    let slices: Api<k8s_openapi::api::discovery::v1::EndpointSlice> =
        Api::namespaced(cluster.client().await, &namespace);
    let found = slices.list(&ListParams::default()).await.unwrap();
    assert_eq!(found.items.len(), 3);
}

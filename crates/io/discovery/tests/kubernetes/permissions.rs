//! What a router without a permission says, and that it goes on when it has it.

use continuum_config::model::DiscoverySource::{Kubernetes, KubernetesPods};
use continuum_testkit::kube::{
    Cluster,
    fleet::{Worker, records},
};

use crate::support::{Router, cluster, config};

/// A Role with these rules, bound to the ServiceAccount `router`.
fn role(namespace: &str, rules: &str) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: reader, namespace: {namespace}}}\n\
         rules: [{rules}]\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n\
         metadata: {{name: reader, namespace: {namespace}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}}\n\
         subjects: [{{kind: ServiceAccount, name: router, namespace: {namespace}}}]\n"
    )
}

fn rule(group: &str, resource: &str) -> String {
    format!("{{apiGroups: [\"{group}\"], resources: [{resource}], verbs: [get, list, watch]}}")
}

async fn account(cluster: &Cluster, namespace: &str) -> std::path::PathBuf {
    cluster.kubeconfig_for(&cluster.token(namespace, "router", &[]).await)
}

#[tokio::test]
async fn a_missing_permission_is_named_and_its_return_is_noticed() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("rbac").await;
    let worker = Worker::new(&namespace, "w-0", "worker", "m");
    let uid = cluster.write_worker(&worker).await;
    let router = Router::start(config(Kubernetes, &namespace), account(cluster, &namespace).await);
    let says = |words: &'static str| {
        move |status: &continuum_discovery::Status| {
            status
                .last_error
                .as_deref()
                .is_some_and(|error| error.contains(words))
        }
    };
    router
        .state(
            "no metadata",
            says("list dynamoworkermetadatas in namespace `rbac-"),
        )
        .await;
    assert!(!router.status().ready());
    let metadata = rule("nvidia.com", "dynamoworkermetadatas");
    cluster.apply(&role(&namespace, &metadata)).await;
    router
        .state("no slices", says("API group `discovery.k8s.io`"))
        .await;
    let slices = rule("discovery.k8s.io", "endpointslices");
    // Pods are not in it: a fleet in pod mode needs none.
    cluster
        .apply(&role(&namespace, &format!("{metadata}, {slices}")))
        .await;
    router.ids(&[worker.instance()]).await;

    // A container needs them. Without the permission it alone is left out.
    let data = records("dynamo", "backend", "w-0-main", "worker", "m");
    cluster
        .write_metadata(&namespace, "w-0-main", "w-0", &uid, &data)
        .await;
    router
        .state("a pass that would list Pods", |status| {
            status.passes > 1 && status.connected
        })
        .await;
    router.ids(&[worker.instance()]).await;
}

#[tokio::test]
async fn permissions_that_go_keep_the_view_and_come_back() {
    let cluster = Cluster::start().await;
    cluster.install_worker_metadata().await;
    let namespace = cluster.namespace("removed").await;
    let worker = Worker::new(&namespace, "w-0", "worker", "m");
    cluster.write_worker(&worker).await;
    let pods = role(&namespace, &rule("", "pods"));
    cluster.apply(&pods).await;
    let router = Router::start(
        config(KubernetesPods, &namespace),
        account(&cluster, &namespace).await,
    );
    router.ids(&[worker.instance()]).await;
    cluster.delete(&pods).await;
    // An open watch stays open; the next pass is refused.
    cluster.restart().await;
    router
        .state("forbidden", |status| {
            let told = |error: &str| error.contains("grant get, list and watch on `pods` (API group ``)");
            !status.connected && status.last_error.as_deref().is_some_and(told)
        })
        .await;
    router.ids(&[worker.instance()]).await;
    cluster.apply(&pods).await;
    router.state("restored", |status| status.connected).await;
}

#[tokio::test]
async fn a_token_that_nobody_knows_is_said() {
    let cluster = cluster().await;
    let router = Router::start(
        config(KubernetesPods, "default"),
        cluster.kubeconfig_for("nobody"),
    );
    router
        .state("unauthorized", |status| {
            status
                .last_error
                .as_deref()
                .is_some_and(|error| error.contains("does not accept the credentials"))
        })
        .await;
}

#[tokio::test]
async fn a_cluster_without_dynamos_definitions_is_said() {
    let cluster = Cluster::start().await;
    let router = Router::start(config(Kubernetes, "default"), cluster.kubeconfig());
    router
        .state("no definition", |status| {
            status
                .last_error
                .as_deref()
                .is_some_and(|error| error.contains("install Dynamo's custom resource"))
        })
        .await;
    cluster.install_worker_metadata().await;
    router.state("installed", |status| status.connected).await;
}

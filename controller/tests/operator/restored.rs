//! What an earlier life of the operator accepted is kept up while the present spec is rejected, however little of it is
//! known.

use continuum_controller::push::Key;
use continuum_testkit::kube::{Cluster, eventually};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::support::{LIMIT, Operator, cluster, condition, gone, namespace, object, routerconfig, wait_for};

fn ca(map: &Value) -> String {
    map["data"]["ca.crt"].as_str().unwrap_or_default().to_owned()
}

fn text(map: &Value) -> &str {
    map["data"]["router.yaml"].as_str().unwrap_or_default()
}

fn key(ns: &str) -> Key {
    Key {
        namespace: ns.into(),
        name: "chat".into(),
    }
}

/// An accepted spec, then one that is not, then no operator.
async fn accepted_once(client: &Client, ns: &str, fleet: &str, router: &str, flags: &[&str]) {
    let cluster = cluster().await;
    let operator = Operator::start(client.clone(), ns, flags).await;
    let good = routerconfig(ns, "chat", fleet, router);
    cluster.apply(&good).await;
    condition(client, ns, "chat", "ResourcesApplied", "Applied").await;
    let bad = good.replace("backends: [frontend]", "backends: [missing]");
    cluster.apply(&bad.replace("replicas: 2", "replicas: 7")).await;
    condition(client, ns, "chat", "Degraded", "ConfigNotInForce").await;
    operator.stop().await;
}

/// What is kept of the spec becomes this.
async fn keep(client: &Client, ns: &str, kept: Value) {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), ns);
    let patch = json!({ "data": { "accepted.json": kept } });
    api.patch("chat-router", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
}

/// The authority is replaced.
async fn replace_authority(cluster: &Cluster, ns: &str) {
    let secret = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: ca, namespace: {ns}}}\n");
    cluster.delete(&secret).await;
    cluster.apply(&secret).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spec_that_a_newer_operator_would_refuse_is_kept_up() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "stricter").await;
    let router = "{replicas: 2, podDisruptionBudget: {minAvailable: 1}}";
    accepted_once(&client, &ns, &ns, router, &[]).await;
    let before = wait_for(&client, &ns, "ConfigMap", "chat-router", |_| true).await;
    let mut kept: Value = serde_json::from_str(before["data"]["accepted.json"].as_str().unwrap()).unwrap();
    kept["spec"]["config"]["backends"] = json!([]);
    keep(&client, &ns, json!(kept.to_string())).await;
    replace_authority(cluster, &ns).await;
    let service =
        format!("apiVersion: v1\nkind: Service\nmetadata: {{name: chat-router, namespace: {ns}}}\n");
    cluster.delete(&service).await;

    let operator = Operator::start(client.clone(), &ns, &[]).await;
    wait_for(&client, &ns, "Service", "chat-router", |_| true).await;
    let map = wait_for(&client, &ns, "ConfigMap", "chat-router", |map| {
        ca(map) != ca(&before)
    })
    .await;
    assert_eq!(text(&map), text(&before));
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    condition(&client, &ns, "chat", "Accepted", "InvalidConfig").await;
    // And from now on, drift is repaired.
    let edit = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: chat-router, namespace: NS}\n\
                spec: {minAvailable: 9}\n";
    cluster.apply(&edit.replace("NS", &ns)).await;
    wait_for(&client, &ns, "PodDisruptionBudget", "chat-router", |found| {
        found["spec"]["minAvailable"] == 1
    })
    .await;
    let deployment = wait_for(&client, &ns, "Deployment", "chat-router", |_| true).await;
    assert_eq!(deployment["spec"]["replicas"], 2);
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_config_alone_its_configmap_is_kept_up_and_nothing_else_is_claimed() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "alone").await;
    accepted_once(&client, &ns, &ns, "{replicas: 2}", &[]).await;
    keep(&client, &ns, Value::Null).await;
    replace_authority(cluster, &ns).await;
    let before = wait_for(&client, &ns, "ConfigMap", "chat-router", |_| true).await;

    let operator = Operator::start(client.clone(), &ns, &[]).await;
    let map = wait_for(&client, &ns, "ConfigMap", "chat-router", |map| {
        ca(map) != ca(&before)
    })
    .await;
    assert_eq!(text(&map), text(&before));
    condition(&client, &ns, "chat", "ResourcesApplied", "SpecNotKept").await;
    cluster
        .apply(&format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: chat-router, namespace: {ns}}}\ndata: {{router.yaml: x}}\n"
        ))
        .await;
    wait_for(&client, &ns, "ConfigMap", "chat-router", |map| {
        text(map) == text(&before)
    })
    .await;
    // Nothing that is there was taken for something that is not wanted.
    for kind in ["PodDisruptionBudget", "NetworkPolicy", "Service", "Deployment"] {
        assert!(
            object(&client, &ns, kind, "chat-router").await.is_some(),
            "{kind}"
        );
    }
    let (hub, key) = (&operator.hub, &key(&ns));
    eventually("config and view", LIMIT, || async move {
        hub.config(key).zip(hub.published(key)).map(drop)
    })
    .await;
    // With a spec that is valid, all is as always.
    cluster
        .apply(&routerconfig(&ns, "chat", &ns, "{replicas: 3}"))
        .await;
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_any_more_is_said_and_left_alone() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "unreadable").await;
    accepted_once(&client, &ns, &ns, "{replicas: 2}", &[]).await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &ns);
    let patch = json!({ "data": { "accepted.json": null, "router.yaml": "of_another_version: true" } });
    api.patch("chat-router", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    replace_authority(cluster, &ns).await;
    let before = wait_for(&client, &ns, "ConfigMap", "chat-router", |_| true).await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    condition(&client, &ns, "chat", "ResourcesApplied", "SpecNotKept").await;
    // But for the authority, without which routers could not come back.
    let map = wait_for(&client, &ns, "ConfigMap", "chat-router", |map| {
        ca(map) != ca(&before)
    })
    .await;
    assert_eq!(text(&map), "of_another_version: true");
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_fleet_that_may_not_be_read_any_more_is_not_restored() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "restored-foreign").await;
    let fleet = cluster.namespace("restored-fleet").await;
    let allowed = format!("--fleet-namespaces={fleet}");
    let router = "{replicas: 2, fleetView: Local}";
    accepted_once(&client, &ns, &fleet, router, &[&allowed]).await;
    let role = format!("{ns}.chat-router");
    // The spec is refused for another reason, and nothing but the text says which fleet it was.
    keep(&client, &ns, Value::Null).await;
    assert!(object(&client, &fleet, "Role", &role).await.is_some());

    let operator = Operator::start(client.clone(), &ns, &[]).await;
    condition(&client, &ns, "chat", "ResourcesApplied", "NothingAccepted").await;
    for kind in ["Role", "RoleBinding"] {
        gone(&client, &fleet, kind, &role).await;
    }
    assert!(operator.hub.config(&key(&ns)).is_none());
    operator.stop().await;

    // An installation that allows it, and knows the text alone, serves its routers.
    let operator = Operator::start(client.clone(), &ns, &[&allowed]).await;
    let (hub, key) = (&operator.hub, &key(&ns));
    eventually("the config", LIMIT, || async move { hub.config(key) }).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_namespace_with_a_typo_costs_no_router_its_config_after_a_restart() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "typo").await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    cluster
        .apply(&routerconfig(&ns, "chat", &ns, "{replicas: 2}"))
        .await;
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    operator.stop().await;
    cluster
        .apply(&routerconfig(&ns, "chat", "elsewhere", "{replicas: 2}"))
        .await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    condition(&client, &ns, "chat", "Accepted", "FleetNamespaceNotAllowed").await;
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    assert!(operator.hub.config(&key(&ns)).is_some());
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_looked_up_costs_no_router_its_rights() {
    let cluster = cluster().await;
    let admin = cluster.client().await;
    let ns = namespace(cluster, "not-asked").await;
    let fleet = cluster.namespace("not-asked-fleet").await;
    let allowed = format!("--fleet-namespaces={fleet}");
    let router = "{replicas: 2, fleetView: Local}";
    accepted_once(&admin, &ns, &fleet, router, &[&allowed]).await;
    let rules = |maps: &str| {
        format!(
            r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: operator, namespace: {ns}}}
rules:
  - apiGroups: [apps, autoscaling, policy, networking.k8s.io, rbac.authorization.k8s.io, router.continuum.dev, coordination.k8s.io, events.k8s.io]
    resources: ["*"]
    verbs: ["*"]
  - {{apiGroups: [""], resources: [secrets, services, serviceaccounts{maps}], verbs: ["*"]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: operator, namespace: {ns}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: operator}}
subjects: [{{kind: ServiceAccount, name: operator, namespace: {ns}}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: not-asked-operator, namespace: {fleet}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}
subjects: [{{kind: ServiceAccount, name: operator, namespace: {ns}}}]
"#
        )
    };
    cluster.apply(&rules("")).await;
    let client = cluster.service_account(&ns, "operator").await;
    let operator = Operator::start(client, &ns, &[&allowed]).await;
    let told = condition(&admin, &ns, "chat", "ResourcesApplied", "Forbidden").await;
    let told = told.status.unwrap().conditions;
    let message = told.iter().find(|one| one.type_ == "ResourcesApplied").unwrap();
    assert!(message.message.contains("ConfigMap"), "{}", message.message);
    let role = format!("{ns}.chat-router");
    assert!(object(&admin, &fleet, "Role", &role).await.is_some());
    cluster.apply(&rules(", configmaps")).await;
    condition(&admin, &ns, "chat", "ResourcesApplied", "Applied").await;
    condition(&admin, &ns, "chat", "Degraded", "ConfigNotInForce").await;
    assert!(object(&admin, &fleet, "Role", &role).await.is_some());
    operator.stop().await;
}

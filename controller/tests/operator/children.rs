//! Children are made, kept as they should be, and left alone where they are somebody else's.

use continuum_crds::RouterConfig;
use continuum_messages::ConfigId;
use continuum_testkit::kube::eventually;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::router::{Session, token};
use crate::support::{LIMIT, Operator, cluster, condition, gone, namespace, object, routerconfig, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn children_come_drift_is_repaired_and_unwanted_ones_go() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "children").await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    cluster
        .apply(&routerconfig(
            &ns,
            "chat",
            &ns,
            "{replicas: 2, podDisruptionBudget: {minAvailable: 1}}",
        ))
        .await;
    for kind in [
        "ServiceAccount",
        "ConfigMap",
        "Service",
        "Deployment",
        "PodDisruptionBudget",
    ] {
        let made = wait_for(&client, &ns, kind, "chat-router", |_| true).await;
        assert_eq!(made["metadata"]["ownerReferences"][0]["name"], "chat", "{kind}");
    }
    // Views are pushed: routers may read nothing.
    assert!(object(&client, &ns, "Role", "chat-router").await.is_none());
    condition(&client, &ns, "chat", "Accepted", "Valid").await;
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    condition(&client, &ns, "chat", "FleetSynced", "Synced").await;
    condition(&client, &ns, "chat", "RoutersReady", "RollingOut").await;
    condition(&client, &ns, "chat", "Ready", "RoutersNotReady").await;
    condition(&client, &ns, "chat", "Degraded", "NoModels").await;

    // A child that is deleted comes back; a field of ours that is edited returns, one of somebody else stays.
    let service =
        format!("apiVersion: v1\nkind: Service\nmetadata: {{name: chat-router, namespace: {ns}}}\n");
    let uid = wait_for(&client, &ns, "Service", "chat-router", |_| true).await["metadata"]["uid"].clone();
    cluster.delete(&service).await;
    wait_for(&client, &ns, "Service", "chat-router", |found| {
        found["metadata"]["uid"] != uid
    })
    .await;
    cluster
        .apply(&format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: chat-router, namespace: {ns}, annotations: {{mine: 'yes'}}}}\ndata: {{router.yaml: nonsense}}\n"
        ))
        .await;
    let map = wait_for(&client, &ns, "ConfigMap", "chat-router", |found| {
        found["data"]["router.yaml"]
            .as_str()
            .is_some_and(|text| text.contains("frontend"))
    })
    .await;
    assert_eq!(map["metadata"]["annotations"]["mine"], "yes");

    // What is not wanted any more goes.
    let less = "{replicas: 1, podDisruptionBudget: {enabled: false}, networkPolicy: {enabled: false}}";
    wait_for(&client, &ns, "NetworkPolicy", "chat-router", |_| true).await;
    cluster.apply(&routerconfig(&ns, "chat", &ns, less)).await;
    wait_for(&client, &ns, "Deployment", "chat-router", |found| {
        found["spec"]["replicas"] == 1
    })
    .await;
    for kind in ["PodDisruptionBudget", "NetworkPolicy"] {
        gone(&client, &ns, kind, "chat-router").await;
    }
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_was_made_anew_replaces_the_pods_whose_tokens_ended_with_it() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "account").await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    cluster.apply(&routerconfig(&ns, "chat", &ns, "{}")).await;
    let uid = |found: &Value| found["metadata"]["uid"].clone();
    let noted = |found: &Value| {
        found["spec"]["template"]["metadata"]["annotations"]["router.continuum.dev/service-account-uid"]
            .clone()
    };
    let first = wait_for(&client, &ns, "ServiceAccount", "chat-router", |_| true).await;
    let before = wait_for(&client, &ns, "Deployment", "chat-router", |_| true).await;
    // From the first version on: nothing is rolled when it becomes known.
    assert_eq!(
        (noted(&before), &before["metadata"]["generation"]),
        (uid(&first), &json!(1))
    );

    let account =
        format!("apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: chat-router, namespace: {ns}}}\n");
    cluster.delete(&account).await;
    let second = wait_for(&client, &ns, "ServiceAccount", "chat-router", |found| {
        found["metadata"]["uid"] != uid(&first)
    })
    .await;
    let rolled = wait_for(&client, &ns, "Deployment", "chat-router", |found| {
        noted(found) == uid(&second)
    })
    .await;
    assert_eq!(rolled["metadata"]["generation"], 2);

    // Another look, and another life of the operator, change nothing.
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    let again = routerconfig(&ns, "chat", &ns, "{}").replace("127.0.0.1:9", "127.0.0.1:10");
    cluster.apply(&again).await;
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    operator.stop().await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    // A number that only this life can have applied.
    let scaled = again.replace("router: {}", "router: {replicas: 1}");
    cluster.apply(&scaled).await;
    let after = wait_for(&client, &ns, "Deployment", "chat-router", |found| {
        found["spec"]["replicas"] == 1
    })
    .await;
    assert_eq!(after["spec"]["template"], rolled["spec"]["template"]);
    assert_eq!(after["metadata"]["generation"], 3);
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn routers_may_read_the_fleet_only_while_they_read_it_themselves() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "local").await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    cluster
        .apply(&routerconfig(&ns, "chat", &ns, "{fleetView: Local}"))
        .await;
    for kind in ["Role", "RoleBinding"] {
        let made = wait_for(&client, &ns, kind, "chat-router", |_| true).await;
        assert_eq!(made["metadata"]["ownerReferences"][0]["name"], "chat", "{kind}");
    }
    let pod = |found: &Value| found["spec"]["template"]["spec"]["automountServiceAccountToken"].clone();
    wait_for(&client, &ns, "Deployment", "chat-router", |found| {
        pod(found) == true
    })
    .await;
    // Their own reports are the only word on it.
    condition(&client, &ns, "chat", "FleetSynced", "NotReported").await;

    cluster.apply(&routerconfig(&ns, "chat", &ns, "{}")).await;
    for kind in ["Role", "RoleBinding"] {
        gone(&client, &ns, kind, "chat-router").await;
    }
    wait_for(&client, &ns, "Deployment", "chat-router", |found| {
        pod(found) == false
    })
    .await;
    condition(&client, &ns, "chat", "FleetSynced", "Synced").await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaler_scales_the_routerconfig_and_nobody_scales_it_back() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "scaled").await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    let wanted = routerconfig(
        &ns,
        "chat",
        &ns,
        "{autoscaling: {minReplicas: 3, maxReplicas: 9}}",
    );
    cluster.apply(&wanted).await;
    let made = wait_for(&client, &ns, "HorizontalPodAutoscaler", "chat-router", |_| true).await;
    let target = &made["spec"]["scaleTargetRef"];
    assert_eq!(
        (&target["kind"], &target["name"]),
        (&json!("RouterConfig"), &json!("chat"))
    );
    // The real autoscaler brings it to the least that it may have, through the scale subresource.
    let replicas = |count: u32| move |found: &Value| found["spec"]["replicas"] == count;
    wait_for(&client, &ns, "Deployment", "chat-router", replicas(3)).await;
    wait_for(&client, &ns, "RouterConfig", "chat", |found| {
        found["spec"]["router"]["replicas"] == 3 && found["status"]["replicas"] == 3
    })
    .await;
    // Another `kubectl apply` of the same document, which names no number, and another look leave it as it is.
    cluster
        .apply(&wanted.replace("127.0.0.1:9", "127.0.0.1:10"))
        .await;
    condition(&client, &ns, "chat", "Accepted", "Valid").await;
    let found = wait_for(&client, &ns, "RouterConfig", "chat", |_| true).await;
    assert_eq!(found["spec"]["router"]["replicas"], 3);
    // As `kubectl scale` does.
    let api: Api<RouterConfig> = Api::namespaced(client.clone(), &ns);
    let scale = Patch::Merge(json!({ "spec": { "replicas": 5 } }));
    let scaled = api
        .patch_scale("chat", &PatchParams::default(), &scale)
        .await
        .unwrap();
    assert_eq!(scaled.spec.unwrap().replicas, Some(5));
    wait_for(&client, &ns, "Deployment", "chat-router", replicas(5)).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_of_somebody_else_is_not_touched_and_reported() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "foreign-child").await;
    let theirs = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: chat-router, namespace: {ns}}}\nspec: {{ports: [{{port: 1}}]}}\n"
    );
    cluster.apply(&theirs).await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    cluster.apply(&routerconfig(&ns, "chat", &ns, "{}")).await;
    let reported = condition(&client, &ns, "chat", "ResourcesApplied", "OwnedByOther").await;
    assert!(
        reported
            .status
            .unwrap()
            .conditions
            .iter()
            .any(|one| one.message.contains("Service"))
    );
    let service = wait_for(&client, &ns, "Service", "chat-router", |_| true).await;
    assert_eq!(service["spec"]["ports"][0]["port"], 1);
    assert!(service["metadata"]["ownerReferences"].is_null());
    // The others are there all the same.
    wait_for(&client, &ns, "Deployment", "chat-router", |_| true).await;
    cluster.delete(&theirs).await;
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_pod_runs_under_an_account_of_somebody_else_and_no_right_is_given_to_it() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "foreign-account").await;
    let theirs = |kind: &str| {
        format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: chat-router, namespace: {ns}}}\n")
    };
    let message = |found: &RouterConfig| {
        let conditions = found.status.clone().unwrap_or_default().conditions;
        let applied = conditions.into_iter().find(|one| one.type_ == "ResourcesApplied");
        applied.map(|one| one.message).unwrap_or_default()
    };
    cluster.apply(&theirs("ServiceAccount")).await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    cluster
        .apply(&routerconfig(&ns, "chat", &ns, "{fleetView: Local}"))
        .await;
    let reported = condition(&client, &ns, "chat", "ResourcesApplied", "OwnedByOther").await;
    for kind in ["ServiceAccount", "RoleBinding", "Deployment"] {
        let message = message(&reported);
        assert!(message.contains(&format!("{kind} {ns}/chat-router")), "{message}");
    }
    // Everything after it has been applied.
    wait_for(&client, &ns, "NetworkPolicy", "chat-router", |_| true).await;
    for kind in ["RoleBinding", "Deployment"] {
        assert!(
            object(&client, &ns, kind, "chat-router").await.is_none(),
            "{kind}"
        );
    }
    let account = wait_for(&client, &ns, "ServiceAccount", "chat-router", |_| true).await;
    assert!(account["metadata"]["ownerReferences"].is_null());
    cluster.delete(&theirs("ServiceAccount")).await;
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    for kind in ["RoleBinding", "Deployment"] {
        assert!(
            object(&client, &ns, kind, "chat-router").await.is_some(),
            "{kind}"
        );
    }

    // Nor do pods start with what somebody else wrote.
    let other = namespace(cluster, "foreign-config").await;
    let (ns, theirs) = (&other, theirs("ConfigMap").replace(&ns, &other));
    operator.stop().await;
    cluster.apply(&theirs).await;
    let operator = Operator::start(client.clone(), ns, &[]).await;
    cluster.apply(&routerconfig(ns, "chat", ns, "{}")).await;
    let reported = condition(&client, ns, "chat", "ResourcesApplied", "OwnedByOther").await;
    assert!(
        message(&reported).contains(&format!("Deployment {ns}/chat-router")),
        "{}",
        message(&reported)
    );
    wait_for(&client, ns, "NetworkPolicy", "chat-router", |_| true).await;
    assert!(object(&client, ns, "Deployment", "chat-router").await.is_none());
    cluster.delete(&theirs).await;
    condition(&client, ns, "chat", "ResourcesApplied", "Applied").await;
    wait_for(&client, ns, "Deployment", "chat-router", |_| true).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn children_that_were_orphaned_are_taken_over_once_they_are_given_an_owner() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "orphans").await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    let wanted = routerconfig(&ns, "chat", &ns, "{}");
    // So that the one that is made anew begins below.
    for port in ["7", "8", "9"] {
        cluster
            .apply(&wanted.replace("127.0.0.1:9", &format!("127.0.0.1:{port}")))
            .await;
    }
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    let map = wait_for(&client, &ns, "ConfigMap", "chat-router", |_| true).await;
    let ca = map["data"]["ca.crt"].as_str().unwrap().to_owned();
    let token = token(&client, &ns, "chat-router", "chat-router-test").await;
    let mut router = Session::open(operator.port, &ca, &token).await;
    let before_id = router.config_with("127.0.0.1:9").await;
    assert_eq!(before_id.generation, 3);
    router.config = Some(before_id);
    router.report(None).await;
    let text = |map: &Value| map["data"]["router.yaml"].as_str().unwrap_or_default().to_owned();
    wait_for(&client, &ns, "ConfigMap", "chat-router", |map| {
        text(map).contains("generation: 3")
    })
    .await;
    let before = wait_for(&client, &ns, "Deployment", "chat-router", |_| true).await;
    // What `kubectl delete --cascade=orphan` leaves: children without an owner.
    operator.stop().await;
    let kinds = [
        "ServiceAccount",
        "ConfigMap",
        "Service",
        "Deployment",
        "PodDisruptionBudget",
        "NetworkPolicy",
    ];
    let own = async |kind: &str, owners: Value| {
        let child = object(&client, &ns, kind, "chat-router").await.unwrap();
        let gvk = GroupVersionKind::try_from(child.types.as_ref().unwrap()).unwrap();
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &ns, &ApiResource::from_gvk(&gvk));
        let patch = Patch::Merge(json!({ "metadata": { "ownerReferences": owners } }));
        api.patch("chat-router", &PatchParams::default(), &patch)
            .await
            .unwrap();
    };
    for kind in kinds {
        own(kind, json!(null)).await;
    }
    let api: Api<RouterConfig> = Api::namespaced(client.clone(), &ns);
    api.delete("chat", &DeleteParams::background()).await.unwrap();
    gone(&client, &ns, "RouterConfig", "chat").await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    cluster.apply(&wanted).await;
    let made = condition(&client, &ns, "chat", "ResourcesApplied", "OwnedByOther").await;
    // As the documents say.
    let owner = json!([{
        "apiVersion": "router.continuum.dev/v1alpha1",
        "kind": "RouterConfig",
        "name": "chat",
        "uid": made.metadata.uid,
        "controller": true,
    }]);
    for kind in kinds {
        own(kind, owner.clone()).await;
    }
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    let after = wait_for(&client, &ns, "Deployment", "chat-router", |_| true).await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["spec"]["template"], before["spec"]["template"]);
    // Routers are told whose generation that is, take it over, and pods start with it from then on.
    let uid = made.metadata.uid.unwrap();
    let mut router = Session::open(operator.port, &ca, &token).await;
    router.config = Some(before_id);
    let update = router.update_with("127.0.0.1:9").await;
    assert_eq!(update.uid, uid);
    assert!(update.text.contains(&format!("uid: {uid}")), "{}", update.text);
    let id = ConfigId::try_from(update.id.as_ref().unwrap()).unwrap();
    assert_eq!(id.generation, 1);
    router.config = Some(id);
    router.report(None).await;
    wait_for(&client, &ns, "ConfigMap", "chat-router", |map| {
        text(map).contains(&format!("uid: {uid}"))
    })
    .await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_config_leaves_the_last_accepted_one_in_force() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "rejected").await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    let good = routerconfig(&ns, "chat", &ns, "{}");
    cluster.apply(&good).await;
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    let text = |map: &Value| map["data"]["router.yaml"].as_str().unwrap_or_default().to_owned();
    let before = text(&wait_for(&client, &ns, "ConfigMap", "chat-router", |_| true).await);
    // A pool of a backend that does not exist: no schema can say that.
    let bad = good.replace("backends: [frontend]", "backends: [missing]");
    cluster.apply(&bad).await;
    condition(&client, &ns, "chat", "Accepted", "InvalidConfig").await;
    condition(&client, &ns, "chat", "Degraded", "ConfigNotInForce").await;
    let after = wait_for(&client, &ns, "ConfigMap", "chat-router", |_| true).await;
    assert_eq!(text(&after), before);
    operator.stop().await;
    // Another life of the operator still knows it.
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    let key = continuum_controller::push::Key {
        namespace: ns.as_str().into(),
        name: "chat".into(),
    };
    let hub = &operator.hub;
    let key = &key;
    eventually("the config of the earlier life", LIMIT, || async move {
        hub.config(key)
    })
    .await;
    assert_eq!(
        text(&wait_for(&client, &ns, "ConfigMap", "chat-router", |_| true).await),
        before
    );
    cluster.apply(&good.replace("127.0.0.1:9", "127.0.0.1:10")).await;
    condition(&client, &ns, "chat", "Accepted", "Valid").await;
    wait_for(&client, &ns, "ConfigMap", "chat-router", |map| {
        text(map).contains("127.0.0.1:10")
    })
    .await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_status_writes_nothing() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "quiet").await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    cluster
        .apply(&routerconfig(&ns, "chat", &ns, "{replicas: 0}"))
        .await;
    condition(&client, &ns, "chat", "RoutersReady", "ScaledToZero").await;
    let version = |found: &Value| found["metadata"]["resourceVersion"].clone();
    let mut before = json!(null);
    // Until nothing has moved for longer than the writer's own clock.
    let still = eventually("a status that stays", LIMIT, || {
        let last = before.clone();
        let client = client.clone();
        let ns = ns.clone();
        let now = async move {
            let now = version(&wait_for(&client, &ns, "RouterConfig", "chat", |_| true).await);
            tokio::time::sleep(std::time::Duration::from_secs(6)).await;
            let later = version(&wait_for(&client, &ns, "RouterConfig", "chat", |_| true).await);
            (now == later && last != json!(false)).then_some(later)
        };
        before = json!(true);
        now
    })
    .await;
    assert!(still.is_string());
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn permissions_that_go_are_told_and_come_back() {
    let cluster = cluster().await;
    let admin = cluster.client().await;
    let ns = namespace(cluster, "permissions").await;
    let rules = |children: &str| {
        format!(
            r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: operator, namespace: {ns}}}
rules:
  - {{apiGroups: ["*"], resources: ["*"], verbs: [get, list, watch]}}
  - {{apiGroups: [router.continuum.dev, coordination.k8s.io, events.k8s.io], resources: ["*"], verbs: ["*"]}}
  - {{apiGroups: [""], resources: [secrets], verbs: [get, update]}}
  - {{apiGroups: ["", apps, policy, networking.k8s.io], resources: [serviceaccounts, configmaps, services, poddisruptionbudgets, networkpolicies{children}], verbs: [create, patch, delete]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: operator, namespace: {ns}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: operator}}
subjects: [{{kind: ServiceAccount, name: operator, namespace: {ns}}}]
"#
        )
    };
    cluster
        .apply(&format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {ns}}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: 'system:auth-delegator'}}\n\
             subjects: [{{kind: ServiceAccount, name: operator, namespace: {ns}}}]\n"
        ))
        .await;
    cluster.apply(&rules("")).await;
    let client = cluster.service_account(&ns, "operator").await;
    let operator = Operator::start(client, &ns, &[]).await;
    cluster.apply(&routerconfig(&ns, "chat", &ns, "{}")).await;
    let told = condition(&admin, &ns, "chat", "ResourcesApplied", "Forbidden").await;
    assert!(
        told.status
            .unwrap()
            .conditions
            .iter()
            .any(|one| one.message.contains("deployments"))
    );
    cluster.apply(&rules(", deployments")).await;
    condition(&admin, &ns, "chat", "ResourcesApplied", "Applied").await;
    wait_for(&admin, &ns, "Deployment", "chat-router", |_| true).await;

    // Taken away from an operator that had it: routers are told of a new config all the same.
    let mut router = Session::of_pod(&admin, &ns, operator.port).await;
    router.config = Some(router.config_with("127.0.0.1:9").await);
    router.report(None).await;
    cluster.apply(&rules("")).await;
    let changed = routerconfig(&ns, "chat", &ns, "{replicas: 4}").replace("127.0.0.1:9", "127.0.0.1:10");
    cluster.apply(&changed).await;
    router.config = Some(router.config_with("127.0.0.1:10").await);
    router.report(None).await;
    condition(&admin, &ns, "chat", "ResourcesApplied", "Forbidden").await;
    cluster.apply(&rules(", deployments")).await;
    condition(&admin, &ns, "chat", "ResourcesApplied", "Applied").await;
    wait_for(&admin, &ns, "Deployment", "chat-router", |found| {
        found["spec"]["replicas"] == 4
    })
    .await;
    operator.stop().await;
    gone(&admin, &ns, "Role", "chat-router").await;
}

//! Deletion ends cleanly, and nothing comes back.

use continuum_crds::RouterConfig;
use continuum_testkit::kube::eventually;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};

use crate::support::{LIMIT, Operator, cluster, condition, gone, namespace, object, routerconfig, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn foreground_and_background_deletion_take_everything_along() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "deletion").await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    let api: Api<RouterConfig> = Api::namespaced(client.clone(), &ns);
    for params in [DeleteParams::foreground(), DeleteParams::background()] {
        cluster.apply(&routerconfig(&ns, "chat", &ns, "{}")).await;
        condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
        api.delete("chat", &params).await.unwrap();
        gone(&client, &ns, "RouterConfig", "chat").await;
        for kind in ["Deployment", "Service", "ConfigMap", "ServiceAccount"] {
            gone(&client, &ns, kind, "chat-router").await;
        }
    }
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_elsewhere_needs_leave_and_leaves_nothing_behind() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "tenant").await;
    let fleet = cluster.namespace("fleet").await;
    let wanted = routerconfig(&ns, "chat", &fleet, "{fleetView: Local}");

    let operator = Operator::start(client.clone(), &ns, &[]).await;
    cluster.apply(&wanted).await;
    condition(&client, &ns, "chat", "Accepted", "FleetNamespaceNotAllowed").await;
    condition(&client, &ns, "chat", "ResourcesApplied", "NothingAccepted").await;
    assert!(object(&client, &ns, "Deployment", "chat-router").await.is_none());
    operator.stop().await;

    let allowed = format!("--fleet-namespaces={fleet}");
    let operator = Operator::start(client.clone(), &ns, &[&allowed]).await;
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    let name = format!("{ns}.chat-router");
    for kind in ["Role", "RoleBinding"] {
        wait_for(&client, &fleet, kind, &name, |_| true).await;
    }
    let found = wait_for(&client, &ns, "RouterConfig", "chat", |_| true).await;
    assert_eq!(
        found["metadata"]["finalizers"][0],
        "router.continuum.dev/fleet-namespace"
    );

    // A fleet of its own again: nothing is left elsewhere, and nothing is to be waited for.
    cluster
        .apply(&routerconfig(&ns, "chat", &ns, "{fleetView: Local}"))
        .await;
    gone(&client, &fleet, "Role", &name).await;
    wait_for(&client, &ns, "RouterConfig", "chat", |found| {
        found["metadata"]["finalizers"].is_null()
    })
    .await;

    cluster.apply(&wanted).await;
    wait_for(&client, &fleet, "RoleBinding", &name, |_| true).await;
    wait_for(&client, &ns, "RouterConfig", "chat", |found| {
        !found["metadata"]["finalizers"].is_null()
    })
    .await;
    let api: Api<RouterConfig> = Api::namespaced(client.clone(), &ns);
    api.delete("chat", &DeleteParams::background()).await.unwrap();
    gone(&client, &ns, "RouterConfig", "chat").await;
    for kind in ["Role", "RoleBinding"] {
        gone(&client, &fleet, kind, &name).await;
    }
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_over_a_fleet_go_with_the_leave_to_read_it() {
    let cluster = cluster().await;
    let admin = cluster.client().await;
    let ns = namespace(cluster, "left").await;
    let fleet = cluster.namespace("left-fleet").await;
    let rights = |namespace: &str| {
        format!(
            r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: left-operator, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}
subjects: [{{kind: ServiceAccount, name: left-operator, namespace: {ns}}}]
"#
        )
    };
    cluster.apply(&rights(&ns)).await;
    cluster.apply(&rights(&fleet)).await;
    let client = cluster.service_account(&ns, "left-operator").await;
    let allowed = format!("--fleet-namespaces={fleet}");
    let operator = Operator::start(client.clone(), &ns, &[&allowed]).await;
    for name in ["stays", "goes"] {
        cluster
            .apply(&routerconfig(&ns, name, &fleet, "{fleetView: Local}"))
            .await;
        condition(&admin, &ns, name, "ResourcesApplied", "Applied").await;
        wait_for(
            &admin,
            &fleet,
            "RoleBinding",
            &format!("{ns}.{name}-router"),
            |_| true,
        )
        .await;
    }
    operator.stop().await;

    // An installation that may neither serve that fleet nor look there any more: it says what it has to leave behind.
    cluster.delete(&rights(&fleet)).await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    condition(&admin, &ns, "stays", "Accepted", "FleetNamespaceNotAllowed").await;
    let told = condition(&admin, &ns, "stays", "ResourcesApplied", "Forbidden").await;
    let told = told.status.unwrap().conditions;
    let message = told.iter().find(|one| one.type_ == "ResourcesApplied").unwrap();
    assert!(
        message.message.contains(&fleet) && message.message.contains("stays-router"),
        "{}",
        message.message
    );
    let api: Api<RouterConfig> = Api::namespaced(admin.clone(), &ns);
    api.delete("goes", &DeleteParams::background()).await.unwrap();
    let events: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(admin.clone(), &ns);
    let (events, looked) = (&events, "an Event that tells why it cannot be deleted");
    eventually(looked, LIMIT, || async move {
        let all = events.list(&ListParams::default()).await.unwrap();
        let mut about = all.items.iter();
        about
            .any(|event| {
                event.involved_object.name.as_deref() == Some("goes")
                    && event.action.as_deref() == Some("Deleting")
            })
            .then_some(())
    })
    .await;
    // Its status says so too, of the generation that the deletion has made.
    let told = condition(&admin, &ns, "goes", "ResourcesApplied", "Forbidden").await;
    assert!(told.metadata.deletion_timestamp.is_some());
    assert!(
        object(&admin, &fleet, "Role", &format!("{ns}.stays-router"))
            .await
            .is_some()
    );

    // When it may look there, it cleans up, although the fleet is still not served.
    cluster.apply(&rights(&fleet)).await;
    for name in ["stays", "goes"] {
        for kind in ["Role", "RoleBinding"] {
            gone(&admin, &fleet, kind, &format!("{ns}.{name}-router")).await;
        }
    }
    gone(&admin, &ns, "RouterConfig", "goes").await;
    wait_for(&admin, &ns, "RouterConfig", "stays", |found| {
        found["metadata"]["finalizers"].is_null() && found["metadata"]["annotations"].is_null()
    })
    .await;
    operator.stop().await;
}

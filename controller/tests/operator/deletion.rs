//! Deletion ends cleanly, and nothing comes back.

use continuum_crds::RouterConfig;
use kube::{Api, api::DeleteParams};

use crate::support::{Operator, cluster, condition, gone, namespace, object, routerconfig, wait_for};

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

//! An API server that goes away and comes back.

use continuum_controller::push::Key;
use continuum_testkit::kube::Cluster;

use crate::support::{Operator, condition, namespace, prepare, routerconfig, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_comes_back_is_followed_again() {
    // Of its own: the other tests need theirs.
    let cluster = Cluster::start().await;
    prepare(&cluster).await;
    let client = cluster.client().await;
    let ns = namespace(&cluster, "outage").await;
    let operator = Operator::of(&cluster, client.clone(), &ns, "controller-0", &[]).await;
    cluster
        .apply(&routerconfig(&ns, "chat", &ns, "{replicas: 1}"))
        .await;
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    condition(&client, &ns, "chat", "FleetSynced", "Synced").await;
    let key = Key {
        namespace: ns.as_str().into(),
        name: "chat".into(),
    };

    cluster.kill();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    // Routers are served all the same.
    assert!(operator.hub.config(&key).is_some() && operator.hub.published(&key).is_some());
    cluster.restart().await;

    cluster
        .apply(&routerconfig(&ns, "chat", &ns, "{replicas: 3}"))
        .await;
    wait_for(&client, &ns, "Deployment", "chat-router", |found| {
        found["spec"]["replicas"] == 3
    })
    .await;
    condition(&client, &ns, "chat", "FleetSynced", "Synced").await;
    operator.stop().await;
}

//! Several replicas: one writes, all serve.

use continuum_controller::push::Key;
use continuum_testkit::kube::eventually;

use crate::support::{LIMIT, Operator, cluster, condition, namespace, routerconfig, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn another_replica_writes_when_the_leader_stops() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "replicas").await;
    let first = Operator::replica(client.clone(), &ns, "controller-0", &[]).await;
    let holder = |name: &'static str| {
        let client = client.clone();
        let ns = ns.clone();
        async move {
            wait_for(&client, &ns, "Lease", "continuum-router-controller", |lease| {
                lease["spec"]["holderIdentity"] == name
            })
            .await
        }
    };
    holder("controller-0").await;
    let second = Operator::replica(client.clone(), &ns, "controller-1", &[]).await;
    cluster.apply(&routerconfig(&ns, "chat", &ns, "{}")).await;
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    // The one that does not lead serves routers all the same, from the same fleet.
    let key = Key {
        namespace: ns.as_str().into(),
        name: "chat".into(),
    };
    for hub in [&first.hub, &second.hub] {
        let key = &key;
        eventually("config and view", LIMIT, || async move {
            hub.config(key).zip(hub.published(key)).map(drop)
        })
        .await;
    }
    let digest = |operator: &Operator| operator.hub.published(&key).map(|published| published.id.digest);
    assert_eq!(digest(&first), digest(&second));
    assert_eq!(first.hub.config(&key), second.hub.config(&key));

    first.stop().await;
    // Given up, not run out: at once.
    holder("controller-1").await;
    cluster
        .apply(&routerconfig(&ns, "chat", &ns, "{replicas: 3}"))
        .await;
    wait_for(&client, &ns, "Deployment", "chat-router", |found| {
        found["spec"]["replicas"] == 3
    })
    .await;
    second.stop().await;
}

//! Several replicas: one writes, all serve.

use continuum_controller::push::Key;
use continuum_testkit::kube::eventually;

use crate::{
    router::Session,
    support::{LIMIT, Mortal, Operator, cluster, condition, namespace, routerconfig, wait_for},
};

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

#[tokio::test(flavor = "multi_thread")]
async fn another_replica_writes_when_the_leader_crashes() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "crash").await;
    let first = Mortal::replica(&ns, "controller-0").await;
    let holder = |name: &'static str| {
        let (client, ns) = (client.clone(), ns.clone());
        async move {
            let lease = "continuum-router-controller";
            wait_for(&client, &ns, "Lease", lease, |lease| {
                lease["spec"]["holderIdentity"] == name
            })
            .await
        }
    };
    holder("controller-0").await;
    let second = Operator::replica(client.clone(), &ns, "controller-1", &[]).await;
    cluster
        .apply(&routerconfig(&ns, "chat", &ns, "{replicas: 1}"))
        .await;
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    let mut router = Session::of_pod(&client, &ns, second.port).await;
    router.config = Some(router.config_with("127.0.0.1:9").await);
    router.report(None).await;

    first.kill();
    let changed = routerconfig(&ns, "chat", &ns, "{replicas: 3}").replace("127.0.0.1:9", "127.0.0.1:10");
    cluster.apply(&changed).await;
    // Routers are told by the one that is left, long before it may write.
    router.config = Some(router.config_with("127.0.0.1:10").await);
    let lease = wait_for(&client, &ns, "Lease", "continuum-router-controller", |_| true).await;
    assert_eq!(lease["spec"]["holderIdentity"], "controller-0");
    router.report(None).await;
    holder("controller-1").await;
    wait_for(&client, &ns, "Deployment", "chat-router", |found| {
        found["spec"]["replicas"] == 3
    })
    .await;
    // What the router has in force was said before it led; it knows.
    wait_for(&client, &ns, "ConfigMap", "chat-router", |map| {
        map["data"]["router.yaml"]
            .as_str()
            .unwrap()
            .contains("127.0.0.1:10")
    })
    .await;
    condition(&client, &ns, "chat", "Accepted", "Valid").await;
    second.stop().await;
}

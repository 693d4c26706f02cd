//! The authority of the push port is replaced while routers are connected.

use continuum_controller::certs::{authority, plan};
use continuum_testkit::kube::eventually;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    router::{Session, connect, token},
    support::{LIMIT, Operator, cluster, condition, namespace, routerconfig, wait_for},
};

/// What the Secret holds, newest first.
async fn held(client: &Client, ns: &str) -> Vec<Value> {
    let api: Api<Secret> = Api::namespaced(client.clone(), ns);
    let data = api.get("ca").await.unwrap().data.unwrap_or_default();
    let stored = data.get("authorities.json");
    stored.map_or_else(Vec::new, |ByteString(bytes)| {
        serde_json::from_slice(bytes).unwrap()
    })
}

async fn store(client: &Client, ns: &str, held: &[Value]) {
    let api: Api<Secret> = Api::namespaced(client.clone(), ns);
    let patch = json!({ "stringData": { "authorities.json": serde_json::to_string(held).unwrap() } });
    api.patch("ca", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_is_replaced_without_losing_a_router() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "authority").await;
    // One that runs out before long.
    let days = |days: i64| SignedDuration::from_hours(24 * days);
    let made = Timestamp::now() - days(plan::AUTHORITY_DAYS - plan::ROTATE_BEFORE_DAYS + 1);
    let old = authority(made).unwrap();
    let stored = json!({ "certificate": old.cert, "key": old.key, "not_after": old.not_after.as_second() });
    store(&client, &ns, &[stored]).await;

    let first = Operator::replica(client.clone(), &ns, "controller-0", &[]).await;
    cluster
        .apply(&routerconfig(&ns, "chat", &ns, "{replicas: 1}"))
        .await;
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    let second = Operator::replica(client.clone(), &ns, "controller-1", &[]).await;
    let both = held(&client, &ns).await;
    assert_eq!(both.len(), 2);
    let new = both[0]["certificate"].as_str().unwrap().to_owned();
    assert_ne!(new, old.cert);
    // Routers are given both, and the old one signs until they have had the time to read that.
    let ca = |map: &Value| map["data"]["ca.crt"].as_str().unwrap_or_default().to_owned();
    let map = wait_for(&client, &ns, "ConfigMap", "chat-router", |map| {
        ca(map).contains(&new)
    })
    .await;
    assert!(ca(&map).contains(&old.cert));
    eventually("the second replica's certificate", LIMIT, || async {
        connect(second.port, &old.cert).await.ok().map(drop)
    })
    .await;
    assert!(connect(second.port, &new).await.is_err());
    let token = token(&client, &ns, "chat-router", "chat-router-test").await;
    let mut router = Session::open(second.port, &ca(&map), &token).await;
    router.config = Some(router.config_with("127.0.0.1:9").await);

    // That time is over: the new one signs. A replica that comes to lead looks at once.
    let mut aged = both;
    aged[0]["not_after"] = json!(aged[0]["not_after"].as_i64().unwrap() - 3600 * (plan::SETTLE_HOURS + 1));
    store(&client, &ns, &aged).await;
    first.stop().await;
    eventually("a certificate of the new authority", LIMIT, || async {
        connect(second.port, &new).await.ok().map(drop)
    })
    .await;
    assert!(connect(second.port, &old.cert).await.is_err());
    // The session of before is not touched.
    cluster
        .apply(&routerconfig(&ns, "chat", &ns, "{replicas: 1}").replace("127.0.0.1:9", "127.0.0.1:10"))
        .await;
    router.config_with("127.0.0.1:10").await;
    let map = wait_for(&client, &ns, "ConfigMap", "chat-router", |_| true).await;
    assert!(ca(&map).contains(&old.cert) && ca(&map).contains(&new));
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_authority_in_the_secret_is_replaced() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "no-authority").await;
    let far = Timestamp::now() + SignedDuration::from_hours(24 * plan::AUTHORITY_DAYS);
    let nonsense = json!({ "certificate": "nonsense", "key": "nonsense", "not_after": far.as_second() });
    store(&client, &ns, &[nonsense]).await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    let held = eventually("an authority", LIMIT, || async {
        let held = held(&client, &ns).await;
        (held.len() == 1 && held[0]["certificate"] != "nonsense").then_some(held)
    })
    .await;
    let ca = held[0]["certificate"].as_str().unwrap();
    eventually("a certificate", LIMIT, || async {
        connect(operator.port, ca).await.ok().map(drop)
    })
    .await;
    operator.stop().await;
}

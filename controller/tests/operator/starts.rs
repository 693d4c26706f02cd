//! What a router pod starts with, and what a later life of the operator goes on from.

use continuum_controller::push::Key;
use continuum_testkit::kube::eventually;
use serde_json::Value;

use crate::{
    router::{Session, token},
    support::{LIMIT, Operator, cluster, condition, namespace, routerconfig, wait_for},
};

fn text(map: &Value) -> &str {
    map["data"]["router.yaml"].as_str().unwrap_or_default()
}

/// A router has run what is in it.
fn proven(map: &Value) -> bool {
    map["metadata"]["annotations"]["router.continuum.dev/config-unproven"].is_null()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_starts_with_what_routers_have_run() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "starts").await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    let first = routerconfig(&ns, "chat", &ns, "{replicas: 1}");
    cluster.apply(&first).await;
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    let map = wait_for(&client, &ns, "ConfigMap", "chat-router", |_| true).await;
    let ca = map["data"]["ca.crt"].as_str().unwrap().to_owned();
    let token = token(&client, &ns, "chat-router", "chat-router-test").await;
    let mut router = Session::open(operator.port, &ca, &token).await;
    router.config = Some(router.config_with("127.0.0.1:9").await);
    router.report(None).await;
    router
        .until(wait_for(&client, &ns, "ConfigMap", "chat-router", proven))
        .await;

    // The pods lack the variable, so the router stays with what it has, and so do pods that start.
    let missing = first
        .replace("127.0.0.1:9", "'${FRONTEND}'")
        .replace("replicas: 1", "replicas: 2");
    cluster.apply(&missing).await;
    let id = router.config_with("${FRONTEND}").await;
    router.report(Some((id, "`${FRONTEND}` is not set"))).await;
    // Replicas are written after the ConfigMap.
    let replicas = |count: u32| move |found: &Value| found["spec"]["replicas"] == count;
    wait_for(&client, &ns, "Deployment", "chat-router", replicas(2)).await;
    let kept = |map: &Value| text(map).contains("127.0.0.1:9") && !text(map).contains("FRONTEND");
    assert!(kept(
        &wait_for(&client, &ns, "ConfigMap", "chat-router", |_| true).await
    ));

    // Nor does another life of the operator, which nobody has told anything yet, take the new one for a proven one.
    operator.stop().await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    cluster
        .apply(&missing.replace("replicas: 2", "replicas: 3"))
        .await;
    wait_for(&client, &ns, "Deployment", "chat-router", replicas(3)).await;
    assert!(kept(
        &wait_for(&client, &ns, "ConfigMap", "chat-router", |_| true).await
    ));

    // A router that has it in force is the proof.
    let config = router.config;
    let map = wait_for(&client, &ns, "ConfigMap", "chat-router", |_| true).await;
    let mut router = Session::open(operator.port, map["data"]["ca.crt"].as_str().unwrap(), &token).await;
    router.config = config;
    let id = router.config_with("${FRONTEND}").await;
    router.report(None).await;
    assert!(kept(
        &wait_for(&client, &ns, "ConfigMap", "chat-router", |_| true).await
    ));
    router.config = Some(id);
    router.report(None).await;
    wait_for(&client, &ns, "ConfigMap", "chat-router", |map| {
        text(map).contains("${FRONTEND}")
    })
    .await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_processes_start_with_the_config_that_they_are_started_for() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "process").await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    let first = routerconfig(&ns, "chat", &ns, "{replicas: 1}");
    cluster.apply(&first).await;
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    let mut router = Session::of_pod(&client, &ns, operator.port).await;
    router.config = Some(router.config_with("127.0.0.1:9").await);
    router.report(None).await;
    cluster
        .apply(&first.replace(
            "spec:\n  config:\n",
            "spec:\n  config:\n    server: {threads: 3}\n",
        ))
        .await;
    wait_for(&client, &ns, "ConfigMap", "chat-router", |map| {
        text(map).contains("threads: 3")
    })
    .await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_router_has_run_makes_way_for_its_correction() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "corrected").await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    let first = routerconfig(&ns, "chat", &ns, "{replicas: 1}");
    cluster.apply(&first).await;
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    let map = wait_for(&client, &ns, "ConfigMap", "chat-router", |map| !proven(map)).await;
    let ca = map["data"]["ca.crt"].as_str().unwrap().to_owned();
    let token = token(&client, &ns, "chat-router", "chat-router-test").await;
    let mut router = Session::open(operator.port, &ca, &token).await;
    let config = Some(router.config_with("127.0.0.1:9").await);
    router.config = config;
    router.report(None).await;
    router
        .until(wait_for(&client, &ns, "ConfigMap", "chat-router", proven))
        .await;

    // New processes are needed, and they cannot start.
    let broken = first
        .replace(
            "spec:\n  config:\n",
            "spec:\n  config:\n    server: {threads: 3}\n",
        )
        .replace("127.0.0.1:9", "'${TYPO}'");
    cluster.apply(&broken).await;
    wait_for(&client, &ns, "ConfigMap", "chat-router", |map| {
        text(map).contains("${TYPO}") && !proven(map)
    })
    .await;
    // Another life of the operator knows as much, and the router of before is connected and refuses everything.
    operator.stop().await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    let key = Key {
        namespace: ns.as_str().into(),
        name: "chat".into(),
    };
    let (hub, key) = (&operator.hub, &key);
    eventually("the config", LIMIT, || async move { hub.config(key) }).await;
    let mut router = Session::open(operator.port, &ca, &token).await;
    router.config = config;
    let id = router.config_with("${TYPO}").await;
    router.report(Some((id, "`${TYPO}` is not set"))).await;
    cluster.apply(&broken.replace("TYPO", "RIGHT")).await;
    let id = router.config_with("${RIGHT}").await;
    router.report(Some((id, "`${RIGHT}` is not set"))).await;
    router
        .until(condition(&client, &ns, "chat", "ResourcesApplied", "Applied"))
        .await;
    let map = wait_for(&client, &ns, "ConfigMap", "chat-router", |_| true).await;
    assert!(text(&map).contains("${RIGHT}") && !proven(&map), "{map:#}");
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_is_kept_up_while_the_present_spec_is_rejected() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "kept-up").await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    let good = routerconfig(
        &ns,
        "chat",
        &ns,
        "{replicas: 2, podDisruptionBudget: {minAvailable: 1}}",
    );
    cluster.apply(&good).await;
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    cluster
        .apply(
            &good
                .replace("backends: [frontend]", "backends: [missing]")
                .replace("replicas: 2", "replicas: 7"),
        )
        .await;
    condition(&client, &ns, "chat", "Degraded", "ConfigNotInForce").await;
    operator.stop().await;

    // While nobody looks, a child goes, another is edited, and the authority is replaced.
    cluster
        .delete(&format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: chat-router, namespace: {ns}}}\n---\n\
             apiVersion: v1\nkind: Secret\nmetadata: {{name: ca, namespace: {ns}}}\n"
        ))
        .await;
    cluster
        .apply(&format!(
            "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: chat-router, namespace: {ns}}}\nspec: {{minAvailable: 9}}\n---\n\
             apiVersion: v1\nkind: Secret\nmetadata: {{name: ca, namespace: {ns}}}\n"
        ))
        .await;
    let ca = |map: &Value| map["data"]["ca.crt"].as_str().unwrap_or_default().to_owned();
    let before = ca(&wait_for(&client, &ns, "ConfigMap", "chat-router", |_| true).await);

    let operator = Operator::start(client.clone(), &ns, &[]).await;
    wait_for(&client, &ns, "Service", "chat-router", |_| true).await;
    wait_for(&client, &ns, "PodDisruptionBudget", "chat-router", |found| {
        found["spec"]["minAvailable"] == 1
    })
    .await;
    wait_for(&client, &ns, "ConfigMap", "chat-router", |map| {
        ca(map) != before && text(map).contains("frontend")
    })
    .await;
    // The replicas of what was accepted, not those of what was not.
    let deployment = wait_for(&client, &ns, "Deployment", "chat-router", |_| true).await;
    assert_eq!(deployment["spec"]["replicas"], 2);
    let key = Key {
        namespace: ns.as_str().into(),
        name: "chat".into(),
    };
    let (hub, key) = (&operator.hub, &key);
    eventually("the view of the fleet", LIMIT, || async move {
        hub.published(key).map(drop)
    })
    .await;
    operator.stop().await;
}

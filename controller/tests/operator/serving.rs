//! What the status says while requests cannot be served.

use std::fmt::Write as _;

use serde_json::Value;

use crate::support::{Operator, cluster, condition, namespace, routerconfig, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn what_the_api_server_can_never_take_is_refused_and_not_waited_for() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "never").await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    let wrong = [
        ("unknown", "{podTemplate: {spec: {contaners: []}}}", "contaners"),
        (
            "quantity",
            "{resources: {limits: {memory: 2Gb}}}",
            "quantities must match",
        ),
        (
            "twice",
            "{podTemplate: {spec: {hostAliases: [{ip: 192.0.2.1}, {ip: 192.0.2.1}]}}}",
            "duplicate",
        ),
    ];
    for (name, router, _) in wrong {
        cluster.apply(&routerconfig(&ns, name, &ns, router)).await;
    }
    let mut told = String::new();
    for (name, _, words) in wrong {
        let found = wait_for(&client, &ns, "RouterConfig", name, |found| {
            let applied = of(found, "ResourcesApplied");
            applied.is_some_and(|applied| applied["status"] == "False")
        })
        .await;
        let applied = of(&found, "ResourcesApplied").unwrap();
        let message = applied["message"].as_str().unwrap();
        if applied["reason"] != "Refused" || !message.contains(words) {
            let _ = writeln!(told, "{name}: {applied}");
        }
    }
    assert!(told.is_empty(), "{told}");
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_of_somebody_elses_service_is_not_given() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "address").await;
    let theirs = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: chat-router, namespace: {ns}}}\nspec: {{ports: [{{port: 1}}]}}\n"
    );
    cluster.apply(&theirs).await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    cluster.apply(&routerconfig(&ns, "chat", &ns, "{}")).await;
    let told = condition(&client, &ns, "chat", "Degraded", "NotServing").await;
    assert_eq!(told.status.unwrap().url, None);
    cluster.delete(&theirs).await;
    let told = condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    let status = told.status.unwrap();
    assert!(status.url.unwrap().contains("chat-router"));
    // Routers start for the first time: no outage.
    condition(&client, &ns, "chat", "Degraded", "NoModels").await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_config_that_was_never_accepted_nothing_is_claimed() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "never-accepted").await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    let bad = routerconfig(&ns, "chat", &ns, "{}").replace("backends: [frontend]", "backends: [missing]");
    cluster.apply(&bad).await;
    condition(&client, &ns, "chat", "ShimReachable", "NotKnown").await;
    let told = condition(&client, &ns, "chat", "Degraded", "NotServing").await;
    let told = serde_json::to_value(told).unwrap();
    let degraded = of(&told, "Degraded").unwrap();
    assert!(
        degraded["message"].to_string().contains("`Accepted`"),
        "{degraded}"
    );
    assert!(told["status"]["url"].is_null(), "{told}");
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_without_pods_says_why() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "stuck").await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    let router = "{podTemplate: {spec: {priorityClassName: not-there}}}";
    cluster.apply(&routerconfig(&ns, "chat", &ns, router)).await;
    condition(&client, &ns, "chat", "Degraded", "NotServing").await;
    let told = wait_for(&client, &ns, "RouterConfig", "chat", |found| {
        let routers = of(found, "RoutersReady");
        routers.is_some_and(|routers| routers["message"].to_string().contains("not-there"))
    })
    .await;
    assert_eq!(of(&told, "RoutersReady").unwrap()["reason"], "RollingOut");
    operator.stop().await;
}

fn of<'a>(found: &'a Value, type_: &str) -> Option<&'a Value> {
    let mut all = found["status"]["conditions"].as_array()?.iter();
    all.find(|one| one["type"] == type_)
}

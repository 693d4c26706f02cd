//! RouterConfigs that the API server takes and the operator cannot read.

use kube::Client;
use serde_json::{Value, json};

use crate::support::{Operator, cluster, condition, gone, namespace, routerconfig};

async fn send(
    client: &Client,
    method: &str,
    path: &str,
    kind: &str,
    body: &Value,
) -> Result<String, kube::Error> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(body.to_string().into_bytes())
        .unwrap();
    client.request_text(request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_cannot_be_read_is_left_alone_and_others_are_served() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "unreadable").await;
    let path = format!("/apis/router.continuum.dev/v1alpha1/namespaces/{ns}/routerconfigs");
    let yaml: Value = serde_yaml_ng::from_str(&routerconfig(&ns, "deep", &ns, "{}")).unwrap();

    // What the schema can refuse, it does.
    let mut large = yaml.clone();
    large["spec"]["router"]["podDisruptionBudget"]["minAvailable"] = json!(3_000_000_000_u64);
    let refused = send(&client, "POST", &path, "application/json", &large).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("podDisruptionBudget.minAvailable"), "{refused}");

    // How deep an open object is, no schema can say.
    let nested = (0..200).fold(json!(1), |inner, _| json!({ "a": inner }));
    let mut deep = yaml;
    deep["spec"]["router"]["podTemplate"] = json!({ "metadata": nested });
    send(&client, "POST", &path, "application/json", &deep)
        .await
        .unwrap();

    cluster.apply(&routerconfig(&ns, "before", &ns, "{}")).await;
    // With the connection that the process makes itself.
    let own = continuum_controller::api::client(cluster.config().await).unwrap();
    let operator = Operator::start(own, &ns, &[]).await;
    condition(&client, &ns, "before", "ResourcesApplied", "Applied").await;
    cluster.apply(&routerconfig(&ns, "after", &ns, "{}")).await;
    condition(&client, &ns, "after", "ResourcesApplied", "Applied").await;

    // Mended.
    let mended = json!({ "spec": { "router": { "podTemplate": null } } });
    let one = format!("{path}/deep");
    send(&client, "PATCH", &one, "application/merge-patch+json", &mended)
        .await
        .unwrap();
    condition(&client, &ns, "deep", "ResourcesApplied", "Applied").await;
    send(&client, "DELETE", &one, "application/json", &json!({}))
        .await
        .unwrap();
    gone(&client, &ns, "RouterConfig", "deep").await;
    operator.stop().await;
}

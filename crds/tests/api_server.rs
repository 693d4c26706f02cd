//! What a real API server makes of the definition: it is taken, what is right is admitted, nonsense is refused with a
//! message that names the field.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path};

use continuum_crds::{RouterConfig, yaml};
use continuum_testkit::kube::Cluster;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    core::Request,
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();

/// The cluster with the definition, and a namespace for one test.
async fn cluster() -> (&'static Cluster, String) {
    let cluster = CLUSTER
        .get_or_init(|| async {
            let cluster = Cluster::start().await;
            cluster.apply(&yaml()).await;
            cluster
        })
        .await;
    (cluster, cluster.namespace("crd").await)
}

/// A RouterConfig that is right, with something merged over its spec.
fn object(namespace: &str, name: &str, over: Value) -> Value {
    let mut object = json!({
        "apiVersion": "router.continuum.dev/v1alpha1",
        "kind": "RouterConfig",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "config": {
            "backends": [{ "name": "frontend", "url": "http://frontend:8000" }],
            "dynamo": {
                "enabled": true,
                "discovery": { "source": "kubernetes" },
                "shim": { "backends": ["frontend"] },
            },
        } },
    });
    merge(&mut object["spec"], over);
    object
}

fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                if value.is_null() {
                    base.remove(&key);
                } else {
                    merge(base.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (base, over) => *base = over,
    }
}

async fn apply(client: Client, object: &Value) -> Result<RouterConfig, String> {
    let name = object["metadata"]["name"].as_str().unwrap();
    let namespace = object["metadata"]["namespace"].as_str().unwrap();
    let api: Api<RouterConfig> = Api::namespaced(client, namespace);
    api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(object))
        .await
        .map_err(|error| error.to_string())
}

#[tokio::test]
async fn what_is_right_is_admitted() {
    let (cluster, namespace) = cluster().await;
    for over in [
        json!({}),
        json!({ "config": { "dynamo": { "discovery": { "source": "etcd", "etcd": { "endpoints": ["http://etcd:2379"] } } } } }),
        json!({ "config": { "dynamo": null } }),
        json!({ "router": { "fleetView": "Pushed", "replicas": 0 } }),
        // References stand for texts, words and whole numbers.
        json!({ "config": {
            "server": { "max_in_flight": "${LIMIT}", "body_limit": "${BODY:-1MiB}", "timeouts": { "header": "${HEADER}" } },
            "logging": { "level": "${LEVEL:-info}" },
            "backends": [{ "name": "frontend", "url": "${URL}", "api_key": "${KEY}", "weight": "${WEIGHT}" }],
        } }),
        json!({ "config": {
            "server": { "max_in_flight": 10, "body_limit": 4096, "timeouts": { "request": "1m" } },
            "dynamo": {
                "discovery": { "source": "kubernetes_pods", "kubernetes": { "model": "m" } },
                "kv": { "overlap_score_credit": 0.5 },
                "shim": { "model_map": { "a": "b" } },
            },
        } }),
        json!({ "router": {
            "autoscaling": { "minReplicas": 2, "maxReplicas": 4 },
            "resources": { "requests": { "cpu": "500m", "memory": "1Gi" } },
            "service": { "type": "NodePort", "ports": [{ "name": "http", "port": 80, "nodePort": 30080 }] },
            "env": [{ "name": "KEY", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }],
            "podDisruptionBudget": { "maxUnavailable": "25%" },
            "podTemplate": { "spec": { "nodeSelector": { "a": "b" } } },
            "image": { "tag": "v1", "pullPolicy": "Never" },
        } }),
    ] {
        let object = object(&namespace, "chat", over);
        let taken = apply(cluster.client().await, &object)
            .await
            .unwrap_or_else(|error| panic!("{object}\n{error}"));
        // Nothing was pruned.
        assert_eq!(
            serde_json::to_value(&taken.spec.config).unwrap(),
            object["spec"]["config"]
        );
    }
}

#[tokio::test]
async fn the_example_is_admitted() {
    let (cluster, _) = cluster().await;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/routerconfig.yaml");
    let text = fs::read_to_string(path).unwrap();
    cluster
        .apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: dynamo}\n")
        .await;
    cluster.apply(&text).await;
}

#[tokio::test]
async fn nonsense_is_refused_with_the_name_of_the_field() {
    let (cluster, namespace) = cluster().await;
    let config = |over: Value| json!({ "config": over });
    let discovery = |over: Value| json!({ "config": { "dynamo": { "discovery": over } } });
    let budget = |over: Value| json!({ "router": { "podDisruptionBudget": over } });
    for (over, expected) in [
        (
            config(json!({ "server": { "bind_address": "0.0.0.0:1" } })),
            "spec.config.server.bind_address: Forbidden",
        ),
        (
            config(json!({ "server": { "tls": { "cert": "/a", "key": "/b" } } })),
            "spec.config.server.tls: Forbidden",
        ),
        (
            config(json!({ "admin": { "token": "x" } })),
            "spec.config.admin: Forbidden",
        ),
        (
            config(json!({ "controller": { "generation": 1 } })),
            "spec.config.controller: Forbidden",
        ),
        (
            config(json!({ "telemetry": { "metrics_bind_address": "0.0.0.0:1" } })),
            "spec.config.telemetry.metrics_bind_address: Forbidden",
        ),
        (
            config(json!({ "dynamo": { "state_dir": "/x" } })),
            "spec.config.dynamo.state_dir: Forbidden",
        ),
        (
            discovery(json!({ "source": "controller" })),
            "spec.config.dynamo.discovery.source: Forbidden",
        ),
        (
            discovery(json!({ "source": null })),
            "dynamo.discovery.source: say where the fleet is",
        ),
        (
            discovery(json!({ "source": "consul" })),
            "spec.config.dynamo.discovery.source: Unsupported value",
        ),
        (
            discovery(json!({ "source": "${SOURCE}" })),
            "spec.config.dynamo.discovery.source: Unsupported value",
        ),
        (
            discovery(json!({ "source": "kubernetes_pods" })),
            "set model or models",
        ),
        (
            discovery(
                json!({ "kubernetes": { "model": "a", "models": [{ "component": "c", "model": "m" }] } }),
            ),
            "set model or models, not both",
        ),
        (
            discovery(json!({ "sorce": "etcd" })),
            ".spec.config.dynamo.discovery.sorce: field not declared in schema",
        ),
        (
            config(json!({ "server": { "max_in_flight": 0 } })),
            "spec.config.server.max_in_flight: Invalid value",
        ),
        (
            config(json!({ "server": { "max_in_flight": "many" } })),
            "spec.config.server.max_in_flight: Invalid value",
        ),
        (
            config(json!({ "server": { "timeouts": { "header": "soon" } } })),
            "spec.config.server.timeouts.header: Invalid value",
        ),
        (
            config(json!({ "logging": { "level": "loud" } })),
            "spec.config.logging.level: Invalid value",
        ),
        (
            config(json!({ "backends": [{ "name": "a", "url": "ftp://x" }] })),
            "spec.config.backends[0].url: Invalid value",
        ),
        (
            config(json!({ "backends": [{ "name": "a" }] })),
            "spec.config.backends[0].url: Required value",
        ),
        (
            config(json!({ "dynamo": { "enabled": "yes" } })),
            ".spec.config.dynamo.enabled",
        ),
        (
            config(
                json!({ "dynamo": { "shim": { "pools": [{ "namespace": "a", "backends": ["frontend"] }] } } }),
            ),
            "set backends or pools, not both",
        ),
        (
            json!({ "router": { "replicas": -1 } }),
            "spec.router.replicas: Invalid value",
        ),
        (
            json!({ "router": { "autoscaling": { "minReplicas": 3, "maxReplicas": 2 } } }),
            "spec.router.autoscaling.maxReplicas: Invalid value",
        ),
        (
            json!({ "router": { "podDisruptionBudget": { "minAvailable": 1, "maxUnavailable": 1 } } }),
            "set minAvailable or maxUnavailable, not both",
        ),
        (
            budget(json!({ "minAvailable": 3_000_000_000_u64 })),
            "spec.router.podDisruptionBudget.minAvailable: Invalid value",
        ),
        (
            budget(json!({ "maxUnavailable": -1 })),
            "spec.router.podDisruptionBudget.maxUnavailable: Invalid value",
        ),
        (
            budget(json!({ "maxUnavailable": "101%" })),
            "spec.router.podDisruptionBudget.maxUnavailable: Invalid value",
        ),
        (
            budget(json!({ "minAvailable": "most" })),
            "spec.router.podDisruptionBudget.minAvailable: Invalid value",
        ),
        // The format of a number is nothing that the API server looks at.
        (
            json!({ "router": { "topologySpreadConstraints": [{
                "maxSkew": 3_000_000_000_u64, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule",
            }] } }),
            "spec.router.topologySpreadConstraints[0].maxSkew: Invalid value",
        ),
        (
            json!({ "router": { "autoscaling": { "maxReplicas": 3, "behavior": { "scaleDown": {
                "stabilizationWindowSeconds": -3_000_000_000_i64,
            } } } } }),
            "spec.router.autoscaling.behavior.scaleDown.stabilizationWindowSeconds: Invalid value",
        ),
        (
            json!({ "router": { "fleetView": "Borrowed" } }),
            "spec.router.fleetView: Unsupported value",
        ),
        (
            json!({ "router": { "fleetView": "Pushed" }, "config": { "dynamo": { "discovery": { "source": "etcd" } } } }),
            "only the sources kubernetes and kubernetes_pods can be pushed",
        ),
        (
            json!({ "router": { "service": { "type": "ExternalName" } } }),
            "spec.router.service.type: Unsupported value",
        ),
        (
            json!({ "router": { "image": { "digest": "md5:1" } } }),
            "spec.router.image.digest: Invalid value",
        ),
        (
            json!({ "router": { "replica": 1 } }),
            ".spec.router.replica: field not declared in schema",
        ),
        (json!({ "config": null }), "spec.config: Required value"),
    ] {
        let object = object(&namespace, "wrong", over);
        let refused = apply(cluster.client().await, &object).await.expect_err(expected);
        assert!(
            refused.contains(expected),
            "wanted: {expected}\nsaid: {refused}\nof: {object}"
        );
    }
    for name in ["0chat".to_owned(), "chat.prod".to_owned(), "c".repeat(51)] {
        let refused = apply(cluster.client().await, &object(&namespace, &name, json!({})))
            .await
            .unwrap_err();
        assert!(
            refused.contains("metadata.name names the routers' Service"),
            "{refused}"
        );
    }
    let two = json!({ "config": { "backends": [
        { "name": "frontend", "url": "http://a:1" },
        { "name": "frontend", "url": "http://b:1" },
    ] } });
    let refused = apply(cluster.client().await, &object(&namespace, "wrong", two))
        .await
        .unwrap_err();
    assert!(refused.contains("duplicate"), "{refused}");
}

#[tokio::test]
async fn scale_and_status_are_subresources() {
    let (cluster, namespace) = cluster().await;
    let client = cluster.client().await;
    apply(client.clone(), &object(&namespace, "chat", json!({})))
        .await
        .unwrap();
    let api: Api<RouterConfig> = Api::namespaced(client.clone(), &namespace);
    // The default is there although nobody wrote it.
    assert_eq!(
        api.get_scale("chat").await.unwrap().spec.unwrap().replicas,
        Some(2)
    );
    let scaled = api
        .patch_scale(
            "chat",
            &PatchParams::default(),
            &Patch::Merge(json!({ "spec": { "replicas": 5 } })),
        )
        .await
        .unwrap();
    assert_eq!(scaled.spec.unwrap().replicas, Some(5));
    assert_eq!(api.get("chat").await.unwrap().spec.router.replicas, 5);
    let status = json!({ "status": {
        "replicas": 4,
        "selector": "a=b",
        "conditions": [{
            "type": "Ready", "status": "False", "reason": "RoutersNotReady", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
        "fleet": { "models": 1, "workers": { "prefill": { "ready": 2 }, "decode": { "ready": 3 } } },
        "routers": { "summary": "4/5" },
    } });
    let generation = api.get("chat").await.unwrap().metadata.generation;
    api.patch_status("chat", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    let scale = api.get_scale("chat").await.unwrap().status.unwrap();
    assert_eq!((scale.replicas, scale.selector.as_deref()), (4, Some("a=b")));
    assert_eq!(api.get("chat").await.unwrap().metadata.generation, generation);

    let path = format!("/apis/router.continuum.dev/v1alpha1/namespaces/{namespace}");
    let mut request = Request::new(format!("{path}/routerconfigs"))
        .get("chat", &kube::api::GetParams::default())
        .unwrap();
    request.headers_mut().insert(
        "accept",
        "application/json;as=Table;v=v1;g=meta.k8s.io".parse().unwrap(),
    );
    let table: Value = client.request(request).await.unwrap();
    let columns: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    let all = [
        "Name",
        "Ready",
        "Reason",
        "Models",
        "Prefill",
        "Decode",
        "Aggregated",
        "Routers",
        "Age",
    ];
    assert_eq!(columns, all);
    let cells = &table["rows"][0]["cells"];
    assert_eq!(
        cells.as_array().unwrap()[..8],
        [
            json!("chat"),
            json!("False"),
            json!("RoutersNotReady"),
            json!(1),
            json!(2),
            json!(3),
            json!(0),
            json!("4/5"),
        ]
    );
}

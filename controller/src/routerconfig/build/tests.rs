//! Children as files under `golden/`. `UPDATE_GOLDEN=1 cargo test -p continuum-controller golden` writes them anew: read
//! the difference.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::*;
use crate::routerconfig::validate::{
    tests::{fleet_of, object, settings},
    validate,
};

fn build(config: Value, router: Value) -> (Vec<Child>, Vec<String>) {
    let object = object(config, router);
    let accepted = validate(&object, &settings()).unwrap();
    let files = Files {
        config: &accepted.text,
        proven: true,
        ca: "-----BEGIN CERTIFICATE-----\n",
    };
    let all = children(&object, &accepted, &settings(), files);
    (all, accepted.warnings)
}

fn find(children: &[Child], kind: &str) -> Value {
    let child = children.iter().find(|child| child.resource.kind == kind).unwrap();
    serde_json::to_value(&child.object).unwrap()
}

fn template(router: Value) -> (Value, Vec<String>) {
    let (children, warnings) = build(fleet_of(json!({ "source": "kubernetes" })), router);
    (
        find(&children, "Deployment")["spec"]["template"].clone(),
        warnings,
    )
}

#[test]
fn children_are_as_in_the_golden_files() {
    let kubernetes = |namespace: &str| {
        fleet_of(json!({ "source": "kubernetes", "kubernetes": { "namespace": namespace } }))
    };
    for (name, config, router) in [
        ("pushed", kubernetes("dynamo"), json!({})),
        ("local", kubernetes("dynamo"), json!({ "fleetView": "Local" })),
        (
            "local-foreign",
            kubernetes("shared"),
            json!({ "fleetView": "Local", "networkPolicy": { "enabled": false } }),
        ),
        (
            "local-pods",
            fleet_of(json!({ "source": "kubernetes_pods", "kubernetes": { "model": "m" } })),
            json!({ "fleetView": "Local", "monitoring": { "enabled": false } }),
        ),
        (
            "everything",
            kubernetes("dynamo"),
            json!({
                "replicas": 3,
                "autoscaling": { "minReplicas": 3, "maxReplicas": 9 },
                "image": { "repository": "example.com/router", "tag": "v2", "pullPolicy": "Always", "pullSecrets": [{ "name": "pull" }] },
                "resources": { "limits": { "memory": "1Gi" } },
                "service": {
                    "type": "LoadBalancer",
                    "ports": [{ "name": "http", "port": 8000 }],
                    "annotations": { "example.com/lb": "internal" },
                    "loadBalancerClass": "example.com/lb",
                    "externalTrafficPolicy": "Local",
                },
                "env": [{ "name": "KEY", "value": "v" }],
                "envFrom": [{ "secretRef": { "name": "keys" } }],
                "podDisruptionBudget": { "minAvailable": "50%" },
                "topologySpreadConstraints": [],
                "monitoring": { "interval": "10s", "labels": { "release": "prometheus" } },
                "podTemplate": {
                    "metadata": { "annotations": { "example.com/a": "b" } },
                    "spec": {
                        "nodeSelector": { "pool": "cpu" },
                        "containers": [{ "name": "router", "livenessProbe": { "periodSeconds": 30 } }, { "name": "side", "image": "side:1" }],
                    },
                },
            }),
        ),
    ] {
        let (children, _) = build(config, router);
        let documents: Vec<String> = children
            .iter()
            .map(|child| serde_yaml_ng::to_string(&child.object).unwrap())
            .collect();
        let text = documents.join("---\n");
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/routerconfig/build/golden/{name}.yaml"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let golden = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            golden == text,
            "{name}.yaml differs; with UPDATE_GOLDEN=1 it is written anew\n{text}"
        );
    }
}

#[test]
fn children_are_of_known_kinds_owned_and_named() {
    let config = fleet_of(json!({ "source": "kubernetes", "kubernetes": { "namespace": "shared" } }));
    let (children, _) = build(
        config,
        json!({ "fleetView": "Local", "autoscaling": { "maxReplicas": 2 } }),
    );
    let kinds: Vec<String> = kinds().into_iter().map(|kind| kind.kind).collect();
    assert_eq!(children.len(), kinds.len());
    for child in &children {
        assert!(kinds.contains(&child.resource.kind));
        let metadata = &child.object.metadata;
        let owner = metadata.owner_references.as_deref().unwrap_or_default();
        if child.foreign {
            assert_eq!(metadata.namespace.as_deref(), Some("shared"));
            assert_eq!(metadata.name.as_deref(), Some("dynamo.chat-router"));
            assert!(owner.is_empty());
        } else {
            assert_eq!(metadata.namespace.as_deref(), Some("dynamo"));
            assert_eq!(metadata.name.as_deref(), Some("chat-router"));
            assert_eq!((owner[0].uid.as_str(), owner[0].controller), ("0-1", Some(true)));
        }
    }
    assert_eq!(children.iter().filter(|child| child.foreign).count(), 2);
}

#[test]
fn routers_that_are_told_their_view_get_no_permission_and_no_token_of_the_api_server() {
    let (children, _) = build(fleet_of(json!({ "source": "kubernetes" })), json!({}));
    assert!(
        children
            .iter()
            .all(|child| !child.resource.kind.starts_with("Role"))
    );
    let spec = &find(&children, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(spec["automountServiceAccountToken"], false);
}

#[test]
fn overrides_merge_by_name() {
    let (template, warnings) = template(json!({ "podTemplate": {
        "metadata": { "labels": { "team": "a" } },
        "spec": {
            "priorityClassName": "high",
            "containers": [
                { "name": "router", "env": [{ "name": "A", "value": "1" }], "volumeMounts": [{ "name": "certs", "mountPath": "/certs" }] },
                { "name": "side", "image": "side:1" },
            ],
            "volumes": [{ "name": "certs", "secret": { "secretName": "certs" } }],
            "topologySpreadConstraints": [{ "topologyKey": "kubernetes.io/hostname", "$patch": "delete" }],
            "enableServiceLinks": null,
        },
    } }));
    assert_eq!(warnings, [] as [String; 0]);
    assert_eq!(template["metadata"]["labels"]["team"], "a");
    let spec = &template["spec"];
    assert_eq!(spec["priorityClassName"], "high");
    let containers = spec["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 2);
    assert_eq!(containers[0]["env"], json!([{ "name": "A", "value": "1" }]));
    assert_eq!(containers[0]["volumeMounts"].as_array().unwrap().len(), 4);
    assert_eq!(containers[0]["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(spec["volumes"].as_array().unwrap().len(), 4);
    assert_eq!(spec["topologySpreadConstraints"], json!([]));
    assert!(spec.get("enableServiceLinks").is_none());
}

#[test]
fn what_the_operator_needs_stays_and_the_collision_is_told() {
    let (plain, _) = template(json!({}));
    let (merged, warnings) = template(json!({ "podTemplate": {
        "metadata": {
            "name": "mine",
            "labels": { "app.kubernetes.io/instance": "other" },
            "annotations": {
                "router.continuum.dev/process-config": "x",
                "router.continuum.dev/service-account-uid": "x",
            },
        },
        "spec": {
            "serviceAccountName": "admin",
            "automountServiceAccountToken": true,
            "volumes": [{ "name": "token", "emptyDir": {} }],
            "containers": [{
                "name": "router",
                "args": ["--help"],
                "ports": [{ "name": "http", "containerPort": 1 }],
                "volumeMounts": [{ "name": "state", "mountPath": "/etc/continuum-router" }],
            }],
        },
    } }));
    assert_eq!(merged, plain);
    assert_eq!(warnings.len(), 10, "{warnings:#?}");
    assert!(
        warnings
            .iter()
            .all(|warning| warning.starts_with("spec.router.podTemplate."))
    );
    // The router itself cannot be taken out.
    let deletes =
        json!({ "podTemplate": { "spec": { "containers": [{ "name": "router", "$patch": "delete" }] } } });
    assert_eq!(template(deletes).0, plain);
}

#[test]
fn labels_of_the_operator_stay_on_what_else_takes_labels_and_the_collision_is_told() {
    let labels = json!({ "app.kubernetes.io/instance": "other", "team": "a" });
    let router = json!({ "service": { "labels": labels.clone() }, "monitoring": { "labels": labels } });
    let (children, warnings) = build(fleet_of(json!({ "source": "kubernetes" })), router);
    for kind in ["Service", "PodMonitor"] {
        let labels = &find(&children, kind)["metadata"]["labels"];
        assert_eq!(
            (&labels["app.kubernetes.io/instance"], &labels["team"]),
            (&json!("chat"), &json!("a"))
        );
    }
    assert_eq!(
        warnings,
        [
            "spec.router.service.labels[app.kubernetes.io/instance]: the operator sets it, so it is left out",
            "spec.router.monitoring.labels[app.kubernetes.io/instance]: the operator sets it, so it is left out",
        ]
    );
}

#[test]
fn images() {
    let default = "registry.example:5000/continuum/router";
    for (image, expected) in [
        (json!({}), format!("{default}:1.0")),
        (json!({ "tag": "2" }), format!("{default}:2")),
        (json!({ "repository": "other" }), "other:1.0".to_owned()),
        (json!({ "digest": "sha256:00" }), format!("{default}@sha256:00")),
        (
            json!({ "repository": "a:5000/b", "tag": "c", "digest": "sha256:00" }),
            "a:5000/b@sha256:00".to_owned(),
        ),
    ] {
        let (template, _) = template(json!({ "image": image }));
        assert_eq!(template["spec"]["containers"][0]["image"], expected, "{image}");
    }
}

#[test]
fn urls() {
    let config = json!({});
    assert_eq!(
        url(&object(config.clone(), json!({}))),
        "http://chat-router.dynamo.svc"
    );
    let ports = json!({ "service": { "ports": [{ "name": "http", "port": 8000 }] } });
    assert_eq!(url(&object(config, ports)), "http://chat-router.dynamo.svc:8000");
}

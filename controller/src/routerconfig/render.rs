//! The configuration that routers are given: what the user wrote, and the operator's fields.

use serde_json::{Map, Value, json};

use crate::routerconfig::Settings;

/// Where the ConfigMap is in the pod.
pub const CONFIG_DIR: &str = "/etc/continuum-router";
/// The key of the configuration in the ConfigMap.
pub const CONFIG_KEY: &str = "router.yaml";
/// The key of the controllers' certificates in the ConfigMap.
pub const CA_KEY: &str = "ca.crt";
/// Where the token for the controllers is in the pod.
pub const TOKEN_DIR: &str = "/var/run/secrets/continuum-router";
/// Its file.
pub const TOKEN_FILE: &str = "token";
/// Where the last view is kept.
pub const STATE_DIR: &str = "/var/lib/continuum-router";
/// The port for clients.
pub const HTTP_PORT: u16 = 8080;
/// The port of metrics and probes.
pub const METRICS_PORT: u16 = 9091;

/// What a config may not say, since the operator says it, and what to do instead.
pub const RESERVED: [(&str, &str); 6] = [
    (
        "server.bind_address",
        "routers listen on port 8080 of their pods; set the Service's ports under spec.router.service",
    ),
    (
        "server.tls",
        "end TLS in front of the routers' Service, at an Ingress or a Gateway",
    ),
    (
        "admin",
        "the admin listener is on 127.0.0.1:9090 of each pod; use kubectl port-forward",
    ),
    (
        "telemetry.metrics_bind_address",
        "metrics are on port 9091 of each pod",
    ),
    ("dynamo.state_dir", "the last view is kept on a volume of the pod"),
    ("controller", "the operator writes it"),
];

/// How routers get their view of the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The operator pushes what it reads from this source.
    Pushed(continuum_config::model::Upstream),
    /// Routers read the configured source.
    Local,
}

/// The text of `router.yaml`, made from this UID and generation. The same input gives the same text.
#[must_use]
pub fn render(
    config: &Map<String, Value>,
    view: View,
    (uid, generation): (&str, i64),
    settings: &Settings,
) -> String {
    let mut root = Value::Object(config.clone());
    put(
        &mut root,
        &["server", "bind_address"],
        json!(format!("0.0.0.0:{HTTP_PORT}")),
    );
    put(&mut root, &["admin", "bind_address"], json!("127.0.0.1:9090"));
    put(
        &mut root,
        &["telemetry", "metrics_bind_address"],
        json!(format!("0.0.0.0:{METRICS_PORT}")),
    );
    put(&mut root, &["dynamo", "state_dir"], json!(STATE_DIR));
    let mut controller = json!({
        "endpoint": settings.push_endpoint,
        "ca_file": format!("{CONFIG_DIR}/{CA_KEY}"),
        "token_file": format!("{TOKEN_DIR}/{TOKEN_FILE}"),
        "generation": generation,
    });
    if !uid.is_empty() {
        put(&mut controller, &["uid"], json!(uid));
    }
    if let View::Pushed(upstream) = view {
        put(&mut root, &["dynamo", "discovery", "source"], json!("controller"));
        put(&mut controller, &["upstream"], json!(upstream.source().as_str()));
    }
    put(&mut root, &["controller"], controller);
    serde_yaml_ng::to_string(&root).unwrap_or_default()
}

/// Sets the field at the path, making the objects on the way.
fn put(root: &mut Value, path: &[&str], value: Value) {
    let Some((last, way)) = path.split_last() else {
        return;
    };
    let mut at = root;
    for name in way {
        if !at.is_object() {
            *at = json!({});
        }
        let Some(fields) = at.as_object_mut() else { return };
        at = fields.entry((*name).to_owned()).or_insert_with(|| json!({}));
    }
    if !at.is_object() {
        *at = json!({});
    }
    if let Some(fields) = at.as_object_mut() {
        fields.insert((*last).to_owned(), value);
    }
}

//! The pod template: hardened, then the user's overrides, then what must be so for the router to work.

use continuum_config::Config;
use continuum_crds::{RouterConfig, conditions::Reason, spec::Image};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Map, Value, json};

use super::{children::without_null, merge};
use crate::auth::AUDIENCE;
use crate::routerconfig::{
    Rejected, Settings, child_name, labels,
    limits::{PRE_STOP_SECONDS, STATE_VOLUME, TERMINATION_MARGIN_SECONDS, TOKEN_SECONDS},
    render::{CONFIG_DIR, CONFIG_KEY, HTTP_PORT, METRICS_PORT, STATE_DIR, TOKEN_DIR, TOKEN_FILE},
    selector,
    validate::Fleet,
};

/// The router's container.
pub(crate) const CONTAINER: &str = "router";
/// The annotation that changes when routers must be started anew for their configuration.
pub(crate) const PROCESS_CONFIG: &str = "router.continuum.dev/process-config";
/// The annotation that changes when the ServiceAccount is another one of the same name.
pub(crate) const ACCOUNT: &str = "router.continuum.dev/service-account-uid";
/// The user of the images.
const USER: i64 = 65532;
const VOLUMES: [&str; 3] = ["config", "token", "state"];

/// The template. Overrides that collide with what the operator needs are left out, with a warning.
pub(crate) fn build(
    object: &RouterConfig,
    config: &Config,
    fleet: &Fleet,
    hash: &str,
    settings: &Settings,
    warnings: &mut Vec<String>,
) -> Result<Value, Rejected> {
    let mut template = base(object, config, fleet, hash, settings);
    let overrides = allowed(object, warnings)?;
    merge::strategic(&mut template, Value::Object(overrides));
    match serde_json::from_value::<PodTemplateSpec>(template.clone()) {
        Ok(typed) => {
            // What does not come back is no field of a pod.
            let known = serde_json::to_value(typed).unwrap_or_default();
            match merge::unknown(&template, &known) {
                Some(path) => Err(refused(&path, "a pod template has no such field")),
                None => Ok(template),
            }
        }
        Err(error) => Err(refused("", &error.to_string())),
    }
}

/// Says in a Deployment of which ServiceAccount, by UID, its pods are to be. It is not known before that is applied.
pub(crate) fn put_account(deployment: &mut Value, uid: String) {
    let metadata = deployment
        .pointer_mut("/spec/template/metadata")
        .and_then(Value::as_object_mut);
    let annotations = metadata.and_then(|metadata| {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        annotations.as_object_mut()
    });
    if let Some(annotations) = annotations {
        annotations.insert(ACCOUNT.to_owned(), Value::String(uid));
    }
}

fn base(object: &RouterConfig, config: &Config, fleet: &Fleet, hash: &str, settings: &Settings) -> Value {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let router = &object.spec.router;
    let image = router.image.clone().unwrap_or_default();
    let graceful = i64::try_from(config.server.graceful_period.as_secs()).unwrap_or(i64::MAX);
    let reads = matches!(
        fleet,
        Fleet::Local {
            namespace: Some(_),
            ..
        }
    );
    let spread = match &router.topology_spread_constraints {
        Some(written) => json!(written),
        None => json!([{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": { "matchLabels": selector(name) },
        }]),
    };
    let resources = match &router.resources {
        Some(written) => json!(written),
        None => json!({ "requests": { "cpu": "100m", "memory": "128Mi" } }),
    };
    let some = |value: Value| match &value {
        Value::Array(items) if items.is_empty() => Value::Null,
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => value,
    };
    let probe = |path: &str, period: u32, failures: u32| {
        json!({
            "httpGet": { "path": path, "port": "metrics", "scheme": "HTTP" },
            "periodSeconds": period,
            "timeoutSeconds": 3,
            "failureThreshold": failures,
        })
    };
    let container = without_null(json!({
        "name": CONTAINER,
        "image": reference(&image, &settings.router_image),
        "imagePullPolicy": image.pull_policy.or(settings.pull_policy).map(|policy| policy.as_str()),
        "args": ["--config", format!("{CONFIG_DIR}/{CONFIG_KEY}")],
        "ports": [
            { "name": "http", "containerPort": HTTP_PORT, "protocol": "TCP" },
            { "name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP" },
        ],
        "env": some(json!(router.env)),
        "envFrom": some(json!(router.env_from)),
        "resources": resources,
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": { "drop": ["ALL"] },
            "readOnlyRootFilesystem": true,
        },
        "startupProbe": probe("/livez", 1, 60),
        "livenessProbe": probe("/livez", 10, 3),
        "readinessProbe": probe("/readyz", 2, 2),
        "lifecycle": { "preStop": { "sleep": { "seconds": PRE_STOP_SECONDS } } },
        "volumeMounts": [
            { "name": "config", "mountPath": CONFIG_DIR, "readOnly": true },
            { "name": "token", "mountPath": TOKEN_DIR, "readOnly": true },
            { "name": "state", "mountPath": STATE_DIR },
        ],
    }));
    json!({
        "metadata": {
            "labels": labels(name),
            "annotations": {
                PROCESS_CONFIG: hash,
                "kubectl.kubernetes.io/default-container": CONTAINER,
            },
        },
        "spec": without_null(json!({
            "serviceAccountName": child_name(name),
            "automountServiceAccountToken": reads,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds":
                graceful.saturating_add(PRE_STOP_SECONDS + TERMINATION_MARGIN_SECONDS),
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "imagePullSecrets": some(json!(image.pull_secrets)),
            "topologySpreadConstraints": some(spread),
            "containers": [container],
            "volumes": [
                { "name": "config", "configMap": { "name": child_name(name) } },
                { "name": "token", "projected": { "sources": [{ "serviceAccountToken": {
                    "audience": AUDIENCE,
                    "expirationSeconds": TOKEN_SECONDS,
                    "path": TOKEN_FILE,
                } }] } },
                { "name": "state", "emptyDir": { "sizeLimit": STATE_VOLUME } },
            ],
        })),
    })
}

/// The operator's image with what the user wrote of another.
fn reference(image: &Image, default: &str) -> String {
    let (unpinned, digest) = match default.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (default, None),
    };
    let (repository, tag) = match unpinned.rsplit_once(':') {
        // A colon before a slash belongs to the registry's port.
        Some((rest, tag)) if !tag.contains('/') => (rest, Some(tag)),
        Some(_) | None => (unpinned, None),
    };
    let moved = image.repository.is_some() || image.tag.is_some();
    let repository = image.repository.as_deref().unwrap_or(repository);
    match (
        image.digest.as_deref().or(digest.filter(|_| !moved)),
        image.tag.as_deref().or(tag),
    ) {
        (Some(digest), _) => format!("{repository}@{digest}"),
        (None, Some(tag)) => format!("{repository}:{tag}"),
        (None, None) => repository.to_owned(),
    }
}

/// The user's overrides without what is the operator's.
fn allowed(object: &RouterConfig, warnings: &mut Vec<String>) -> Result<Map<String, Value>, Rejected> {
    let mut overrides = object.spec.router.pod_template.clone();
    if let Some(path) = merge::unsupported(&overrides) {
        return Err(refused(
            &path,
            "only `$patch: delete` in an item of a list is understood",
        ));
    }
    if let Some(key) = overrides
        .keys()
        .find(|key| !["metadata", "spec"].contains(&key.as_str()))
    {
        return Err(refused(key, "a pod template has metadata and spec"));
    }
    let mut warn = |path: String| {
        warnings.push(left_out(&format!("podTemplate.{path}")));
    };
    let name = object.metadata.name.as_deref().unwrap_or_default();
    if let Some(metadata) = overrides.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| {
            let keep = ["labels", "annotations"].contains(&key.as_str());
            if !keep {
                warn(format!("metadata.{key}"));
            }
            keep
        });
        let own: Vec<String> = labels(name).into_keys().collect();
        let owned = [
            ("labels", own),
            ("annotations", vec![PROCESS_CONFIG.to_owned(), ACCOUNT.to_owned()]),
        ];
        for (section, keys) in owned {
            let Some(fields) = metadata.get_mut(section).and_then(Value::as_object_mut) else {
                continue;
            };
            for key in keys {
                if fields.remove(&key).is_some() {
                    warn(format!("metadata.{section}[{key}]"));
                }
            }
        }
    }
    let Some(spec) = overrides.get_mut("spec").and_then(Value::as_object_mut) else {
        return Ok(overrides);
    };
    for key in [
        "serviceAccountName",
        "serviceAccount",
        "automountServiceAccountToken",
    ] {
        if spec.remove(key).is_some() {
            warn(format!("spec.{key}"));
        }
    }
    drop_items(spec, "volumes", "name", &VOLUMES, "spec", &mut warn);
    let containers = spec.get_mut("containers").and_then(Value::as_array_mut);
    if let Some(containers) = containers {
        let before = containers.len();
        containers.retain(|item| !(is_router(item) && item.get("$patch").is_some()));
        if containers.len() != before {
            warn(format!("spec.containers[{CONTAINER}]"));
        }
        for router in containers.iter_mut().filter(|item| is_router(item)) {
            let Some(router) = router.as_object_mut() else {
                continue;
            };
            let place = format!("spec.containers[{CONTAINER}]");
            for key in ["args", "command"] {
                if router.remove(key).is_some() {
                    warn(format!("{place}.{key}"));
                }
            }
            drop_items(router, "ports", "name", &["http", "metrics"], &place, &mut warn);
            let mounts = [CONFIG_DIR, TOKEN_DIR, STATE_DIR];
            drop_items(router, "volumeMounts", "mountPath", &mounts, &place, &mut warn);
        }
    }
    Ok(overrides)
}

/// The warning of a field of `spec.router`.
pub(super) fn left_out(path: &str) -> String {
    format!("spec.router.{path}: the operator sets it, so it is left out")
}

fn is_router(item: &Value) -> bool {
    item.get("name").and_then(Value::as_str) == Some(CONTAINER)
}

fn drop_items(
    of: &mut Map<String, Value>,
    list: &str,
    key: &str,
    owned: &[&str],
    place: &str,
    warn: &mut impl FnMut(String),
) {
    let Some(items) = of.get_mut(list).and_then(Value::as_array_mut) else {
        return;
    };
    items.retain(|item| {
        let word = item.get(key).and_then(Value::as_str).unwrap_or_default();
        let keep = !owned.contains(&word);
        if !keep {
            warn(format!("{place}.{list}[{word}]"));
        }
        keep
    });
}

fn refused(path: &str, problem: &str) -> Rejected {
    let dot = if path.is_empty() { "" } else { "." };
    Rejected {
        reason: Reason::InvalidRouter,
        message: format!("spec.router.podTemplate{dot}{path}: {problem}"),
    }
}

//! The pages for users that are made from the types: the reference of the resource, and its conditions.

use std::fmt::Write as _;

use serde_json::Value;

use crate::{
    conditions::{ConditionType, Reason},
    crd,
};

/// How deep a field may be and still have a row; what is deeper is Kubernetes' own and documented there.
const MAX_DEPTH: usize = 4;

/// The reference of `RouterConfig`.
#[must_use]
pub fn routerconfig() -> String {
    let definition = serde_json::to_value(crd()).unwrap_or_default();
    let mut out = String::from(
        "# RouterConfig\n\nGenerated from the types by `make generate`; do not edit.\n\n\
         `routerconfigs.router.continuum.dev`, version `v1alpha1`, namespaced, short name `rc`. (Kubernetes itself calls ReplicationControllers `rc`, and its own names win: write `routerconfig`, or `rc.router.continuum.dev`.) A RouterConfig `chat` has a \
         Deployment, a Service and the like, all named `chat-router`; its name has at most 50 characters.\n\n\
         ## spec.config\n\n\
         The document that a router outside Kubernetes reads, field by field: see the \
         [configuration reference](configuration.md). What differs:\n\n\
         - The operator sets `server.bind_address`, `server.tls`, `admin`, `telemetry.metrics_bind_address`, \
         `dynamo.state_dir`, `controller` and `source: controller`. Writing one of them is refused.\n\
         - With `dynamo.enabled: true`, `dynamo.discovery.source` must be written.\n\
         - `${NAME}` is expanded in the router's pod, from `spec.router.env` and `envFrom`, never in the operator. It may stand \
         for text and for whole numbers; yes-or-no values and numbers with a fraction must be written out, and so must what \
         the operator acts on: `dynamo.enabled`, `dynamo.discovery.source`, `dynamo.discovery.kubernetes.namespace`, and with \
         pushed views all of `dynamo.discovery.kubernetes`, `limits` and `namespace_match`.\n\
         - `dynamo.discovery.kubernetes.namespace` must be the RouterConfig's own namespace or one of the chart's \
         `fleetNamespaces`.\n\n",
    );
    for (title, section) in [("spec.router", "spec/properties/router"), ("status", "status")] {
        let _ = write!(out, "## {title}\n\n| Field | Type | Meaning |\n|---|---|---|\n");
        let pointer = format!("/spec/versions/0/schema/openAPIV3Schema/properties/{section}");
        if let Some(schema) = definition.pointer(&pointer) {
            rows(schema, "", 1, &mut out);
        }
        out.push('\n');
    }
    let _ = writeln!(
        out,
        "What the conditions mean, and what to do about each reason: [conditions](../conditions.md)."
    );
    out
}

/// The conditions, with every reason and what to do about it.
#[must_use]
pub fn conditions() -> String {
    let mut out = String::from(
        "# Conditions of a RouterConfig\n\nGenerated from the types by `make generate`; do not edit.\n\n\
         `kubectl describe routerconfig NAME` shows them. Each carries a reason out of a closed list, a message that says what exactly, \
         and `observedGeneration`: a condition with an older generation speaks of an older spec.\n\n\
         `kubectl wait --for=condition=Ready routerconfig/NAME` is safe to gate a rollout on.\n\n\
         A status is as old as the operator that wrote it: while no operator serves the namespace, it stays as it was, and says \
         nothing of now.\n",
    );
    for condition in ConditionType::ALL {
        let _ = write!(
            out,
            "\n## {}\n\n| Status | Reason | Meaning | What to do |\n|---|---|---|---|\n",
            condition.as_str()
        );
        for reason in Reason::ALL
            .iter()
            .filter(|reason| reason.condition() == condition)
        {
            let _ = writeln!(
                out,
                "| {} | `{}` | {}. | {}. |",
                reason.status(),
                reason.as_str(),
                reason.meaning(),
                reason.remedy()
            );
        }
    }
    out
}

fn rows(schema: &Value, path: &str, depth: usize, out: &mut String) {
    let Some(fields) = schema.get("properties").and_then(Value::as_object) else {
        return;
    };
    for (name, field) in fields {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let _ = writeln!(out, "| `{path}` | {} | {} |", kind(field), meaning(field));
        if depth < MAX_DEPTH && !borrowed(&path) {
            match field.get("items") {
                Some(items) => rows(items, &format!("{path}[]"), depth + 1, out),
                None => rows(field, &path, depth + 1, out),
            }
        }
    }
}

/// What is Kubernetes' own below the field.
fn borrowed(path: &str) -> bool {
    [
        "resources",
        "env",
        "envFrom",
        "topologySpreadConstraints",
        "autoscaling.metrics",
        "autoscaling.behavior",
        "conditions",
    ]
    .contains(&path)
}

fn kind(field: &Value) -> String {
    if field.get("x-kubernetes-int-or-string").is_some() {
        return "number or text".to_owned();
    }
    let one = field.get("type").and_then(Value::as_str).unwrap_or("any");
    let words = |options: &Vec<Value>| {
        let words: Vec<&str> = options.iter().filter_map(Value::as_str).collect();
        words.join(", ")
    };
    match (one, field.get("enum").and_then(Value::as_array)) {
        (_, Some(options)) => words(options),
        ("array", None) => "list".to_owned(),
        ("integer", None) => "whole number".to_owned(),
        ("boolean", None) => "yes or no".to_owned(),
        ("string", None) => "text".to_owned(),
        (other, None) => other.to_owned(),
    }
}

fn meaning(field: &Value) -> String {
    let text = field
        .get("description")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let mut text = text.replace('\n', " ").replace('|', "\\|");
    if let Some(default) = field.get("default").filter(|default| !default.is_object()) {
        let _ = write!(text, " Default: `{default}`.");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn the_committed_pages_are_current() {
        for (path, text) in [
            ("../docs/reference/routerconfig.md", routerconfig()),
            ("../docs/conditions.md", conditions()),
        ] {
            let committed = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path));
            assert!(
                committed.unwrap_or_default() == text,
                "{path} is old: run `make generate`"
            );
        }
    }
}

//! What a schema cannot say, in CEL. Each rule stands at the section that it is about, and its message names the field
//! and what to do.

use serde_json::{Value, json};

struct Rule {
    /// The section, as a path through `properties`; empty: the whole object.
    section: &'static str,
    rule: &'static str,
    message: &'static str,
    /// The field that is named in the answer, below the section.
    field: &'static str,
    reason: &'static str,
}

const FORBIDDEN: &str = "FieldValueForbidden";
const REQUIRED: &str = "FieldValueRequired";
const INVALID: &str = "FieldValueInvalid";

const RULES: [Rule; 15] = [
    Rule {
        section: "",
        rule: "self.metadata.name.size() <= 50 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        message: "metadata.name names the routers' Service: at most 50 characters, lower-case letters, digits and '-', \
                  beginning with a letter and ending with a letter or digit",
        field: "",
        reason: INVALID,
    },
    Rule {
        section: "spec",
        rule: "!has(self.router) || !has(self.router.fleetView) || self.router.fleetView != 'Pushed' || \
               (has(self.config.dynamo) && has(self.config.dynamo.enabled) && self.config.dynamo.enabled && \
               has(self.config.dynamo.discovery) && has(self.config.dynamo.discovery.source) && \
               self.config.dynamo.discovery.source in ['kubernetes', 'kubernetes_pods'])",
        message: "router.fleetView: only the sources kubernetes and kubernetes_pods can be pushed; write Local, or leave it out",
        field: ".router.fleetView",
        reason: INVALID,
    },
    Rule {
        section: "spec.config",
        rule: "!has(self.admin)",
        message: "admin: the operator sets it, remove it; each pod has the admin listener on 127.0.0.1:9090, use kubectl \
                  port-forward",
        field: ".admin",
        reason: FORBIDDEN,
    },
    Rule {
        section: "spec.config",
        rule: "!has(self.controller)",
        message: "controller: the operator writes this section, remove it",
        field: ".controller",
        reason: FORBIDDEN,
    },
    Rule {
        section: "spec.config.server",
        rule: "!has(self.bind_address)",
        message: "server.bind_address: the operator sets it, remove it; the Service's ports are under spec.router.service.ports",
        field: ".bind_address",
        reason: FORBIDDEN,
    },
    Rule {
        section: "spec.config.server",
        rule: "!has(self.tls)",
        message: "server.tls: not available under the operator, remove it; end TLS at an Ingress or a Gateway in front of the \
                  routers' Service",
        field: ".tls",
        reason: FORBIDDEN,
    },
    Rule {
        section: "spec.config.telemetry",
        rule: "!has(self.metrics_bind_address)",
        message: "telemetry.metrics_bind_address: the operator sets it, remove it; metrics are on port 9091 of each pod",
        field: ".metrics_bind_address",
        reason: FORBIDDEN,
    },
    Rule {
        section: "spec.config.dynamo",
        rule: "!has(self.state_dir)",
        message: "dynamo.state_dir: the operator sets it, remove it; the last view is kept on a volume of the pod",
        field: ".state_dir",
        reason: FORBIDDEN,
    },
    Rule {
        section: "spec.config.dynamo",
        rule: "!has(self.enabled) || !self.enabled || (has(self.discovery) && has(self.discovery.source))",
        message: "dynamo.discovery.source: say where the fleet is: kubernetes, kubernetes_pods, etcd or file",
        field: ".discovery",
        reason: REQUIRED,
    },
    Rule {
        section: "spec.config.dynamo.discovery",
        rule: "!has(self.source) || self.source != 'controller'",
        message: "dynamo.discovery.source: the operator sets controller itself where views are pushed; write kubernetes or \
                  kubernetes_pods",
        field: ".source",
        reason: FORBIDDEN,
    },
    Rule {
        section: "spec.config.dynamo.discovery",
        rule: "!has(self.source) || self.source != 'kubernetes_pods' || (has(self.kubernetes) && \
               (has(self.kubernetes.model) || (has(self.kubernetes.models) && self.kubernetes.models.size() > 0)))",
        message: "dynamo.discovery.kubernetes: pods do not tell what they serve: with source kubernetes_pods set model or models",
        field: ".kubernetes",
        reason: REQUIRED,
    },
    Rule {
        section: "spec.config.dynamo.discovery.kubernetes",
        rule: "!has(self.model) || !has(self.models) || self.models.size() == 0",
        message: "dynamo.discovery.kubernetes: set model or models, not both",
        field: ".models",
        reason: INVALID,
    },
    Rule {
        section: "spec.config.dynamo.shim",
        rule: "!has(self.backends) || self.backends.size() == 0 || !has(self.pools) || self.pools.size() == 0",
        message: "dynamo.shim: set backends or pools, not both",
        field: ".pools",
        reason: INVALID,
    },
    Rule {
        section: "spec.router.autoscaling",
        rule: "!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",
        message: "router.autoscaling.maxReplicas: it must not be less than minReplicas",
        field: ".maxReplicas",
        reason: INVALID,
    },
    Rule {
        section: "spec.router.podDisruptionBudget",
        rule: "!has(self.minAvailable) || !has(self.maxUnavailable)",
        message: "router.podDisruptionBudget: set minAvailable or maxUnavailable, not both",
        field: ".minAvailable",
        reason: INVALID,
    },
];

/// Puts the rules into the schema.
pub(super) fn add(schema: &mut Value) {
    for rule in &RULES {
        let pointer: String = rule
            .section
            .split('.')
            .filter(|name| !name.is_empty())
            .map(|name| format!("/properties/{name}"))
            .collect();
        let Some(section) = schema.pointer_mut(&pointer).and_then(Value::as_object_mut) else {
            continue;
        };
        let mut entry = json!({ "rule": rule.rule, "message": rule.message, "reason": rule.reason });
        if let (false, Some(fields)) = (rule.field.is_empty(), entry.as_object_mut()) {
            fields.insert("fieldPath".to_owned(), json!(rule.field));
        }
        let rules = section
            .entry("x-kubernetes-validations")
            .or_insert_with(|| json!([]));
        if let Some(rules) = rules.as_array_mut() {
            rules.push(entry);
        }
    }
}

#[cfg(test)]
pub(super) fn count() -> usize {
    RULES.len()
}

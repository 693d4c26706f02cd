//! What a Deployment says of its pods.

use kube::core::DynamicObject;

use crate::status::{facts::Rollout, limits::MAX_QUOTED_CHARS};

pub(crate) fn rollout_of(deployment: &DynamicObject) -> Rollout {
    let number = |path: &str| {
        let value = deployment.data.pointer(path).and_then(serde_json::Value::as_i64);
        value
            .and_then(|value| i32::try_from(value).ok())
            .unwrap_or_default()
    };
    let conditions = deployment.data.pointer("/status/conditions");
    let conditions = conditions.and_then(serde_json::Value::as_array);
    let condition = |type_: &str, status: &str| {
        let mut all = conditions.into_iter().flatten();
        all.find(|one| one["type"] == *type_ && one["status"] == *status)
    };
    let stuck = [
        condition("ReplicaFailure", "True"),
        condition("Progressing", "False"),
    ];
    let words: Vec<&str> = stuck
        .iter()
        .flatten()
        .filter_map(|one| one["message"].as_str())
        .collect();
    let observed = deployment
        .data
        .pointer("/status/observedGeneration")
        .and_then(serde_json::Value::as_i64);
    Rollout {
        desired: number("/spec/replicas"),
        replicas: number("/status/replicas"),
        updated: number("/status/updatedReplicas"),
        ready: number("/status/readyReplicas"),
        available: number("/status/availableReplicas"),
        observed: observed.is_some_and(|seen| Some(seen) >= deployment.metadata.generation),
        complete: condition("Progressing", "True")
            .is_some_and(|one| one["reason"] == "NewReplicaSetAvailable"),
        stuck: words.join("; ").chars().take(MAX_QUOTED_CHARS).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_deployment_says_of_itself_is_quoted() {
        let deployment = |conditions: serde_json::Value| -> DynamicObject {
            serde_json::from_value(json!({
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": { "name": "chat-router", "generation": 2 },
                "spec": { "replicas": 2 },
                "status": { "observedGeneration": 2, "conditions": conditions },
            }))
            .unwrap()
        };
        let quota = "é".repeat(MAX_QUOTED_CHARS + 1);
        let stuck = rollout_of(&deployment(json!([
            { "type": "Available", "status": "False", "message": "no minimum" },
            { "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out" },
            { "type": "ReplicaFailure", "status": "True", "message": "exceeded quota" },
        ])));
        assert_eq!(
            (stuck.stuck.as_str(), stuck.complete),
            ("exceeded quota; timed out", false)
        );
        let long = json!([{ "type": "ReplicaFailure", "status": "True", "message": quota }]);
        assert_eq!(
            rollout_of(&deployment(long)).stuck.chars().count(),
            MAX_QUOTED_CHARS
        );
        let well = json!([{ "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": "done" }]);
        let well = rollout_of(&deployment(well));
        assert!(well.complete && well.stuck.is_empty());
        assert!(rollout_of(&deployment(json!(null))).stuck.is_empty());
    }
}

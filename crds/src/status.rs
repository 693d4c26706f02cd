//! What the operator says about a `RouterConfig`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is true now. Written by the operator alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouterConfigStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What is well and what is not, each with a reason out of a closed list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The fleet, counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetStatus>,
    /// The routers, counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routers: Option<RoutersStatus>,
    /// Router pods, for the scale subresource.
    #[serde(default)]
    pub replicas: i32,
    /// The selector of router pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Where requests go: the routers' Service inside the cluster. Empty while there is none, or its name is somebody else's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// The fleet, counted: at changes of a condition, else at most every 10 s.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetStatus {
    /// Where it is read: `kubernetes`, `kubernetes_pods`, `etcd` or `file`.
    #[serde(default)]
    pub source: String,
    /// Workers by what they do.
    #[serde(default)]
    pub workers: WorkersStatus,
    /// Models that are served under their base name.
    #[serde(default)]
    pub models: i32,
    /// Event channels that can be subscribed to.
    #[serde(default)]
    pub publishers: i32,
}

/// Workers by what they do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkersStatus {
    /// Those that read prompts.
    #[serde(default)]
    pub prefill: RoleStatus,
    /// Those that generate.
    #[serde(default)]
    pub decode: RoleStatus,
    /// Those that do both.
    #[serde(default)]
    pub aggregated: RoleStatus,
    /// Those that encode media; never picked.
    #[serde(default)]
    pub encode: RoleStatus,
    /// Those whose role nobody tells; never picked.
    #[serde(default)]
    pub unknown: RoleStatus,
}

/// Workers of one role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoleStatus {
    /// Ready ones: requests may go there.
    #[serde(default)]
    pub ready: i32,
}

/// The routers, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoutersStatus {
    /// How many there should be.
    #[serde(default)]
    pub desired: i32,
    /// Those with a session to the operator.
    #[serde(default)]
    pub connected: i32,
    /// Those that have acknowledged the current config.
    #[serde(default)]
    pub current_config: i32,
    /// Those that have a view that is not older than 10 s.
    #[serde(default)]
    pub current_view: i32,
    /// Up to date routers of all, for people: `2/3`.
    #[serde(default)]
    pub summary: String,
}

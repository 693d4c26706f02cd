//! What users write in a `RouterConfig`. Field docs are what `kubectl explain` shows.

use k8s_openapi::{
    api::{
        autoscaling::v2::{HorizontalPodAutoscalerBehavior, MetricSpec},
        core::v1::{
            EnvFromSource, EnvVar, LocalObjectReference, ResourceRequirements, TopologySpreadConstraint,
        },
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

use crate::status::RouterConfigStatus;

/// Router pods when `spec.router.replicas` is not written.
pub const DEFAULT_REPLICAS: i32 = 2;

/// The most router pods of one RouterConfig: somewhat more than are measured with one operator. Each has a session with
/// every replica of the operator, which takes no more of one RouterConfig than these need.
pub const MAX_REPLICAS: i32 = 250;

/// Routers in front of a Dynamo fleet.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::duplicated_attributes, reason = "the columns of one table")]
#[kube(
    group = "router.continuum.dev",
    version = "v1alpha1",
    kind = "RouterConfig",
    namespaced,
    shortname = "rc",
    category = "all",
    derive = "PartialEq",
    doc = "Routers in front of a Dynamo fleet: what they do, and how they are run.",
    status = "RouterConfigStatus",
    scale(
        spec_replicas_path = ".spec.router.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Models", type_ = "integer", json_path = ".status.fleet.models"),
    printcolumn(
        name = "Prefill",
        type_ = "integer",
        json_path = ".status.fleet.workers.prefill.ready"
    ),
    printcolumn(
        name = "Decode",
        type_ = "integer",
        json_path = ".status.fleet.workers.decode.ready"
    ),
    printcolumn(
        name = "Aggregated",
        type_ = "integer",
        json_path = ".status.fleet.workers.aggregated.ready"
    ),
    printcolumn(name = "Routers", type_ = "string", json_path = ".status.routers.summary"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct RouterConfigSpec {
    /// The configuration of the routers: the document that a router outside Kubernetes reads, without the fields that
    /// the operator sets.
    pub config: ConfigDocument,
    /// How the routers are run.
    #[serde(default)]
    pub router: RouterSpec,
}

/// A router's configuration, as it was written: references to environment variables are not expanded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConfigDocument(pub Map<String, Value>);

impl JsonSchema for ConfigDocument {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ConfigDocument".into()
    }

    /// Any object: [`crate::crd()`] puts the schema of the configuration in its place.
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
    }
}

/// How routers are run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouterSpec {
    /// Router pods, at most 250. `kubectl scale`, HorizontalPodAutoscalers and KEDA set it: leave it out with `autoscaling`.
    #[serde(default = "default_replicas")]
    #[schemars(range(min = 0, max = MAX_REPLICAS))]
    pub replicas: i32,
    /// A HorizontalPodAutoscaler for the routers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<Autoscaling>,
    /// Who reads the fleet: `Pushed` (the default for `source: kubernetes` and `kubernetes_pods`): the operator, once for
    /// all routers; `Local` (the only one for `etcd` and `file`): each router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet_view: Option<FleetView>,
    /// The image; by default the one that the operator was installed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Requests and limits of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// The Service that clients use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSpec>,
    /// Environment of the container: what `${NAME}` in the config stands for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub env: Vec<EnvVar>,
    /// Secrets and ConfigMaps whose keys become environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<EnvFromSource>,
    /// How pods are spread; by default over nodes, as well as it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
    /// How many routers an eviction may take away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_disruption_budget: Option<DisruptionBudget>,
    /// Who may connect to the routers, and where they may connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<Switch>,
    /// A PodMonitor for the Prometheus operator, where that API exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monitoring: Option<Monitoring>,
    /// Overrides of the pod template, merged as `kubectl patch` merges: lists of named things by name. What the operator
    /// needs for itself wins, and a collision is a warning in `Accepted`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "open_object")]
    pub pod_template: Map<String, Value>,
}

impl Default for RouterSpec {
    fn default() -> Self {
        Self {
            replicas: DEFAULT_REPLICAS,
            autoscaling: None,
            fleet_view: None,
            image: None,
            resources: None,
            service: None,
            env: Vec::new(),
            env_from: Vec::new(),
            topology_spread_constraints: None,
            pod_disruption_budget: None,
            network_policy: None,
            monitoring: None,
            pod_template: Map::new(),
        }
    }
}

/// Who reads the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum FleetView {
    /// The operator reads it once for all routers and pushes each the view: routers need no permission.
    Pushed,
    /// Each router reads it.
    Local,
}

/// A HorizontalPodAutoscaler for the routers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Autoscaling {
    /// The fewest routers; 2 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_REPLICAS))]
    pub min_replicas: Option<i32>,
    /// The most routers, at most 250.
    #[schemars(range(min = 1, max = MAX_REPLICAS))]
    pub max_replicas: i32,
    /// What is measured, as in a HorizontalPodAutoscaler; by default 70 % of the requested CPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<MetricSpec>,
    /// How fast it goes up and down, as in a HorizontalPodAutoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behavior: Option<HorizontalPodAutoscalerBehavior>,
}

/// A container image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Registry and name, without tag; by default the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = "^[^@\\s]+$"))]
    pub repository: Option<String>,
    /// The tag; by default the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128), regex(pattern = "^[A-Za-z0-9_][A-Za-z0-9_.-]*$"))]
    pub tag: Option<String>,
    /// `sha256:<64 hex digits>`; wins over the tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^sha256:[0-9a-f]{64}$"))]
    pub digest: Option<String>,
    /// When it is pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_policy: Option<PullPolicy>,
    /// Secrets to pull with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pull_secrets: Vec<LocalObjectReference>,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum PullPolicy {
    /// At each start of a container.
    Always,
    /// When the node does not have it.
    IfNotPresent,
    /// Never: the node must have it.
    Never,
}

impl PullPolicy {
    /// The policy that the word names.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        [Self::Always, Self::IfNotPresent, Self::Never]
            .into_iter()
            .find(|policy| policy.as_str() == word)
    }

    /// The word of a pod's `imagePullPolicy`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// The Service that clients use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceSpec {
    /// The type; `ClusterIP` by default.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<ServiceType>,
    /// The ports, each of which leads to the routers' one port; by default one, `http` 80.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub ports: Vec<ServicePort>,
    /// Annotations of the Service, for load balancers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels of the Service, beside the operator's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// For `LoadBalancer`: which implementation serves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer_class: Option<String>,
    /// For `LoadBalancer`: the networks that may connect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub load_balancer_source_ranges: Vec<String>,
    /// For `NodePort` and `LoadBalancer`: whether a node sends requests only to its own routers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_traffic_policy: Option<TrafficPolicy>,
}

/// The type of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum ServiceType {
    /// An address inside the cluster.
    ClusterIP,
    /// A port on every node as well.
    NodePort,
    /// A load balancer of the cloud as well.
    LoadBalancer,
}

impl ServiceType {
    /// The word of a Service's `type`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIP => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}

/// Where a node sends what comes from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum TrafficPolicy {
    /// To any router.
    Cluster,
    /// To routers on that node; the client's address is kept.
    Local,
}

impl TrafficPolicy {
    /// The word of a Service's `externalTrafficPolicy`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Local => "Local",
        }
    }
}

/// One port of the Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// Its name.
    #[schemars(length(min = 1, max = 15), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// For `NodePort` and `LoadBalancer`: the port on the nodes; by default the API server chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub node_port: Option<i32>,
}

/// How many routers an eviction may take away.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionBudget {
    /// Off: there is no budget. On by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Routers that must stay, a number or a percentage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "number_or_percentage")]
    pub min_available: Option<IntOrString>,
    /// Routers that may be away, a number or a percentage; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "number_or_percentage")]
    pub max_unavailable: Option<IntOrString>,
}

/// Something that can be turned off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Switch {
    /// On by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// A PodMonitor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Monitoring {
    /// On by default, where the PodMonitor API exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// How often metrics are read, such as `30s`; by default as Prometheus is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9]+(ms|s|m|h)$"))]
    pub interval: Option<String>,
    /// Labels of the PodMonitor: those that your Prometheus selects by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

const fn default_replicas() -> i32 {
    DEFAULT_REPLICAS
}

fn open_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// What a PodDisruptionBudget takes, within the bounds of the type that it is read as.
fn number_or_percentage(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "x-kubernetes-int-or-string": true,
        "minimum": 0,
        "maximum": i32::MAX,
        "pattern": "^(100|[0-9]{1,2})%$",
        "nullable": true,
    })
}

//! What is read of an object, and what the fleet model is given of it.

use std::collections::BTreeMap;

use continuum_fleet::kubernetes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::list::Kept;

/// Labels and annotations of Pods that are read begin with this.
const DYNAMO: &str = "nvidia.com/dynamo-";

/// `metadata` of any object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta {
    pub(super) name: String,
    #[serde(default)]
    pub(super) uid: String,
    #[serde(default)]
    pub(super) labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) annotations: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) owner_references: Option<Vec<Owner>>,
    #[serde(default)]
    pub(super) deletion_timestamp: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Owner {
    #[serde(default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) uid: String,
}

/// A `DynamoWorkerMetadata`. Its schema is open: anything may stand in `spec`.
#[derive(Debug, Deserialize)]
pub(super) struct MetadataObject {
    pub(super) metadata: Meta,
    #[serde(default)]
    pub(super) spec: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SliceObject {
    pub(super) metadata: Meta,
    #[serde(default)]
    pub(super) endpoints: Option<Vec<Endpoint>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Endpoint {
    #[serde(default)]
    pub(super) conditions: Option<Conditions>,
    #[serde(default)]
    pub(super) target_ref: Option<Target>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Conditions {
    #[serde(default)]
    pub(super) ready: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Target {
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) uid: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PodObject {
    pub(super) metadata: Meta,
    #[serde(default)]
    pub(super) status: Option<PodStatus>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodStatus {
    #[serde(default)]
    pub(super) phase: Option<String>,
    #[serde(default)]
    pub(super) conditions: Option<Vec<Condition>>,
    #[serde(default)]
    pub(super) container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) status: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ContainerStatus {
    pub(super) name: String,
    #[serde(default)]
    pub(super) ready: bool,
}

impl From<MetadataObject> for kubernetes::Metadata {
    fn from(object: MetadataObject) -> Self {
        #[derive(Deserialize)]
        struct Spec {
            #[serde(default)]
            data: Option<Box<RawValue>>,
        }
        let MetadataObject { metadata, spec } = object;
        let owner = metadata
            .owner_references
            .unwrap_or_default()
            .into_iter()
            .find(|owner| owner.kind == "Pod");
        Self {
            name: metadata.name,
            uid: metadata.uid,
            owner: owner.map(|owner| kubernetes::Owner {
                name: owner.name,
                uid: owner.uid,
            }),
            data: spec.and_then(|spec| serde_json::from_str::<Spec>(spec.get()).ok()?.data),
            left_out: false,
        }
    }
}

impl From<SliceObject> for kubernetes::Slice {
    fn from(object: SliceObject) -> Self {
        let endpoints = object.endpoints.unwrap_or_default().into_iter();
        Self {
            name: object.metadata.name,
            backend: object
                .metadata
                .labels
                .unwrap_or_default()
                .remove("nvidia.com/dynamo-discovery-backend"),
            endpoints: endpoints
                .map(|endpoint| {
                    let (name, uid) = endpoint.target_ref.map_or((None, None), |to| (to.name, to.uid));
                    kubernetes::Endpoint {
                        name,
                        uid,
                        ready: endpoint.conditions.and_then(|conditions| conditions.ready) == Some(true),
                    }
                })
                .collect(),
        }
    }
}

impl From<PodObject> for kubernetes::Pod {
    fn from(object: PodObject) -> Self {
        let PodObject { metadata, status } = object;
        let (phase, conditions, containers) = status.map_or((None, None, None), |status| {
            (status.phase, status.conditions, status.container_statuses)
        });
        let ready = |condition: &Condition| condition.kind == "Ready" && condition.status == "True";
        Self {
            name: metadata.name,
            uid: metadata.uid,
            labels: read(metadata.labels),
            annotations: read(metadata.annotations),
            phase,
            ready: conditions.unwrap_or_default().iter().any(ready),
            deleting: metadata.deletion_timestamp.is_some(),
            containers: containers
                .unwrap_or_default()
                .into_iter()
                .map(|container| kubernetes::Container {
                    name: container.name,
                    ready: container.ready,
                })
                .collect(),
        }
    }
}

/// Without what nobody reads, which may be large.
fn read(pairs: Option<BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let mut pairs = pairs.unwrap_or_default();
    pairs.retain(|name, _| name.starts_with(DYNAMO));
    pairs
}

impl Kept for kubernetes::Metadata {
    type Object = MetadataObject;

    fn bytes(&self) -> usize {
        let owner = self.owner.as_ref();
        let owner = owner.map_or(0, |owner| owner.name.len().saturating_add(owner.uid.len()));
        let data = self.data.as_ref().map_or(0, |data| data.get().len());
        size_of::<Self>()
            .saturating_add(self.name.len())
            .saturating_add(self.uid.len())
            .saturating_add(owner)
            .saturating_add(data)
    }

    fn lean(self) -> Option<Self> {
        Some(Self {
            data: None,
            left_out: true,
            ..self
        })
    }
}

impl Kept for kubernetes::Slice {
    type Object = SliceObject;

    fn bytes(&self) -> usize {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let endpoints = self.endpoints.iter().map(|endpoint| {
            size_of::<kubernetes::Endpoint>()
                .saturating_add(length(&endpoint.name))
                .saturating_add(length(&endpoint.uid))
        });
        size_of::<Self>()
            .saturating_add(self.name.len())
            .saturating_add(length(&self.backend))
            .saturating_add(endpoints.sum())
    }

    fn lean(self) -> Option<Self> {
        None
    }
}

impl Kept for kubernetes::Pod {
    type Object = PodObject;

    fn bytes(&self) -> usize {
        let pairs = self.labels.iter().chain(&self.annotations).map(|(name, value)| {
            (2 * size_of::<String>())
                .saturating_add(name.len())
                .saturating_add(value.len())
        });
        let containers = self
            .containers
            .iter()
            .map(|container| size_of::<kubernetes::Container>().saturating_add(container.name.len()));
        size_of::<Self>()
            .saturating_add(self.name.len())
            .saturating_add(self.uid.len())
            .saturating_add(self.phase.as_ref().map_or(0, String::len))
            .saturating_add(pairs.sum())
            .saturating_add(containers.sum())
    }

    fn lean(self) -> Option<Self> {
        None
    }
}

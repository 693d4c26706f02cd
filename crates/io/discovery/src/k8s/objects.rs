//! What is read of an object, and what the fleet model is given of it.

use std::collections::BTreeMap;

use continuum_fleet::kubernetes;
use serde::Deserialize;
use serde_json::value::RawValue;

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
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
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

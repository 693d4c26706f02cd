//! A fleet that is registered in Kubernetes: objects of the API server in, changes for the [`crate::Reducer`] out.
//!
//! The objects here are what routing reads of the real ones, and are filled by whoever lists and watches. Everything in
//! them is untrusted: a bad object costs itself alone.

pub mod metadata;
pub mod pods;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::value::RawValue;

use crate::notes::{Note, Notes, ResourceFault};

/// One `DynamoWorkerMetadata`.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// `metadata.name`: the pod's name, or `<pod>-<container>`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// The owner of kind Pod, if there is one.
    pub owner: Option<Owner>,
    /// `spec.data`; `None` when it is absent or `spec` is no object.
    pub data: Option<Box<RawValue>>,
    /// `spec.data` was left out because there was no room for it.
    pub left_out: bool,
}

/// The pod that a resource belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its name.
    pub name: String,
    /// Its uid; empty when it is not told.
    pub uid: String,
}

/// One EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// `metadata.name`.
    pub name: String,
    /// Label `nvidia.com/dynamo-discovery-backend`.
    pub backend: Option<String>,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
}

/// One endpoint of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `targetRef.name`.
    pub name: Option<String>,
    /// `targetRef.uid`.
    pub uid: Option<String>,
    /// `conditions.ready` is true; a missing condition is not ready.
    pub ready: bool,
}

/// One Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `status.phase`.
    pub phase: Option<String>,
    /// Condition `Ready` is true.
    pub ready: bool,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `status.containerStatuses`.
    pub containers: Vec<Container>,
}

/// One container of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Whether it is ready.
    pub ready: bool,
}

/// How much of a fleet's objects is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Objects of one kind.
    pub resources: usize,
    /// Keys and values of all records together, bytes.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            resources: crate::limits::MAX_RESOURCES,
            bytes: crate::limits::MAX_RESOURCE_BYTES,
        }
    }
}

/// Annotation of pods whose containers register one by one.
pub(crate) const DISCOVERY_MODE: &str = "nvidia.com/dynamo-kube-discovery-mode";
/// Its value for those.
pub(crate) const CONTAINER_MODE: &str = "container";

impl Notes {
    pub(super) fn fault(&mut self, name: &Arc<str>, what: ResourceFault) {
        if let Some(kind) = what.kind() {
            self.add(kind);
        }
        self.say(Note::Resource {
            name: name.clone(),
            what,
        });
    }
}

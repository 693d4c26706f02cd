//! What is kept of a child: anybody who may write its kind may give it our label, so nothing of one is kept that can be
//! large. All its content is there as a hash.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Resource, ResourceExt as _,
    api::ObjectMeta,
    core::{ApiResource, DynamicObject},
    runtime::watcher::Event,
};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::Digest;
use crate::{
    routerconfig::{
        MANAGED_BY, OWNER_NAMESPACE, OWNER_UID,
        apply::rollout_of,
        build::template::PROCESS_CONFIG,
        limits::{MAX_LABEL_BYTES, MAX_NAME_BYTES},
    },
    status::facts::Rollout,
};

/// The labels that say of whom a child is.
const LABELS: [&str; 4] = [
    MANAGED_BY,
    "app.kubernetes.io/instance",
    OWNER_NAMESPACE,
    OWNER_UID,
];

/// A child as the API server has it.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    /// Who it is and of whom: no annotations, no labels of others.
    metadata: ObjectMeta,
    /// All but the status and what the API server keeps for itself.
    pub(crate) content: Digest,
    /// Of a Deployment: what it says of its pods.
    pub(crate) rollout: Rollout,
    /// Of a Deployment: what its pods were started for.
    pub(crate) process: Option<String>,
}

impl Look {
    pub(crate) fn of(object: &DynamicObject) -> Self {
        let mut this = Self::bare(object);
        this.content = content(object);
        this
    }

    /// As a watch shows it: one that is nobody's is not looked into.
    fn watched(object: &DynamicObject) -> Self {
        let mut this = Self::bare(object);
        if this.is_somebodys() {
            this.content = content(object);
        }
        this
    }

    fn bare(object: &DynamicObject) -> Self {
        let process = object.data.pointer("/spec/template/metadata/annotations");
        let process = process.and_then(|annotations| annotations.get(PROCESS_CONFIG)?.as_str());
        Self {
            metadata: metadata(&object.metadata),
            content: Digest::default(),
            rollout: rollout_of(object),
            process: process
                .filter(|process| process.len() <= MAX_LABEL_BYTES)
                .map(str::to_owned),
        }
    }

    /// Whether it says to be of a RouterConfig, here or elsewhere.
    fn is_somebodys(&self) -> bool {
        !self.owner_references().is_empty() || self.labels().contains_key(OWNER_UID)
    }

    /// Which of two looks at one object is the later.
    pub(crate) fn version(&self) -> u64 {
        let version = self.metadata.resource_version.as_deref();
        version
            .and_then(|version| version.parse().ok())
            .unwrap_or_default()
    }
}

/// What is kept of an event: of objects that are nobody's, nothing.
pub(crate) fn kept(event: Event<Look>) -> Option<Event<Look>> {
    match event {
        // It was somebody's, perhaps.
        Event::Apply(look) if !look.is_somebodys() => Some(Event::Delete(look)),
        Event::InitApply(look) if !look.is_somebodys() => None,
        event
        @ (Event::Apply(_) | Event::Delete(_) | Event::Init | Event::InitApply(_) | Event::InitDone) => {
            Some(event)
        }
    }
}

/// A hash of everything that is wanted.
pub(crate) fn wanted(object: &DynamicObject) -> Digest {
    digest(&json!([object.metadata, object.data]))
}

/// A hash of what somebody may have changed.
fn content(object: &DynamicObject) -> Digest {
    let mut metadata = object.metadata.clone();
    metadata.managed_fields = None;
    metadata.resource_version = None;
    metadata.generation = None;
    let mut data = object.data.clone();
    if let Some(fields) = data.as_object_mut() {
        fields.remove("status");
    }
    digest(&json!([metadata, data]))
}

fn digest(value: &Value) -> Digest {
    *blake3::hash(value.to_string().as_bytes()).as_bytes()
}

fn metadata(all: &ObjectMeta) -> ObjectMeta {
    let labels: BTreeMap<_, _> = all
        .labels
        .iter()
        .flatten()
        .filter(|(key, _)| LABELS.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let owners: Vec<_> = all
        .owner_references
        .iter()
        .flatten()
        .filter(|owner| is_routerconfig(owner))
        .take(1)
        .cloned()
        .collect();
    ObjectMeta {
        name: all.name.clone(),
        namespace: all.namespace.clone(),
        uid: all.uid.clone(),
        resource_version: all.resource_version.clone(),
        generation: all.generation,
        labels: Some(labels),
        owner_references: Some(owners),
        ..ObjectMeta::default()
    }
}

/// A RouterConfig that controls something. The API server does not bound what is written there.
fn is_routerconfig(owner: &OwnerReference) -> bool {
    use continuum_crds::RouterConfig;
    let texts = [&owner.api_version, &owner.name, &owner.uid];
    owner.controller == Some(true)
        && owner.kind == RouterConfig::kind(&())
        && owner.api_version.split('/').next() == Some(RouterConfig::group(&()).as_ref())
        && texts.iter().all(|text| text.len() <= MAX_NAME_BYTES)
}

impl<'de> Deserialize<'de> for Look {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        DynamicObject::deserialize(deserializer).map(|object| Self::watched(&object))
    }
}

impl Resource for Look {
    type DynamicType = ApiResource;
    type Scope = <DynamicObject as Resource>::Scope;

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        DynamicObject::kind(of)
    }

    fn group(of: &ApiResource) -> Cow<'_, str> {
        DynamicObject::group(of)
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        DynamicObject::version(of)
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        DynamicObject::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests;

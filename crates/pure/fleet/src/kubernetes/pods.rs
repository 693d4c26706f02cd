//! A fleet that is known by its Pods alone: who is there and what for, no cards, no event channels.
//!
//! Each ready worker Pod becomes the two records that a reducer [without cards](crate::Reducer::without_cards) needs:
//! an instance, whose id is made from the Pod's name, and the model that the configuration says it serves.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::json;

use super::{CONTAINER_MODE, DISCOVERY_MODE, Limits, Pod};
use crate::{
    Change,
    graphs::is_generation,
    ids::InstanceId,
    keys::Bucket,
    notes::{EventKind, Notes, Refused, ResourceFault},
    pod_hash::pod_hash,
    view::Role,
};

const BACKEND: &str = "nvidia.com/dynamo-discovery-backend";
const ENABLED: &str = "nvidia.com/dynamo-discovery-enabled";
const NAMESPACE: &str = "nvidia.com/dynamo-namespace";
const COMPONENT: &str = "nvidia.com/dynamo-component";
const COMPONENT_TYPE: &str = "nvidia.com/dynamo-component-type";
const SUB_COMPONENT_TYPE: &str = "nvidia.com/dynamo-sub-component-type";
const GENERATION: &str = "nvidia.com/dynamo-worker-hash";
/// Component of a Pod without that label.
const NO_COMPONENT: &str = "backend";

/// Which Pods are workers, and what they serve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Dynamo namespaces, as the Pods' label has them.
    pub namespaces: Vec<String>,
    /// Whether generations of a namespace are told apart: a Pod's label carries the base name, its generation has a
    /// label of its own.
    pub generations: bool,
    /// The model of every worker.
    pub model: Option<String>,
    /// The model of each component, where there are several.
    pub models: Vec<ModelOf>,
    /// Caps.
    pub limits: Limits,
}

/// What the Pods of one component serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelOf {
    /// Component label, case included.
    pub component: String,
    /// Model.
    pub model: String,
    /// Only in this Dynamo namespace.
    pub namespace: Option<String>,
}

/// The Pods of one Kubernetes namespace.
#[derive(Debug)]
pub struct Join {
    settings: Settings,
    pods: BTreeMap<Arc<str>, Known>,
    /// Ready workers by id; more than one name: none of them is used.
    by_id: BTreeMap<InstanceId, BTreeSet<Arc<str>>>,
    shown: BTreeMap<InstanceId, Records>,
    /// Where ids come from; tests need names that collide.
    hash: fn(&str) -> InstanceId,
}

#[derive(Debug)]
struct Known {
    /// `None`: it is no worker, or not ready.
    worker: Option<Records>,
    fault: Option<ResourceFault>,
}

/// The records of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Records([(String, Vec<u8>); 2]);

impl Join {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            pods: BTreeMap::new(),
            by_id: BTreeMap::new(),
            shown: BTreeMap::new(),
            hash: pod_hash,
        }
    }

    /// Other Dynamo namespaces are wanted: known Pods are looked at again with the next full list.
    pub fn look_for(&mut self, namespaces: Vec<String>) {
        self.settings.namespaces = namespaces;
    }

    /// A Pod as it is now.
    pub fn put_pod(&mut self, pod: Pod) -> (Vec<Change>, Notes) {
        let (mut changes, mut notes) = Default::default();
        let id = (self.hash)(&pod.name);
        let before = self.forget(&pod.name);
        self.take(pod, before, &mut notes);
        self.refresh(id, &mut changes);
        (changes, notes)
    }

    /// A Pod is gone.
    pub fn remove_pod(&mut self, name: &str) -> (Vec<Change>, Notes) {
        let mut changes = Vec::new();
        self.forget(name);
        self.refresh((self.hash)(name), &mut changes);
        (changes, Notes::default())
    }

    /// A full list replaces what was known. Gives all records, for the reducer's own reset.
    pub fn reset(&mut self, pods: Vec<Pod>) -> (Vec<(String, Vec<u8>)>, Notes) {
        let mut notes = Notes::default();
        let mut before = std::mem::take(&mut self.pods);
        self.by_id.clear();
        self.shown.clear();
        for pod in pods {
            let known = before.remove(pod.name.as_str()).and_then(|known| known.fault);
            self.take(pod, known, &mut notes);
        }
        let ids: Vec<InstanceId> = self.by_id.keys().copied().collect();
        for id in ids {
            self.refresh(id, &mut Vec::new());
        }
        let entries = self.shown.values().flat_map(|records| records.0.iter().cloned());
        (entries.collect(), notes)
    }

    /// Pods that are not in the fleet for a fault of their own. Looks at every Pod.
    #[must_use]
    pub fn refused(&self) -> Refused {
        let mut refused = Refused::default();
        let faults = self.pods.values().filter_map(|known| known.fault?.kind());
        faults.for_each(|kind| refused.add(kind, 1));
        refused
    }

    fn forget(&mut self, name: &str) -> Option<ResourceFault> {
        let known = self.pods.remove(name)?;
        let id = (self.hash)(name);
        if let Some(names) = self.by_id.get_mut(&id) {
            names.remove(name);
            if names.is_empty() {
                self.by_id.remove(&id);
            }
        }
        known.fault
    }

    fn take(&mut self, pod: Pod, said: Option<ResourceFault>, notes: &mut Notes) {
        let name: Arc<str> = pod.name.as_str().into();
        if self.pods.len() >= self.settings.limits.resources {
            notes.add(EventKind::OverCapacity);
            return;
        }
        let mut known = Known {
            worker: None,
            fault: None,
        };
        if let Some(role) = self.settings.role_of(&pod) {
            if pod
                .annotations
                .get(DISCOVERY_MODE)
                .is_some_and(|mode| mode == CONTAINER_MODE)
            {
                known.fault = Some(ResourceFault::ContainerMode);
            } else if is_ready(&pod) {
                known.worker = self.settings.records_of(&pod, role, (self.hash)(&name));
                if known.worker.is_none() {
                    known.fault = Some(ResourceFault::NoModel);
                }
            }
        }
        let id = (self.hash)(&name);
        if known.worker.is_some() {
            let names = self.by_id.entry(id).or_default();
            names.insert(name.clone());
            if names.len() > 1 {
                known.fault = Some(ResourceFault::SameId);
            }
        }
        if let Some(fault) = known.fault.filter(|fault| said != Some(*fault)) {
            notes.fault(&name, fault);
        }
        self.pods.insert(name, known);
    }

    fn refresh(&mut self, id: InstanceId, changes: &mut Vec<Change>) {
        let wanted = match self.by_id.get(&id) {
            Some(names) if names.len() == 1 => {
                names.first().and_then(|name| self.pods.get(name)?.worker.clone())
            }
            Some(_) | None => None,
        };
        let old = self.shown.get(&id);
        if old == wanted.as_ref() {
            return;
        }
        for (key, _) in old.iter().flat_map(|records| &records.0) {
            if wanted
                .as_ref()
                .is_none_or(|new| new.0.iter().all(|(other, _)| other != key))
            {
                changes.push(Change::Delete { key: key.clone() });
            }
        }
        match wanted {
            Some(records) => {
                let puts = records.0.iter().cloned();
                changes.extend(puts.map(|(key, value)| Change::Put { key, value }));
                self.shown.insert(id, records);
            }
            None => {
                self.shown.remove(&id);
            }
        }
    }
}

impl Settings {
    /// What a Pod does for the fleet; `None`: it is no worker of these namespaces.
    fn role_of(&self, pod: &Pod) -> Option<Role> {
        let label = |name: &str| pod.labels.get(name).map(String::as_str);
        let ours = label(NAMESPACE).is_some_and(|name| self.namespaces.iter().any(|ours| ours == name));
        if !ours || label(BACKEND) != Some("kubernetes") || label(ENABLED) != Some("true") {
            return None;
        }
        match (label(COMPONENT_TYPE)?, label(SUB_COMPONENT_TYPE)) {
            ("prefill", _) | ("worker", Some("prefill")) => Some(Role::Prefill),
            ("decode", _) | ("worker", Some("decode")) => Some(Role::Decode),
            ("worker", _) => Some(Role::Aggregated),
            _ => None,
        }
    }

    /// `None`: no model is configured for it.
    fn records_of(&self, pod: &Pod, role: Role, id: InstanceId) -> Option<Records> {
        let base = pod.labels.get(NAMESPACE)?;
        let component = pod.labels.get(COMPONENT);
        let model = self.model_of(base, component.map(String::as_str))?;
        let generation = pod
            .labels
            .get(GENERATION)
            .filter(|hash| self.generations && is_generation(hash));
        let namespace = match generation {
            Some(hash) => format!("{base}-{hash}"),
            None => base.clone(),
        };
        // A component whose name is a role must not contradict the role of the Pod's own label.
        let component = match component.map(String::as_str) {
            Some("prefill" | "decode") => role.as_str(),
            Some(other) if !other.is_empty() => other,
            Some(_) | None => NO_COMPONENT,
        };
        let key = |bucket: Bucket| {
            format!(
                "{}/{namespace}/{component}/generate/{}",
                bucket.as_str(),
                id.hex()
            )
        };
        let instance = json!({
            "type": "Endpoint", "component": component, "endpoint": "generate", "instance_id": id.raw(),
        });
        let card = json!({
            "type": "Model", "component": component, "endpoint": "generate", "instance_id": id.raw(),
            "card_json": { "display_name": model, "worker_type": role.as_str() },
        });
        Some(Records([
            (key(Bucket::Instances), instance.to_string().into_bytes()),
            (key(Bucket::Cards), card.to_string().into_bytes()),
        ]))
    }

    fn model_of(&self, namespace: &str, component: Option<&str>) -> Option<&str> {
        if self.models.is_empty() {
            return self.model.as_deref();
        }
        let component = component?;
        let of = |model: &&ModelOf| {
            model.component == component && model.namespace.as_deref().is_none_or(|of| of == namespace)
        };
        self.models.iter().find(of).map(|model| model.model.as_str())
    }
}

fn is_ready(pod: &Pod) -> bool {
    pod.phase.as_deref() == Some("Running") && pod.ready && !pod.deleting
}

#[cfg(test)]
mod tests;

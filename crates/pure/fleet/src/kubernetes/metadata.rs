//! `DynamoWorkerMetadata` joined with readiness: a resource's records are in the fleet while its pod, or its container,
//! is ready.
//!
//! Pods are told by EndpointSlices, by name and, where both sides carry one, by uid; containers by their Pod. One record
//! may be carried by several resources (event channels are): it goes with the last of them.

mod ready;
mod records;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use self::{ready::Readiness, records::Records};
use super::{Limits, Metadata, Owner, Pod, Slice};
use crate::{
    Change,
    notes::{EventKind, Notes, ResourceFault},
};

/// The join of one Kubernetes namespace.
#[derive(Debug)]
pub struct Join {
    limits: Limits,
    resources: BTreeMap<Arc<str>, Resource>,
    /// Resources by the pod that they depend on.
    by_pod: BTreeMap<String, BTreeSet<Arc<str>>>,
    readiness: Readiness,
    /// What the reducer has of each resource.
    shown: BTreeMap<Arc<str>, Arc<Records>>,
    /// Who carries a key; the last one's value is the one that the reducer has.
    carriers: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    /// Keys and values of all kept records, bytes.
    bytes: usize,
}

#[derive(Debug)]
struct Resource {
    uid: String,
    owner: Option<Owner>,
    /// The last valid ones.
    records: Option<Arc<Records>>,
    /// What is wrong with it now, said once.
    fault: Option<ResourceFault>,
}

impl Resource {
    /// The pod whose readiness counts, and its container where that is what registered.
    fn pod<'a>(&'a self, name: &'a str) -> Option<(&'a str, Option<&'a str>)> {
        match &self.owner {
            None => Some((name, None)),
            Some(owner) if owner.name == name => Some((name, None)),
            Some(owner) => {
                let container = name.strip_prefix(owner.name.as_str())?.strip_prefix('-')?;
                (!container.is_empty()).then_some((owner.name.as_str(), Some(container)))
            }
        }
    }
}

impl Join {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            resources: BTreeMap::new(),
            by_pod: BTreeMap::new(),
            readiness: Readiness::default(),
            shown: BTreeMap::new(),
            carriers: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// A resource as it is now.
    pub fn put_metadata(&mut self, object: Metadata) -> (Vec<Change>, Notes) {
        let (mut changes, mut notes) = Default::default();
        let name: Arc<str> = object.name.as_str().into();
        let before = self.take(&name);
        self.put(name.clone(), object, before, &mut notes);
        self.refresh(&name, &mut changes);
        (changes, notes)
    }

    /// A resource is gone.
    pub fn remove_metadata(&mut self, name: &str) -> (Vec<Change>, Notes) {
        let (mut changes, notes) = Default::default();
        self.take(name);
        self.refresh(name, &mut changes);
        (changes, notes)
    }

    /// A slice as it is now.
    pub fn put_slice(&mut self, slice: Slice) -> (Vec<Change>, Notes) {
        let mut notes = Notes::default();
        let Some(pods) = self.readiness.put_slice(slice, self.limits.resources) else {
            notes.add(EventKind::OverCapacity);
            return (Vec::new(), notes);
        };
        (self.refresh_pods(pods), notes)
    }

    /// A slice is gone.
    pub fn remove_slice(&mut self, name: &str) -> (Vec<Change>, Notes) {
        let pods = self.readiness.remove_slice(name);
        (self.refresh_pods(pods), Notes::default())
    }

    /// A pod as it is now: needed where containers register one by one.
    pub fn put_pod(&mut self, pod: Pod) -> (Vec<Change>, Notes) {
        let mut notes = Notes::default();
        let name = pod.name.clone();
        if !self.readiness.put_pod(pod, self.limits.resources) {
            notes.add(EventKind::OverCapacity);
            return (Vec::new(), notes);
        }
        (self.refresh_pods([name]), notes)
    }

    /// A pod is gone.
    pub fn remove_pod(&mut self, name: &str) -> (Vec<Change>, Notes) {
        self.readiness.remove_pod(name);
        (self.refresh_pods([name.to_owned()]), Notes::default())
    }

    /// Full lists replace what was known. Gives all records of ready resources, for the reducer's own reset.
    ///
    /// A resource that cannot be read now keeps its last valid records, as between two edits.
    pub fn reset(
        &mut self,
        resources: Vec<Metadata>,
        slices: Vec<Slice>,
        pods: Vec<Pod>,
    ) -> (Vec<(String, Vec<u8>)>, Notes) {
        let mut notes = Notes::default();
        let before = mem::take(&mut self.resources);
        self.by_pod.clear();
        self.shown.clear();
        self.carriers.clear();
        self.bytes = 0;
        self.readiness = Readiness::default();
        for slice in slices {
            if self.readiness.put_slice(slice, self.limits.resources).is_none() {
                notes.add(EventKind::OverCapacity);
            }
        }
        for pod in pods {
            if !self.readiness.put_pod(pod, self.limits.resources) {
                notes.add(EventKind::OverCapacity);
            }
        }
        let mut before = before;
        for object in resources {
            let name: Arc<str> = object.name.as_str().into();
            let known = before.remove(&name);
            self.put(name, object, known, &mut notes);
        }
        let mut changes = Vec::new();
        let names: Vec<Arc<str>> = self.resources.keys().cloned().collect();
        for name in names {
            self.refresh(&name, &mut changes);
        }
        let entries = self.carriers.iter().filter_map(|(key, carriers)| {
            let value = self.shown.get(carriers.last()?)?.value(key)?;
            Some((key.to_string(), value.to_vec()))
        });
        (entries.collect(), notes)
    }

    /// Whether a resource of a single container is known: only then Pods have to be watched.
    #[must_use]
    pub fn needs_pods(&self) -> bool {
        let of_container = |(name, resource): (&Arc<str>, &Resource)| {
            resource
                .pod(name)
                .is_some_and(|(_, container)| container.is_some())
        };
        self.resources.iter().any(of_container)
    }

    /// Takes a resource out; what the reducer has of it stays until the next refresh.
    fn take(&mut self, name: &str) -> Option<Resource> {
        let resource = self.resources.remove(name)?;
        if let Some((pod, _)) = resource.pod(name)
            && let Some(names) = self.by_pod.get_mut(pod)
        {
            names.remove(name);
            if names.is_empty() {
                let pod = pod.to_owned();
                self.by_pod.remove(&pod);
            }
        }
        if let Some(records) = &resource.records {
            self.bytes = self.bytes.saturating_sub(records.bytes());
        }
        Some(resource)
    }

    fn put(&mut self, name: Arc<str>, object: Metadata, before: Option<Resource>, notes: &mut Notes) {
        if self.resources.len() >= self.limits.resources {
            notes.fault(&name, ResourceFault::TooMany);
            return;
        }
        let Metadata { uid, owner, data, .. } = object;
        let room = self.limits.bytes.saturating_sub(self.bytes);
        let mut resource = Resource {
            uid,
            owner,
            records: None,
            fault: None,
        };
        let read = if resource.pod(&name).is_none() {
            Err(ResourceFault::Owner)
        } else {
            Records::read(&name, data.as_deref(), room)
        };
        match read {
            Ok(records) => resource.records = Some(Arc::new(records)),
            Err(fault) => {
                let said = before.as_ref().and_then(|before| before.fault);
                if said != Some(fault) {
                    notes.fault(&name, fault);
                }
                resource.fault = Some(fault);
                if fault.is_transient() {
                    resource.records = before
                        .filter(|before| before.is(&resource))
                        .and_then(|b| b.records);
                }
            }
        }
        if let Some(records) = &resource.records {
            self.bytes = self.bytes.saturating_add(records.bytes());
        }
        if let Some((pod, _)) = resource.pod(&name) {
            self.by_pod
                .entry(pod.to_owned())
                .or_default()
                .insert(name.clone());
        }
        self.resources.insert(name, resource);
    }

    fn refresh_pods(&mut self, pods: impl IntoIterator<Item = String>) -> Vec<Change> {
        let mut changes = Vec::new();
        for pod in pods {
            let names = self.by_pod.get(&pod).cloned().unwrap_or_default();
            for name in names {
                self.refresh(&name, &mut changes);
            }
        }
        changes
    }

    /// Brings what the reducer has of a resource to what it should have.
    fn refresh(&mut self, name: &str, changes: &mut Vec<Change>) {
        let wanted = self.wanted(name);
        let old = match &wanted {
            Some((name, records)) => self.shown.insert(name.clone(), records.clone()),
            None => self.shown.remove(name),
        };
        let same = match (&old, &wanted) {
            (Some(old), Some((_, new))) => Arc::ptr_eq(old, new),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if same {
            return;
        }
        for (key, _) in old.iter().flat_map(|records| records.iter()) {
            let stays = wanted.as_ref().is_some_and(|(_, new)| new.value(key).is_some());
            if !stays {
                self.uncarry(key, name, changes);
            }
        }
        let Some((name, records)) = wanted else { return };
        for (key, value) in records.iter() {
            let unchanged = old.as_ref().and_then(|old| old.value(key)) == Some(value);
            if !unchanged {
                let carriers = self.carriers.entry(key.clone()).or_default();
                carriers.retain(|carrier| *carrier != name);
                carriers.push(name.clone());
                changes.push(Change::Put {
                    key: key.to_string(),
                    value: value.to_vec(),
                });
            }
        }
    }

    fn wanted(&self, name: &str) -> Option<(Arc<str>, Arc<Records>)> {
        let (name, resource) = self.resources.get_key_value(name)?;
        let records = resource.records.as_ref()?;
        let (pod, container) = resource.pod(name)?;
        let uid = resource.owner.as_ref().map_or("", |owner| owner.uid.as_str());
        self.readiness
            .is_ready(pod, uid, container)
            .then(|| (name.clone(), records.clone()))
    }

    fn uncarry(&mut self, key: &Arc<str>, name: &str, changes: &mut Vec<Change>) {
        let Some(carriers) = self.carriers.get_mut(key) else {
            return;
        };
        let was_last = carriers.last().is_some_and(|last| **last == *name);
        carriers.retain(|carrier| **carrier != *name);
        let Some(next) = carriers.last() else {
            self.carriers.remove(key);
            changes.push(Change::Delete { key: key.to_string() });
            return;
        };
        if was_last && let Some(value) = self.shown.get(next).and_then(|records| records.value(key)) {
            changes.push(Change::Put {
                key: key.to_string(),
                value: value.to_vec(),
            });
        }
    }
}

impl Resource {
    /// Whether it is the same object of the same pod.
    fn is(&self, other: &Self) -> bool {
        let uid = |of: &Self| of.owner.as_ref().map(|owner| owner.uid.clone());
        self.uid == other.uid && uid(self) == uid(other)
    }
}

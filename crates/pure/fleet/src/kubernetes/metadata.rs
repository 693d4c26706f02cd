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
    notes::{EventKind, Notes, Refused, ResourceFault},
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
    /// Who carries a key, in order of names. The reducer has the first one's value, whatever came when.
    carriers: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    /// Resources of single containers.
    of_containers: usize,
    /// Keys and values of all kept records, bytes.
    bytes: usize,
    /// What is wrong with resources now.
    faults: BTreeMap<ResourceFault, u64>,
}

#[derive(Debug)]
struct Resource {
    uid: String,
    owner: Option<Owner>,
    /// The last valid ones.
    records: Option<Arc<Records>>,
    /// What is wrong with it now, said once.
    fault: Option<ResourceFault>,
    /// The log knows that its pod is not there.
    astray: bool,
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
            of_containers: 0,
            bytes: 0,
            faults: BTreeMap::new(),
        }
    }

    /// A resource as it is now.
    pub fn put_metadata(&mut self, object: Metadata) -> (Vec<Change>, Notes) {
        let (mut changes, mut notes) = Default::default();
        let name: Arc<str> = object.name.as_str().into();
        let before = self.take(&name);
        let mut pods: BTreeSet<String> = before
            .iter()
            .filter_map(|before| before.pod_name(&name))
            .collect();
        self.put(name.clone(), object, before, &mut notes);
        pods.extend(
            self.resources
                .get(&name)
                .and_then(|resource| resource.pod_name(&name)),
        );
        self.refresh(&name, &mut changes);
        changes.extend(self.refresh_pods(pods));
        (changes, notes)
    }

    /// A resource is gone.
    pub fn remove_metadata(&mut self, name: &str) -> (Vec<Change>, Notes) {
        let (mut changes, notes) = Default::default();
        let pod = self.take(name).and_then(|gone| gone.pod_name(name));
        self.refresh(name, &mut changes);
        changes.extend(self.refresh_pods(pod));
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
        let mut before = mem::take(&mut self.resources);
        self.by_pod.clear();
        self.shown.clear();
        self.carriers.clear();
        self.of_containers = 0;
        self.bytes = 0;
        self.faults.clear();
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
        for object in resources {
            let name: Arc<str> = object.name.as_str().into();
            let known = before.remove(&name);
            self.put(name, object, known, &mut notes);
        }
        self.say_astray(&mut notes);
        let mut changes = Vec::new();
        let names: Vec<Arc<str>> = self.resources.keys().cloned().collect();
        for name in names {
            self.refresh(&name, &mut changes);
        }
        let entries = self.carriers.iter().filter_map(|(key, carriers)| {
            let value = self.shown.get(carriers.first()?)?.value(key)?;
            Some((key.to_string(), value.to_vec()))
        });
        (entries.collect(), notes)
    }

    /// Whether a resource of a single container is known: only then Pods have to be watched.
    #[must_use]
    pub const fn needs_pods(&self) -> bool {
        self.of_containers > 0
    }

    /// Resources that are not in the fleet for a fault of their own, or as they were before.
    #[must_use]
    pub fn refused(&self) -> Refused {
        let mut refused = Refused::default();
        for (fault, count) in &self.faults {
            if let Some(kind) = fault.kind() {
                refused.add(kind, *count);
            }
        }
        refused
    }

    fn fault(&mut self, fault: Option<ResourceFault>, change: impl FnOnce(u64, u64) -> u64) {
        if let Some(fault) = fault {
            let count = self.faults.entry(fault).or_default();
            *count = change(*count, 1);
        }
    }

    /// Containers whose pod is not in the full list of Pods: nobody tells whether they are ready.
    fn say_astray(&mut self, notes: &mut Notes) {
        for (name, resource) in &mut self.resources {
            let astray = match resource.pod(name) {
                Some((pod, Some(_))) => !self.readiness.knows(pod),
                Some((_, None)) | None => false,
            };
            if astray && !resource.astray {
                notes.fault(name, ResourceFault::NoPod);
            }
            let count = self.faults.entry(ResourceFault::NoPod).or_default();
            *count = match (resource.astray, astray) {
                (false, true) => count.saturating_add(1),
                (true, false) => count.saturating_sub(1),
                (true, true) | (false, false) => *count,
            };
            resource.astray = astray;
        }
    }

    /// Takes a resource out; what the reducer has of it stays until the next refresh.
    fn take(&mut self, name: &str) -> Option<Resource> {
        let resource = self.resources.remove(name)?;
        self.fault(resource.fault, u64::saturating_sub);
        self.fault(
            resource.astray.then_some(ResourceFault::NoPod),
            u64::saturating_sub,
        );
        if resource.of_container(name) {
            self.of_containers = self.of_containers.saturating_sub(1);
        }
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
            self.fault(Some(ResourceFault::TooMany), u64::saturating_add);
            return;
        }
        let Metadata {
            uid,
            owner,
            data,
            left_out,
            ..
        } = object;
        let room = self.limits.bytes.saturating_sub(self.bytes);
        let mut resource = Resource {
            uid,
            owner,
            records: None,
            fault: None,
            astray: false,
        };
        resource.astray = before
            .as_ref()
            .is_some_and(|before| before.astray && before.is(&resource));
        let read = if resource.pod(&name).is_none() {
            Err(ResourceFault::Owner)
        } else if left_out {
            Err(ResourceFault::TooLarge)
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
                        .and_then(|before| before.records)
                        .filter(|records| records.bytes() <= room);
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
        if resource.of_container(&name) {
            self.of_containers += 1;
        }
        self.fault(resource.fault, u64::saturating_add);
        self.fault(
            resource.astray.then_some(ResourceFault::NoPod),
            u64::saturating_add,
        );
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
        let old = old.unwrap_or_default();
        let new = wanted.map(|(_, records)| records).unwrap_or_default();
        let gone = old.iter().filter(|(key, _)| new.value(key).is_none());
        for (key, _) in gone.chain(new.iter()) {
            changes.extend(self.settle(key, name, old.value(key), new.value(key)));
        }
    }

    /// Who carries a key after one resource's value of it changed; the change for the reducer, if there is one.
    fn settle(
        &mut self,
        key: &Arc<str>,
        name: &str,
        old: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Option<Change> {
        let Self { carriers, shown, .. } = self;
        if old == new {
            return None;
        }
        let value_of = |carrier: &Arc<str>, own| match shown.get(carrier) {
            _ if **carrier == *name => own,
            other => other.and_then(|records| records.value(key)),
        };
        let of_key = carriers
            .entry(key.clone())
            .or_insert_with(|| Vec::with_capacity(1));
        let before = of_key.first().and_then(|first| value_of(first, old));
        match (of_key.binary_search_by(|carrier| (**carrier).cmp(name)), new) {
            (Err(place), Some(_)) => of_key.insert(place, name.into()),
            (Ok(place), None) => drop(of_key.remove(place)),
            (Ok(_), Some(_)) | (Err(_), None) => {}
        }
        let Some(first) = of_key.first() else {
            carriers.remove(key);
            return before.map(|_| Change::Delete { key: key.to_string() });
        };
        let after = value_of(first, new)?;
        (before != Some(after)).then(|| Change::Put {
            key: key.to_string(),
            value: after.to_vec(),
        })
    }

    fn wanted(&self, name: &str) -> Option<(Arc<str>, Arc<Records>)> {
        let (name, resource) = self.resources.get_key_value(name)?;
        let records = resource.records.as_ref()?;
        let (pod, container) = resource.pod(name)?;
        let uid = resource.owner.as_ref().map_or("", |owner| owner.uid.as_str());
        // A container beside it that registers by itself tells, as the pod's annotation does.
        let alone = |other: &Arc<str>| {
            self.resources
                .get(other)
                .is_some_and(|resource| resource.of_container(other))
        };
        let alone =
            self.of_containers > 0 && self.by_pod.get(pod).is_some_and(|names| names.iter().any(alone));
        self.readiness
            .is_ready(pod, uid, container, alone)
            .then(|| (name.clone(), records.clone()))
    }
}

impl Resource {
    fn of_container(&self, name: &str) -> bool {
        self.pod(name).is_some_and(|(_, container)| container.is_some())
    }

    fn pod_name(&self, name: &str) -> Option<String> {
        self.pod(name).map(|(pod, _)| pod.to_owned())
    }

    /// Whether it is the same object of the same pod.
    fn is(&self, other: &Self) -> bool {
        let uid = |of: &Self| of.owner.as_ref().map(|owner| owner.uid.clone());
        self.uid == other.uid && uid(self) == uid(other)
    }
}

//! Which pods and containers are ready.

use std::collections::{BTreeMap, BTreeSet};

use crate::kubernetes::{CONTAINER_MODE, DISCOVERY_MODE, Pod, Slice};

/// The one value of the backend label that counts; a slice without the label counts, too.
const BACKEND: &str = "kubernetes";
/// The container that registers under its pod's name.
const MAIN: &str = "main";

/// Ready endpoints of all slices, and what Pods say of their containers.
#[derive(Debug, Default)]
pub(super) struct Readiness {
    /// Ready (pod, uid) of each slice; an unknown uid is empty.
    slices: BTreeMap<String, BTreeSet<(String, String)>>,
    /// How many slices name a ready (pod, uid).
    pods: BTreeMap<String, BTreeMap<String, usize>>,
    containers: BTreeMap<String, Containers>,
}

#[derive(Debug)]
struct Containers {
    uid: String,
    /// The pod's containers register one by one.
    alone: bool,
    ready: BTreeSet<String>,
}

impl Readiness {
    /// Takes a slice in; gives the pods of which it says something else now. `None`: there are too many slices.
    pub(super) fn put_slice(&mut self, slice: Slice, most: usize) -> Option<BTreeSet<String>> {
        if slice.backend.as_deref().is_some_and(|backend| backend != BACKEND) {
            return Some(self.remove_slice(&slice.name));
        }
        if self.slices.len() >= most && !self.slices.contains_key(&slice.name) {
            return None;
        }
        let ready: BTreeSet<(String, String)> = slice
            .endpoints
            .into_iter()
            .filter(|endpoint| endpoint.ready)
            .filter_map(|endpoint| {
                let name = endpoint.name.filter(|name| !name.is_empty())?;
                Some((name, endpoint.uid.unwrap_or_default()))
            })
            .collect();
        let before = self.slices.remove(&slice.name).unwrap_or_default();
        for (pod, uid) in ready.difference(&before) {
            let uids = self.pods.entry(pod.clone()).or_default();
            *uids.entry(uid.clone()).or_default() += 1;
        }
        self.uncount(before.difference(&ready));
        let touched = ready.symmetric_difference(&before);
        let touched = touched.map(|(pod, _)| pod.clone()).collect();
        self.slices.insert(slice.name, ready);
        Some(touched)
    }

    pub(super) fn remove_slice(&mut self, name: &str) -> BTreeSet<String> {
        let ready = self.slices.remove(name).unwrap_or_default();
        self.uncount(&ready);
        ready.into_iter().map(|(pod, _)| pod).collect()
    }

    /// Takes a pod in; `false`: there are too many.
    pub(super) fn put_pod(&mut self, pod: Pod, most: usize) -> bool {
        if self.containers.len() >= most && !self.containers.contains_key(&pod.name) {
            return false;
        }
        let alone = pod
            .annotations
            .get(DISCOVERY_MODE)
            .is_some_and(|mode| mode == CONTAINER_MODE);
        let ready = pod.containers.into_iter().filter(|container| container.ready);
        let containers = Containers {
            uid: pod.uid,
            alone,
            ready: ready.map(|container| container.name).collect(),
        };
        self.containers.insert(pod.name, containers);
        true
    }

    pub(super) fn remove_pod(&mut self, name: &str) {
        self.containers.remove(name);
    }

    /// Whether there is such a pod.
    pub(super) fn knows(&self, pod: &str) -> bool {
        self.containers.contains_key(pod)
    }

    /// Whether the pod is ready, or that container of it. `alone`: other containers of it register one by one. An
    /// empty uid is unknown and agrees with any.
    pub(super) fn is_ready(&self, pod: &str, uid: &str, container: Option<&str>, alone: bool) -> bool {
        let known = self.containers.get(pod);
        match container {
            Some(container) => known.is_some_and(|pod| pod.is_ready(uid, container)),
            None => match known.filter(|pod| alone || pod.alone) {
                Some(pod) => pod.is_ready(uid, MAIN),
                None => self.pod_is_ready(pod, uid),
            },
        }
    }

    fn uncount<'a>(&mut self, endpoints: impl IntoIterator<Item = &'a (String, String)>) {
        for (pod, uid) in endpoints {
            let Some(uids) = self.pods.get_mut(pod) else {
                continue;
            };
            if let Some(count) = uids.get_mut(uid) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    uids.remove(uid);
                }
            }
            if uids.is_empty() {
                self.pods.remove(pod);
            }
        }
    }

    /// Two uids for one name: nobody can tell which of the pods the frontends mean.
    fn pod_is_ready(&self, pod: &str, uid: &str) -> bool {
        let Some(uids) = self.pods.get(pod) else {
            return false;
        };
        let mut known = uids.keys().filter(|uid| !uid.is_empty());
        match (known.next(), known.next()) {
            (None, _) => true,
            (Some(only), None) => agree(only, uid),
            (Some(_), Some(_)) => false,
        }
    }
}

impl Containers {
    fn is_ready(&self, uid: &str, container: &str) -> bool {
        agree(&self.uid, uid) && self.ready.contains(container)
    }
}

fn agree(a: &str, b: &str) -> bool {
    a.is_empty() || b.is_empty() || a == b
}

//! The records of one resource, under the keys that they would have in etcd.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    ids::InstanceId,
    keys::{Bucket, Key},
    notes::{Mismatch, ResourceFault},
    pod_hash::pod_hash,
    records::{self, Refusal},
};

/// Key and value of each record.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Records {
    by_key: BTreeMap<Arc<str>, Box<[u8]>>,
    bytes: usize,
}

#[derive(Deserialize)]
struct Data {
    #[serde(default)]
    endpoints: Option<BTreeMap<String, Box<RawValue>>>,
    #[serde(default)]
    model_cards: Option<BTreeMap<String, Box<RawValue>>>,
    #[serde(default)]
    event_channels: Option<BTreeMap<String, Box<RawValue>>>,
    #[serde(default)]
    event_sources: Option<BTreeMap<String, Box<RawValue>>>,
}

impl Records {
    /// Reads `spec.data` of the resource `name`; `room` is how many bytes there still are for it.
    pub(super) fn read(name: &str, data: Option<&RawValue>, room: usize) -> Result<Self, ResourceFault> {
        let malformed = ResourceFault::Data;
        let data = data.ok_or(malformed)?.get();
        if data.len() > room {
            return Err(ResourceFault::TooLarge);
        }
        if !data.trim_start().starts_with('{') {
            return Err(malformed);
        }
        let data: Data = serde_json::from_str(data).map_err(|_shape| malformed)?;
        let id = pod_hash(name);
        let mut this = Self::default();
        for (bucket, map) in [
            (Bucket::Instances, data.endpoints),
            (Bucket::Cards, data.model_cards),
            (Bucket::EventChannels, data.event_channels),
            (Bucket::EventSources, data.event_sources),
        ] {
            for (path, value) in map.unwrap_or_default() {
                let key = key_of(bucket, &path);
                if !belongs(&key, value.get(), id) {
                    return Err(ResourceFault::Id);
                }
                this.bytes = this
                    .bytes
                    .saturating_add(key.len())
                    .saturating_add(value.get().len());
                this.by_key.insert(key.into(), value.get().as_bytes().into());
            }
        }
        if this.bytes > room {
            return Err(ResourceFault::TooLarge);
        }
        Ok(this)
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn value(&self, key: &str) -> Option<&[u8]> {
        self.by_key.get(key).map(AsRef::as_ref)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &[u8])> {
        self.by_key.iter().map(|(key, value)| (key, value.as_ref()))
    }
}

/// Whether an endpoint or a card is this resource's own. What cannot be read is left to the reducer, which counts it;
/// the ids of events are publishers'.
fn belongs(key: &str, value: &str, id: InstanceId) -> bool {
    let contradicts = |refusal: &Refusal| *refusal == Refusal::Mismatch(Mismatch::Id);
    match Key::parse(key) {
        Ok(Key::Instance { at }) => {
            at.id == id && !records::instance(&at, value).as_ref().is_err_and(contradicts)
        }
        Ok(Key::Card { at, suffix }) => {
            let read = records::model(&at, suffix, value);
            at.id == id && !read.as_ref().is_err_and(contradicts)
        }
        Ok(Key::Channel { .. } | Key::Source { .. }) | Err(_) => true,
    }
}

/// The key in etcd. Channels of old writers have a path of four parts without a scope; today's begin with the scope.
fn key_of(bucket: Bucket, path: &str) -> String {
    let events = match bucket {
        Bucket::EventChannels | Bucket::EventSources => true,
        Bucket::Instances | Bucket::Cards => false,
    };
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        [namespace, component, topic, id] if events && !path.starts_with("namespace/") => {
            let component = if component.is_empty() {
                String::new()
            } else {
                format!("/component/{component}")
            };
            format!(
                "{}/namespace/{namespace}{component}/topic/{topic}/{id}",
                bucket.as_str()
            )
        }
        _ => format!("{}/{path}", bucket.as_str()),
    }
}

//! RouterConfigs as the API server has them, of which some may be such that this operator cannot read them: an answer to a
//! list is one text, and one bad object in it must not take the others along.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use continuum_crds::{RouterConfig, spec::RouterConfigSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Resource,
    api::ObjectMeta,
    runtime::{
        reflector::{ObjectRef, Store},
        watcher::Event,
    },
};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::value::RawValue;

use super::key_of;
use crate::{push::Key, routerconfig::Metrics};

/// A RouterConfig, or what is known of one that cannot be read.
#[derive(Clone, Debug)]
pub(super) struct Guarded(Result<RouterConfig, Box<Unreadable>>);

#[derive(Clone, Debug)]
struct Unreadable {
    metadata: ObjectMeta,
    why: String,
}

/// What one watch has seen of such objects.
pub(super) struct Filter {
    /// Those that cannot be read, so that each is told of once.
    unreadable: BTreeSet<Key>,
    /// Of them, those in the list that is being read.
    listed: BTreeSet<Key>,
    /// The readable ones.
    last: Store<RouterConfig>,
    metrics: Metrics,
}

impl Filter {
    pub(super) fn new(last: Store<RouterConfig>, metrics: Metrics) -> Self {
        Self {
            unreadable: BTreeSet::new(),
            listed: BTreeSet::new(),
            last,
            metrics,
        }
    }

    /// What can be read of an event. One that cannot be read is left alone: it stays as it was last known, but for its
    /// deletion, of which the metadata tell all.
    pub(super) fn take(&mut self, event: Event<Guarded>) -> Option<Event<RouterConfig>> {
        let before = self.unreadable.len();
        let taken = match event {
            Event::Init => {
                self.listed.clear();
                Some(Event::Init)
            }
            Event::InitApply(object) => {
                let key = object.key();
                let read = self.read(object);
                if self.unreadable.contains(&key) {
                    self.listed.insert(key);
                }
                // What is missing in a list is taken for gone.
                read.map_or_else(|last| last.map(|last| (*last).clone()), Some)
                    .map(Event::InitApply)
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                self.unreadable.retain(|key| listed.contains(key));
                Some(Event::InitDone)
            }
            Event::Apply(object) => self.read(object).ok().map(Event::Apply),
            Event::Delete(object) => {
                self.unreadable.remove(&object.key());
                Some(Event::Delete(object.bare()))
            }
        };
        self.metrics.unreadable(before, self.unreadable.len());
        taken
    }

    /// The object, or how it was when it could last be read.
    fn read(&mut self, object: Guarded) -> Result<RouterConfig, Option<Arc<RouterConfig>>> {
        let key = object.key();
        let unreadable = match object.0 {
            Ok(object) => {
                if self.unreadable.remove(&key) {
                    tracing::info!(routerconfig = %key, "can be read again");
                }
                return Ok(object);
            }
            Err(unreadable) => unreadable,
        };
        let Unreadable { metadata, why } = *unreadable;
        if self.unreadable.insert(key.clone()) {
            tracing::warn!(routerconfig = %key, why, "a RouterConfig cannot be read and is left alone");
        }
        if metadata.deletion_timestamp.is_some() {
            return Ok(bare(metadata));
        }
        let reference = ObjectRef::new(&key.name).within(&key.namespace);
        let last = self.last.get(&reference);
        Err(last.filter(|last| last.metadata.uid == metadata.uid))
    }
}

impl Guarded {
    fn key(&self) -> Key {
        key_of(self)
    }

    fn bare(self) -> RouterConfig {
        self.0.unwrap_or_else(|unreadable| bare(unreadable.metadata))
    }
}

fn bare(metadata: ObjectMeta) -> RouterConfig {
    RouterConfig {
        metadata,
        spec: RouterConfigSpec::default(),
        status: None,
    }
}

impl<'de> Deserialize<'de> for Guarded {
    /// First as text, whatever is in it: objects may be nested more deeply than a reader goes.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let why = match serde_json::from_str(text.get()) {
            Ok(object) => return Ok(Self(Ok(object))),
            Err(error) => error.to_string(),
        };
        let Partial { metadata } = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        Ok(Self(Err(Box::new(Unreadable {
            metadata: metadata.into(),
            why,
        }))))
    }
}

/// The part that the API server has checked.
#[derive(Deserialize)]
struct Partial {
    metadata: Metadata,
}

/// What is needed of metadata: the rest, such as who owns which field, is as deep as the object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    annotations: Option<BTreeMap<String, String>>,
}

impl From<Metadata> for ObjectMeta {
    fn from(metadata: Metadata) -> Self {
        Self {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            generation: metadata.generation,
            deletion_timestamp: metadata.deletion_timestamp,
            finalizers: metadata.finalizers,
            annotations: metadata.annotations,
            ..Self::default()
        }
    }
}

impl Resource for Guarded {
    type DynamicType = ();
    type Scope = <RouterConfig as Resource>::Scope;

    fn kind(of: &()) -> Cow<'_, str> {
        RouterConfig::kind(of)
    }

    fn group(of: &()) -> Cow<'_, str> {
        RouterConfig::group(of)
    }

    fn version(of: &()) -> Cow<'_, str> {
        RouterConfig::version(of)
    }

    fn plural(of: &()) -> Cow<'_, str> {
        RouterConfig::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => &object.metadata,
            Err(unreadable) => &unreadable.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => &mut object.metadata,
            Err(unreadable) => &mut unreadable.metadata,
        }
    }
}

#[cfg(test)]
mod tests;

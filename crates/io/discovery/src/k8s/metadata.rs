//! The source `kubernetes`: `DynamoWorkerMetadata` resources joined with the readiness of their pods.
//!
//! Readiness comes from EndpointSlices. Only a resource of a container (its name is not its pod's) needs the Pods
//! themselves, so they are listed and watched once such a resource has been seen: a fleet in pod mode costs the API
//! server no watch of its pods, and us no permission for them.

use continuum_fleet::kubernetes::{self, metadata::Join};

use tokio::task::spawn_blocking;

use super::{
    Settings,
    client::{Connector, ENABLED, Reader, Resource},
    objects::{MetadataObject, PodObject, SliceObject},
    pass::{SharedJoin, batch, follow, lost_task, turn, unreadable},
    watch::{Event, Events},
};
use crate::{
    error::Error,
    source::{Batch, Lost, Over, Seed, Source, Watch},
};

/// The source. Its join outlives passes: it remembers what a resource said before it became unreadable.
pub struct Kubernetes {
    settings: Settings,
    connector: Connector,
    join: SharedJoin<Join>,
    /// The log knows that Pods may not be read.
    denied_said: bool,
}

/// The open watches of a pass.
pub struct KubernetesWatch {
    join: SharedJoin<Join>,
    metadata: Events,
    slices: Events,
    /// `None`: nobody needs them, or they may not be read.
    pods: Option<Events>,
    /// Whether a resource that needs Pods is a reason to list again.
    may_widen: bool,
    widen: bool,
}

/// A list of Pods and its watch.
type Pods = Option<(Vec<kubernetes::Pod>, Events)>;

impl Kubernetes {
    /// Reads the namespace of `settings`.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            connector: Connector::new(settings.credentials.clone()),
            join: SharedJoin::new(Join::new(settings.limits)),
            settings,
            denied_said: false,
        }
    }

    /// Lists Pods and opens their watch. Without the permission the fleet is joined as far as it goes: the resources
    /// of pods are, those of containers are refused.
    async fn pods(&mut self, reader: &Reader, lost: &mut Lost) -> Result<Pods, Error> {
        match follow::<kubernetes::Pod>(reader, Resource::Pods, Some(ENABLED), &self.settings, lost).await {
            Ok((listed, events)) => Ok(Some((listed.items, events))),
            Err(denied @ Error::Forbidden { .. }) => {
                if !std::mem::replace(&mut self.denied_said, true) {
                    tracing::warn!(
                        error = denied.to_string(),
                        "workers in container mode are refused, their pods cannot be read"
                    );
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl Source for Kubernetes {
    type Watch = KubernetesWatch;

    async fn open(&mut self) -> Result<(Seed, KubernetesWatch), Error> {
        let reader = self.connector.connect(&self.settings.namespace).await?;
        let mut lost = Lost::default();
        let (metadata, metadata_events) =
            follow::<kubernetes::Metadata>(&reader, Resource::Metadata, None, &self.settings, &mut lost)
                .await?;
        let (slices, slice_events) = follow::<kubernetes::Slice>(
            &reader,
            Resource::Slices,
            Some(ENABLED),
            &self.settings,
            &mut lost,
        )
        .await?;
        let metadata = metadata.items;
        let wants_pods = metadata.iter().any(is_of_a_container);
        let pods = if wants_pods {
            self.pods(&reader, &mut lost).await?
        } else {
            None
        };
        let (pods, pod_events) = pods.map_or((None, None), |(pods, events)| (Some(pods), Some(events)));
        let slices = slices.items;
        // Thousands of cards: streams of clients must not wait for that.
        let join = self.join.clone();
        let joined = spawn_blocking(move || {
            let mut join = join.lock();
            let (entries, notes) = join.reset(metadata, slices, pods.unwrap_or_default());
            (entries, notes, join.refused())
        });
        let (entries, notes, refused) = joined.await.map_err(lost_task)?;
        let watch = KubernetesWatch {
            join: self.join.clone(),
            metadata: metadata_events,
            slices: slice_events,
            pods: pod_events,
            may_widen: !wants_pods,
            widen: false,
        };
        let seed = Seed {
            entries,
            lost,
            notes,
            refused,
        };
        Ok((seed, watch))
    }
}

fn is_of_a_container(resource: &kubernetes::Metadata) -> bool {
    let owner = resource.owner.as_ref();
    owner.is_some_and(|owner| owner.name != resource.name)
}

impl Watch for KubernetesWatch {
    async fn next(&mut self) -> Result<Batch, Error> {
        if std::mem::take(&mut self.widen) {
            return Ok(Batch {
                over: Some(Over::Widen),
                ..Batch::default()
            });
        }
        tokio::select! {
            event = self.metadata.next::<MetadataObject>() => Ok(self.metadata_event(event?)),
            event = self.slices.next::<SliceObject>() => Ok(self.slice_event(event?)),
            event = next_of(self.pods.as_mut()) => Ok(self.pod_event(event?)),
        }
    }
}

impl KubernetesWatch {
    fn metadata_event(&mut self, event: Event<MetadataObject>) -> Batch {
        let mut join = self.join.lock();
        match event {
            Event::Put(object) => {
                let changed = join.put_metadata(object.into());
                self.widen = self.may_widen && join.needs_pods();
                batch(changed, join.refused())
            }
            Event::Delete(object) => {
                let changed = join.remove_metadata(&object.metadata.name);
                batch(changed, join.refused())
            }
            Event::Unreadable => unreadable(),
            Event::Over => turn(),
        }
    }

    fn slice_event(&self, event: Event<SliceObject>) -> Batch {
        let mut join = self.join.lock();
        match event {
            Event::Put(object) => {
                let changed = join.put_slice(object.into());
                batch(changed, join.refused())
            }
            Event::Delete(object) => {
                let changed = join.remove_slice(&object.metadata.name);
                batch(changed, join.refused())
            }
            Event::Unreadable => unreadable(),
            Event::Over => turn(),
        }
    }

    fn pod_event(&self, event: Event<PodObject>) -> Batch {
        let mut join = self.join.lock();
        match event {
            Event::Put(object) => {
                let changed = join.put_pod(object.into());
                batch(changed, join.refused())
            }
            Event::Delete(object) => {
                let changed = join.remove_pod(&object.metadata.name);
                batch(changed, join.refused())
            }
            Event::Unreadable => unreadable(),
            Event::Over => turn(),
        }
    }
}

/// The next event of a watch that there may not be.
async fn next_of(events: Option<&mut Events>) -> Result<Event<PodObject>, Error> {
    match events {
        Some(events) => events.next().await,
        None => std::future::pending().await,
    }
}

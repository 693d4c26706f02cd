//! The source `kubernetes_pods`: Pods with the labels of Dynamo's operator, for where its resources may not be read.

use continuum_fleet::{
    ids::Graph,
    kubernetes::{
        self,
        pods::{self, Join},
    },
};
use tokio::task::spawn_blocking;

use super::{
    Settings,
    client::{Connector, ENABLED, Resource},
    objects::PodObject,
    pass::{SharedJoin, batch, follow, lost_task, turn, unreadable},
    watch::{Event, Events},
};
use crate::{
    error::Error,
    source::{Batch, Lost, Seed, Source, Watch},
};

/// The source.
pub struct KubernetesPods {
    settings: Settings,
    selector: String,
    connector: Connector,
    join: SharedJoin<Join>,
}

/// The open watch of a pass.
pub struct KubernetesPodsWatch {
    join: SharedJoin<Join>,
    pods: Events,
}

impl KubernetesPods {
    /// Reads the namespace of `settings`; `fleet` says whose pods they are and what they serve.
    #[must_use]
    pub fn new(settings: Settings, fleet: pods::Settings) -> Self {
        Self {
            connector: Connector::new(settings.credentials.clone()),
            selector: selector(&fleet.namespaces),
            join: SharedJoin::new(Join::new(fleet)),
            settings,
        }
    }
}

impl Source for KubernetesPods {
    type Watch = KubernetesPodsWatch;

    fn look_for(&mut self, namespaces: &[Graph]) {
        let names: Vec<String> = namespaces.iter().map(|name| name.as_str().to_owned()).collect();
        self.selector = selector(&names);
        self.join.lock().look_for(names);
    }

    async fn open(&mut self) -> Result<(Seed, KubernetesPodsWatch), Error> {
        let reader = self.connector.connect(&self.settings.namespace).await?;
        let mut lost = Lost::default();
        let (listed, pods) = follow::<kubernetes::Pod>(
            &reader,
            Resource::Pods,
            Some(&self.selector),
            &self.settings,
            &mut lost,
        )
        .await?;
        let join = self.join.clone();
        let (entries, notes, refused) = spawn_blocking(move || {
            let mut join = join.lock();
            let (entries, notes) = join.reset(listed.items);
            (entries, notes, join.refused())
        })
        .await
        .map_err(lost_task)?;
        let watch = KubernetesPodsWatch {
            join: self.join.clone(),
            pods,
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

impl Watch for KubernetesPodsWatch {
    async fn next(&mut self) -> Result<Batch, Error> {
        let event = self.pods.next::<PodObject>().await?;
        let mut join = self.join.lock();
        Ok(match event {
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
        })
    }
}

/// Selects the Pods of Dynamo namespaces.
fn selector(namespaces: &[String]) -> String {
    format!(
        "nvidia.com/dynamo-discovery-backend=kubernetes,{ENABLED},nvidia.com/dynamo-namespace in ({})",
        namespaces.join(",")
    )
}

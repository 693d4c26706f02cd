//! Which APIs the cluster has that not every cluster has.

use kube::Client;
use tokio::{sync::Mutex, time::Instant};

use crate::routerconfig::limits::API_CHECKED_EVERY;

/// Whether PodMonitors exist here: asked again from time to time, since a monitoring stack comes and goes.
#[derive(Default)]
pub(super) struct PodMonitors(Mutex<Option<(Instant, bool)>>);

impl PodMonitors {
    pub(super) async fn exist(&self, client: &Client) -> bool {
        let mut known = self.0.lock().await;
        if let Some((at, exists)) = *known
            && at.elapsed() < API_CHECKED_EVERY
        {
            return exists;
        }
        let listed = client.list_api_group_resources("monitoring.coreos.com/v1").await;
        let exists = match (listed, *known) {
            (Ok(list), _) => list
                .resources
                .iter()
                .any(|resource| resource.kind == "PodMonitor"),
            (Err(kube::Error::Api(status)), _) if status.code == 404 => false,
            (Err(_), before) => before.is_some_and(|(_, exists)| exists),
        };
        *known = Some((Instant::now(), exists));
        exists
    }
}

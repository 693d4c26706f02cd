//! Which APIs the cluster has that not every cluster has.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::Client;
use tokio::time::Instant;

use crate::routerconfig::limits::API_CHECKED_EVERY;

/// Whether PodMonitors exist here: asked again from time to time, since a monitoring stack comes and goes.
#[derive(Default)]
pub(super) struct PodMonitors(Mutex<Known>);

#[derive(Clone, Copy, Default)]
struct Known {
    /// When it was asked last.
    asked: Option<Instant>,
    /// What was answered last.
    exist: Option<bool>,
}

impl PodMonitors {
    /// `None`: nobody knows, since it could not be asked yet.
    pub(super) async fn exist(&self, client: &Client) -> Option<bool> {
        {
            let mut known = self.lock();
            let lately = |at: Instant| at.elapsed() < API_CHECKED_EVERY;
            if known.exist.is_some() && known.asked.is_some_and(lately) {
                return known.exist;
            }
            // Others believe the last answer until there is a new one.
            known.asked = Some(Instant::now());
        }
        let answer = match client.list_api_group_resources("monitoring.coreos.com/v1").await {
            Ok(list) => {
                let mut resources = list.resources.iter();
                Some(resources.any(|resource| resource.kind == "PodMonitor"))
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Some(false),
            Err(error) => {
                tracing::debug!(%error, "it cannot be asked whether there are PodMonitors");
                None
            }
        };
        let mut known = self.lock();
        known.exist = answer.or(known.exist);
        known.exist
    }

    pub(super) fn are_known(&self) -> bool {
        self.lock().exist.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicU16, Ordering},
        },
        time::Duration,
    };

    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// An API server that answers with that status; 0 is none at all.
    fn client(code: &Arc<AtomicU16>) -> Client {
        let code = Arc::clone(code);
        let service = tower::service_fn(move |_: Request<Body>| {
            let code = code.load(Ordering::Relaxed);
            async move {
                if code == 0 {
                    std::future::pending::<()>().await;
                }
                let answer = json!({
                    "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "monitoring.coreos.com/v1",
                    "status": "Failure", "code": code, "reason": "", "message": "",
                    "resources": [{
                        "name": "podmonitors", "singularName": "podmonitor", "namespaced": true, "kind": "PodMonitor",
                        "verbs": ["get"],
                    }],
                });
                let status = StatusCode::from_u16(code).unwrap();
                let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
                *response.status_mut() = status;
                Ok::<_, Infallible>(response)
            }
        });
        Client::new(service, "n")
    }

    #[tokio::test(start_paused = true)]
    async fn what_could_not_be_asked_is_not_known() {
        let code = Arc::new(AtomicU16::new(500));
        let client = client(&code);
        let known = PodMonitors::default();
        assert_eq!(known.exist(&client).await, None);
        assert!(!known.are_known());
        code.store(200, Ordering::Relaxed);
        assert_eq!(known.exist(&client).await, Some(true), "asked again at once");
        code.store(500, Ordering::Relaxed);
        tokio::time::advance(API_CHECKED_EVERY).await;
        assert_eq!(known.exist(&client).await, Some(true), "as it was");
        code.store(404, Ordering::Relaxed);
        tokio::time::advance(API_CHECKED_EVERY).await;
        assert_eq!(known.exist(&client).await, Some(false));
        // Who asks holds nobody up.
        code.store(0, Ordering::Relaxed);
        tokio::time::advance(API_CHECKED_EVERY).await;
        let mut asking = Box::pin(known.exist(&client));
        let moment = Duration::from_secs(1);
        assert!(tokio::time::timeout(moment, &mut asking).await.is_err());
        let answer = tokio::time::timeout(moment, known.exist(&client)).await;
        assert_eq!(answer.unwrap(), Some(false));
    }
}

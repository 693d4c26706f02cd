//! Statuses on their way to the API server, some at a time.

mod queue;

use std::{pin::pin, sync::Arc};

use continuum_crds::{RouterConfig, RouterConfigStatus, conditions::Reason};
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use kube::{
    Api, Client, Resource as _, ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::events::{Event, EventType, Recorder},
};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use self::queue::Queue;
use super::{
    Merged, Transition,
    failing::Failing,
    limits::{MAX_NOTE_CHARS, WRITE},
};
use crate::{
    leader::while_leading,
    push::Key,
    routerconfig::{MANAGER, Metrics, memory::Memory, reason_of},
};

/// What to write.
pub(super) struct Write {
    /// Of this one.
    pub(super) object: Arc<RouterConfig>,
    /// It had none before.
    pub(super) first: bool,
    /// Counts are new.
    pub(super) counts_moved: bool,
    pub(super) merged: Merged,
}

/// Those that are being written, and those that wait for their turn.
pub(super) struct Writes {
    publisher: Arc<Publisher>,
    metrics: Metrics,
    queue: Queue<Write>,
    running: FuturesUnordered<BoxFuture<'static, (Key, Outcome)>>,
    failing: Failing,
}

/// Writes one.
pub(super) struct Publisher {
    pub(super) client: Client,
    pub(super) leads: watch::Receiver<bool>,
    pub(super) memory: Arc<Memory>,
    pub(super) recorder: Recorder,
}

enum Outcome {
    Written,
    /// Nobody wants it any more.
    Left,
    Failed {
        reason: Reason,
        error: String,
    },
}

impl Writes {
    pub(super) fn new(publisher: Publisher, metrics: Metrics) -> Self {
        Self {
            publisher: Arc::new(publisher),
            metrics,
            queue: Queue::default(),
            running: FuturesUnordered::new(),
            failing: Failing::default(),
        }
    }

    /// Whether its status is being written: what is to be said after that is not known yet.
    pub(super) fn is_busy(&self, key: &Key) -> bool {
        self.queue.is_busy(key)
    }

    /// What is to be written from now on, in place of what waits still.
    pub(super) fn put(&mut self, wanted: Vec<(Key, Write)>) {
        self.queue.put(wanted);
    }

    /// Keeps what is known of those that are still there.
    pub(super) fn retain(&mut self, there: impl Fn(&Key) -> bool) {
        self.queue.retain(&there);
        self.failing.retain(&there);
    }

    /// Another replica writes them.
    pub(super) fn clear(&mut self) {
        self.queue.put(Vec::new());
        self.queue.retain(|_| false);
        self.failing = Failing::default();
    }

    /// Writes until then. What has begun goes on the next time.
    pub(super) async fn until<T>(&mut self, then: impl Future<Output = T>) -> T {
        let mut then = pin!(then);
        loop {
            while let Some((key, write)) = self.queue.begin() {
                let publisher = Arc::clone(&self.publisher);
                let run = async move {
                    let outcome = publisher.publish(&key, write).await;
                    (key, outcome)
                };
                self.running.push(run.boxed());
            }
            tokio::select! {
                then = &mut then => return then,
                Some((key, outcome)) = self.running.next() => self.ended(&key, outcome),
            }
        }
    }

    fn ended(&mut self, key: &Key, outcome: Outcome) {
        self.queue.ended(key);
        match outcome {
            Outcome::Written => {
                self.metrics.wrote_status();
                if let Some(reason) = self.failing.succeeded(key) {
                    tracing::info!(reason = reason.as_str(), "statuses are written again");
                }
            }
            Outcome::Left => {}
            Outcome::Failed { reason, error } => {
                self.metrics.status_failed(reason);
                if self.failing.failed(key, reason) {
                    tracing::warn!(
                        routerconfig = %key,
                        reason = reason.as_str(),
                        error,
                        "a status cannot be written, and is tried again; others that fail alike are not told of"
                    );
                }
            }
        }
    }
}

impl Publisher {
    async fn publish(&self, key: &Key, what: Write) -> Outcome {
        let Write {
            object,
            first,
            counts_moved,
            merged,
        } = what;
        let write = timeout(WRITE, self.write(&object, &merged.status));
        let version = match while_leading(&self.leads, write).await {
            None => return Outcome::Left,
            Some(Ok(Ok(version))) => version,
            // It was deleted, or there is another one of that name now.
            Some(Ok(Err(kube::Error::Api(status)))) if status.code == 404 || status.code == 409 => {
                return Outcome::Left;
            }
            Some(Ok(Err(error))) => {
                return Outcome::Failed {
                    reason: reason_of(&error),
                    error: error.to_string(),
                };
            }
            Some(Err(_elapsed)) => {
                return Outcome::Failed {
                    reason: Reason::ApiUnavailable,
                    error: format!("it has not been written within {} s", WRITE.as_secs()),
                };
            }
        };
        self.memory.amend(key, |entry| {
            if counts_moved {
                entry.counted = Some(Instant::now());
            }
            entry.written = Some((merged.status, version));
        });
        let tell = async {
            for transition in &merged.transitions {
                self.tell(key, &object, transition, first).await;
            }
        };
        if timeout(WRITE, tell).await.is_err() {
            tracing::debug!(routerconfig = %key, "Events could not be written in time");
        }
        Outcome::Written
    }

    async fn write(&self, object: &RouterConfig, status: &RouterConfigStatus) -> Result<String, kube::Error> {
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<RouterConfig> = Api::namespaced(self.client.clone(), namespace);
        let patch = json!({
            "apiVersion": "router.continuum.dev/v1alpha1",
            "kind": "RouterConfig",
            "metadata": { "uid": object.metadata.uid },
            "status": status,
        });
        let params = PatchParams::apply(MANAGER).force();
        let live = api
            .patch_status(&object.name_any(), &params, &Patch::Apply(&patch))
            .await?;
        Ok(live.metadata.resource_version.unwrap_or_default())
    }

    /// Says a transition in the log and as an Event.
    async fn tell(&self, key: &Key, object: &RouterConfig, transition: &Transition, first: bool) {
        let Transition {
            condition,
            reason,
            message,
        } = transition;
        tracing::info!(
            routerconfig = %key,
            condition = condition.as_str(),
            status = reason.status(),
            reason = reason.as_str(),
            message,
            "condition changed"
        );
        // What a new RouterConfig waits for is no news; `Accepted` and what is wrong is.
        if first && !matches!(reason, Reason::Valid | Reason::ValidWithWarnings) && !is_bad(*reason) {
            return;
        }
        let note: String = message.chars().take(MAX_NOTE_CHARS).collect();
        let event = Event {
            type_: if is_bad(*reason) {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: reason.as_str().to_owned(),
            note: Some(note),
            action: condition.as_str().to_owned(),
            secondary: None,
        };
        let about = object.object_ref(&());
        if let Err(error) = self.recorder.publish(&event, &about).await {
            tracing::debug!(routerconfig = %key, %error, "an Event could not be written");
        }
    }
}

/// Whether users should look.
fn is_bad(reason: Reason) -> bool {
    let degraded = reason.condition() == continuum_crds::conditions::ConditionType::Degraded;
    (reason.status() == "False") != degraded && reason.status() != "Unknown"
}

#[cfg(test)]
mod tests;

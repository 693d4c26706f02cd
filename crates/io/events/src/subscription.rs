//! Keeping one connection up: connect, run, wait, again; and what a direct publisher's messages mean.

use std::sync::Arc;

use continuum_fleet::{
    ids::{Namespace, PublisherId},
    view::Topic,
};
use continuum_runtime::backoff::Backoff;
use continuum_wire::{ActiveLoad, Delivery, Expected, Limits, Refusal, zmtp::Message};
use tokio::time::{Instant, sleep};

use crate::{
    client::{self, Ended, Handler, Topics},
    connector::{self, Connector, Target},
    limits::{RECONNECT_INITIAL, RECONNECT_MAX},
    metrics::{Metrics, Outcome},
    sequence::{Step, step},
    sink::LoadSink,
    status::{Mark, State},
};

/// A handler that outlives its connections.
pub(crate) trait Session: Handler {
    /// The connection that was ready is gone.
    fn lost(&mut self);
}

/// One connection that is kept up.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) target: Target,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) limits: Limits,
    pub(crate) metrics: Metrics,
    pub(crate) mark: Mark,
    pub(crate) backoff: Backoff,
}

/// The wait between two connections of a subscription.
pub(crate) fn backoff() -> Backoff {
    Backoff::new(RECONNECT_INITIAL, RECONNECT_MAX)
}

impl Line {
    /// Connects again and again. Ends only by being dropped.
    pub(crate) async fn keep(mut self, mut topics: impl FnMut() -> Topics, session: &mut impl Session) {
        let mut complaint = Complaint::default();
        loop {
            self.mark.set(State::Connecting);
            match self.connector.connect(&self.target).await {
                Ok(stream) => {
                    let mut watched = Watched {
                        session: &mut *session,
                        mark: &self.mark,
                        complaint: &mut complaint,
                        target: &self.target,
                        ready: None,
                    };
                    let ended = client::run(stream, self.limits, topics(), &mut watched).await;
                    if let Some(since) = watched.ready {
                        session.lost();
                        self.backoff.session_ended(since.elapsed());
                    }
                    if matches!(ended, Ended::Refused(_)) {
                        self.metrics.count(Outcome::TransportRefused);
                    }
                    complaint.ended(&self.target, &ended);
                }
                Err(error) => {
                    if error.is_refusal() {
                        self.metrics.count(Outcome::TransportRefused);
                    }
                    complaint.unreachable(&self.target, &error);
                }
            }
            self.mark.set(State::Backoff);
            sleep(self.backoff.delay()).await;
        }
    }
}

/// Notes the moment of readiness on the way to the session.
struct Watched<'a, S> {
    session: &'a mut S,
    mark: &'a Mark,
    complaint: &'a mut Complaint,
    target: &'a Target,
    ready: Option<Instant>,
}

impl<S: Session> Handler for Watched<'_, S> {
    fn ready(&mut self) {
        self.ready = Some(Instant::now());
        self.mark.set(State::Connected);
        self.complaint.recovered(self.target);
        self.session.ready();
    }

    fn message(&mut self, message: &Message<'_>) {
        self.session.message(message);
    }
}

/// What has been said of this line; a condition that lasts is said once.
#[derive(Debug, Default)]
struct Complaint {
    said: Option<String>,
}

impl Complaint {
    fn ended(&mut self, target: &Target, ended: &Ended) {
        self.say(target, ended.to_string());
    }

    fn unreachable(&mut self, target: &Target, error: &connector::Error) {
        self.say(target, error.to_string());
    }

    fn say(&mut self, target: &Target, reason: String) {
        tracing::debug!(endpoint = %target.endpoint, reason, "load subscription down");
        if self.said.as_ref() != Some(&reason) {
            tracing::warn!(
                publisher = target.publisher.map(PublisherId::hex),
                namespace = target.namespace.as_ref().map(Namespace::as_str),
                reason,
                "load subscription down, connecting again"
            );
            self.said = Some(reason);
        }
    }

    fn recovered(&mut self, target: &Target) {
        let (publisher, namespace) = (
            target.publisher.map(PublisherId::hex),
            target.namespace.as_ref().map(Namespace::as_str),
        );
        if self.said.take().is_some() {
            tracing::info!(publisher, namespace, "load subscription up again");
        } else {
            tracing::debug!(publisher, namespace, endpoint = %target.endpoint, "load subscription up");
        }
    }
}

/// What the messages of one publisher mean.
pub(crate) struct Publisher {
    pub(crate) id: PublisherId,
    pub(crate) namespace: Namespace,
    pub(crate) sink: Arc<dyn LoadSink>,
    pub(crate) metrics: Metrics,
    live: bool,
    last: Option<u64>,
}

impl Publisher {
    pub(crate) fn new(
        id: PublisherId,
        namespace: Namespace,
        sink: Arc<dyn LoadSink>,
        metrics: Metrics,
    ) -> Self {
        Self {
            id,
            namespace,
            sink,
            metrics,
            live: false,
            last: None,
        }
    }

    fn accept(&mut self, message: &Message<'_>) -> Result<Outcome, Refusal> {
        let topic = Topic::KvMetrics.as_str();
        let expected = Expected {
            topic,
            first_frame: Some(topic.as_bytes()),
            publisher: Some(self.id),
        };
        let delivery = Delivery::decode(message, &expected, &Limits::KV_METRICS)?;
        let position = step(self.last, delivery.sequence);
        if position == Step::Duplicate {
            return Ok(Outcome::Duplicate);
        }
        // A sample that does not decode leaves its number open: the next one shows the gap.
        let load = ActiveLoad::decode(&delivery.payload, &Limits::KV_METRICS)?;
        self.last = Some(delivery.sequence);
        if position == Step::Gap {
            self.metrics.count(Outcome::Gap);
            self.sink.forget(self.id);
        }
        Ok(self
            .sink
            .apply(self.id, &self.namespace, delivery.sequence, &load)
            .into())
    }
}

impl Handler for Publisher {
    fn ready(&mut self) {
        self.last = None;
        self.live = true;
        self.sink.forget(self.id);
        self.sink.subscribed(self.id, true);
    }

    fn message(&mut self, message: &Message<'_>) {
        let outcome = self.accept(message).unwrap_or_else(Outcome::Refused);
        self.metrics.count(outcome);
    }
}

impl Session for Publisher {
    fn lost(&mut self) {
        if std::mem::take(&mut self.live) {
            self.sink.subscribed(self.id, false);
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.lost();
    }
}

#[cfg(test)]
mod tests;

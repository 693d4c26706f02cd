//! Keeping one connection up: connect, run, wait, again; and what a direct publisher's messages mean.

use std::{
    future::{Future, pending},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use continuum_fleet::{
    ids::{Namespace, PublisherId},
    view::Topic,
};
use continuum_runtime::backoff::Backoff;
use continuum_wire::{
    ActiveLoad, Budget, Delivery, Expected, Limits, Refusal,
    zmtp::{self, Message},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    client::{self, Ended, Handler, Topics},
    connector::{Connector, Target},
    limits::{BLOCK_EVENTS_STALE_AFTER, RECONNECT_INITIAL, RECONNECT_MAX},
    metrics::{Lines, Metrics, Outcome},
    outages::{Complaint, Outages},
    sequence::{Step, step},
    settings::Settings,
    sink::LoadSink,
    status::{Mark, State},
};

/// A handler that outlives its connections.
pub(crate) trait Session: Handler {
    /// The connection that was ready is gone.
    fn lost(&mut self);

    /// There has been no connection for [`BLOCK_EVENTS_STALE_AFTER`], or none that lasted or delivered anything. Told
    /// once for each time.
    fn stale(&mut self) {}
}

/// One connection that is kept up.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) target: Target,
    pub(crate) connector: Arc<dyn Connector>,
    /// What messages may be is read for each connection. A change of the settings ends the wait for the next one.
    pub(crate) settings: watch::Receiver<Settings>,
    pub(crate) budget: Option<Budget>,
    pub(crate) lines: Lines,
    pub(crate) mark: Mark,
    pub(crate) backoff: Backoff,
    pub(crate) outages: Arc<Outages>,
}

/// The wait between two connections of a subscription.
pub(crate) fn backoff() -> Backoff {
    Backoff::new(RECONNECT_INITIAL, RECONNECT_MAX)
}

impl Line {
    /// Connects again and again. Ends only by being dropped.
    pub(crate) async fn keep(mut self, mut topics: impl FnMut() -> Topics, session: &mut impl Session) {
        let mut complaint = Complaint::new(&self.outages);
        let mut stale_at = Some(Instant::now() + BLOCK_EVENTS_STALE_AFTER);
        loop {
            self.mark.set(State::Connecting);
            self.settings.mark_unchanged();
            let connecting = self.connector.connect(&self.target);
            match ageing(connecting, &mut stale_at, session).await {
                Ok(stream) => {
                    let mut watched = Watched {
                        session: &mut *session,
                        mark: &self.mark,
                        complaint: &mut complaint,
                        target: &self.target,
                        ready: None,
                        delivered: false,
                    };
                    let budget = self.budget.clone();
                    let limits = self.limits();
                    let ended = client::run(stream, limits, budget, topics(), &mut watched).await;
                    let (ready, delivered) = (watched.ready, watched.delivered);
                    // What changed while it stood is no reason to hurry.
                    self.settings.mark_unchanged();
                    if let Some(since) = ready {
                        session.lost();
                        let lasted = since.elapsed();
                        // Who left a message unfinished has lasted for that alone, and would hold the next one at once.
                        if !matches!(ended, Ended::Unfinished) {
                            self.backoff.session_ended(lasted);
                        }
                        // A peer that shakes hands now and then is as good as away: all that it publishes is lost.
                        if delivered || lasted >= RECONNECT_MAX || stale_at.is_none() {
                            stale_at = Some(Instant::now() + BLOCK_EVENTS_STALE_AFTER);
                        }
                    }
                    match ended {
                        Ended::Refused(zmtp::Error::OverBudget) => self.lines.over_budget(),
                        Ended::Refused(_) => self.lines.transport_refused(),
                        Ended::Closed
                        | Ended::Io(_)
                        | Ended::Handshake
                        | Ended::Silent
                        | Ended::Unfinished
                        | Ended::Stuck => {}
                    }
                    complaint.down(&self.target, ended.to_string());
                }
                Err(error) => {
                    if error.is_refusal() {
                        self.lines.transport_refused();
                    }
                    complaint.down(&self.target, error.to_string());
                }
            }
            self.mark.set(State::Backoff);
            let wait = pause(self.backoff.delay(), &mut self.settings);
            ageing(wait, &mut stale_at, session).await;
        }
    }

    fn limits(&self) -> Limits {
        let limits = self.settings.borrow().limits(self.target.family);
        match self.target.publisher {
            Some(_) => limits,
            None => limits.brokered(),
        }
    }
}

/// Waits before the next connection, and no longer once the settings change: they may be what was wrong.
async fn pause(delay: Duration, settings: &mut watch::Receiver<Settings>) {
    let changed = async {
        if settings.changed().await.is_err() {
            pending::<()>().await;
        }
    };
    tokio::select! {
        () = changed => {}
        () = sleep(delay) => {}
    }
}

/// Waits, and tells the session when it becomes stale meanwhile.
async fn ageing<T>(
    wait: impl Future<Output = T>,
    stale_at: &mut Option<Instant>,
    session: &mut impl Session,
) -> T {
    let mut wait = pin!(wait);
    if let Some(at) = *stale_at {
        tokio::select! {
            biased;
            done = &mut wait => return done,
            () = sleep_until(at) => {
                *stale_at = None;
                session.stale();
            }
        }
    }
    wait.await
}

/// Notes on the way to the session when it was ready, and whether it delivered anything.
struct Watched<'a, S> {
    session: &'a mut S,
    mark: &'a Mark,
    complaint: &'a mut Complaint,
    target: &'a Target,
    ready: Option<Instant>,
    delivered: bool,
}

impl<S: Session> Handler for Watched<'_, S> {
    fn ready(&mut self) {
        self.ready = Some(Instant::now());
        self.mark.set(State::Connected);
        self.complaint.up(self.target);
        self.session.ready();
    }

    fn message(&mut self, message: &Message<'_>) {
        self.delivered = true;
        self.session.message(message);
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
            self.metrics.count(Outcome::Gap, 1);
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
        self.metrics.count(outcome, 1);
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

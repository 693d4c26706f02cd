//! What differs between subscriptions to load samples and subscriptions to block events.

use std::{collections::BTreeMap, sync::Arc};

use continuum_fleet::{
    ids::PublisherId,
    view::{FleetView, Publisher, Topic},
};
use continuum_wire::{Budget, zmtp::Message};
use tokio::sync::watch;

use crate::{
    broker::{Coverage, Group, Subjects},
    client::Handler,
    metrics::{Lines, Metrics},
    settings::Settings,
    sink::LoadSink,
    subscription::{self, Session},
};

/// One topic: where its messages go, and what follows from the view besides subscriptions.
pub(crate) trait Family: Send + Sync + 'static {
    /// What is subscribed to.
    const TOPIC: Topic;
    /// Name of the tasks of publishers.
    const TASK: &'static str;
    /// The stream of one publisher.
    type Direct: Session + Send + 'static;
    /// The streams that a set of brokers relays.
    type Relay: Relay;

    /// What is counted of connections.
    fn lines(&self) -> &Lines;

    /// What the messages of all connections may hold together.
    fn budget(&self) -> Option<Budget> {
        None
    }

    /// Takes over a view, before subscriptions follow it.
    fn follow(&self, _view: &FleetView, _settings: &Settings) {}

    /// A subscription to a publisher begins, or begins again.
    fn direct(&self, publisher: &Publisher, settings: &watch::Receiver<Settings>) -> Self::Direct;

    /// Connections to a set of brokers begin.
    fn relay(&self, settings: &watch::Receiver<Settings>) -> Self::Relay;

    /// Whether something that a publisher tells can be used, as far as its record says.
    fn is_of_use(&self, _publisher: &Publisher) -> bool {
        true
    }

    /// These publishers have a subscription of their own now, others have none any more. Those that are `pending` wait for
    /// one.
    fn subscribed<'a, T>(
        &self,
        _publishers: &BTreeMap<PublisherId, T>,
        _pending: impl Iterator<Item = &'a Publisher>,
    ) {
    }

    /// Does a bounded part of the work that is left behind; says whether there is more.
    fn tidy(&self) -> bool {
        false
    }
}

/// What the connections to one set of brokers share.
pub(crate) trait Relay: Send + Sync + 'static {
    /// Takes over what is asked of the brokers.
    fn ask(&self, subjects: Subjects);
    /// One more connection stands.
    fn connected(&self);
    /// One connection less stands.
    fn lost(&self);
    /// No connection has stood for long, as far as one of them knows.
    fn stale(&self);
    /// A message of any of them.
    fn message(&self, message: &Message<'_>);
    /// The connections have ended for good.
    fn end(&self);
}

/// One connection of a set of brokers.
pub(crate) struct Relayed<R: Relay> {
    relay: Arc<R>,
    live: bool,
}

impl<R: Relay> Relayed<R> {
    pub(crate) const fn new(relay: Arc<R>) -> Self {
        Self { relay, live: false }
    }
}

impl<R: Relay> Handler for Relayed<R> {
    fn ready(&mut self) {
        self.live = true;
        self.relay.connected();
    }

    fn message(&mut self, message: &Message<'_>) {
        self.relay.message(message);
    }
}

impl<R: Relay> Session for Relayed<R> {
    fn lost(&mut self) {
        if std::mem::take(&mut self.live) {
            self.relay.lost();
        }
    }

    fn stale(&mut self) {
        self.relay.stale();
    }
}

impl<R: Relay> Drop for Relayed<R> {
    fn drop(&mut self) {
        self.lost();
    }
}

/// Load samples, brought to a sink.
pub(crate) struct LoadSamples {
    sink: Arc<dyn LoadSink>,
    coverage: Arc<Coverage>,
    metrics: Metrics,
}

impl LoadSamples {
    pub(crate) fn new(sink: Arc<dyn LoadSink>, metrics: Metrics) -> Self {
        Self {
            coverage: Arc::new(Coverage::new(Arc::clone(&sink))),
            sink,
            metrics,
        }
    }
}

impl Family for LoadSamples {
    const TOPIC: Topic = Topic::KvMetrics;
    const TASK: &'static str = "load subscription";
    type Direct = subscription::Publisher;
    type Relay = Group;

    fn lines(&self) -> &Lines {
        self.metrics.lines()
    }

    fn direct(&self, publisher: &Publisher, _settings: &watch::Receiver<Settings>) -> Self::Direct {
        subscription::Publisher::new(
            publisher.key.id,
            publisher.namespace.clone(),
            Arc::clone(&self.sink),
            self.metrics.clone(),
        )
    }

    fn relay(&self, _settings: &watch::Receiver<Settings>) -> Self::Relay {
        Group::new(Arc::clone(&self.coverage), self.metrics.clone())
    }
}

//! Where samples go.

use std::sync::Arc;

use continuum_fleet::ids::{Namespace, PublisherId};
use continuum_routing::{
    Millis,
    load::{Applied, Sample, Store},
};
use continuum_wire::ActiveLoad;
use tokio::time::Instant;

/// Receiver of what subscriptions learn. Called from many tasks, must not block.
pub trait LoadSink: Send + Sync + 'static {
    /// A sample of this publisher, whose scope is in `namespace`.
    fn apply(
        &self,
        publisher: PublisherId,
        namespace: &Namespace,
        sequence: u64,
        load: &ActiveLoad,
    ) -> Applied;

    /// A change of this publisher may have been missed: what it said before is void.
    fn forget(&self, publisher: PublisherId);

    /// Whether a connection to this publisher stands.
    fn subscribed(&self, publisher: PublisherId, live: bool);

    /// Whether a broker connection stands that relays the publishers of this namespace.
    fn broker_covers(&self, namespace: &Namespace, live: bool);
}

/// The load store as a sink. It adds the time of arrival, in the process's own milliseconds.
#[derive(Debug)]
pub struct StoreSink {
    store: Arc<Store>,
    started: Instant,
}

impl StoreSink {
    /// `started` is the zero of the process's [`Millis`].
    #[must_use]
    pub const fn new(store: Arc<Store>, started: Instant) -> Self {
        Self { store, started }
    }
}

impl LoadSink for StoreSink {
    fn apply(
        &self,
        publisher: PublisherId,
        namespace: &Namespace,
        sequence: u64,
        load: &ActiveLoad,
    ) -> Applied {
        let now = Millis(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX));
        let sample = Sample {
            worker: load.worker,
            rank: load.rank,
            active_decode_blocks: load.active_decode_blocks,
            active_prefill_tokens: load.active_prefill_tokens,
            kv_used_blocks: load.kv_used_blocks,
        };
        self.store.apply(publisher, namespace, sequence, &sample, now)
    }

    fn forget(&self, publisher: PublisherId) {
        self.store.forget(publisher);
    }

    fn subscribed(&self, publisher: PublisherId, live: bool) {
        self.store.subscribed(publisher, live);
    }

    fn broker_covers(&self, namespace: &Namespace, live: bool) {
        self.store.broker_covers(namespace, live);
    }
}

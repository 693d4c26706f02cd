//! The store of all ranks.

use continuum_fleet::{
    ids::{Namespace, PublisherId, WorkerKey},
    view::FleetView,
};

use super::{Applied, Booking, Dispatch, Followed, Row, Sample};
use crate::{Millis, picker::Pick};

/// The load of the whole fleet. Shared by `Arc`.
#[derive(Debug, Default)]
pub struct Store {}

impl Store {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes over the set of live ranks from a view: new ones get a key, departed ones leave with their samples
    /// and series, in this one call. Publishers that left the view are forgotten. Call it before
    /// [`Table::follow`](crate::picker::Table::follow).
    pub fn follow(&self, _view: &FleetView) -> Followed {
        Followed::default()
    }

    /// Merges a sample. `namespace` is the worker's own (the publisher's scope).
    pub fn apply(
        &self,
        _publisher: PublisherId,
        _namespace: &Namespace,
        _sequence: u64,
        _sample: &Sample,
        _now: Millis,
    ) -> Applied {
        Applied::IdentityMismatch
    }

    /// Drops every field that this publisher fed: it may have missed a change (each new connection, each gap).
    pub fn forget(&self, _publisher: PublisherId) {}

    /// Says whether a subscription to this publisher is connected. A rank that no live subscription can speak
    /// for is unknown, never quiet. Fields are kept; [`Self::forget`] drops them.
    pub fn subscribed(&self, _publisher: PublisherId, _live: bool) {}

    /// Says whether a broker subscription covers all workers of a namespace.
    pub fn broker_covers(&self, _namespace: &Namespace, _live: bool) {}

    /// Books a dispatch on its ranks. The booking ends when it is dropped, whatever the reason.
    #[must_use]
    pub fn book(&self, _pick: &Pick, _dispatch: Dispatch, _now: Millis) -> Booking {
        Booking {}
    }

    /// A re-pick without this worker succeeded where a pin on it had failed: it is not picked while others can
    /// serve, until one of its ranks speaks or 30 seconds pass.
    pub fn suspect(&self, _worker: &WorkerKey, _now: Millis) {}

    /// Ends the prefill part of buffered requests whose time has come. Picks and [`Self::rows`] call it.
    pub fn advance(&self, _now: Millis) {}

    /// All ranks in order, for gauges and the admin view. `max_staleness` in milliseconds.
    #[must_use]
    pub fn rows(&self, _max_staleness: u64, _now: Millis) -> Vec<Row> {
        Vec::new()
    }
}

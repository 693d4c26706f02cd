//! The part of the status that is about the fleet.

use std::collections::BTreeMap;

use continuum_events::status::State;
use serde::Serialize;

use crate::app::App;

/// Subscriptions by state.
pub(super) type Subscriptions = BTreeMap<&'static str, usize>;

/// How discovery fares.
#[derive(Serialize)]
pub(super) struct Discovery {
    enabled: bool,
    source: Option<&'static str>,
    /// What the controllers watch, with the source `controller`.
    upstream: Option<&'static str>,
    signals: Signals,
    supported: bool,
    namespaces: Vec<String>,
    connected: bool,
    synced: bool,
    stale: bool,
    restarts: u64,
    passes: u64,
    last_error: Option<String>,
    /// Number of the view.
    generation: u64,
    /// Workers by role.
    workers: BTreeMap<&'static str, usize>,
}

/// What the source's records tell.
#[derive(Serialize)]
struct Signals {
    load: bool,
    capacity: bool,
}

impl Discovery {
    pub(super) fn of(app: &App) -> Self {
        let status = app.fleet.status();
        let mut workers = BTreeMap::new();
        for worker in app.fleet.view().workers.values() {
            *workers.entry(worker.role.as_str()).or_default() += 1;
        }
        Self {
            enabled: status.enabled,
            source: status.source.map(continuum_discovery::SourceKind::as_str),
            upstream: status.upstream.map(continuum_discovery::SourceKind::as_str),
            signals: Signals {
                load: status.signals.load,
                capacity: status.signals.capacity,
            },
            supported: status.supported,
            namespaces: status.namespaces.iter().map(ToString::to_string).collect(),
            connected: status.connected,
            synced: status.synced,
            stale: status.stale,
            restarts: status.restarts,
            passes: status.passes,
            last_error: status.last_error.clone(),
            generation: app.fleet.generation(),
            workers,
        }
    }
}

pub(super) fn subscriptions(app: &App) -> Subscriptions {
    let mut states: Subscriptions = State::ALL.map(|state| (state.as_str(), 0)).into();
    for row in app.fleet.subscriptions() {
        *states.entry(row.state.as_str()).or_default() += 1;
    }
    states
}

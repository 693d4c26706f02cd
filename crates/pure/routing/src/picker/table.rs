//! The candidates of every model.

use continuum_fleet::{
    ids::{Graph, ModelName},
    view::FleetView,
};

use super::Served;
use crate::load::Store;

/// The candidates of every model, built from one view. Immutable; cheap to clone.
#[derive(Clone, Debug)]
pub struct Table {}

impl Table {
    /// A table of no fleet. `seed` decides where the cursors start, so that routers do not agree on one worker.
    #[must_use]
    pub const fn new(_seed: u64) -> Self {
        Self {}
    }

    /// The table of `view`. Only models and namespaces that changed since this table are built anew. Call
    /// [`Store::follow`] with the same view first.
    #[must_use]
    pub fn follow(&self, _view: &FleetView, _store: &Store) -> Self {
        Self {}
    }

    /// Names that the fleet serves, by name, then graph.
    #[must_use]
    pub fn served(&self) -> Vec<Served> {
        Vec::new()
    }

    /// Whether a graph has a prefill worker for a name now.
    #[must_use]
    pub const fn has_prefill(&self, _model: &ModelName, _graph: &Graph) -> bool {
        false
    }

    /// Whether every worker of the name in the graph carries a `router_config`, so that unpinned requests may be
    /// sent to its frontends.
    #[must_use]
    pub const fn serves_unpinned(&self, _model: &ModelName, _graph: &Graph) -> bool {
        false
    }

    /// Names that are not served because the table is full.
    #[must_use]
    pub const fn refused_names(&self) -> usize {
        0
    }
}

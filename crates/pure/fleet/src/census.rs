//! A view, counted: what reports and statuses say of a fleet.

use std::collections::BTreeMap;

use crate::view::{FleetView, NameKind, Role};

/// How many there are of what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Prefill workers.
    pub prefill: usize,
    /// Decode workers.
    pub decode: usize,
    /// Aggregated workers.
    pub aggregated: usize,
    /// Encode workers.
    pub encode: usize,
    /// Workers of no known role.
    pub unknown: usize,
    /// Base models of each pool.
    pub models: usize,
    /// Event publishers.
    pub publishers: usize,
    /// Models of which a pool has one half of a pair alone, in the order of pools and names: once for each such pool.
    pub unpaired_models: Vec<String>,
}

/// Which roles serve a model in a pool.
#[derive(Default)]
struct Halves {
    prefill: bool,
    decode: bool,
    aggregated: bool,
}

impl Census {
    /// Counts a view.
    #[must_use]
    pub fn of(view: &FleetView) -> Self {
        let mut of = Self {
            publishers: view.publishers.len(),
            ..Self::default()
        };
        let mut models: BTreeMap<(&str, &str), Halves> = BTreeMap::new();
        for worker in view.workers.values() {
            match worker.role {
                Role::Prefill => of.prefill += 1,
                Role::Decode => of.decode += 1,
                Role::Aggregated => of.aggregated += 1,
                Role::Encode => of.encode += 1,
                Role::Unknown => of.unknown += 1,
            }
            if matches!(worker.role, Role::Encode | Role::Unknown) {
                continue;
            }
            for name in worker.names.iter().filter(|name| name.kind == NameKind::Base) {
                let halves = models
                    .entry((worker.graph.as_str(), name.name.as_str()))
                    .or_default();
                halves.prefill |= worker.role == Role::Prefill;
                halves.decode |= worker.role == Role::Decode;
                halves.aggregated |= worker.role == Role::Aggregated;
            }
        }
        of.models = models.len();
        of.unpaired_models = models
            .iter()
            .filter(|(_, halves)| !halves.aggregated && halves.prefill != halves.decode)
            .map(|((_, model), _)| (*model).to_owned())
            .collect();
        of
    }
}

//! A view, counted.

use std::collections::BTreeMap;

use continuum_fleet::view::{FleetView, NameKind, Role};
use continuum_messages::{limits::MAX_REPORT_TEXTS, push::FleetCounts};

/// What a view holds.
#[must_use]
pub fn counts(view: &FleetView) -> FleetCounts {
    let mut of = FleetCounts {
        publishers: number(view.publishers.len()),
        ..FleetCounts::default()
    };
    let mut models: BTreeMap<(&str, &str), Halves> = BTreeMap::new();
    for worker in view.workers.values() {
        let counter = match worker.role {
            Role::Prefill => &mut of.prefill,
            Role::Decode => &mut of.decode,
            Role::Aggregated => &mut of.aggregated,
            Role::Encode => &mut of.encode,
            Role::Unknown => &mut of.unknown,
        };
        *counter = counter.saturating_add(1);
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
    of.models = number(models.len());
    of.unpaired_models = models
        .iter()
        .filter(|(_, halves)| !halves.aggregated && halves.prefill != halves.decode)
        .map(|((_, model), _)| (*model).to_owned())
        .take(MAX_REPORT_TEXTS)
        .collect();
    of
}

/// Which roles serve a model.
#[derive(Default)]
struct Halves {
    prefill: bool,
    decode: bool,
    aggregated: bool,
}

fn number(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

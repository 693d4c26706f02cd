//! A view, counted, as routers report theirs.

use continuum_fleet::{Census, view::FleetView};
use continuum_messages::{limits::MAX_REPORT_TEXTS, push::FleetCounts};

/// What a view holds.
pub(super) fn counts(view: &FleetView) -> FleetCounts {
    let mut of = Census::of(view);
    of.unpaired_models.truncate(MAX_REPORT_TEXTS);
    FleetCounts {
        prefill: number(of.prefill),
        decode: number(of.decode),
        aggregated: number(of.aggregated),
        encode: number(of.encode),
        unknown: number(of.unknown),
        models: number(of.models),
        publishers: number(of.publishers),
        unpaired_models: of.unpaired_models,
    }
}

fn number(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

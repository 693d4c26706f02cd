//! Fleets for the tests of this crate.

use continuum_fleet::view::{FleetView, Role};
use continuum_testkit::view::worker;

/// So many decode workers.
pub(crate) fn fleet(workers: u64) -> FleetView {
    let mut view = FleetView::default();
    for id in 0..workers {
        let worker = worker("dynamo", id, Role::Decode);
        view.workers.insert(worker.key.clone(), worker);
    }
    view
}

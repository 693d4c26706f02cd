//! The operators' listener.

use std::sync::Arc;

use continuum_runtime::tasks::Spawner;

use crate::{app::App, reload::Reloader, server::Listener};

/// Serves operators and scrapers.
pub fn serve(
    _operators: Listener,
    _scrapers: Option<Listener>,
    _app: Arc<App>,
    _reloader: Arc<Reloader>,
    _spawner: &Spawner,
) {
}

//! The sessions of this process, as the rest of it sees them.

use std::sync::Arc;

use continuum_runtime::{cell::Cell, tasks::Spawner};
use prometheus::Registry;
use tokio::sync::watch;

use crate::{
    addresses::{Lookup, system},
    hub::{Hub, Outlets, keep_views},
    metrics::Metrics,
    report::Report,
    settings::Settings,
    status::Status,
    view::{Pushed, Update},
};

/// The sessions of this process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    pushed: Arc<Cell<Pushed>>,
    status: Arc<Cell<Status>>,
    updates: watch::Receiver<Option<Arc<Update>>>,
}

impl Client {
    /// Starts what follows `settings` from now on, and registers its metrics. `report` is told to every controller,
    /// after each change and again and again.
    ///
    /// # Errors
    /// When metrics of the sessions are registered already.
    pub fn spawn(
        spawner: &Spawner,
        settings: watch::Receiver<Option<Settings>>,
        report: watch::Receiver<Report>,
        registry: &Registry,
    ) -> Result<Self, prometheus::Error> {
        Self::spawn_with(spawner, settings, report, registry, system())
    }

    /// As [`Self::spawn`] with another name service.
    ///
    /// # Errors
    /// When metrics of the sessions are registered already.
    pub fn spawn_with(
        spawner: &Spawner,
        settings: watch::Receiver<Option<Settings>>,
        report: watch::Receiver<Report>,
        registry: &Registry,
        lookup: Lookup,
    ) -> Result<Self, prometheus::Error> {
        let metrics = Metrics::register(registry)?;
        let (to_updates, updates) = watch::channel(None);
        let this = Self {
            pushed: Arc::default(),
            status: Arc::default(),
            updates,
        };
        let outlets = Outlets {
            pushed: Arc::clone(&this.pushed),
            status: Arc::clone(&this.status),
            updates: to_updates,
            metrics,
        };
        let hub = Hub::new(spawner.clone(), report, lookup, outlets);
        let (pushed, wanted) = (Arc::clone(&this.pushed), settings.clone());
        spawner.essential("controllers", |stop| async move {
            hub.run(settings, stop).await;
            Ok(())
        });
        spawner.essential("kept view", |stop| async move {
            keep_views(pushed, wanted, stop).await;
            Ok(())
        });
        Ok(this)
    }

    /// The pushed view.
    #[must_use]
    pub fn pushed(&self) -> Arc<Cell<Pushed>> {
        Arc::clone(&self.pushed)
    }

    /// How the sessions fare.
    #[must_use]
    pub fn status(&self) -> Arc<Cell<Status>> {
        Arc::clone(&self.status)
    }

    /// The newest configuration that came.
    #[must_use]
    pub fn updates(&self) -> watch::Receiver<Option<Arc<Update>>> {
        self.updates.clone()
    }
}

#[cfg(test)]
mod tests;

//! Every family of a controller, in one registry. All labels are closed, and every series is there from the start.

use prometheus::{IntGauge, Registry};

use crate::{certs, fleet, push, routerconfig};

/// Every family of a controller.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// All of them.
    pub registry: Registry,
    pub(crate) push: push::Metrics,
    pub(crate) reconcile: routerconfig::Metrics,
    pub(crate) sources: fleet::Metrics,
    pub(crate) certificates: certs::Metrics,
    pub(crate) leader: IntGauge,
}

impl Metrics {
    /// Registers them.
    ///
    /// # Errors
    /// When a name is used twice.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let leader = IntGauge::new(
            "continuum_controller_leader",
            "1 while this replica writes to the API server",
        )?;
        registry.register(Box::new(leader.clone()))?;
        Ok(Self {
            push: push::Metrics::register(&registry)?,
            reconcile: routerconfig::Metrics::register(&registry)?,
            sources: fleet::Metrics::register(&registry)?,
            certificates: certs::Metrics::register(&registry)?,
            leader,
            registry,
        })
    }
}

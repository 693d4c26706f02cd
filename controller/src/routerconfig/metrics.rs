//! What reconciling costs and why it fails.

use continuum_crds::conditions::Reason;
use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

/// Counters of the reconciler.
#[derive(Clone, Debug)]
pub struct Metrics {
    reconciles: IntCounter,
    errors: IntCounterVec,
    status_writes: IntCounter,
}

impl Metrics {
    /// Registers them.
    ///
    /// # Errors
    /// When they are registered already.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let this = Self {
            reconciles: IntCounter::new(
                "continuum_controller_reconciles_total",
                "Times that a RouterConfig was looked at",
            )?,
            errors: IntCounterVec::new(
                Opts::new(
                    "continuum_controller_reconcile_errors_total",
                    "Reconciles that could not apply everything, by reason of the condition ResourcesApplied",
                ),
                &["reason"],
            )?,
            status_writes: IntCounter::new(
                "continuum_controller_status_writes_total",
                "Statuses written; an unchanged one is not",
            )?,
        };
        registry.register(Box::new(this.reconciles.clone()))?;
        registry.register(Box::new(this.errors.clone()))?;
        registry.register(Box::new(this.status_writes.clone()))?;
        for reason in [
            Reason::OwnedByOther,
            Reason::Refused,
            Reason::Forbidden,
            Reason::ApiUnavailable,
        ] {
            this.errors.with_label_values(&[reason.as_str()]);
        }
        Ok(this)
    }

    pub(crate) fn reconciled(&self) {
        self.reconciles.inc();
    }

    pub(crate) fn failed(&self, reason: Reason) {
        self.errors.with_label_values(&[reason.as_str()]).inc();
    }

    pub(crate) fn wrote_status(&self) {
        self.status_writes.inc();
    }
}

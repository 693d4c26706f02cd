//! What certificates tell: the push server and the reconciler what is served, the log, the metrics and the statuses what
//! is wrong.

use jiff::Timestamp;
use prometheus::{IntGauge, Registry};
use tokio::sync::watch;

use super::Serving;

/// Why there is no certificate, or no newer one; `None` while all is well.
pub type Trouble = watch::Receiver<Option<String>>;

/// What others see of the certificates.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// What is served; `None` before the first.
    pub serving: watch::Receiver<Option<Serving>>,
    /// What is wrong.
    pub trouble: Trouble,
}

/// Gauges of the certificates.
#[derive(Clone, Debug)]
pub struct Metrics {
    failing: IntGauge,
    expiry: IntGauge,
}

impl Metrics {
    /// Registers them.
    ///
    /// # Errors
    /// When they are registered already.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let this = Self {
            failing: IntGauge::new(
                "continuum_controller_certificate_failing",
                "1 while the certificate of the push port, or the one that should follow it, cannot be used",
            )?,
            expiry: IntGauge::new(
                "continuum_controller_certificate_expiry_seconds",
                "When the certificate of the push port runs out, in seconds since 1970; 0 before the first",
            )?,
        };
        registry.register(Box::new(this.failing.clone()))?;
        registry.register(Box::new(this.expiry.clone()))?;
        Ok(this)
    }
}

/// The one who tells.
pub(super) struct Told {
    serving: watch::Sender<Option<Serving>>,
    trouble: watch::Sender<Option<String>>,
    warned: bool,
    metrics: Metrics,
}

impl Told {
    pub(super) fn new(metrics: Metrics) -> (Self, Certificates) {
        let (serving, served) = watch::channel(None);
        let (trouble, troubled) = watch::channel(None);
        let told = Self {
            serving,
            trouble,
            warned: false,
            metrics,
        };
        let seen = Certificates {
            serving: served,
            trouble: troubled,
        };
        (told, seen)
    }

    pub(super) fn serves(&self) -> bool {
        self.serving.borrow().is_some()
    }

    /// From now on this is served, until `expiry`.
    pub(super) fn serve(&self, serving: Serving, expiry: Timestamp) {
        self.metrics.expiry.set(expiry.as_second());
        self.serving.send_replace(Some(serving));
    }

    /// What is served stays, and routers are given another bundle.
    pub(super) fn bundle(&self, bundle: String) {
        self.serving.send_if_modified(|serving| match serving {
            Some(serving) if serving.bundle != bundle => {
                serving.bundle = bundle;
                true
            }
            Some(_) | None => false,
        });
    }

    pub(super) fn well(&mut self) {
        self.metrics.failing.set(0);
        self.trouble.send_replace(None);
        if std::mem::take(&mut self.warned) {
            tracing::info!("the certificate of the push port can be used again");
        }
    }

    /// Not there yet: no fault of anybody's.
    pub(super) fn waits(&self, why: &str) {
        self.trouble.send_replace(Some(why.to_owned()));
    }

    /// What is served stays. Each reason is logged once.
    pub(super) fn failed(&mut self, error: &super::Error) {
        self.metrics.failing.set(1);
        let why = error.to_string();
        let new = self.trouble.borrow().as_deref() != Some(why.as_str());
        if new || !self.warned {
            let served = self.serves();
            tracing::warn!(
                why,
                served,
                "the certificate of the push port cannot be used or renewed"
            );
        }
        self.warned = true;
        self.trouble.send_replace(Some(why));
    }
}

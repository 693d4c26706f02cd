//! What reconciling costs and why it fails.

use continuum_crds::conditions::Reason;
use kube::runtime::watcher;
use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};

/// Counters of the reconciler.
#[derive(Clone, Debug)]
pub struct Metrics {
    reconciles: IntCounter,
    errors: IntCounterVec,
    status_writes: IntCounter,
    status_errors: IntCounterVec,
    watch_errors: IntCounterVec,
    unreadable: IntGauge,
}

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// RouterConfigs.
    RouterConfigs,
    /// What was made for them.
    Children,
}

/// Why a watch failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It is not allowed.
    Forbidden,
    /// There is no such kind.
    NotFound,
    /// It was too far behind, which is nobody's fault: it begins anew.
    Expired,
    /// The API server cannot be reached, or does not do it now.
    ApiUnavailable,
    /// What it answers cannot be read.
    Unreadable,
}

impl Watched {
    const ALL: [Self; 2] = [Self::RouterConfigs, Self::Children];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::RouterConfigs => "routerconfigs",
            Self::Children => "children",
        }
    }
}

impl Trouble {
    /// Those that are counted.
    const COUNTED: [Self; 4] = [
        Self::Forbidden,
        Self::NotFound,
        Self::ApiUnavailable,
        Self::Unreadable,
    ];

    pub(crate) fn of(error: &watcher::Error) -> Self {
        match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => {
                if let kube::Error::Api(status) = error {
                    Self::of_code(status.code)
                } else if let kube::Error::SerdeError(_) = error {
                    Self::Unreadable
                } else {
                    Self::ApiUnavailable
                }
            }
            watcher::Error::WatchError(status) => Self::of_code(status.code),
            watcher::Error::NoResourceVersion => Self::Unreadable,
        }
    }

    const fn of_code(code: u16) -> Self {
        match code {
            401 | 403 => Self::Forbidden,
            404 => Self::NotFound,
            410 => Self::Expired,
            _ => Self::ApiUnavailable,
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::Expired => "Expired",
            Self::ApiUnavailable => "ApiUnavailable",
            Self::Unreadable => "Unreadable",
        }
    }
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
            status_errors: IntCounterVec::new(
                Opts::new(
                    "continuum_controller_status_write_errors_total",
                    "Statuses that could not be written, by reason",
                ),
                &["reason"],
            )?,
            watch_errors: IntCounterVec::new(
                Opts::new(
                    "continuum_controller_watch_errors_total",
                    "Failures of the operator's own watches, by what they watch and by reason; each is tried again",
                ),
                &["of", "reason"],
            )?,
            unreadable: IntGauge::new(
                "continuum_controller_unreadable_routerconfigs",
                "RouterConfigs that the API server has and this version cannot read: they are left alone",
            )?,
        };
        registry.register(Box::new(this.reconciles.clone()))?;
        registry.register(Box::new(this.errors.clone()))?;
        registry.register(Box::new(this.status_writes.clone()))?;
        registry.register(Box::new(this.status_errors.clone()))?;
        registry.register(Box::new(this.watch_errors.clone()))?;
        registry.register(Box::new(this.unreadable.clone()))?;
        for what in Watched::ALL {
            for how in Trouble::COUNTED {
                this.watch_errors
                    .with_label_values(&[what.as_str(), how.as_str()]);
            }
        }
        for reason in [Reason::Refused, Reason::Forbidden, Reason::ApiUnavailable] {
            this.status_errors.with_label_values(&[reason.as_str()]);
        }
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

    pub(crate) fn status_failed(&self, reason: Reason) {
        self.status_errors.with_label_values(&[reason.as_str()]).inc();
    }

    pub(crate) fn watch_failed(&self, what: Watched, how: Trouble) {
        self.watch_errors
            .with_label_values(&[what.as_str(), how.as_str()])
            .inc();
    }

    /// How many objects of one watch cannot be read: before, and now.
    pub(crate) fn unreadable(&self, before: usize, now: usize) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.unreadable.add(number(now).saturating_sub(number(before)));
    }

    #[cfg(test)]
    pub(crate) fn watch_errors(&self, what: Watched, how: Trouble) -> u64 {
        let labels = [what.as_str(), how.as_str()];
        self.watch_errors.with_label_values(&labels).get()
    }

    #[cfg(test)]
    pub(crate) fn unreadable_now(&self) -> i64 {
        self.unreadable.get()
    }
}

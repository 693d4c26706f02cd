//! Families of the sessions. Labels are closed.

use prometheus::{Gauge, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use crate::{error::Reason, status::SessionState};

/// What came from a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole view.
    Full,
    /// The difference to the view before.
    Delta,
    /// Another controller was followed, and it has what this router has.
    Resumed,
    /// A configuration.
    Config,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Full, Self::Delta, Self::Resumed, Self::Config];

    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Delta => "delta",
            Self::Resumed => "resumed",
            Self::Config => "config",
        }
    }
}

/// Gauges and counters. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    sessions: IntGaugeVec,
    pub(crate) followed: IntGauge,
    pub(crate) view_age: Gauge,
    updates: IntCounterVec,
    errors: IntCounterVec,
}

impl Metrics {
    /// Registers every family.
    ///
    /// # Errors
    /// When a family of that name is registered already.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let this = Self {
            sessions: IntGaugeVec::new(
                Opts::new(
                    "continuum_controller_sessions",
                    "Sessions with controllers of the operator, by state.",
                ),
                &["state"],
            )?,
            followed: IntGauge::new(
                "continuum_controller_followed",
                "1 while a controller is followed: its views and its configuration are taken.",
            )?,
            view_age: Gauge::new(
                "continuum_controller_view_age_seconds",
                "Time since the pushed view was last known to be the present one.",
            )?,
            updates: IntCounterVec::new(
                Opts::new(
                    "continuum_controller_updates_total",
                    "Views and configurations that came from controllers, by kind.",
                ),
                &["kind"],
            )?,
            errors: IntCounterVec::new(
                Opts::new(
                    "continuum_controller_errors_total",
                    "Sessions that ended or could not begin and updates that were refused, by reason.",
                ),
                &["reason"],
            )?,
        };
        for kind in Kind::ALL {
            let _zero = this.updates.with_label_values(&[kind.as_str()]);
        }
        for reason in Reason::ALL {
            let _zero = this.errors.with_label_values(&[reason.as_str()]);
        }
        for state in SessionState::ALL {
            let _zero = this.sessions.with_label_values(&[state.as_str()]);
        }
        registry.register(Box::new(this.sessions.clone()))?;
        registry.register(Box::new(this.followed.clone()))?;
        registry.register(Box::new(this.view_age.clone()))?;
        registry.register(Box::new(this.updates.clone()))?;
        registry.register(Box::new(this.errors.clone()))?;
        Ok(this)
    }

    pub(crate) fn update(&self, kind: Kind) {
        self.updates.with_label_values(&[kind.as_str()]).inc();
    }

    pub(crate) fn error(&self, reason: Reason) {
        self.errors.with_label_values(&[reason.as_str()]).inc();
    }

    pub(crate) fn sessions(&self, state: SessionState, count: usize) {
        self.sessions
            .with_label_values(&[state.as_str()])
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

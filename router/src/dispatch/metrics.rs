//! Counters of backends and of dispatch. Every label comes from an enum or from the configuration.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use super::refusal::Cause;
use crate::error::Phase;

/// How one exchange with a backend ended: the label of `continuum_backend_requests_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A whole answer with a status below 400.
    Ok,
    /// A 4xx that is the client's own.
    ClientError,
    /// A 5xx, an error event inside a stream, or an answer that broke off.
    ServerError,
    /// 429, 529, or a 503 that names overload.
    BackPressure,
    /// No byte of an answer.
    Connect,
    /// A deadline passed.
    Timeout,
    /// The client left first.
    Canceled,
}

impl Outcome {
    /// Every outcome, in the order of [`Self::index`].
    pub const ALL: [Self; 7] = [
        Self::Ok,
        Self::ClientError,
        Self::ServerError,
        Self::BackPressure,
        Self::Connect,
        Self::Timeout,
        Self::Canceled,
    ];

    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ClientError => "client_error",
            Self::ServerError => "server_error",
            Self::BackPressure => "back_pressure",
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Canceled => "canceled",
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// Why a request was sent once more: the label of `continuum_retries_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The replica did not answer.
    Replica,
    /// The peer had closed an idle connection.
    IdleConnection,
    /// Other workers were picked.
    RePick,
    /// The same pin again, because a frontend drew the wrong worker set.
    Lottery,
    /// Another backend, without pins.
    Fallback,
}

impl Retry {
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::Replica,
        Self::IdleConnection,
        Self::RePick,
        Self::Lottery,
        Self::Fallback,
    ];

    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Replica => "replica",
            Self::IdleConnection => "idle_connection",
            Self::RePick => "repick",
            Self::Lottery => "lottery",
            Self::Fallback => "fallback",
        }
    }
}

/// The families of this module. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: IntCounterVec,
    up: IntGaugeVec,
    retries: IntCounterVec,
    repicks: IntCounterVec,
    errors: IntCounterVec,
    idle_connection: IntCounter,
}

/// The counters of one backend.
#[derive(Clone, Debug)]
pub(crate) struct BackendMetrics {
    outcomes: [IntCounter; Outcome::ALL.len()],
    pub(crate) up: IntGauge,
}

impl Metrics {
    /// Creates the families and registers them.
    ///
    /// # Errors
    /// A family of the same name is registered already.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let counters = |name: &str, help: &str, labels: &[&str]| {
            let family = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(family.clone()))?;
            prometheus::Result::Ok(family)
        };
        let requests = counters(
            "continuum_backend_requests_total",
            "Exchanges with a backend, health checks left out, by how they ended.",
            &["backend", "outcome"],
        )?;
        let retries = counters(
            "continuum_retries_total",
            "Requests sent once more, by reason.",
            &["kind"],
        )?;
        let repicks = counters(
            "continuum_dynamo_repicks_total",
            "Picks of other workers after a refusal, by cause and by whether they were answered.",
            &["cause", "result"],
        )?;
        let errors = counters(
            "disaggregated_errors_total",
            "Pinned requests that their pool did not answer, by phase.",
            &["phase"],
        )?;
        let up = IntGaugeVec::new(
            Opts::new(
                "continuum_backend_up",
                "Whether a backend takes requests: 1 or 0.",
            ),
            &["backend"],
        )?;
        registry.register(Box::new(up.clone()))?;
        for kind in Retry::ALL {
            let _zero = retries.with_label_values(&[kind.as_str()]);
        }
        for phase in Phase::ALL {
            let _zero = errors.with_label_values(&[phase.as_str()]);
        }
        for cause in Repicked::ALL {
            for result in ["success", "failure"] {
                let _zero = repicks.with_label_values(&[cause.as_str(), result]);
            }
        }
        let idle_connection = retries.with_label_values(&[Retry::IdleConnection.as_str()]);
        Ok(Self {
            requests,
            up,
            retries,
            repicks,
            errors,
            idle_connection,
        })
    }

    pub(crate) fn retried(&self, kind: Retry) {
        self.retries.with_label_values(&[kind.as_str()]).inc();
    }

    pub(crate) fn idle_connection_lost(&self) {
        self.idle_connection.inc();
    }

    pub(crate) fn repicked(&self, cause: Repicked, answered: bool) {
        let result = if answered { "success" } else { "failure" };
        self.repicks.with_label_values(&[cause.as_str(), result]).inc();
    }

    pub(crate) fn failed(&self, phase: Phase) {
        self.errors.with_label_values(&[phase.as_str()]).inc();
    }

    pub(crate) fn backend(&self, name: &str) -> BackendMetrics {
        BackendMetrics {
            outcomes: Outcome::ALL.map(|outcome| self.requests.with_label_values(&[name, outcome.as_str()])),
            up: self.up.with_label_values(&[name]),
        }
    }

    /// Drops the series of a backend that left the configuration.
    pub(crate) fn forget(&self, name: &str) {
        for outcome in Outcome::ALL {
            // A series that is not there is what is wanted.
            let _absent = self.requests.remove_label_values(&[name, outcome.as_str()]);
        }
        let _absent = self.up.remove_label_values(&[name]);
    }

    /// Retries of one kind so far.
    #[must_use]
    pub fn retries(&self, kind: Retry) -> u64 {
        self.retries.with_label_values(&[kind.as_str()]).get()
    }

    /// Pinned requests that failed in one phase so far.
    #[must_use]
    pub fn errors(&self, phase: Phase) -> u64 {
        self.errors.with_label_values(&[phase.as_str()]).get()
    }

    /// Re-picks of one cause so far.
    #[must_use]
    pub fn repicks(&self, cause: Repicked, answered: bool) -> u64 {
        let result = if answered { "success" } else { "failure" };
        self.repicks.with_label_values(&[cause.as_str(), result]).get()
    }
}

/// The causes of `continuum_dynamo_repicks_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repicked {
    /// The view had changed.
    Stale,
    /// A worker is dead and still registered.
    Suspect,
    /// The frontend drew the wrong set.
    Lottery,
}

impl Repicked {
    /// Every cause.
    pub const ALL: [Self; 3] = [Self::Stale, Self::Suspect, Self::Lottery];

    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::Suspect => "suspect",
            Self::Lottery => "lottery",
        }
    }
}

impl From<Cause> for Repicked {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::ViewBehind | Cause::Stale => Self::Stale,
            Cause::Suspect => Self::Suspect,
        }
    }
}

impl BackendMetrics {
    pub(crate) fn ended(&self, outcome: Outcome) {
        if let Some(counter) = self.outcomes.get(outcome.index()) {
            counter.inc();
        }
    }

    pub(crate) fn count(&self, outcome: Outcome) -> u64 {
        self.outcomes.get(outcome.index()).map_or(0, IntCounter::get)
    }
}

//! The push families. Labels are closed.

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry};

use super::{End, Refusal};

/// Buckets from publishing a view to a router's word that it is in force, in seconds.
const LAG_BUCKETS: [f64; 10] = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// Counters of the push server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    sessions: IntGaugeVec,
    messages: IntCounterVec,
    bytes: IntCounterVec,
    views: IntCounterVec,
    skipped: IntCounter,
    lag: Histogram,
    refused: IntCounterVec,
    ended: IntCounterVec,
}

/// What a message from here is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Welcome,
    Config,
    View,
    Source,
    Heartbeat,
    Follow,
    Report,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Welcome,
        Self::Config,
        Self::View,
        Self::Source,
        Self::Heartbeat,
        Self::Follow,
        Self::Report,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Welcome => "welcome",
            Self::Config => "config",
            Self::View => "view",
            Self::Source => "source",
            Self::Heartbeat => "heartbeat",
            Self::Follow => "follow",
            Self::Report => "report",
        }
    }
}

impl Metrics {
    /// Registers every push family.
    ///
    /// # Errors
    /// When a family of that name is registered already.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            sessions: IntGaugeVec::new(
                Opts::new(
                    "continuum_controller_push_sessions",
                    "Sessions of router pods, by whether they take views and config from this replica",
                ),
                &["followed"],
            )?,
            messages: counter(
                "continuum_controller_push_messages_total",
                "Messages sent to and received from routers, by kind",
                &["kind"],
            )?,
            bytes: counter(
                "continuum_controller_push_bytes_total",
                "Bytes of messages sent to and received from routers, before TLS, by kind",
                &["kind"],
            )?,
            views: counter(
                "continuum_controller_push_views_total",
                "Views sent to routers: whole, as a difference, or none because the router had an equal one",
                &["as"],
            )?,
            skipped: IntCounter::new(
                "continuum_controller_push_skipped_views_total",
                "Views that a router was not sent because a newer one was there before it could take them",
            )?,
            lag: Histogram::with_opts(
                HistogramOpts::new(
                    "continuum_controller_push_lag_seconds",
                    "Time from publishing a view to a router's report that it is in force",
                )
                .buckets(LAG_BUCKETS.to_vec()),
            )?,
            refused: counter(
                "continuum_controller_push_refused_total",
                "Connections and sessions that were refused, by reason",
                &["reason"],
            )?,
            ended: counter(
                "continuum_controller_push_ended_total",
                "Sessions that ended, by reason",
                &["reason"],
            )?,
        };
        // Created, so that a rate over the first event is not lost.
        for followed in ["yes", "no"] {
            metrics.sessions.with_label_values(&[followed]);
        }
        for kind in Kind::ALL {
            metrics.messages.with_label_values(&[kind.as_str()]);
            metrics.bytes.with_label_values(&[kind.as_str()]);
        }
        for how in [Sending::Full, Sending::Delta, Sending::Equal] {
            metrics.views.with_label_values(&[how.as_str()]);
        }
        for reason in Refusal::ALL {
            metrics.refused.with_label_values(&[reason.as_str()]);
        }
        for reason in End::ALL {
            metrics.ended.with_label_values(&[reason.as_str()]);
        }
        registry.register(Box::new(metrics.sessions.clone()))?;
        registry.register(Box::new(metrics.messages.clone()))?;
        registry.register(Box::new(metrics.bytes.clone()))?;
        registry.register(Box::new(metrics.views.clone()))?;
        registry.register(Box::new(metrics.skipped.clone()))?;
        registry.register(Box::new(metrics.lag.clone()))?;
        registry.register(Box::new(metrics.refused.clone()))?;
        registry.register(Box::new(metrics.ended.clone()))?;
        Ok(metrics)
    }

    pub(super) fn sessions(&self, (followed, others): (usize, usize)) {
        for (label, count) in [("yes", followed), ("no", others)] {
            self.sessions
                .with_label_values(&[label])
                .set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    pub(super) fn message(&self, kind: Kind, bytes: usize) {
        self.messages.with_label_values(&[kind.as_str()]).inc();
        self.bytes
            .with_label_values(&[kind.as_str()])
            .inc_by(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    pub(super) fn view(&self, how: Sending) {
        self.views.with_label_values(&[how.as_str()]).inc();
    }

    pub(super) fn skipped(&self, views: u64) {
        self.skipped.inc_by(views);
    }

    pub(super) fn lag(&self, lag: Duration) {
        self.lag.observe(lag.as_secs_f64());
    }

    pub(super) fn refused(&self, reason: Refusal) {
        self.refused.with_label_values(&[reason.as_str()]).inc();
    }

    pub(super) fn ended(&self, reason: End) {
        self.ended.with_label_values(&[reason.as_str()]).inc();
    }
}

/// How a router came to a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    Full,
    Delta,
    Equal,
}

impl Sending {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Delta => "delta",
            Self::Equal => "equal",
        }
    }
}

fn counter(name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
    IntCounterVec::new(Opts::new(name, help), labels)
}

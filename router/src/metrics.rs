//! Counters of requests and selections, and gauges of the fleet that are read at each scrape.
//!
//! Every label value comes from an enum, or is a configured name, or identifies a rank of the fleet; never a
//! client's text.

pub mod catalogue;
#[cfg(feature = "dynamo")]
mod fleet;
#[cfg(feature = "dynamo-kv")]
mod kv;
#[cfg(feature = "dynamo")]
mod selections;

use std::{sync::OnceLock, time::Duration};

use http::StatusCode;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

#[cfg(feature = "dynamo-kv")]
pub(crate) use self::kv::{KvResult, KvSelections};
#[cfg(feature = "dynamo")]
pub use self::{fleet::FleetCollector, selections::Selections};
use crate::{dispatch::relay::End, ingress::routes::Route};

/// Upper bounds of request durations, seconds: from a refusal to a long generation.
const DURATION_BUCKETS: [f64; 14] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];

/// How a request was served: label `routing_path`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// A prefill and a decode worker were pinned.
    Disaggregated,
    /// One worker was pinned.
    Aggregated,
    /// The pool of the pin failed, another backend answered.
    Unified,
    /// Ordinary routing by model.
    Passthrough,
    /// It never left this process.
    None,
}

impl Path {
    /// Every path.
    pub const ALL: [Self; 5] = [
        Self::Disaggregated,
        Self::Aggregated,
        Self::Unified,
        Self::Passthrough,
        Self::None,
    ];

    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Disaggregated => "disaggregated",
            Self::Aggregated => "aggregated",
            Self::Unified => "unified",
            Self::Passthrough => "passthrough",
            Self::None => "none",
        }
    }
}

/// What the client got: label `status_class`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusClass {
    /// A success, as far as the client read it.
    Success,
    /// The client's fault.
    ClientError,
    /// Ours, or the fleet's; also a stream that broke after its head.
    ServerError,
    /// The client left first.
    ClientClosed,
}

impl StatusClass {
    /// Every class.
    pub const ALL: [Self; 4] = [
        Self::Success,
        Self::ClientError,
        Self::ServerError,
        Self::ClientClosed,
    ];

    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "2xx",
            Self::ClientError => "4xx",
            Self::ServerError => "5xx",
            Self::ClientClosed => "client_closed",
        }
    }

    /// The class of an answer that was given whole.
    #[must_use]
    pub fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            499 => Self::ClientClosed,
            400..=499 => Self::ClientError,
            500.. => Self::ServerError,
            _ => Self::Success,
        }
    }

    /// The class of a relayed answer, by its status and by how it ended.
    #[must_use]
    pub fn of_relayed(status: StatusCode, end: End) -> Self {
        match end {
            End::Complete => Self::of(status),
            End::ClientGone => Self::ClientClosed,
            End::ErrorEvent | End::Broken | End::TimedOut(_) => Self::ServerError,
        }
    }
}

/// Counters of requests.
pub struct Requests {
    total: IntCounterVec,
    duration: HistogramVec,
    first_byte: HistogramVec,
    in_flight: IntGaugeVec,
    disaggregated: [IntCounter; Path::ALL.len()],
    /// Resolved once per label set: looking a label up costs more than counting.
    counters: Box<[OnceLock<IntCounter>]>,
    histograms: Box<[OnceLock<(Histogram, Histogram)>]>,
    gauges: Box<[OnceLock<IntGauge>]>,
}

impl Requests {
    /// Registers the families.
    ///
    /// # Errors
    /// When they are registered already.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let histogram = |name: &str, help: &str| {
            HistogramVec::new(
                HistogramOpts::new(name, help).buckets(DURATION_BUCKETS.to_vec()),
                &["route", "routing_path"],
            )
        };
        let disaggregated = IntCounterVec::new(
            Opts::new(
                "disaggregated_requests_total",
                "Requests that workers of the fleet were considered for, by how they were answered.",
            ),
            &["routing_path"],
        )?;
        registry.register(Box::new(disaggregated.clone()))?;
        let this = Self {
            total: IntCounterVec::new(
                Opts::new("continuum_requests_total", "Requests that have ended."),
                &["route", "status_class", "routing_path"],
            )?,
            duration: histogram(
                "continuum_request_duration_seconds",
                "Time from a request's head to its end.",
            )?,
            first_byte: histogram(
                "continuum_time_to_first_byte_seconds",
                "Time from a request's head to the first byte of the answer's body.",
            )?,
            in_flight: IntGaugeVec::new(
                Opts::new("continuum_requests_in_flight", "Requests that are being served."),
                &["route"],
            )?,
            disaggregated: Path::ALL.map(|path| disaggregated.with_label_values(&[path.as_str()])),
            counters: slots(Route::ALL.len() * StatusClass::ALL.len() * Path::ALL.len()),
            histograms: slots(Route::ALL.len() * Path::ALL.len()),
            gauges: slots(Route::ALL.len()),
        };
        registry.register(Box::new(this.total.clone()))?;
        registry.register(Box::new(this.duration.clone()))?;
        registry.register(Box::new(this.first_byte.clone()))?;
        registry.register(Box::new(this.in_flight.clone()))?;
        Ok(this)
    }

    pub(crate) fn begin(&self, route: Route) {
        self.gauge(route).inc();
    }

    pub(crate) fn first_byte(&self, route: Route, path: Path, after: Duration) {
        self.histograms(route, path).1.observe(after.as_secs_f64());
    }

    pub(crate) fn end(&self, route: Route, path: Path, class: StatusClass, after: Duration) {
        self.gauge(route).dec();
        self.histograms(route, path).0.observe(after.as_secs_f64());
        let index =
            (route as usize * StatusClass::ALL.len() + class as usize) * Path::ALL.len() + path as usize;
        let make = || {
            self.total
                .with_label_values(&[route.as_str(), class.as_str(), path.as_str()])
        };
        resolved(&self.counters, index, make).inc();
    }

    pub(crate) fn considered(&self, path: Path) {
        if let Some(counter) = self.disaggregated.get(path as usize) {
            counter.inc();
        }
    }

    fn gauge(&self, route: Route) -> IntGauge {
        resolved(&self.gauges, route as usize, || {
            self.in_flight.with_label_values(&[route.as_str()])
        })
    }

    fn histograms(&self, route: Route, path: Path) -> (Histogram, Histogram) {
        let labels = [route.as_str(), path.as_str()];
        resolved(
            &self.histograms,
            route as usize * Path::ALL.len() + path as usize,
            || {
                (
                    self.duration.with_label_values(&labels),
                    self.first_byte.with_label_values(&labels),
                )
            },
        )
    }
}

fn slots<T>(count: usize) -> Box<[OnceLock<T>]> {
    (0..count).map(|_| OnceLock::new()).collect()
}

fn resolved<T: Clone>(slots: &[OnceLock<T>], index: usize, make: impl FnOnce() -> T) -> T {
    match slots.get(index) {
        Some(slot) => slot.get_or_init(make).clone(),
        None => make(),
    }
}

//! Metric families of subscriptions. All labels are closed sets.

use continuum_kv_index::{Outcome as Block, Tally};
use continuum_routing::load::Applied;
use continuum_wire::Refusal;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use crate::status::{State, Via};

/// What became of a message, or of a connection: values of label `result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The sample was merged.
    Applied,
    /// The message had been seen.
    Duplicate,
    /// Messages before this one were missed.
    Gap,
    /// The message was refused by a rule of the wire, or its worker is not in the view.
    Refused(Refusal),
    /// The store, or the memory of a broker's publishers, is full.
    OverCapacity,
    /// The endpoint is not allowed, or its peer broke the protocol.
    TransportRefused,
}

impl Outcome {
    /// Every outcome, in order.
    pub const ALL: [Self; 10] = [
        Self::Applied,
        Self::Duplicate,
        Self::Gap,
        Self::Refused(Refusal::Malformed),
        Self::Refused(Refusal::UnknownVersion),
        Self::Refused(Refusal::TopicMismatch),
        Self::Refused(Refusal::Oversized),
        Self::Refused(Refusal::IdentityMismatch),
        Self::OverCapacity,
        Self::TransportRefused,
    ];

    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Duplicate => "duplicate",
            Self::Gap => "gap",
            Self::Refused(refusal) => refusal.as_str(),
            Self::OverCapacity => "over_capacity",
            Self::TransportRefused => "transport_refused",
        }
    }
}

impl From<Applied> for Outcome {
    fn from(applied: Applied) -> Self {
        match applied {
            Applied::Applied => Self::Applied,
            Applied::Duplicate => Self::Duplicate,
            Applied::IdentityMismatch => Self::Refused(Refusal::IdentityMismatch),
            Applied::OverCapacity => Self::OverCapacity,
        }
    }
}

/// What is counted of the connections of one family of subscriptions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Lines {
    subscriptions: IntGaugeVec,
    over_capacity: IntCounter,
    over_budget: Option<IntCounter>,
    transport_refused: IntCounter,
}

impl Lines {
    fn new(
        (name, help): (&str, &str),
        over_capacity: IntCounter,
        over_budget: Option<IntCounter>,
        transport_refused: IntCounter,
    ) -> Result<Self, prometheus::Error> {
        let subscriptions = IntGaugeVec::new(Opts::new(name, help), &["state", "transport"])?;
        for state in State::ALL {
            for via in Via::ALL {
                subscriptions.get_metric_with_label_values(&[state.as_str(), via.as_str()])?;
            }
        }
        Ok(Self {
            subscriptions,
            over_capacity,
            over_budget,
            transport_refused,
        })
    }

    /// Subscriptions in a state.
    #[must_use]
    pub fn subscriptions(&self, state: State, via: Via) -> IntGauge {
        self.subscriptions
            .with_label_values(&[state.as_str(), via.as_str()])
    }

    /// A cap is reached.
    pub(crate) fn over_capacity(&self) {
        self.over_capacity.inc();
    }

    /// An endpoint is not allowed, or its peer broke the protocol.
    pub(crate) fn transport_refused(&self) {
        self.transport_refused.inc();
    }

    /// A message did not fit beside those of the other subscriptions.
    pub(crate) fn over_budget(&self) {
        if let Some(counter) = &self.over_budget {
            counter.inc();
        }
    }
}

/// Counters and gauges of all load subscriptions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    events: IntCounterVec,
    by_outcome: Vec<IntCounter>,
    lines: Lines,
}

impl Metrics {
    /// New families, every series at zero.
    ///
    /// # Errors
    /// Never with the names given here; the library's own check of names.
    pub fn new() -> Result<Self, prometheus::Error> {
        let events = IntCounterVec::new(
            Opts::new(
                "continuum_dynamo_load_events_total",
                "Load messages and refused load connections, by what became of them.",
            ),
            &["result"],
        )?;
        let counter = |outcome: Outcome| events.get_metric_with_label_values(&[outcome.as_str()]);
        let by_outcome = Outcome::ALL.into_iter().map(counter).collect::<Result<_, _>>()?;
        let lines = Lines::new(
            (
                "continuum_dynamo_load_subscriptions",
                "Load subscriptions, by state and transport.",
            ),
            counter(Outcome::OverCapacity)?,
            None,
            counter(Outcome::TransportRefused)?,
        )?;
        Ok(Self {
            by_outcome,
            lines,
            events,
        })
    }

    /// Adds the families to a registry.
    ///
    /// # Errors
    /// A family of the same name is there already.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.events.clone()))?;
        registry.register(Box::new(self.lines.subscriptions.clone()))
    }

    /// Counts an outcome.
    pub fn count(&self, outcome: Outcome) {
        let at = Outcome::ALL.iter().position(|known| *known == outcome);
        if let Some(counter) = at.and_then(|at| self.by_outcome.get(at)) {
            counter.inc();
        }
    }

    /// How often an outcome was counted.
    #[must_use]
    pub fn counted(&self, outcome: Outcome) -> u64 {
        self.events.with_label_values(&[outcome.as_str()]).get()
    }

    /// Subscriptions in a state.
    #[must_use]
    pub fn subscriptions(&self, state: State, via: Via) -> IntGauge {
        self.lines.subscriptions(state, via)
    }

    /// What is counted of the connections.
    #[must_use]
    pub const fn lines(&self) -> &Lines {
        &self.lines
    }
}

/// Counters and gauges of all subscriptions to block events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BlockMetrics {
    events: IntCounterVec,
    by_outcome: Vec<IntCounter>,
    lines: Lines,
}

impl BlockMetrics {
    /// New families, every series at zero.
    ///
    /// # Errors
    /// Never with the names given here; the library's own check of names.
    pub fn new() -> Result<Self, prometheus::Error> {
        let events = IntCounterVec::new(
            Opts::new(
                "continuum_dynamo_kv_events_total",
                "Block events, and refused connections of their publishers, by what became of them.",
            ),
            &["result"],
        )?;
        let counter = |outcome: Block| events.get_metric_with_label_values(&[outcome.as_str()]);
        let by_outcome = Block::ALL.into_iter().map(counter).collect::<Result<_, _>>()?;
        let lines = Lines::new(
            (
                "continuum_dynamo_kv_subscriptions",
                "Subscriptions to block events, by state and transport.",
            ),
            counter(Block::OverCapacity)?,
            Some(counter(Block::OverBudget)?),
            counter(Block::TransportRefused)?,
        )?;
        Ok(Self {
            by_outcome,
            lines,
            events,
        })
    }

    /// Adds the families to a registry.
    ///
    /// # Errors
    /// A family of the same name is there already.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.events.clone()))?;
        registry.register(Box::new(self.lines.subscriptions.clone()))
    }

    /// Counts an outcome, `times` times.
    pub fn count(&self, outcome: Block, times: u64) {
        let at = Block::ALL.iter().position(|known| *known == outcome);
        if let Some(counter) = at.and_then(|at| self.by_outcome.get(at)) {
            counter.inc_by(times);
        }
    }

    pub(crate) fn add(&self, tally: &Tally) {
        for (outcome, times) in tally.iter() {
            self.count(outcome, u64::from(times));
        }
    }

    /// How often an outcome was counted.
    #[must_use]
    pub fn counted(&self, outcome: Block) -> u64 {
        self.events.with_label_values(&[outcome.as_str()]).get()
    }

    /// What is counted of the connections.
    #[must_use]
    pub const fn lines(&self) -> &Lines {
        &self.lines
    }
}

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

/// What becomes of what one family of subscriptions brings: closed, and counted in one family of metrics.
pub trait Counted: Copy + Eq + 'static {
    /// Name and help of the counter.
    const EVENTS: (&'static str, &'static str);
    /// Name and help of the gauge of subscriptions.
    const SUBSCRIPTIONS: (&'static str, &'static str);
    /// Every outcome.
    const OUTCOMES: &'static [Self];
    /// A cap is reached.
    const OVER_CAPACITY: Self;
    /// A message did not fit beside those of the other subscriptions, where that is counted.
    const OVER_BUDGET: Option<Self>;
    /// An endpoint is not allowed, or its peer broke the protocol.
    const TRANSPORT_REFUSED: Self;

    /// The label value.
    fn label(self) -> &'static str;
}

impl Counted for Outcome {
    const EVENTS: (&'static str, &'static str) = (
        "continuum_dynamo_load_events_total",
        "Load messages and refused load connections, by what became of them.",
    );
    const SUBSCRIPTIONS: (&'static str, &'static str) = (
        "continuum_dynamo_load_subscriptions",
        "Load subscriptions, by state and transport.",
    );
    const OUTCOMES: &'static [Self] = &Self::ALL;
    const OVER_CAPACITY: Self = Self::OverCapacity;
    const OVER_BUDGET: Option<Self> = None;
    const TRANSPORT_REFUSED: Self = Self::TransportRefused;

    fn label(self) -> &'static str {
        self.as_str()
    }
}

impl Counted for Block {
    const EVENTS: (&'static str, &'static str) = (
        "continuum_dynamo_kv_events_total",
        "Block events, and refused connections of their publishers, by what became of them.",
    );
    const SUBSCRIPTIONS: (&'static str, &'static str) = (
        "continuum_dynamo_kv_subscriptions",
        "Subscriptions to block events, by state and transport.",
    );
    const OUTCOMES: &'static [Self] = &Self::ALL;
    const OVER_CAPACITY: Self = Self::OverCapacity;
    const OVER_BUDGET: Option<Self> = Some(Self::OverBudget);
    const TRANSPORT_REFUSED: Self = Self::TransportRefused;

    fn label(self) -> &'static str {
        self.as_str()
    }
}

/// Counters and gauges of one family of subscriptions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Family<O> {
    events: IntCounterVec,
    by_outcome: Vec<(O, IntCounter)>,
    lines: Lines,
}

/// Those of all load subscriptions.
pub type Metrics = Family<Outcome>;

/// Those of all subscriptions to block events.
pub type BlockMetrics = Family<Block>;

impl<O: Counted> Family<O> {
    /// New families, every series at zero.
    ///
    /// # Errors
    /// Never with the names given here; the library's own check of names.
    pub fn new() -> Result<Self, prometheus::Error> {
        let (name, help) = O::EVENTS;
        let events = IntCounterVec::new(Opts::new(name, help), &["result"])?;
        let counter = |outcome: O| events.get_metric_with_label_values(&[outcome.label()]);
        let by_outcome = O::OUTCOMES
            .iter()
            .map(|outcome| Ok((*outcome, counter(*outcome)?)))
            .collect::<Result<_, prometheus::Error>>()?;
        let lines = Lines::new(
            O::SUBSCRIPTIONS,
            counter(O::OVER_CAPACITY)?,
            O::OVER_BUDGET.map(counter).transpose()?,
            counter(O::TRANSPORT_REFUSED)?,
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
    pub fn count(&self, outcome: O, times: u64) {
        let counter = self.by_outcome.iter().find(|(known, _)| *known == outcome);
        if let Some((_, counter)) = counter {
            counter.inc_by(times);
        }
    }

    /// How often an outcome was counted.
    #[must_use]
    pub fn counted(&self, outcome: O) -> u64 {
        self.events.with_label_values(&[outcome.label()]).get()
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

impl BlockMetrics {
    pub(crate) fn add(&self, tally: &Tally) {
        for (outcome, times) in tally.iter() {
            self.count(outcome, u64::from(times));
        }
    }
}

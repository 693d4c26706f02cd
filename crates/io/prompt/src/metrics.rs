//! Metric families of this crate. All labels are closed sets.

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry};

/// What became of a model's files: values of label `result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Tokenizer and template are in use.
    Loaded,
    /// A file is not pinned.
    Unpinned,
    /// A file's content is not what its card says.
    ChecksumMismatch,
    /// A file is over the cap.
    TooLarge,
    /// A file could not be read or fetched.
    FetchFailed,
    /// A file is no tokenizer, or no template.
    ParseFailed,
    /// The configuration does not allow files from where it is.
    Disabled,
    /// A kind of file, place or block size that is not supported.
    Unsupported,
    /// As many tokenizers are loaded as may be.
    OverCapacity,
}

impl Outcome {
    /// Every outcome, in order.
    pub const ALL: [Self; 9] = [
        Self::Loaded,
        Self::Unpinned,
        Self::ChecksumMismatch,
        Self::TooLarge,
        Self::FetchFailed,
        Self::ParseFailed,
        Self::Disabled,
        Self::Unsupported,
        Self::OverCapacity,
    ];

    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::Unpinned => "unpinned",
            Self::ChecksumMismatch => "checksum_mismatch",
            Self::TooLarge => "too_large",
            Self::FetchFailed => "fetch_failed",
            Self::ParseFailed => "parse_failed",
            Self::Disabled => "disabled",
            Self::Unsupported => "unsupported",
            Self::OverCapacity => "over_capacity",
        }
    }
}

/// A part of the work on a prompt: values of label `stage`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Waiting for a permit.
    Permit,
    /// Reading the body and running the template.
    Template,
    /// Text into tokens.
    Encode,
    /// Tokens into block hashes.
    Hash,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Self; 4] = [Self::Permit, Self::Template, Self::Encode, Self::Hash];

    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Permit => "permit",
            Self::Template => "template",
            Self::Encode => "encode",
            Self::Hash => "hash",
        }
    }
}

/// Counters and histograms. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    artifacts: IntCounterVec,
    render: HistogramVec,
    outcomes: [IntCounter; Outcome::ALL.len()],
    stages: [Histogram; Stage::ALL.len()],
}

/// 50 µs to 1.6 s: a warm prompt takes a fraction of a millisecond, the deadline is two seconds.
const BUCKETS: [f64; 11] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.02, 0.1, 0.4, 1.6,
];

impl Metrics {
    /// New families, every series at zero.
    ///
    /// # Errors
    /// Never with the names given here; the library's own check of names.
    pub fn new() -> Result<Self, prometheus::Error> {
        let artifacts = IntCounterVec::new(
            Opts::new(
                "continuum_dynamo_kv_artifacts_total",
                "Tokenizers and chat templates of models, by what became of them.",
            ),
            &["result"],
        )?;
        let render = HistogramVec::new(
            HistogramOpts::new(
                "continuum_dynamo_kv_render_seconds",
                "Time that a prompt took to be rendered, tokenized and hashed, by stage.",
            )
            .buckets(BUCKETS.to_vec()),
            &["stage"],
        )?;
        let outcomes = Outcome::ALL.map(|outcome| artifacts.with_label_values(&[outcome.as_str()]));
        let stages = Stage::ALL.map(|stage| render.with_label_values(&[stage.as_str()]));
        Ok(Self {
            artifacts,
            render,
            outcomes,
            stages,
        })
    }

    /// Adds the families to a registry.
    ///
    /// # Errors
    /// A family of the same name is there already.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.artifacts.clone()))?;
        registry.register(Box::new(self.render.clone()))
    }

    /// Counts an outcome.
    pub fn count(&self, outcome: Outcome) {
        if let Some(counter) = self.outcomes.get(outcome as usize) {
            counter.inc();
        }
    }

    /// How often an outcome was counted.
    #[must_use]
    pub fn counted(&self, outcome: Outcome) -> u64 {
        self.outcomes.get(outcome as usize).map_or(0, IntCounter::get)
    }

    pub(crate) fn observe(&self, stage: Stage, took: Duration) {
        if let Some(histogram) = self.stages.get(stage as usize) {
            histogram.observe(took.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_and_stage_has_its_own_series() {
        let metrics = Metrics::new().unwrap();
        for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
            (0..=index).for_each(|_| metrics.count(outcome));
        }
        for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
            let counted = metrics.artifacts.with_label_values(&[outcome.as_str()]).get();
            assert_eq!(counted, index as u64 + 1, "{outcome:?}");
        }
        for stage in Stage::ALL {
            metrics.observe(stage, Duration::from_millis(1));
            assert_eq!(
                metrics
                    .render
                    .with_label_values(&[stage.as_str()])
                    .get_sample_count(),
                1,
                "{stage:?}"
            );
        }
    }
}

//! Counts what became of prompts whose blocks were to decide, and how much of them was held.

use continuum_prompt::Unavailable;
use continuum_routing::picker::{Pick, Reason};
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

/// Buckets of held blocks: from nothing to a prompt of a million tokens.
const BLOCKS: [f64; 12] = [
    0.0, 1.0, 4.0, 16.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0,
];

/// What became of one prompt: the label of `continuum_dynamo_kv_selection_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KvResult {
    /// The rank that reads it holds some of it.
    Overlap,
    /// It holds nothing of it.
    NoOverlap,
    /// A decode worker reads it itself.
    Bypass,
    /// Load alone decided: what frontends make of requests of this route is not known here.
    UnscoredRoute,
    /// Load alone decided: no worker of the model declares a block size.
    NoBlockSize,
    /// Load alone decided: the prompt could not be had.
    Unavailable(Unavailable),
}

impl KvResult {
    /// Every word.
    pub(crate) const WORDS: [&'static str; 9] = [
        "overlap",
        "no_overlap",
        "bypass",
        "unscored_route",
        "no_block_size",
        "tokenizer_unavailable",
        "prompt_too_large",
        "render_unavailable",
        "artifact_unpinned",
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Overlap => "overlap",
            Self::NoOverlap => "no_overlap",
            Self::Bypass => "bypass",
            Self::UnscoredRoute => "unscored_route",
            Self::NoBlockSize => "no_block_size",
            Self::Unavailable(why) => why.as_str(),
        }
    }
}

/// `continuum_dynamo_kv_selection_total` and `continuum_dynamo_kv_overlap_blocks`.
pub(crate) struct KvSelections {
    results: IntCounterVec,
    prefill: Histogram,
    decode: Histogram,
}

impl KvSelections {
    /// Registers both families.
    ///
    /// # Errors
    /// When one is registered already.
    pub(crate) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let results = IntCounterVec::new(
            Opts::new(
                "continuum_dynamo_kv_selection_total",
                "Picks that the blocks of a prompt were to decide, by what came of it.",
            ),
            &["result"],
        )?;
        for word in KvResult::WORDS {
            let _from_the_start = results.with_label_values(&[word]);
        }
        registry.register(Box::new(results.clone()))?;
        let blocks = HistogramVec::new(
            HistogramOpts::new(
                "continuum_dynamo_kv_overlap_blocks",
                "Blocks of a prompt that the rank which reads it holds, by its role.",
            )
            .buckets(BLOCKS.to_vec()),
            &["role"],
        )?;
        registry.register(Box::new(blocks.clone()))?;
        Ok(Self {
            results,
            prefill: blocks.with_label_values(&["prefill"]),
            decode: blocks.with_label_values(&["decode"]),
        })
    }

    pub(crate) fn count(&self, result: KvResult) {
        self.results.with_label_values(&[result.as_str()]).inc();
    }

    pub(crate) fn count_pick(&self, pick: &Pick) {
        let Some(credit) = pick.credit else {
            return;
        };
        let blocks = credit.overlap.total();
        self.count(match (pick.decode_reason, blocks) {
            (Reason::ConditionalBypass, _) => KvResult::Bypass,
            (_, 0) => KvResult::NoOverlap,
            (_, _) => KvResult::Overlap,
        });
        let reader = if pick.prefill.is_some() {
            &self.prefill
        } else {
            &self.decode
        };
        reader.observe(f64::from(blocks));
    }
}

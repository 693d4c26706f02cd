//! Choosing the worker that holds a prompt's prefix in its cache.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::{SizeText, size};

/// Choosing the worker that holds a prompt's prefix in its cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Kv {
    /// Off: workers are chosen by load alone.
    pub enabled: bool,
    /// Fetch tokenizers and templates from the workers' own metadata URLs.
    pub allow_http_artifacts: bool,
    /// Fetch them from the Hugging Face Hub, which is on the public internet.
    pub allow_hf_artifacts: bool,
    /// Where fetched artifacts are kept; only the router's user can read it. Without it they are fetched again
    /// after a restart.
    #[schemars(length(min = 1))]
    pub artifact_cache_dir: Option<PathBuf>,
    /// Checksums (`blake3:<64 lower-case hex digits>`) of the tokenizers and templates that were reviewed.
    /// Nothing else is fetched, loaded or run.
    #[schemars(length(max = 1024), inner(regex(pattern = "^blake3:[0-9a-f]{64}$")))]
    pub pinned_artifacts: Vec<String>,
    /// How much a cached block counts against a block to compute.
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub overlap_score_credit: f64,
    /// How fast that fades on ranks that have more prefill work than the least busy one; 0: not at all.
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub overlap_score_credit_decay: f64,
    /// How much prefill counts against decode.
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub prefill_load_scale: f64,
    /// 0: the cheapest worker. Above: chance among the cheap ones, the more the higher.
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub router_temperature: f64,
    /// What a cached block is worth by where it lies.
    pub tier_weights: TierWeights,
    /// Send the token ids along, so that the frontend need not tokenize again.
    pub send_token_data: bool,
    /// Letting a decode worker read a prompt by itself that is mostly cached there.
    pub conditional_disaggregation: ConditionalDisaggregation,
    /// How much is kept and read.
    pub limits: KvLimits,
}

impl Default for Kv {
    fn default() -> Self {
        Self {
            enabled: false,
            allow_http_artifacts: true,
            allow_hf_artifacts: false,
            artifact_cache_dir: None,
            pinned_artifacts: Vec::new(),
            overlap_score_credit: 1.0,
            overlap_score_credit_decay: 0.0,
            prefill_load_scale: 1.0,
            router_temperature: 0.0,
            tier_weights: TierWeights::default(),
            send_token_data: false,
            conditional_disaggregation: ConditionalDisaggregation::default(),
            limits: KvLimits::default(),
        }
    }
}

/// What a cached block is worth by where it lies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TierWeights {
    /// In the GPU's memory.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub device: f64,
    /// In the host's memory.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub host: f64,
    /// On disk.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub disk: f64,
}

impl Default for TierWeights {
    fn default() -> Self {
        Self {
            device: 1.0,
            host: 0.75,
            disk: 0.25,
        }
    }
}

/// Letting a decode worker read a prompt by itself that is mostly cached there. Direct-mode frontends refuse
/// that while prefill workers are registered, so it is off by default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConditionalDisaggregation {
    /// Off: every request of a disaggregated fleet gets a prefill worker.
    pub enabled: bool,
    /// What decides whether a request bypasses the prefill pool.
    pub policy: BypassPolicy,
    /// A prompt with fewer uncached tokens than this may bypass the prefill pool, where
    /// `eff_isl_ratio_threshold` allows it as well.
    #[schemars(range(min = 0, max = 16_777_216))]
    pub eff_isl_threshold: u32,
    /// A prompt whose uncached share is smaller than this may bypass the prefill pool, where
    /// `eff_isl_threshold` allows it as well.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub eff_isl_ratio_threshold: f64,
    /// The load of the prefill pool above which requests bypass it; needed by the two policies that look at it.
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub prefill_busy_threshold: Option<f64>,
    /// The share of a decode worker's blocks above which no request bypasses to it.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub decode_busy_threshold: Option<f64>,
}

impl Default for ConditionalDisaggregation {
    fn default() -> Self {
        Self {
            enabled: false,
            policy: BypassPolicy::IslBounding,
            eff_isl_threshold: 2048,
            eff_isl_ratio_threshold: 0.7,
            prefill_busy_threshold: None,
            decode_busy_threshold: None,
        }
    }
}

/// What decides whether a request bypasses the prefill pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum BypassPolicy {
    /// The length of what is not cached.
    #[default]
    IslBounding,
    /// The load of the prefill pool.
    PrefillLoad,
    /// Either.
    IslOrLoad,
}

/// How much is kept and read for cache-aware choices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KvLimits {
    /// Distinct blocks in the index.
    #[schemars(range(min = 1, max = 33_554_432))]
    pub max_index_blocks: u32,
    /// Blocks of one (worker, rank) in one tier.
    #[schemars(range(min = 1, max = 1_073_741_824))]
    pub max_blocks_per_rank: u32,
    /// (rank, block) pairs in all.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub max_index_ownerships: u32,
    /// Ranks whose blocks are indexed, over all workers, and so the most that may hold one block. Whoever is indexed stays;
    /// a worker has a quarter of the places, and more only while no other wants them.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_owners_per_node: u32,
    /// Ranks that are told apart in one subscription. That to a set of event brokers is the one of all ranks: as many as
    /// `max_owners_per_node`, then.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub max_cursors_per_subscription: u32,
    /// The largest frame of a cache event.
    #[serde(with = "size")]
    #[schemars(with = "SizeText", extend("x-min" = "64KiB", "x-max" = "256MiB"))]
    pub max_frame_bytes: u64,
    /// Frames that are being read, over all subscriptions.
    #[serde(with = "size")]
    #[schemars(with = "SizeText", extend("x-min" = "1MiB", "x-max" = "64GiB"))]
    pub event_bytes_budget: u64,
    /// The largest tokenizer or template file.
    #[serde(with = "size")]
    #[schemars(with = "SizeText", extend("x-min" = "1KiB", "x-max" = "1GiB"))]
    pub max_artifact_bytes: u64,
    /// Loaded tokenizers.
    #[schemars(range(min = 1, max = 1024))]
    pub max_artifacts: u32,
    /// All artifacts together.
    #[serde(with = "size")]
    #[schemars(with = "SizeText", extend("x-min" = "1KiB", "x-max" = "64GiB"))]
    pub max_artifacts_total_bytes: u64,
    /// The longest prompt that is scored, in tokens.
    #[schemars(range(min = 1, max = 16_777_216))]
    pub max_prompt_tokens: u32,
    /// The longest rendered prompt.
    #[serde(with = "size")]
    #[schemars(with = "SizeText", extend("x-min" = "1KiB", "x-max" = "256MiB"))]
    pub max_rendered_bytes: u64,
}

impl Default for KvLimits {
    fn default() -> Self {
        Self {
            max_index_blocks: 1_048_576,
            max_blocks_per_rank: 262_144,
            max_index_ownerships: 8_388_608,
            max_owners_per_node: 4096,
            max_cursors_per_subscription: 4096,
            max_frame_bytes: 8 << 20,
            event_bytes_budget: 256 << 20,
            max_artifact_bytes: 64 << 20,
            max_artifacts: 16,
            max_artifacts_total_bytes: 256 << 20,
            max_prompt_tokens: 1_048_576,
            max_rendered_bytes: 1 << 20,
        }
    }
}

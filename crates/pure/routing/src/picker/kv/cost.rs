//! Costs in blocks: what a rank would have to compute for a prompt, and what is in front of it.

use continuum_kv_index::{Overlap, RankRef};

use super::{Bypass, BypassPolicy, Credit, Prompt, Settings};
use crate::picker::group::{Candidate, Group};

/// What a rank knows of a prompt, in blocks of its own size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Known {
    pub(super) credit: Credit,
    /// Tokens in a block.
    size: f64,
    /// Its blocks in the unit in which candidates are compared: those of the most common size.
    scale: f64,
    /// Whole blocks of the prompt that no open request holds there yet: with this prompt, so many more are in use.
    additional: f64,
    /// Blocks that are credited in device memory, before they fade.
    device: f64,
    /// Blocks that are credited in other tiers.
    lower: f64,
}

impl Known {
    /// Of a candidate. A rank whose block size was not hashed holds nothing that is known.
    pub(super) fn of(prompt: &Prompt<'_>, group: &Group, candidate: &Candidate) -> Self {
        let size = u64::from(candidate.block_size.max(1));
        let (mut overlap, mut open) = (Overlap::default(), 0);
        if let Some(worker) = group.worker(candidate) {
            let rank = RankRef {
                worker: &worker.key,
                rank: candidate.rank,
            };
            for held in prompt.held(candidate.block_size) {
                let (cached, in_use) = held.on(rank);
                overlap = longer(overlap, cached);
                open = in_use.max(open);
            }
        }
        let Settings {
            overlap_score_credit,
            tiers,
            ..
        } = prompt.settings;
        let device = overlap_score_credit * tiers.device * f64::from(overlap.device);
        let lower = tiers.host * f64::from(overlap.host) + tiers.disk * f64::from(overlap.disk);
        // As upstream, a block that has to be fetched from a lower tier saves a part of its work.
        let worth = tiers.device * f64::from(overlap.device) + lower;
        let cached = to_u64(worth * to_f64(size)).min(prompt.tokens);
        let unit = prompt
            .held
            .first()
            .map_or(size, |held| u64::from(held.block_size.max(1)));
        Self {
            scale: to_f64(size) / to_f64(unit),
            credit: Credit {
                overlap,
                blocks: device + lower,
                uncached_tokens: prompt.tokens - cached,
                shared: open,
            },
            size: to_f64(size),
            additional: to_f64((prompt.tokens / size).saturating_sub(u64::from(open))),
            device,
            lower,
        }
    }

    /// The cost of reading the prompt here: behind `prefill` tokens, beside `decode` blocks. `least` is the prefill work
    /// of the least busy candidate, tokens.
    pub(super) fn reading(&self, prompt: &Prompt<'_>, prefill: u64, decode: u64, least: u64) -> f64 {
        let settings = &prompt.settings;
        let ahead = to_f64(prefill.saturating_sub(least)) / self.size;
        let blocks = (to_f64(prompt.tokens) / self.size).max(1.0);
        let fade = 1.0 / (1.0 + settings.overlap_score_credit_decay * ahead / blocks);
        let work = to_f64(prefill.saturating_add(prompt.tokens)) / self.size;
        let left = (work - self.device * fade - self.lower).max(0.0);
        (settings.prefill_load_scale * left + to_f64(decode) + self.additional) * self.scale
    }

    /// Blocks in use with this prompt decoding here.
    pub(super) fn holding(&self, decode: u64) -> f64 {
        to_f64(decode) + self.additional
    }

    /// The cost of decoding here where the worker may read the prompt itself.
    pub(super) fn decoding(&self, decode: u64) -> f64 {
        (self.holding(decode) - self.credit.blocks).max(0.0) * self.scale
    }
}

/// Of what two kinds of blocks tell of a rank: it has blocks of one of them.
const fn longer(one: Overlap, other: Overlap) -> Overlap {
    if other.total() > one.total() { other } else { one }
}

/// What is known of the two ranks of a pair when a bypass is judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    /// Tokens of the prompt.
    pub(super) prompt: u64,
    /// Those that the decode rank would have to compute.
    pub(super) uncached: u64,
    /// Prefill work in front of the prefill rank, and what it takes in one step; tokens.
    pub(super) prefill: (u64, Option<u64>),
    /// Blocks that the decode rank would hold with this request, if a fresh sample tells, and how many it has.
    pub(super) decode: (Option<u64>, Option<u64>),
}

/// Whether the decode worker of a pair reads the prompt itself. What is not known speaks against it.
pub(super) fn bypasses(bypass: &Bypass, pair: &Pair) -> bool {
    let short = pair.uncached < bypass.eff_isl_threshold
        && to_f64(pair.uncached) / to_f64(pair.prompt.max(1)) < bypass.eff_isl_ratio_threshold;
    let busy = match (bypass.prefill_busy_threshold, pair.prefill) {
        (Some(share), (work, Some(capacity))) => to_f64(work) > share * to_f64(capacity),
        (None, _) | (_, (_, None)) => false,
    };
    let wanted = match bypass.policy {
        BypassPolicy::IslBounding => short,
        BypassPolicy::PrefillLoad => busy,
        BypassPolicy::IslOrLoad => short || busy,
    };
    let has_room = match (bypass.decode_busy_threshold, pair.decode) {
        (None, _) => true,
        (Some(share), (Some(blocks), Some(capacity))) => to_f64(blocks) <= share * to_f64(capacity),
        (Some(_), _) => false,
    };
    wanted && has_room
}

#[expect(clippy::cast_precision_loss, reason = "a count beyond 2^53 is no count")]
const fn to_f64(count: u64) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a product of finite weights and counts, none below 0"
)]
const fn to_u64(tokens: f64) -> u64 {
    tokens as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYPASS: Bypass = Bypass {
        policy: BypassPolicy::IslBounding,
        eff_isl_threshold: 2048,
        eff_isl_ratio_threshold: 0.7,
        prefill_busy_threshold: Some(2.0),
        decode_busy_threshold: None,
    };
    const PAIR: Pair = Pair {
        prompt: 4000,
        uncached: 2000,
        prefill: (100, Some(1000)),
        decode: (Some(50), Some(100)),
    };

    #[test]
    fn a_bypass_is_judged_by_what_is_not_cached_and_by_load() {
        let with = |policy, pair: Pair| bypasses(&Bypass { policy, ..BYPASS }, &pair);
        let long = Pair {
            uncached: 2048,
            ..PAIR
        };
        let cold = Pair { prompt: 2000, ..PAIR };
        let busy = Pair {
            prefill: (2001, Some(1000)),
            ..long
        };
        let unknown = Pair {
            prefill: (2001, None),
            ..long
        };
        use BypassPolicy::{IslBounding, IslOrLoad, PrefillLoad};
        for (policy, pair, expected) in [
            (IslBounding, PAIR, true),
            (IslBounding, long, false),
            (IslBounding, cold, false),
            (IslBounding, busy, false),
            (PrefillLoad, PAIR, false),
            (PrefillLoad, busy, true),
            (PrefillLoad, unknown, false),
            (IslOrLoad, PAIR, true),
            (IslOrLoad, busy, true),
            (IslOrLoad, long, false),
        ] {
            assert_eq!(with(policy, pair), expected, "{policy:?} {pair:?}");
        }
    }

    #[test]
    fn a_busy_or_unknown_decode_rank_reads_no_prompt() {
        let gate = |share, decode| {
            let bypass = Bypass {
                decode_busy_threshold: share,
                ..BYPASS
            };
            bypasses(&bypass, &Pair { decode, ..PAIR })
        };
        assert!(gate(Some(0.5), (Some(50), Some(100))), "equal is allowed");
        assert!(!gate(Some(0.5), (Some(51), Some(100))));
        assert!(!gate(Some(0.5), (None, Some(100))));
        assert!(!gate(Some(0.5), (Some(1), None)));
        assert!(gate(None, (None, None)));
    }
}

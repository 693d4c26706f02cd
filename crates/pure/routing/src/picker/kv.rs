//! Picks that know the prompt's blocks: each rank is credited with the prefix that it holds.
//!
//! Whoever reads the prompt is chosen first (the prefill worker of a pair, or a worker that serves alone), by blocks
//! still to compute and work in front of them; then, in its namespace, the decode worker by load. Costs are in blocks
//! and are those of Dynamo's own router; see `docs/kv-aware.md` for where they differ.

use std::{collections::BTreeMap, sync::Arc};

use continuum_fleet::view::{Blocks, Worker};
use continuum_kv_index::{Matches, Overlap, RankRef};

use crate::limits::WORKERS_PER_KIND;

pub use self::in_flight::{Entry, InFlight, InUse, RankInUse};

pub(super) mod choose;
mod cost;
mod in_flight;

/// A prompt whose blocks are known.
#[derive(Clone, Copy, Debug)]
pub struct Prompt<'a> {
    /// Its length, tokens.
    pub tokens: u64,
    /// Who holds what of it, for each kind of blocks that candidates have.
    pub held: &'a [Held],
    /// How overlap counts.
    pub settings: Settings,
    /// Two random numbers in `0.0..1.0`, for choices by chance (`temperature`).
    pub chance: [f64; 2],
}

/// What ranks hold of a prompt, as blocks of one kind.
#[derive(Debug)]
pub struct Held {
    /// Tokens in a block.
    pub block_size: u32,
    /// What ranks hold in their caches.
    pub cached: Matches,
    /// What requests of this router hold there now, whether or not the cache keeps it, and what it has read lately where
    /// its events do not tell.
    pub in_flight: InUse,
}

impl Held {
    /// What a rank holds in its caches, by its events or by what it has read; and blocks that open requests hold there.
    fn on(&self, rank: RankRef<'_>) -> (Overlap, u32) {
        let (told, in_use) = (self.cached.of(rank), self.in_flight.of(rank));
        if in_use.read <= told.total() {
            return (told, in_use.open);
        }
        let read = Overlap {
            device: in_use.read,
            ..Overlap::default()
        };
        (read, in_use.open)
    }
}

/// How overlap counts. The fields are those of `dynamo.kv`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Worth of a cached block in device memory against one to compute.
    pub overlap_score_credit: f64,
    /// How fast that worth fades on ranks with more prefill work than the least busy one; 0: not at all.
    pub overlap_score_credit_decay: f64,
    /// Weight of prefill against decode.
    pub prefill_load_scale: f64,
    /// 0: the cheapest. Above: chance, the more the higher.
    pub temperature: f64,
    /// Worth of a block by where it lies.
    pub tiers: Tiers,
    /// Whether decode workers may read a prompt themselves.
    pub bypass: Option<Bypass>,
}

/// Worth of a cached block by where it lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tiers {
    /// In the memory of the accelerator; `overlap_score_credit` comes on top.
    pub device: f64,
    /// In the memory of the host.
    pub host: f64,
    /// On disk.
    pub disk: f64,
}

/// When a decode worker reads a prompt itself, although there are prefill workers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bypass {
    /// What decides.
    pub policy: BypassPolicy,
    /// Uncached tokens below which a prompt is short.
    pub eff_isl_threshold: u64,
    /// Uncached share below which a prompt is mostly cached.
    pub eff_isl_ratio_threshold: f64,
    /// Backlog of the chosen prefill rank, as a share of its `max_num_batched_tokens`, above which it is busy.
    pub prefill_busy_threshold: Option<f64>,
    /// Share of a decode rank's blocks above which it takes no prompt to read.
    pub decode_busy_threshold: Option<f64>,
}

/// What decides a bypass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BypassPolicy {
    /// The length of what is not cached.
    IslBounding,
    /// The load of the prefill rank.
    PrefillLoad,
    /// Either.
    IslOrLoad,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            overlap_score_credit: 1.0,
            overlap_score_credit_decay: 0.0,
            prefill_load_scale: 1.0,
            temperature: 0.0,
            tiers: Tiers {
                device: 1.0,
                host: 0.75,
                disk: 0.25,
            },
            bypass: None,
        }
    }
}

/// What was known of the prompt at the rank that reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Credit {
    /// Blocks that it holds.
    pub overlap: Overlap,
    /// Blocks that this credits, by tier and settings.
    pub blocks: f64,
    /// Prompt tokens that it has to compute.
    pub uncached_tokens: u64,
    /// Blocks that open requests of this router hold there already.
    pub shared: u32,
}

impl Prompt<'_> {
    /// What is known for blocks of this size. There may be two kinds of them; a rank has blocks of one.
    pub(super) fn held(&self, block_size: u32) -> impl Iterator<Item = &Held> {
        self.held.iter().filter(move |held| held.block_size == block_size)
    }
}

/// Kinds of blocks that workers have, and how many have each.
pub(super) fn blocks(workers: &[Arc<Worker>]) -> Vec<(Blocks, usize)> {
    let kinds = workers.iter().filter_map(|worker| worker.card.as_ref()?.blocks());
    count(kinds.map(|blocks| (blocks, 1)))
}

/// The kinds of several groups: each once, the most common first, without those that hardly a worker has.
pub(super) fn most_common<'g>(groups: impl Iterator<Item = &'g [(Blocks, usize)]>) -> Vec<Blocks> {
    let mut kinds = count(groups.flatten().copied());
    let all = kinds.iter().map(|(_, workers)| workers).sum::<usize>();
    kinds.sort_by_key(|(blocks, workers)| (std::cmp::Reverse(*workers), *blocks));
    kinds
        .into_iter()
        .enumerate()
        .filter(|(rank, (_, workers))| *rank == 0 || workers.saturating_mul(WORKERS_PER_KIND) >= all)
        .map(|(_, (blocks, _))| blocks)
        .collect()
}

fn count(kinds: impl Iterator<Item = (Blocks, usize)>) -> Vec<(Blocks, usize)> {
    let mut counts = BTreeMap::new();
    for (blocks, workers) in kinds {
        *counts.entry(blocks).or_default() += workers;
    }
    counts.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_hardly_a_worker_has_costs_no_prompt_anything() {
        let kind = |size| Blocks { size, ahead: false };
        let lone = Blocks { size: 1, ahead: true };
        for (groups, expected) in [
            (vec![vec![(kind(16), 31), (lone, 1)]], vec![kind(16), lone]),
            (vec![vec![(kind(16), 32), (lone, 1)]], vec![kind(16)]),
            (
                vec![vec![(lone, 1)], vec![(kind(16), 500)], vec![(kind(16), 500)]],
                vec![kind(16)],
            ),
            (vec![vec![(kind(16), 10)], vec![(lone, 10)]], vec![lone, kind(16)]),
            (
                vec![(1..100).map(|size| (kind(size), 1)).collect()],
                vec![kind(1)],
            ),
            (vec![], vec![]),
        ] {
            assert_eq!(
                most_common(groups.iter().map(Vec::as_slice)),
                expected,
                "{groups:?}"
            );
        }
    }
}

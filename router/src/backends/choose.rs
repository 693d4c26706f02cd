//! Which backend a request goes to: the least busy replica of a shim pool, or a weighted draw in ordinary routing.
//!
//! A backend without `models` in the configuration serves what its own `GET /v1/models` lists, and anything
//! until that list has been read.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use continuum_fleet::ids::Graph;

use super::Backend;
use crate::dispatch::retry::Budget;

/// The shim replicas of one graph.
#[derive(Debug)]
pub struct ShimPool {
    graph: Graph,
    replicas: Vec<Arc<Backend>>,
    budget: Arc<Budget>,
    cursor: Arc<AtomicU64>,
}

impl ShimPool {
    pub(super) fn new(graph: Graph, replicas: Vec<Arc<Backend>>, before: Option<&Self>) -> Self {
        Self {
            graph,
            replicas,
            budget: before.map(|pool| Arc::clone(&pool.budget)).unwrap_or_default(),
            cursor: before.map_or_else(
                || Arc::new(AtomicU64::new(rand::random())),
                |pool| Arc::clone(&pool.cursor),
            ),
        }
    }

    /// The configured namespace that it serves.
    #[must_use]
    pub const fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Its replicas, in configured order.
    #[must_use]
    pub fn replicas(&self) -> &[Arc<Backend>] {
        &self.replicas
    }

    /// Whether a request can be sent to it.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.replicas.iter().any(|replica| replica.is_usable())
    }

    /// Whether one of its usable replicas lists the name. A pool that has read no list yet lists nothing.
    #[must_use]
    pub fn lists(&self, model: &str) -> bool {
        self.replicas
            .iter()
            .any(|replica| replica.is_usable() && replica.lists(model) == Some(true))
    }

    /// Whether a request for a base name has a replica to go to: usable, and not known to lack the name.
    #[must_use]
    pub fn may_serve(&self, model: &str) -> bool {
        self.replicas
            .iter()
            .any(|replica| replica.is_usable() && replica.lists(model) != Some(false))
    }

    /// The budget of its retries.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The usable replica with the fewest exchanges, of those not tried yet. One that has just failed to answer,
    /// or whose list lacks the model, comes after all others. Ties go round.
    pub(crate) fn choose(
        &self,
        tried: Tried,
        listed: impl Fn(&Backend) -> Option<bool>,
    ) -> Option<(usize, &Arc<Backend>)> {
        let start = self.cursor.fetch_add(1, Relaxed);
        let candidates = rotated(&self.replicas, start)
            .filter(|(index, replica)| !tried.has(*index) && replica.is_usable())
            .map(|(index, replica)| {
                let lacking = listed(replica) == Some(false);
                (
                    (replica.is_cooling(), lacking, replica.in_flight()),
                    index,
                    replica,
                )
            });
        // `min_by_key` keeps the first of equals.
        candidates
            .min_by_key(|(rank, _, _)| *rank)
            .map(|(_, index, replica)| (index, replica))
    }

    /// Whether [`Self::choose`] would find one.
    pub(crate) fn has_other(&self, tried: Tried) -> bool {
        let mut replicas = self.replicas.iter().enumerate();
        replicas.any(|(index, replica)| !tried.has(index) && replica.is_usable())
    }
}

/// Replicas that a request has been sent to, by their place in the pool (64 at most).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tried(u64);

impl Tried {
    /// With this one, too.
    pub(crate) const fn and(self, index: usize) -> Self {
        if index < 64 {
            Self(self.0 | 1 << index)
        } else {
            self
        }
    }

    const fn has(self, index: usize) -> bool {
        index < 64 && self.0 & (1 << index) != 0
    }
}

/// One backend for a request of ordinary routing: a draw by weight among the usable ones that serve the model,
/// without those tried already; one that has just failed to answer only when there is no other. `draw` is
/// any number, equally distributed.
pub(super) fn weighted<'a>(
    backends: impl Iterator<Item = &'a Arc<Backend>> + Clone,
    model: &str,
    tried: &[Arc<str>],
    draw: u64,
) -> Option<&'a Arc<Backend>> {
    let candidates = backends.filter(|backend| {
        backend.is_usable() && backend.serves(model) && !tried.iter().any(|name| name == backend.name())
    });
    let fit = candidates.clone().filter(|backend| !backend.is_cooling());
    by_weight(fit, draw).or_else(|| by_weight(candidates, draw))
}

fn by_weight<'a>(
    candidates: impl Iterator<Item = &'a Arc<Backend>> + Clone,
    draw: u64,
) -> Option<&'a Arc<Backend>> {
    let weight = |backend: &Arc<Backend>| u64::from(backend.settings().weight);
    let total: u64 = candidates.clone().map(weight).sum();
    let mut left = draw.checked_rem(total)?;
    for candidate in candidates {
        match left.checked_sub(weight(candidate)) {
            None => return Some(candidate),
            Some(rest) => left = rest,
        }
    }
    None
}

fn rotated<T>(items: &[T], start: u64) -> impl Iterator<Item = (usize, &T)> {
    let start = usize::try_from(start % (items.len().max(1) as u64)).unwrap_or(0);
    let (head, tail) = items.split_at_checked(start).unwrap_or((items, &[]));
    let tail = tail
        .iter()
        .enumerate()
        .map(move |(index, item)| (index + start, item));
    tail.chain(head.iter().enumerate())
}

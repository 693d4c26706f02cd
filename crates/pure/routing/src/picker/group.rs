//! The candidates of one model in one generation (one namespace), laid out for the scan of a pick.
//!
//! The rules that depend on who is there, but not on load, are applied here, once per view: roles, `needs`, mixed
//! namespaces, and whether a pair is possible at all.

use std::{collections::BTreeSet, sync::Arc};

use continuum_fleet::{
    ids::Rank,
    view::{Role, Worker},
};

use super::{
    Standing,
    topology::{Classes, Offers, Zone},
};
use crate::load::slot::Slot;

/// One rank that may be picked. 32 bytes, stored side by side.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) slot: Arc<Slot>,
    /// Divisor of the cost: `total_kv_blocks` or `max_num_batched_tokens`; 0 leaves the cost undefined.
    pub(super) capacity: f64,
    /// Index into [`Group::workers`].
    pub(super) worker: u32,
    /// Global rank; meaningless without a card.
    pub(super) rank: u32,
    /// Tokens per block; at least 1.
    pub(super) block_size: u32,
    /// Prefill: index into [`Group::zones`]. Decode: its topology class.
    pub(super) zone: u32,
}

/// Candidates of one model in one namespace.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// Workers that serve the name here, in order.
    pub(super) workers: Vec<Arc<Worker>>,
    /// Decode side: decode workers of pairs, or decode and aggregated workers that are pinned alone.
    pub(super) decode: Vec<Candidate>,
    /// Prefill side; empty unless pairs serve this namespace.
    pub(super) prefill: Vec<Candidate>,
    /// Ranks that are never picked, and why.
    pub(super) left_out: Vec<(Candidate, Standing)>,
    /// What prefill workers ask, each once.
    pub(super) zones: Vec<Zone>,
    /// Topology classes of the decode side.
    pub(super) classes: usize,
    /// Some prefill worker prefers a domain.
    pub(super) prefers: bool,
    /// A worker waits for peers that its card names.
    pub(super) waits: bool,
    /// A prefill worker is registered, whether or not it can be picked.
    pub(super) has_prefill: bool,
    /// Sets (component, role) among which a frontend draws for the decode step.
    pub(super) decode_sets: u32,
    /// Sets among which it draws for the prefill step.
    pub(super) prefill_sets: u32,
}

/// A worker with the slots of its ranks, and whether the peers that it needs are there.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) worker: Arc<Worker>,
    pub(super) slots: Arc<[Arc<Slot>]>,
    pub(super) ready: bool,
}

impl Group {
    /// Lays out the workers that serve one name in one namespace.
    pub(super) fn new(members: &[Member]) -> Self {
        let mut group = Self::default();
        let of = |role: Role| members.iter().filter(move |member| member.worker.role == role);
        group.has_prefill = of(Role::Prefill).next().is_some();
        group.waits = members.iter().any(|member| !member.ready);
        group.decode_sets = sets(of(Role::Decode).chain(of(Role::Aggregated)));
        group.prefill_sets = sets(of(Role::Prefill));

        let mut offers = Offers::default();
        for member in of(Role::Prefill).filter(|member| member.ready) {
            offers.add(&Zone::of(&member.worker));
        }
        let pairs = of(Role::Decode).any(|member| member.ready && offers.fit(&member.worker));
        let mut classes = Classes::default();
        for member in members {
            let standing = match member.worker.role {
                Role::Encode | Role::Unknown => continue,
                _ if !member.ready => Some(Standing::NotReady),
                Role::Prefill => (!pairs).then_some(Standing::Unused),
                // With a prefill set registered, a frontend refuses a decode worker without a prefill worker.
                Role::Decode => {
                    (group.has_prefill && !offers.fit(&member.worker)).then_some(Standing::NoPair)
                }
                Role::Aggregated => pairs.then_some(Standing::BesidePairs),
            };
            group.push(member, standing, &mut classes);
        }
        group.classes = classes.len();
        group
    }

    /// Whether the decode side is pinned together with a prefill worker.
    pub(super) const fn pairs(&self) -> bool {
        !self.prefill.is_empty()
    }

    /// The worker of a candidate.
    pub(super) fn worker(&self, candidate: &Candidate) -> Option<&Arc<Worker>> {
        self.workers.get(usize::try_from(candidate.worker).ok()?)
    }

    /// Entries that this group holds.
    pub(super) const fn len(&self) -> usize {
        self.decode.len() + self.prefill.len() + self.left_out.len()
    }

    fn push(&mut self, member: &Member, standing: Option<Standing>, classes: &mut Classes) {
        let worker = &member.worker;
        let index = u32::try_from(self.workers.len()).unwrap_or(u32::MAX);
        self.workers.push(Arc::clone(worker));
        let zone = match worker.role {
            Role::Prefill => self.zone(Zone::of(worker)),
            Role::Decode | Role::Aggregated | Role::Encode | Role::Unknown => classes.number(worker),
        };
        let card = worker.card.as_deref();
        let block_size = card.and_then(|card| card.block_size);
        let capacity = card
            .map(|card| card.capacity)
            .and_then(|capacity| match worker.role {
                Role::Prefill => capacity.max_num_batched_tokens,
                Role::Decode | Role::Aggregated | Role::Encode | Role::Unknown => {
                    capacity.total_kv_blocks.filter(|_| block_size.is_some())
                }
            });
        #[expect(clippy::cast_precision_loss, reason = "a capacity beyond 2^53 is no capacity")]
        let capacity = capacity.unwrap_or(0) as f64;
        let start = worker.ranks().map_or(0, |range| range.start);
        for (rank, slot) in (start..u32::MAX).zip(member.slots.iter()) {
            let candidate = Candidate {
                slot: Arc::clone(slot),
                capacity,
                worker: index,
                rank,
                block_size: block_size.unwrap_or(1).max(1),
                zone,
            };
            match (standing, worker.role) {
                (Some(standing), _) => self.left_out.push((candidate, standing)),
                (None, Role::Prefill) => self.prefill.push(candidate),
                (None, Role::Decode | Role::Aggregated | Role::Encode | Role::Unknown) => {
                    self.decode.push(candidate)
                }
            }
        }
    }

    fn zone(&mut self, zone: Zone) -> u32 {
        let place = self
            .zones
            .iter()
            .position(|known| *known == zone)
            .unwrap_or_else(|| {
                self.prefers |= matches!(zone, Zone::Preferred { .. });
                self.zones.push(zone);
                self.zones.len() - 1
            });
        u32::try_from(place).unwrap_or(u32::MAX)
    }
}

impl Candidate {
    /// The rank to send; `None` for a worker without a card.
    pub(super) fn rank_of(&self, worker: &Worker) -> Option<Rank> {
        worker.ranks().map(|_| Rank(self.rank))
    }
}

fn sets<'a>(members: impl Iterator<Item = &'a Member>) -> u32 {
    let sets: BTreeSet<_> = members
        .map(|member| (&member.worker.component, member.worker.role))
        .collect();
    u32::try_from(sets.len()).unwrap_or(u32::MAX)
}

//! The candidates of one model in one generation (one namespace), laid out for the scan of a pick.
//!
//! The rules that depend on who is there, but not on load, are applied here, once per view: roles, `needs`, mixed
//! namespaces, and whether a pair is possible at all.

use std::{collections::BTreeSet, sync::Arc};

use continuum_fleet::{
    ids::Rank,
    view::{Blocks, Card, NameKind, Role, Worker},
};

use super::{
    Standing, kv,
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
    /// Kinds of blocks of its workers, and how many have each.
    pub(super) blocks: Vec<(Blocks, usize)>,
    /// Sets (component, role) among which a frontend draws for the decode step.
    pub(super) decode_sets: u32,
    /// Sets among which it draws for the prefill step.
    pub(super) prefill_sets: u32,
}

/// A worker with the slots of its ranks.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) worker: Arc<Worker>,
    pub(super) slots: Arc<[Arc<Slot>]>,
}

/// A worker that serves a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Serves<'a> {
    pub(super) member: &'a Member,
    pub(super) kind: NameKind,
    /// The peers that its card names are there.
    pub(super) ready: bool,
}

impl Group {
    /// Lays out the workers that serve one name in one namespace, those that `takes` takes.
    pub(super) fn new(all: &[Serves<'_>], takes: fn(NameKind) -> bool) -> Self {
        let mut group = Self::default();
        let serving = || all.iter().filter(|serves| takes(serves.kind));
        let of = |role: Role| serving().filter(move |serves| serves.member.worker.role == role);
        group.has_prefill = of(Role::Prefill).next().is_some();
        group.waits = serving().any(|serves| !serves.ready);
        group.decode_sets = sets(of(Role::Decode).chain(of(Role::Aggregated)));
        group.prefill_sets = sets(of(Role::Prefill));

        let mut layout = Layout::default();
        let mut last = None;
        for serves in of(Role::Prefill).filter(|serves| serves.ready) {
            let card = serves.member.worker.card.as_ref().map(Arc::as_ptr);
            if last.replace(card) != Some(card) {
                layout.offers.add(&Zone::of(&serves.member.worker));
            }
        }
        let pairs = of(Role::Decode).any(|serves| serves.ready && layout.offers.fit(&serves.member.worker));
        for serves in serving() {
            let worker = &serves.member.worker;
            let terms = layout.terms(worker, &mut group);
            let standing = match worker.role {
                Role::Encode | Role::Unknown => continue,
                _ if !serves.ready => Some(Standing::NotReady),
                Role::Prefill => (!pairs).then_some(Standing::Unused),
                // With a prefill set registered, a frontend refuses a decode worker without a prefill worker.
                Role::Decode => (group.has_prefill && !terms.fits).then_some(Standing::NoPair),
                Role::Aggregated => pairs.then_some(Standing::BesidePairs),
            };
            group.push(serves.member, standing, terms);
        }
        group.classes = layout.classes.len();
        group.blocks = kv::blocks(&group.workers);
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

    fn push(&mut self, member: &Member, standing: Option<Standing>, terms: Terms) {
        let worker = &member.worker;
        let index = u32::try_from(self.workers.len()).unwrap_or(u32::MAX);
        self.workers.push(Arc::clone(worker));
        let start = worker.ranks().map_or(0, |range| range.start);
        for (rank, slot) in (start..u32::MAX).zip(member.slots.iter()) {
            let candidate = Candidate {
                slot: Arc::clone(slot),
                capacity: terms.capacity,
                worker: index,
                rank,
                block_size: terms.block_size,
                zone: terms.zone,
            };
            match (standing, worker.role) {
                (Some(standing), _) => self.left_out.push((candidate, standing)),
                (None, Role::Prefill) => self.prefill.push(candidate),
                (None, Role::Decode | Role::Aggregated | Role::Encode | Role::Unknown) => {
                    self.decode.push(candidate);
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

/// What a group learns while it is laid out.
#[derive(Default)]
struct Layout {
    offers: Offers,
    classes: Classes,
    /// Terms of the card seen last: most neighbours share one.
    last: Option<(Role, *const Card, Terms)>,
}

/// What a worker's card means for its candidates.
#[derive(Clone, Copy)]
struct Terms {
    capacity: f64,
    block_size: u32,
    zone: u32,
    /// A prefill worker can be paired with it.
    fits: bool,
}

impl Layout {
    fn terms(&mut self, worker: &Worker, group: &mut Group) -> Terms {
        let card = worker.card.as_deref();
        let place = card.map_or(std::ptr::null(), std::ptr::from_ref);
        if let Some((role, last, terms)) = self.last
            && role == worker.role
            && last == place
        {
            return terms;
        }
        let prefill = worker.role == Role::Prefill;
        let block_size = card.and_then(|card| card.block_size);
        let capacity = card.map(|card| card.capacity).and_then(|capacity| {
            if prefill {
                capacity.max_num_batched_tokens
            } else {
                capacity.total_kv_blocks.filter(|_| block_size.is_some())
            }
        });
        #[expect(clippy::cast_precision_loss, reason = "a capacity beyond 2^53 is no capacity")]
        let terms = Terms {
            capacity: capacity.unwrap_or(0) as f64,
            block_size: block_size.unwrap_or(1).max(1),
            zone: if prefill {
                group.zone(Zone::of(worker))
            } else {
                self.classes.number(worker)
            },
            fits: !prefill && self.offers.fit(worker),
        };
        self.last = Some((worker.role, place, terms));
        terms
    }
}

impl Candidate {
    /// The rank to send; `None` for a worker without a card.
    pub(super) fn rank_of(&self, worker: &Worker) -> Option<Rank> {
        worker.ranks().map(|_| Rank(self.rank))
    }
}

fn sets<'a>(serving: impl Iterator<Item = &'a Serves<'a>>) -> u32 {
    let mut sets = BTreeSet::new();
    let mut last = None;
    for serves in serving {
        let set = (&serves.member.worker.component, serves.member.worker.role);
        if last.replace(set) != Some(set) {
            sets.insert(set);
        }
    }
    u32::try_from(sets.len()).unwrap_or(u32::MAX)
}

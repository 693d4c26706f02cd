//! The whole pick: decode first, then prefill in its namespace.

use std::sync::Arc;

use continuum_fleet::{
    ids::{Graph, WorkerKey},
    view::{Card, Worker},
};

use super::{
    Chosen, NoPick, Pick, Reason, Request,
    contest::{self, Fit, Phase, Place, Rules, is_excluded},
    cursor::Turn,
    group::{Candidate, Group},
    kv::{self, Credit},
    table::{Model, Table},
};
use crate::{
    Millis,
    load::{
        Store,
        slot::{AsOf, Reading},
    },
};

/// A pick, and the places that it came from in the groups of the request.
pub(super) struct Outcome {
    pub(super) pick: Pick,
    pub(super) decode: Place,
    pub(super) prefill: Option<usize>,
}

/// The groups that a request may use, in order: pools as the request names them, generations by name.
pub(super) fn groups<'t>(model: &'t Model, request: &Request<'_>) -> Vec<(&'t Graph, &'t Group)> {
    let mut groups = Vec::new();
    for pool in request.pools {
        let Some((graph, rollouts)) = model.pools.get_key_value(pool.graph) else {
            continue;
        };
        let mine = rollouts
            .values()
            .map(|rollout| (graph, rollout.group(pool.listed)));
        groups.extend(mine.filter(|(_, group)| group.len() > 0));
    }
    groups
}

/// Picks; see [`super::pick`].
pub(super) fn choose(
    table: &Table,
    store: &Store,
    request: &Request<'_>,
    now: Millis,
    turn: Turn,
) -> Result<Outcome, NoPick> {
    if let Some(prompt) = request.prompt
        && let Some(outcome) = kv::choose::choose(table, store, request, prompt, now, turn)?
    {
        return Ok(outcome);
    }
    let model = table.model(request.model).ok_or(NoPick::NoModel)?;
    let groups = groups(model, request);
    if groups.is_empty() {
        return Err(NoPick::NoModel);
    }
    let bare: Vec<&Group> = groups.iter().map(|(_, group)| *group).collect();
    let rules = Rules {
        exclude: request.exclude,
        ties: request.settings.ties,
        turn,
        chance: None,
    };
    let wary = !request.exclude.is_empty() || store.may_suspect(now);
    let at = AsOf::new(now, request.settings.max_staleness);

    let mut phase = DecodePhase::new(at, request, wary);
    let chosen = contest::choose(&mut phase, &bare, rules, &model.cursors.decode);
    let Some((decode, decode_reason)) = chosen else {
        let waits = bare.iter().any(|group| group.waits && group.decode.is_empty());
        return Err(if waits {
            NoPick::NotReady
        } else {
            NoPick::NoCandidate
        });
    };
    let (graph, group) = *groups.get(decode.group).ok_or(NoPick::NoCandidate)?;
    let candidate = group.decode.get(decode.index).ok_or(NoPick::NoCandidate)?;
    let worker = group.worker(candidate).ok_or(NoPick::NoCandidate)?;
    let mut prefill = None;
    if group.pairs() {
        let mut phase = PrefillPhase::new(at, request, group, worker.card.as_deref());
        let place = contest::choose(&mut phase, &[group], rules, &model.cursors.prefill);
        let (place, reason) = place.ok_or(NoPick::NoCandidate)?;
        prefill = Some(Side { place, reason });
    }
    Found {
        groups: &groups,
        graph,
        group,
        decode: Side {
            place: decode,
            reason: decode_reason,
        },
        prefill,
        credit: None,
    }
    .outcome()
}

/// Who was found, before it is a pick.
pub(super) struct Found<'t> {
    /// All groups that the request may use.
    pub(super) groups: &'t [(&'t Graph, &'t Group)],
    pub(super) graph: &'t Graph,
    /// The group of the chosen ones.
    pub(super) group: &'t Group,
    pub(super) decode: Side,
    pub(super) prefill: Option<Side>,
    pub(super) credit: Option<Credit>,
}

/// One side of what was found.
#[derive(Clone, Copy)]
pub(super) struct Side {
    pub(super) place: Place,
    pub(super) reason: Reason,
}

impl Found<'_> {
    /// The pick.
    pub(super) fn outcome(self) -> Result<Outcome, NoPick> {
        let chosen = |from: &[Candidate], side: &Side| {
            let candidate = from.get(side.place.index)?;
            Some(chosen_of(candidate, self.group.worker(candidate)?))
        };
        let mut decode = chosen(&self.group.decode, &self.decode).ok_or(NoPick::NoCandidate)?;
        let mut prefill = None;
        if let Some(side) = &self.prefill {
            let mut chosen = chosen(&self.group.prefill, side).ok_or(NoPick::NoCandidate)?;
            if chosen.rank.is_none() || decode.rank.is_none() {
                // A frontend lends the decode rank to a prefill worker without one: both are sent, or neither.
                (chosen.rank, decode.rank) = (None, None);
            }
            prefill = Some(chosen);
        }
        let in_pool = || {
            self.groups
                .iter()
                .filter(|(other, _)| *other == self.graph)
                .map(|(_, group)| group)
        };
        let decode_sets: u32 = in_pool().map(|group| group.decode_sets).sum();
        let prefill_sets: u32 = in_pool().map(|group| group.prefill_sets).sum();
        let card = decode.worker.card.as_ref();
        let pick = Pick {
            graph: self.graph.clone(),
            sets_in_pool: if prefill.is_some() {
                decode_sets.max(prefill_sets)
            } else {
                decode_sets
            },
            router_config: card.is_some_and(|card| card.has_router_config),
            decode,
            prefill,
            decode_reason: self.decode.reason,
            prefill_reason: self.prefill.map_or(Reason::NoPrefillPool, |side| side.reason),
            credit: self.credit,
        };
        Ok(Outcome {
            pick,
            decode: self.decode.place,
            prefill: self.prefill.map(|side| side.place.index),
        })
    }
}

fn chosen_of(candidate: &Candidate, worker: &Arc<Worker>) -> Chosen {
    Chosen {
        rank: candidate.rank_of(worker),
        worker: Arc::clone(worker),
        slot: Arc::clone(&candidate.slot),
    }
}

/// The decode side: `(backlog + blocks of the prompt) / total_kv_blocks`.
pub(super) struct DecodePhase<'r> {
    at: AsOf,
    prompt_tokens: u64,
    exclude: &'r [WorkerKey],
    /// Somebody is excluded or suspect, so that a pair may be impossible now.
    wary: bool,
    /// Blocks of the prompt for the block size seen last: most candidates share one.
    blocks: (u32, u64),
    /// Whether decode workers of a topology class can be paired now, for the group seen last.
    fits: (usize, Vec<Option<Fit>>),
}

impl<'r> DecodePhase<'r> {
    pub(super) const fn new(at: AsOf, request: &Request<'r>, wary: bool) -> Self {
        Self {
            at,
            prompt_tokens: request.prompt_tokens,
            exclude: request.exclude,
            wary,
            blocks: (0, 0),
            fits: (0, Vec::new()),
        }
    }

    /// Whether a usable prefill worker goes with a decode worker.
    fn partner(&self, group: &Group, decode: &Candidate) -> Fit {
        let card = group.worker(decode).and_then(|worker| worker.card.as_deref());
        let mut fit = Fit::No;
        for prefill in &group.prefill {
            let admits = zone_factor(group, prefill, card).is_some();
            if !admits || is_excluded(group, prefill, self.exclude) {
                continue;
            }
            if !prefill.slot.is_suspect(self.at.now) {
                return Fit::Yes;
            }
            fit = Fit::Suspect;
        }
        fit
    }
}

impl Phase for DecodePhase<'_> {
    fn candidates<'g>(&self, group: &'g Group) -> &'g [Candidate] {
        &group.decode
    }

    #[inline]
    fn read(&self, _group: &Group, candidate: &Candidate) -> Reading {
        candidate.slot.decode(self.at)
    }

    #[inline]
    fn cost(&mut self, _group: &Group, candidate: &Candidate, backlog: u64) -> f64 {
        if self.blocks.0 != candidate.block_size {
            let size = u64::from(candidate.block_size.max(1));
            self.blocks = (candidate.block_size, self.prompt_tokens.div_ceil(size));
        }
        to_f64(backlog.saturating_add(self.blocks.1)) / candidate.capacity
    }

    fn all_fit(&self, group: &Group) -> bool {
        !self.wary || !group.pairs()
    }

    fn fit(&mut self, group: &Group, candidate: &Candidate) -> Fit {
        if !self.wary || !group.pairs() {
            return Fit::Yes;
        }
        let address = std::ptr::from_ref(group).addr();
        if self.fits.0 != address {
            self.fits = (address, vec![None; group.classes]);
        }
        let class = usize::try_from(candidate.zone).unwrap_or(usize::MAX);
        if let Some(Some(known)) = self.fits.1.get(class) {
            return *known;
        }
        let fit = self.partner(group, candidate);
        if let Some(place) = self.fits.1.get_mut(class) {
            *place = Some(fit);
        }
        fit
    }
}

/// The prefill side: `backlog / max_num_batched_tokens`.
pub(super) struct PrefillPhase {
    at: AsOf,
    /// Tokens of the prompt where a preferred domain weighs the cost. As upstream they count then, or an idle
    /// fleet would prefer nobody.
    own: u64,
    /// Factor of each zone for the chosen decode worker; empty when no zone asks anything.
    factors: Vec<Option<f64>>,
}

impl PrefillPhase {
    pub(super) fn new(at: AsOf, request: &Request<'_>, group: &Group, decode: Option<&Card>) -> Self {
        let free = matches!(group.zones.as_slice(), [super::topology::Zone::Free]);
        let factors = if free {
            Vec::new()
        } else {
            group.zones.iter().map(|zone| zone.factor(decode)).collect()
        };
        Self {
            at,
            own: if group.prefers { request.prompt_tokens } else { 0 },
            factors,
        }
    }

    fn factor(&self, candidate: &Candidate) -> Option<f64> {
        let zone = usize::try_from(candidate.zone).unwrap_or(usize::MAX);
        self.factors.get(zone).map_or(Some(1.0), |factor| *factor)
    }
}

impl Phase for PrefillPhase {
    fn candidates<'g>(&self, group: &'g Group) -> &'g [Candidate] {
        &group.prefill
    }

    #[inline]
    fn read(&self, _group: &Group, candidate: &Candidate) -> Reading {
        candidate.slot.prefill(self.at)
    }

    #[inline]
    fn cost(&mut self, _group: &Group, candidate: &Candidate, backlog: u64) -> f64 {
        to_f64(backlog.saturating_add(self.own)) / candidate.capacity * self.factor(candidate).unwrap_or(1.0)
    }

    fn all_fit(&self, _group: &Group) -> bool {
        self.factors.is_empty()
    }

    fn fit(&mut self, _group: &Group, candidate: &Candidate) -> Fit {
        if self.factor(candidate).is_some() {
            Fit::Yes
        } else {
            Fit::No
        }
    }
}

fn zone_factor(group: &Group, prefill: &Candidate, decode: Option<&Card>) -> Option<f64> {
    group
        .zones
        .get(usize::try_from(prefill.zone).ok()?)?
        .factor(decode)
}

#[expect(clippy::cast_precision_loss, reason = "a backlog beyond 2^53 is no backlog")]
const fn to_f64(count: u64) -> f64 {
    count as f64
}

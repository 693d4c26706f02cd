//! The pick with a known prompt: first who reads it, then, for a pair, who decodes.

use continuum_fleet::{
    ids::WorkerKey,
    view::{Card, Role},
};

use super::{
    Credit, Prompt,
    cost::{Known, Pair, bypasses},
};
use crate::{
    Millis,
    load::{
        Freshness, Store,
        slot::{AsOf, Reading},
    },
    picker::{
        NoPick, Reason, Request,
        choose::{Found, Outcome, Side, groups},
        contest::{self, Chance, Fit, Phase, Rules, is_excluded},
        cursor::Turn,
        group::{Candidate, Group},
        table::Table,
        topology::Zone,
    },
};

/// Picks by the prompt's blocks; `None` where nobody could be chosen so: the pick by load finds out why.
pub(in crate::picker) fn choose(
    table: &Table,
    store: &Store,
    request: &Request<'_>,
    prompt: &Prompt<'_>,
    now: Millis,
    turn: Turn,
) -> Result<Option<Outcome>, NoPick> {
    let model = table.model(request.model).ok_or(NoPick::NoModel)?;
    let groups = groups(model, request);
    let bare: Vec<&Group> = groups.iter().map(|(_, group)| *group).collect();
    let chance = |drawn| {
        let temperature = prompt.settings.temperature;
        // A dry run tells the likeliest.
        (temperature > 0.0 && turn == Turn::Take).then_some(Chance { temperature, drawn })
    };
    let [first, second] = prompt.chance;
    let rules = Rules {
        exclude: request.exclude,
        ties: request.settings.ties,
        turn,
        chance: chance(first),
    };
    let wary = !request.exclude.is_empty() || store.may_suspect(now);
    let at = AsOf::new(now, request.settings.max_staleness);
    let mut readers = Readers::new(at, request, prompt, wary, &bare);
    let Some((place, reason)) = contest::choose(&mut readers, &bare, rules, &model.cursors.prefill) else {
        return Ok(None);
    };
    let (graph, group) = *groups.get(place.group).ok_or(NoPick::NoCandidate)?;
    let reader = readers
        .candidates(group)
        .get(place.index)
        .ok_or(NoPick::NoCandidate)?;
    let known = Known::of(prompt, group, reader);
    let mut found = Found {
        groups: &groups,
        graph,
        group,
        decode: Side {
            place,
            reason: aware(reason),
        },
        prefill: None,
        credit: Some(known.credit),
    };
    if group.pairs() {
        let zone = zone(group, reader).unwrap_or(&Zone::Free);
        let mut phase = Partners::new(at, prompt, zone);
        let rules = Rules {
            chance: chance(second).filter(|_| phase.reads),
            ..rules
        };
        let chosen = contest::choose(&mut phase, &[group], rules, &model.cursors.decode);
        let Some((partner, reason)) = chosen else {
            return Ok(None);
        };
        let partner = contest::Place {
            group: place.group,
            ..partner
        };
        let decode = group.decode.get(partner.index).ok_or(NoPick::NoCandidate)?;
        let side = |reason| Side {
            place: partner,
            reason,
        };
        if let Some(credit) = phase.bypass(group, reader, decode) {
            found.decode = side(Reason::ConditionalBypass);
            found.credit = Some(credit);
        } else {
            found.prefill = Some(found.decode);
            found.decode = side(if phase.reads { aware(reason) } else { reason });
        }
    }
    found.outcome().map(Some)
}

/// Where costs told candidates apart, the prompt's blocks took part in it.
const fn aware(reason: Reason) -> Reason {
    match reason {
        Reason::RoundRobinStale => Reason::RoundRobinStale,
        Reason::Load
        | Reason::Booked
        | Reason::KvAware
        | Reason::ConditionalBypass
        | Reason::NoPrefillPool
        | Reason::NoCandidate => Reason::KvAware,
    }
}

pub(in crate::picker) fn zone<'g>(group: &'g Group, prefill: &Candidate) -> Option<&'g Zone> {
    group.zones.get(usize::try_from(prefill.zone).ok()?)
}

/// Those that can read a prompt: prefill workers where pairs serve, else whoever serves alone.
pub(in crate::picker) struct Readers<'r> {
    at: AsOf,
    prompt: &'r Prompt<'r>,
    exclude: &'r [WorkerKey],
    /// Somebody is excluded or suspect, so that a pair may be impossible now.
    wary: bool,
    /// Prefill work of the least busy candidate, tokens; known where credit fades.
    least: u64,
    /// Whether a zone has a partner now, for the group seen last.
    fits: (usize, Vec<Option<Fit>>),
}

impl<'r> Readers<'r> {
    pub(in crate::picker) fn new(
        at: AsOf,
        request: &Request<'r>,
        prompt: &'r Prompt<'r>,
        wary: bool,
        groups: &[&Group],
    ) -> Self {
        let mut this = Self {
            at,
            prompt,
            exclude: request.exclude,
            wary,
            least: 0,
            fits: (0, Vec::new()),
        };
        if prompt.settings.overlap_score_credit_decay > 0.0 {
            let all = groups.iter().flat_map(|group| {
                let candidates = this.candidates(group).iter();
                candidates.map(|candidate| this.prefill_work(candidate))
            });
            this.least = all.min().unwrap_or(0);
        }
        this
    }

    /// Tokens that a rank has to read before this prompt, as far as samples and bookings tell.
    fn prefill_work(&self, candidate: &Candidate) -> u64 {
        as_known(candidate.slot.prefill(self.at)).backlog
    }

    fn partner(&self, group: &Group, prefill: &Candidate) -> Fit {
        let Some(zone) = zone(group, prefill) else {
            return Fit::Yes;
        };
        let mut fit = Fit::No;
        for decode in &group.decode {
            if zone.factor(card(group, decode)).is_none() || is_excluded(group, decode, self.exclude) {
                continue;
            }
            if !decode.slot.is_suspect(self.at.now) {
                return Fit::Yes;
            }
            fit = Fit::Suspect;
        }
        fit
    }
}

impl Phase for Readers<'_> {
    fn credit(&self, group: &Group, candidate: &Candidate) -> Option<Credit> {
        Some(Known::of(self.prompt, group, candidate).credit)
    }

    fn candidates<'g>(&self, group: &'g Group) -> &'g [Candidate] {
        if group.pairs() {
            &group.prefill
        } else {
            &group.decode
        }
    }

    fn read(&self, group: &Group, candidate: &Candidate) -> Reading {
        as_known(if group.pairs() {
            candidate.slot.prefill(self.at)
        } else {
            candidate.slot.decode(self.at)
        })
    }

    /// Blocks need no capacity to be compared.
    fn is_defined(&self, _candidate: &Candidate) -> bool {
        true
    }

    fn cost(&mut self, group: &Group, candidate: &Candidate, backlog: u64) -> f64 {
        let (prefill, decode) = if group.pairs() {
            (backlog, 0)
        } else {
            (self.prefill_work(candidate), backlog)
        };
        Known::of(self.prompt, group, candidate).reading(self.prompt, prefill, decode, self.least)
    }

    fn all_fit(&self, group: &Group) -> bool {
        !group.pairs() || (!self.wary && matches!(group.zones.as_slice(), [Zone::Free]))
    }

    fn fit(&mut self, group: &Group, candidate: &Candidate) -> Fit {
        if self.all_fit(group) {
            return Fit::Yes;
        }
        let address = std::ptr::from_ref(group).addr();
        if self.fits.0 != address {
            self.fits = (address, vec![None; group.zones.len()]);
        }
        let zone = usize::try_from(candidate.zone).unwrap_or(usize::MAX);
        if let Some(Some(known)) = self.fits.1.get(zone) {
            return *known;
        }
        let fit = self.partner(group, candidate);
        if let Some(place) = self.fits.1.get_mut(zone) {
            *place = Some(fit);
        }
        fit
    }
}

/// Decode workers for the prompt of a chosen prefill worker.
pub(in crate::picker) struct Partners<'r> {
    at: AsOf,
    prompt: &'r Prompt<'r>,
    /// What the prefill worker asks.
    zone: &'r Zone,
    /// They may read the prompt themselves, so that what they hold of it counts.
    reads: bool,
}

impl<'r> Partners<'r> {
    pub(in crate::picker) const fn new(at: AsOf, prompt: &'r Prompt<'r>, zone: &'r Zone) -> Self {
        Self {
            at,
            prompt,
            zone,
            reads: prompt.settings.bypass.is_some(),
        }
    }

    /// What the decode rank holds of the prompt, if it is to read it itself.
    fn bypass(&self, group: &Group, prefill: &Candidate, decode: &Candidate) -> Option<Credit> {
        let bypass = self.prompt.settings.bypass.as_ref()?;
        let credit = Known::of(self.prompt, group, decode).credit;
        let capacity = |candidate: &Candidate| card(group, candidate).map(|card| card.capacity);
        let reading = decode.slot.decode(self.at);
        let blocks = self.prompt.tokens.div_ceil(u64::from(decode.block_size.max(1)));
        let pair = Pair {
            prompt: self.prompt.tokens,
            uncached: credit.uncached_tokens,
            prefill: (
                as_known(prefill.slot.prefill(self.at)).backlog,
                capacity(prefill).and_then(|capacity| capacity.max_num_batched_tokens),
            ),
            decode: (
                (reading.sample == Freshness::Fresh).then(|| reading.backlog.saturating_add(blocks)),
                capacity(decode).and_then(|capacity| capacity.total_kv_blocks),
            ),
        };
        bypasses(bypass, &pair).then_some(credit)
    }
}

impl Phase for Partners<'_> {
    fn credit(&self, group: &Group, candidate: &Candidate) -> Option<Credit> {
        Some(Known::of(self.prompt, group, candidate).credit)
    }

    fn candidates<'g>(&self, group: &'g Group) -> &'g [Candidate] {
        &group.decode
    }

    fn read(&self, _group: &Group, candidate: &Candidate) -> Reading {
        as_known(candidate.slot.decode(self.at))
    }

    fn is_defined(&self, candidate: &Candidate) -> bool {
        self.reads || candidate.capacity > 0.0
    }

    fn cost(&mut self, group: &Group, candidate: &Candidate, backlog: u64) -> f64 {
        let known = Known::of(self.prompt, group, candidate);
        let cost = if self.reads {
            known.decoding(backlog)
        } else {
            known.holding(backlog) / candidate.capacity
        };
        cost * self.zone.factor(card(group, candidate)).unwrap_or(1.0)
    }

    fn all_fit(&self, _group: &Group) -> bool {
        *self.zone == Zone::Free
    }

    fn fit(&mut self, group: &Group, candidate: &Candidate) -> Fit {
        match self.zone.factor(card(group, candidate)) {
            Some(_) => Fit::Yes,
            None => Fit::No,
        }
    }
}

/// A sample may be older than a dispatch that it is heard after, and is older than an end that is heard after it: what
/// has ended since is not in front any more, and a rank has no less in front than what is open there. Where prompts are
/// known, what they share is booked once, so that the sum of bookings is no overestimate.
fn as_known(reading: Reading) -> Reading {
    let backlog = match reading.sample {
        Freshness::Fresh => reading.backlog.saturating_sub(reading.ended).max(reading.open),
        Freshness::Quiet | Freshness::Stale | Freshness::Stalled | Freshness::Unknown => reading.open,
    };
    Reading { backlog, ..reading }
}

fn card<'g>(group: &'g Group, candidate: &Candidate) -> Option<&'g Card> {
    let worker = group.worker(candidate)?;
    debug_assert!(worker.role != Role::Encode, "encode workers have no candidates");
    worker.card.as_deref()
}

//! One phase of a pick: from candidates and their readings to the one that is chosen, and why.
//!
//! Where a fresh sample exists, the cheapest of those whose cost is defined wins: fresh ranks by sample and
//! bookings, quiet and unknown ones by bookings alone. Where none exists, our bookings compare everybody, and
//! where these say nothing the cursor does. Suspects, and then stalled ranks, stand back as long as others can
//! be chosen.
//!
//! One scan settles almost every pick. It counts equals by stretches of candidates, so that the one whose turn it
//! is can be found again without a second scan of all.

use continuum_fleet::ids::WorkerKey;

use super::{
    Reason, Ties,
    cursor::{Cursor, Turn},
    group::{Candidate, Group},
    kv::Credit,
};
use crate::{
    limits::STRETCHES,
    load::{Freshness, slot::Reading},
};

/// How one phase reads and weighs a candidate.
pub(super) trait Phase {
    /// The candidates of a group that take part.
    fn candidates<'g>(&self, group: &'g Group) -> &'g [Candidate];
    /// Samples and bookings of a candidate.
    fn read(&self, group: &Group, candidate: &Candidate) -> Reading;
    /// Whether the candidate has a cost.
    fn is_defined(&self, candidate: &Candidate) -> bool {
        candidate.capacity > 0.0
    }
    /// The cost of a candidate with this backlog, if it has one.
    fn cost(&mut self, group: &Group, candidate: &Candidate, backlog: u64) -> f64;
    /// What is known of the prompt at a candidate.
    fn credit(&self, _group: &Group, _candidate: &Candidate) -> Option<Credit> {
        None
    }
    /// Whether every candidate of the group can take part, as far as the rest of the pick goes.
    fn all_fit(&self, group: &Group) -> bool;
    /// Whether the candidate can take part, depending on the rest of the pick.
    fn fit(&mut self, group: &Group, candidate: &Candidate) -> Fit;
}

/// Whether a candidate can take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Yes,
    /// Only if nobody else can: its peer is suspect.
    Suspect,
    No,
}

/// Where a candidate stands: its group among those of the pick, and its place there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) group: usize,
    pub(super) index: usize,
}

/// How choices are made in this pick.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules<'a> {
    pub(super) exclude: &'a [WorkerKey],
    pub(super) ties: Ties,
    pub(super) turn: Turn,
    pub(super) chance: Option<Chance>,
}

/// A choice by chance: the cheaper, the likelier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chance {
    /// Above 0; the higher, the less cost counts.
    pub(super) temperature: f64,
    /// A random number in `0.0..1.0`.
    pub(super) drawn: f64,
}

/// Chooses one candidate of one phase.
pub(super) fn choose(
    phase: &mut impl Phase,
    groups: &[&Group],
    rules: Rules<'_>,
    cursor: &Cursor,
) -> Option<(Place, Reason)> {
    let total = groups
        .iter()
        .map(|group| phase.candidates(group).len())
        .sum::<usize>();
    let mut pass = Pass {
        mode: Mode::Informed,
        suspects: false,
        stalled: false,
    };
    let mut tally = Tally::new(total);
    scan(phase, groups, rules, pass, &mut tally);
    if tally.present == 0 && tally.suspects {
        pass.suspects = true;
        scan(phase, groups, rules, pass, &mut tally);
    }
    if tally.present == 0 {
        return None;
    }
    let mut reason = Reason::Load;
    if tally.fresh && tally.count == 0 {
        pass.stalled = true;
        scan(phase, groups, rules, pass, &mut tally);
    } else if !tally.fresh {
        if tally.undefined {
            pass.mode = Mode::Everybody;
            scan(phase, groups, rules, pass, &mut tally);
        } else if tally.differs {
            pass.mode = Mode::Booked;
            scan(phase, groups, rules, pass, &mut tally);
        }
        reason = if tally.count == tally.present {
            Reason::RoundRobinStale
        } else {
            Reason::Booked
        };
    }
    if let Some(chance) = rules.chance
        && let Some(place) = sample(phase, groups, rules, pass, chance)
    {
        return Some((place, reason));
    }
    let turn = cursor.among(tally.count, rules.ties, rules.turn);
    let (from, nth) = tally.stretch_of(turn);
    let end = from.saturating_add(tally.stretch);
    let found = find(phase, groups, rules, pass, tally.best, (from, end), nth);
    // Somebody wrote since the scan: the first of the equals is as good.
    Some((found.unwrap_or(tally.first), reason))
}

/// Whether a worker is out because an earlier try failed on it.
pub(super) fn is_excluded(group: &Group, candidate: &Candidate, exclude: &[WorkerKey]) -> bool {
    !exclude.is_empty()
        && group
            .worker(candidate)
            .is_some_and(|worker| exclude.contains(&worker.key))
}

/// Who is compared in a scan, and by what.
#[derive(Clone, Copy, Debug)]
struct Pass {
    mode: Mode,
    /// Suspects take part.
    suspects: bool,
    /// Stalled ranks take part.
    stalled: bool,
}

/// By what candidates are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Samples, and bookings where there are none.
    Informed,
    /// Bookings alone.
    Booked,
    /// Nothing.
    Everybody,
}

/// What a scan has found.
struct Tally {
    /// Candidates that take part.
    present: u64,
    /// A fresh sample with a defined cost is among them.
    fresh: bool,
    /// One of them has no known capacity.
    undefined: bool,
    /// One of them has bookings to compare, but no cost next to fresh samples.
    differs: bool,
    /// A suspect was left out.
    suspects: bool,
    /// The lowest cost, how many have it, and the first of them.
    best: f64,
    count: u64,
    first: Place,
    /// Positions in one stretch, and equals in each stretch so far.
    stretch: usize,
    equals: [u32; STRETCHES],
}

impl Tally {
    fn new(total: usize) -> Self {
        Self {
            present: 0,
            fresh: false,
            undefined: false,
            differs: false,
            suspects: false,
            best: f64::INFINITY,
            count: 0,
            first: Place::default(),
            stretch: total.div_ceil(STRETCHES).max(1),
            equals: [0; STRETCHES],
        }
    }

    #[inline]
    fn offer(&mut self, cost: f64, place: Place, stretch: usize) {
        if cost > self.best {
            return;
        }
        if cost < self.best || self.count == 0 {
            self.best = cost;
            self.count = 0;
            self.first = place;
            self.equals
                .iter_mut()
                .take(stretch + 1)
                .for_each(|equals| *equals = 0);
        }
        self.count += 1;
        if let Some(equals) = self.equals.get_mut(stretch) {
            *equals += 1;
        }
    }

    /// Where the stretch of one of the equals begins, and how many equals come before it there.
    fn stretch_of(&self, turn: u64) -> (usize, u64) {
        let mut before = 0;
        for (stretch, equals) in self.equals.iter().enumerate() {
            let next = before + u64::from(*equals);
            if turn < next {
                return (stretch * self.stretch, turn - before);
            }
            before = next;
        }
        (0, 0)
    }
}

fn scan(phase: &mut impl Phase, groups: &[&Group], rules: Rules<'_>, pass: Pass, tally: &mut Tally) {
    *tally = Tally {
        stretch: tally.stretch,
        ..Tally::new(0)
    };
    let (mut stretch, mut left) = (0, tally.stretch);
    for (group_index, group) in groups.iter().enumerate() {
        let everybody = rules.exclude.is_empty() && phase.all_fit(group);
        for (index, candidate) in phase.candidates(group).iter().enumerate() {
            if left == 0 {
                (stretch, left) = (stretch + 1, tally.stretch);
            }
            left -= 1;
            let reading = phase.read(group, candidate);
            if !everybody || reading.suspect {
                match standing(phase, group, candidate, &reading, rules) {
                    Fit::Yes => {}
                    Fit::No => continue,
                    Fit::Suspect if pass.suspects => {}
                    Fit::Suspect => {
                        tally.suspects = true;
                        continue;
                    }
                }
            }
            tally.present += 1;
            let defined = phase.is_defined(candidate);
            tally.undefined |= !defined;
            tally.fresh |= defined && reading.sample == Freshness::Fresh;
            if let Some(cost) = cost(phase, group, candidate, &reading, pass) {
                tally.offer(
                    cost,
                    Place {
                        group: group_index,
                        index,
                    },
                    stretch,
                );
            } else {
                tally.differs |= defined;
            }
        }
    }
}

/// The candidate with `nth` equals before it in a range of positions.
fn find(
    phase: &mut impl Phase,
    groups: &[&Group],
    rules: Rules<'_>,
    pass: Pass,
    best: f64,
    (from, end): (usize, usize),
    nth: u64,
) -> Option<Place> {
    let (mut start, mut left) = (0_usize, nth);
    for (group_index, group) in groups.iter().enumerate() {
        let candidates = phase.candidates(group);
        let (low, high) = (
            from.saturating_sub(start),
            end.saturating_sub(start).min(candidates.len()),
        );
        start += candidates.len();
        let mine = candidates.iter().enumerate().take(high).skip(low);
        for (index, candidate) in mine {
            let reading = phase.read(group, candidate);
            let fit = standing(phase, group, candidate, &reading, rules);
            if fit == Fit::No || (fit == Fit::Suspect && !pass.suspects) {
                continue;
            }
            if cost(phase, group, candidate, &reading, pass).is_some_and(|cost| cost <= best) {
                if left == 0 {
                    return Some(Place {
                        group: group_index,
                        index,
                    });
                }
                left -= 1;
            }
        }
    }
    None
}

/// Draws one of those that have a cost in this pass: `exp(-(cost - least) / (range * temperature))` is its weight, as
/// upstream, so that the unit of the costs does not matter.
fn sample(
    phase: &mut impl Phase,
    groups: &[&Group],
    rules: Rules<'_>,
    pass: Pass,
    chance: Chance,
) -> Option<Place> {
    let mut costs = Vec::new();
    for (group_index, group) in groups.iter().enumerate() {
        for (index, candidate) in phase.candidates(group).iter().enumerate() {
            let reading = phase.read(group, candidate);
            let fit = standing(phase, group, candidate, &reading, rules);
            if fit == Fit::No || (fit == Fit::Suspect && !pass.suspects) {
                continue;
            }
            let cost = cost(phase, group, candidate, &reading, pass).filter(|cost| cost.is_finite());
            let place = Place {
                group: group_index,
                index,
            };
            costs.extend(cost.map(|cost| (cost, place)));
        }
    }
    let least = costs.iter().map(|(cost, _)| *cost).fold(f64::INFINITY, f64::min);
    let most = costs
        .iter()
        .map(|(cost, _)| *cost)
        .fold(f64::NEG_INFINITY, f64::max);
    let scale = (most - least) * chance.temperature;
    let weight = |cost: f64| {
        if scale > 0.0 {
            (-(cost - least) / scale).exp()
        } else {
            1.0
        }
    };
    let total: f64 = costs.iter().map(|(cost, _)| weight(*cost)).sum();
    let mut left = chance.drawn * total;
    for (cost, place) in &costs {
        left -= weight(*cost);
        if left < 0.0 {
            return Some(*place);
        }
    }
    costs.last().map(|(_, place)| *place)
}

/// Whether a candidate takes part.
fn standing(
    phase: &mut impl Phase,
    group: &Group,
    candidate: &Candidate,
    reading: &Reading,
    rules: Rules<'_>,
) -> Fit {
    if is_excluded(group, candidate, rules.exclude) {
        return Fit::No;
    }
    match phase.fit(group, candidate) {
        Fit::Yes if reading.suspect => Fit::Suspect,
        fit @ (Fit::Yes | Fit::Suspect | Fit::No) => fit,
    }
}

/// The cost of a candidate in a pass, if it has one.
#[inline]
fn cost(
    phase: &mut impl Phase,
    group: &Group,
    candidate: &Candidate,
    reading: &Reading,
    pass: Pass,
) -> Option<f64> {
    let backlog = match pass.mode {
        Mode::Everybody => return Some(0.0),
        _ if !phase.is_defined(candidate) => return None,
        Mode::Booked => reading.open,
        Mode::Informed if reading.stalled && !pass.stalled => return None,
        Mode::Informed => match reading.sample {
            Freshness::Fresh => reading.backlog,
            Freshness::Quiet | Freshness::Unknown | Freshness::Stalled => reading.open,
            Freshness::Stale => return None,
        },
    };
    Some(phase.cost(group, candidate, backlog))
}

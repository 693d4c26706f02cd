//! One phase of a pick: from candidates and their readings to the one that is chosen, and why.
//!
//! Where a fresh sample exists, the cheapest of those whose cost is defined wins: fresh ranks by sample and
//! bookings, quiet and unknown ones by bookings alone. Where none exists, our bookings compare everybody, and
//! where these say nothing the cursor does. Suspects, and then stalled ranks, stand back as long as others can
//! be chosen.

use continuum_fleet::ids::WorkerKey;

use super::{
    Reason, Ties,
    cursor::{Cursor, Turn},
    group::{Candidate, Group},
};
use crate::{
    limits::TIES,
    load::{Freshness, slot::Reading},
};

/// How one phase reads and weighs a candidate.
pub(super) trait Phase {
    /// The candidates of a group that take part.
    fn candidates<'g>(&self, group: &'g Group) -> &'g [Candidate];
    /// Samples and bookings of a candidate.
    fn read(&self, candidate: &Candidate) -> Reading;
    /// The cost of a candidate with this backlog; its capacity is known.
    fn cost(&mut self, candidate: &Candidate, backlog: u64) -> f64;
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
}

/// Chooses one candidate of one phase.
pub(super) fn choose(
    phase: &mut impl Phase,
    groups: &[&Group],
    rules: Rules<'_>,
    cursor: &Cursor,
) -> Option<(Place, Reason)> {
    let mut pass = Pass {
        suspects: false,
        stalled: false,
    };
    let mut tally = scan(phase, groups, rules, pass);
    if tally.present == 0 && tally.suspects {
        pass.suspects = true;
        tally = scan(phase, groups, rules, pass);
    }
    if tally.fresh && tally.informed.count == 0 {
        pass.stalled = true;
        tally = scan(phase, groups, rules, pass);
    }
    if tally.present == 0 {
        return None;
    }
    let (field, mode, reason) = if tally.fresh {
        (&tally.informed, Mode::Informed, Reason::Load)
    } else if tally.undefined {
        (&tally.everybody, Mode::Everybody, Reason::RoundRobinStale)
    } else if tally.booked.count == tally.present {
        (&tally.booked, Mode::Booked, Reason::RoundRobinStale)
    } else {
        (&tally.booked, Mode::Booked, Reason::Booked)
    };
    let turn = cursor.among(field.count, rules.ties, rules.turn);
    let place = field.place(turn).or_else(|| {
        let first = field.place(turn % to_u64(TIES));
        nth(phase, groups, rules, pass, mode, field.best, turn).or(first)
    })?;
    Some((place, reason))
}

/// Whether a worker is out because an earlier try failed on it.
pub(super) fn is_excluded(group: &Group, candidate: &Candidate, exclude: &[WorkerKey]) -> bool {
    !exclude.is_empty()
        && group
            .worker(candidate)
            .is_some_and(|worker| exclude.contains(&worker.key))
}

/// Who stands back in a pass.
#[derive(Clone, Copy, Debug)]
struct Pass {
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
    /// A suspect was left out.
    suspects: bool,
    informed: Field,
    booked: Field,
    everybody: Field,
}

/// The cheapest candidates seen so far.
struct Field {
    best: f64,
    count: u64,
    places: [Place; TIES],
}

impl Field {
    const fn new() -> Self {
        Self {
            best: f64::INFINITY,
            count: 0,
            places: [Place { group: 0, index: 0 }; TIES],
        }
    }

    fn offer(&mut self, cost: f64, place: Place) {
        if cost < self.best || self.count == 0 {
            self.best = cost;
            self.count = 0;
        } else if cost > self.best {
            return;
        }
        if let Some(free) = usize::try_from(self.count)
            .ok()
            .and_then(|count| self.places.get_mut(count))
        {
            *free = place;
        }
        self.count += 1;
    }

    /// The place of one of the equals, as far as they are remembered.
    fn place(&self, turn: u64) -> Option<Place> {
        let place = self.places.get(usize::try_from(turn).ok()?)?;
        (turn < self.count).then_some(*place)
    }
}

fn scan(phase: &mut impl Phase, groups: &[&Group], rules: Rules<'_>, pass: Pass) -> Tally {
    let mut tally = Tally {
        present: 0,
        fresh: false,
        undefined: false,
        suspects: false,
        informed: Field::new(),
        booked: Field::new(),
        everybody: Field::new(),
    };
    visit(
        phase,
        groups,
        rules,
        pass,
        &mut tally.suspects,
        |phase, candidate, reading, place| {
            tally.present += 1;
            if candidate.capacity <= 0.0 {
                tally.undefined = true;
                tally.everybody.offer(0.0, place);
                return true;
            }
            let stands_back = reading.stalled && !pass.stalled;
            match reading.sample {
                Freshness::Fresh => {
                    tally.fresh = true;
                    if !stands_back {
                        let cost = phase.cost(candidate, reading.backlog);
                        tally.informed.offer(cost, place);
                    }
                }
                Freshness::Quiet | Freshness::Unknown | Freshness::Stalled => {
                    let cost = phase.cost(candidate, reading.open);
                    if !stands_back {
                        tally.informed.offer(cost, place);
                    }
                    if !tally.fresh {
                        tally.booked.offer(cost, place);
                    }
                }
                Freshness::Stale => {
                    if !tally.fresh {
                        let cost = phase.cost(candidate, reading.open);
                        tally.booked.offer(cost, place);
                    }
                }
            }
            if !tally.fresh {
                tally.everybody.offer(0.0, place);
            }
            true
        },
    );
    tally
}

/// The candidate whose turn it is among more equals than a field remembers.
fn nth(
    phase: &mut impl Phase,
    groups: &[&Group],
    rules: Rules<'_>,
    pass: Pass,
    mode: Mode,
    best: f64,
    turn: u64,
) -> Option<Place> {
    let mut left = turn;
    let mut found = None;
    visit(
        phase,
        groups,
        rules,
        pass,
        &mut false,
        |phase, candidate, reading, place| {
            let cost = match mode {
                Mode::Everybody => Some(0.0),
                Mode::Booked => Some(phase.cost(candidate, reading.open)),
                Mode::Informed if candidate.capacity <= 0.0 || (reading.stalled && !pass.stalled) => None,
                Mode::Informed => match reading.sample {
                    Freshness::Fresh => Some(phase.cost(candidate, reading.backlog)),
                    Freshness::Quiet | Freshness::Unknown | Freshness::Stalled => {
                        Some(phase.cost(candidate, reading.open))
                    }
                    Freshness::Stale => None,
                },
            };
            if cost.is_some_and(|cost| cost <= best) {
                if left == 0 {
                    found = Some(place);
                    return false;
                }
                left -= 1;
            }
            true
        },
    );
    found
}

/// Goes through the candidates that take part in a pass, in order, until `each` says no.
fn visit<P: Phase>(
    phase: &mut P,
    groups: &[&Group],
    rules: Rules<'_>,
    pass: Pass,
    suspects: &mut bool,
    mut each: impl FnMut(&mut P, &Candidate, Reading, Place) -> bool,
) {
    for (group_index, group) in groups.iter().enumerate() {
        for (index, candidate) in phase.candidates(group).iter().enumerate() {
            if is_excluded(group, candidate, rules.exclude) {
                continue;
            }
            let reading = phase.read(candidate);
            let fit = phase.fit(group, candidate);
            if fit == Fit::No {
                continue;
            }
            if !pass.suspects && (reading.suspect || fit == Fit::Suspect) {
                *suspects = true;
                continue;
            }
            if !each(
                phase,
                candidate,
                reading,
                Place {
                    group: group_index,
                    index,
                },
            ) {
                return;
            }
        }
    }
}

fn to_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

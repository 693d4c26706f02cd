//! A naive model that remembers everything and computes each answer from the start, against the real thing.

use std::collections::BTreeMap;

use continuum_fleet::{ids::PublisherId, view::Role};
use proptest::prelude::*;

use crate::{
    Millis,
    load::{Booking, Freshness, Sample},
    picker::{Pick, Reason},
    rig::{Build, NS, Rig, aggregated, decode, decode_of, key, prefill, prefill_of, silent},
};

const MAX_STALENESS: u64 = 3_000;

#[derive(Clone, Debug)]
enum Op {
    /// Publisher, worker, sequence, and the three fields.
    Sample(u64, u64, u64, [Option<u64>; 3]),
    Forget(u64),
    Cover(bool),
    /// Prompt tokens, streamed.
    Book(u64, bool),
    /// One of the open bookings.
    FirstByte(prop::sample::Index),
    End(prop::sample::Index),
    Suspect(u64),
    Pass(u64),
}

fn any_op() -> impl Strategy<Value = Op> {
    let field = || prop_oneof![Just(None), Just(Some(0)), (1..40_u64).prop_map(Some)];
    prop_oneof![
        6 => (1..3_u64, 1..5_u64, 0..40_u64, field(), field(), field())
            .prop_map(|(publisher, worker, sequence, a, b, c)| Op::Sample(publisher, worker, sequence, [a, b, c])),
        1 => (1..3_u64).prop_map(Op::Forget),
        1 => any::<bool>().prop_map(Op::Cover),
        5 => (1..600_u64, any::<bool>()).prop_map(|(tokens, streamed)| Op::Book(tokens, streamed)),
        3 => any::<prop::sample::Index>().prop_map(Op::FirstByte),
        3 => any::<prop::sample::Index>().prop_map(Op::End),
        1 => (1..5_u64).prop_map(Op::Suspect),
        4 => prop_oneof![0..50_u64, 900..1_100_u64, 2_990..3_010_u64, 4_990..5_010_u64, Just(25_000)]
            .prop_map(Op::Pass),
    ]
}

/// Everything that ever happened.
#[derive(Default)]
struct Model {
    roles: BTreeMap<u64, Role>,
    capacity: BTreeMap<u64, f64>,
    now: u64,
    step: u64,
    covered: bool,
    samples: Vec<Told>,
    bookings: Vec<Booked>,
    rates: BTreeMap<u64, f64>,
    suspects: BTreeMap<u64, u64>,
}

struct Told {
    step: u64,
    at: u64,
    publisher: u64,
    worker: u64,
    sequence: u64,
    fields: [Option<u64>; 3],
    /// Its publisher has been forgotten since: it is no longer believed, but it was an answer.
    forgotten: Option<u64>,
}

struct Booked {
    step: u64,
    at: u64,
    decode: u64,
    prefill: Option<u64>,
    tokens: u64,
    streamed: bool,
    due: Option<u64>,
    /// When the prefill of a pair ended.
    arrived: Option<u64>,
    open: bool,
}

impl Booked {
    fn blocks(&self) -> u64 {
        self.tokens.div_ceil(16)
    }

    /// Since when a sample of the decode rank may contain it.
    fn there_since(&self) -> Option<u64> {
        if self.prefill.is_some() {
            self.arrived
        } else {
            Some(self.step)
        }
    }
}

/// One phase of one worker.
#[derive(Debug, PartialEq)]
struct View {
    sample: Freshness,
    stalled: bool,
    suspect: bool,
    backlog: u64,
    open: u64,
}

impl Model {
    fn believed(&self, worker: u64, field: usize) -> Option<(u64, u64)> {
        let mine = self
            .samples
            .iter()
            .filter(|told| told.worker == worker && told.forgotten.is_none());
        mine.filter_map(|told| told.fields[field].map(|value| (value, told.at)))
            .next_back()
    }

    fn view(&self, worker: u64) -> View {
        let prefill = self.roles[&worker] == Role::Prefill;
        let fields: &[usize] = if prefill { &[1] } else { &[0, 2] };
        let sampled =
            |told: &&Told| told.worker == worker && fields.iter().any(|field| told.fields[*field].is_some());
        let last_sample = self.samples.iter().filter(sampled).map(|told| told.step).max();
        let open: Vec<&Booked> = self.bookings.iter().filter(|booked| booked.open).collect();
        let mine = open.iter().filter(|booked| {
            if prefill {
                booked.prefill == Some(worker) && booked.arrived.is_none()
            } else {
                booked.decode == worker
            }
        });
        let amount = |booked: &Booked| if prefill { booked.tokens } else { booked.blocks() };
        let after = mine.clone().filter(|booked| {
            let since = if prefill {
                Some(booked.step)
            } else {
                booked.there_since()
            };
            since.is_none_or(|since| last_sample.is_none_or(|last| last < since))
        });
        let (open_sum, after): (u64, u64) = (
            mine.clone().map(|booked| amount(booked)).sum(),
            after.map(|booked| amount(booked)).sum(),
        );

        let known: Vec<(u64, u64)> = fields
            .iter()
            .filter_map(|field| self.believed(worker, *field))
            .collect();
        let fresh = known.iter().find(|(_, at)| self.now - at <= MAX_STALENESS);
        // The newer field; the first one if both are of one moment.
        let newest = known.iter().map(|(_, at)| *at).max();
        let last = newest.and_then(|newest| known.iter().find(|(_, at)| *at == newest));
        let sample = match (fresh, last) {
            (Some(_), _) => Freshness::Fresh,
            _ if !self.covered => Freshness::Unknown,
            (None, Some((value, _))) if *value > 0 => Freshness::Stale,
            _ => Freshness::Quiet,
        };
        // An answer is any sample of the worker, and the forgetting of one that was still believed.
        let answers = self.samples.iter().filter(|told| told.worker == worker);
        let answered = answers
            .flat_map(|told| [Some(told.step), told.forgotten])
            .flatten()
            .max();
        let waits = |booked: &&&Booked| {
            booked.prefill.is_none()
                && booked.blocks() >= 2
                && answered.is_none_or(|answered| answered < booked.step)
                && (5_000..30_000).contains(&(self.now - booked.at))
        };
        View {
            sample,
            stalled: !prefill && self.covered && mine.clone().any(|booked| waits(&booked)),
            suspect: self.suspects.get(&worker).is_some_and(|until| *until > self.now),
            backlog: fresh.map_or(open_sum, |(value, _)| value + after),
            open: open_sum,
        }
    }

    /// All best candidates of some roles, and the reason.
    fn best(&self, roles: &[Role], own: u64, wary_of: &dyn Fn(u64) -> bool) -> (Vec<u64>, Reason) {
        let all: Vec<u64> = self
            .roles
            .iter()
            .filter(|(_, role)| roles.contains(role))
            .map(|(id, _)| *id)
            .collect();
        let is_suspect = |id: &u64| self.view(*id).suspect || wary_of(*id);
        let trusted: Vec<u64> = all.iter().copied().filter(|id| !is_suspect(id)).collect();
        let pool = if trusted.is_empty() { all } else { trusted };
        let cost = |id: u64, backlog: u64| (backlog + own) as f64 / self.capacity[&id];
        let informed = pool.iter().any(|id| self.view(*id).sample == Freshness::Fresh);
        let mut costs: Vec<(u64, f64)> = Vec::new();
        if informed {
            let defined = pool
                .iter()
                .filter(|id| self.view(**id).sample != Freshness::Stale);
            let lively: Vec<u64> = defined
                .clone()
                .copied()
                .filter(|id| !self.view(*id).stalled)
                .collect();
            let compete = if lively.is_empty() {
                defined.copied().collect()
            } else {
                lively
            };
            costs.extend(compete.iter().map(|id| (*id, cost(*id, self.view(*id).backlog))));
        } else {
            costs.extend(pool.iter().map(|id| (*id, cost(*id, self.view(*id).open))));
        }
        let least = costs.iter().map(|(_, cost)| *cost).fold(f64::INFINITY, f64::min);
        let best: Vec<u64> = costs
            .iter()
            .filter(|(_, cost)| *cost == least)
            .map(|(id, _)| *id)
            .collect();
        let reason = match (informed, best.len() == pool.len()) {
            (true, _) => Reason::Load,
            (false, true) => Reason::RoundRobinStale,
            (false, false) => Reason::Booked,
        };
        (best, reason)
    }

    fn prefill_ended(&mut self, place: usize, took: Option<u64>) {
        let booked = &mut self.bookings[place];
        let Some(worker) = booked.prefill.filter(|_| booked.arrived.is_none()) else {
            return;
        };
        booked.arrived = Some(self.step);
        if let Some(took) = took {
            let seen = booked.tokens as f64 / took.max(1) as f64;
            let rate = self
                .rates
                .get(&worker)
                .map_or(seen, |rate| rate + 0.25 * (seen - rate));
            self.rates.insert(worker, rate);
        }
    }

    fn advance(&mut self) {
        for place in 0..self.bookings.len() {
            let booked = &self.bookings[place];
            if booked.open && booked.due.is_some_and(|due| due <= self.now) {
                self.prefill_ended(place, None);
            }
        }
    }
}

/// Both side by side.
struct Pair {
    rig: Rig,
    model: Model,
    open: Vec<(usize, Booking)>,
}

impl Pair {
    fn new(workers: &[Build]) -> Self {
        let mut model = Model {
            covered: true,
            now: 100_000,
            ..Model::default()
        };
        for Build(worker) in workers {
            let capacity = worker.card.as_ref().unwrap().capacity;
            let divisor = if worker.role == Role::Prefill {
                capacity.max_num_batched_tokens
            } else {
                capacity.total_kv_blocks
            };
            model.roles.insert(worker.key.instance.raw(), worker.role);
            model
                .capacity
                .insert(worker.key.instance.raw(), divisor.unwrap() as f64);
        }
        Self {
            rig: Rig::new(workers),
            model,
            open: Vec::new(),
        }
    }

    /// Picks, and checks the pick against every rule.
    fn pick(&mut self, tokens: u64) -> Pick {
        self.model.advance();
        let pick = self.rig.ask(|ask| ask.prompt_tokens = tokens).unwrap();
        let pairs = self.model.roles.values().any(|role| *role == Role::Prefill);
        let prefills = || {
            self.model
                .roles
                .iter()
                .filter(|(_, role)| **role == Role::Prefill)
        };
        let no_partner = pairs && prefills().all(|(id, _)| self.model.view(*id).suspect);
        let roles: &[Role] = if pairs {
            &[Role::Decode]
        } else {
            &[Role::Decode, Role::Aggregated]
        };
        let (best, reason) = self.model.best(roles, tokens.div_ceil(16), &|_| no_partner);
        assert!(
            best.contains(&decode_of(&pick)),
            "{} is not among {best:?}",
            decode_of(&pick)
        );
        assert_eq!(pick.decode_reason, reason);
        if pairs {
            let (best, reason) = self.model.best(&[Role::Prefill], 0, &|_| false);
            assert!(
                best.contains(&prefill_of(&pick).unwrap()),
                "{:?} is not among {best:?}",
                prefill_of(&pick)
            );
            assert_eq!(pick.prefill_reason, reason);
        } else {
            assert_eq!(
                (prefill_of(&pick), pick.prefill_reason),
                (None, Reason::NoPrefillPool)
            );
        }
        pick
    }

    fn apply(&mut self, op: &Op) {
        self.model.step += 1;
        let step = self.model.step;
        match op {
            Op::Sample(publisher, worker, sequence, fields) => {
                let stale = self.model.samples.iter().any(|told| {
                    told.forgotten.is_none()
                        && (told.publisher, told.worker) == (*publisher, *worker)
                        && told.sequence >= *sequence
                });
                let sample = Sample {
                    active_decode_blocks: fields[0],
                    active_prefill_tokens: fields[1],
                    kv_used_blocks: fields[2],
                    ..silent(*worker)
                };
                let applied = self.rig.store.apply(
                    PublisherId::new(*publisher),
                    &NS.into(),
                    *sequence,
                    &sample,
                    self.rig.now,
                );
                assert_eq!(applied == crate::load::Applied::Applied, !stale, "{applied:?}");
                if !stale {
                    self.model.suspects.remove(worker);
                    self.model.samples.push(Told {
                        step,
                        at: self.model.now,
                        publisher: *publisher,
                        worker: *worker,
                        sequence: *sequence,
                        fields: *fields,
                        forgotten: None,
                    });
                }
            }
            Op::Forget(publisher) => {
                self.rig.store.forget(PublisherId::new(*publisher));
                let theirs = self
                    .model
                    .samples
                    .iter_mut()
                    .filter(|told| told.publisher == *publisher);
                theirs
                    .filter(|told| told.forgotten.is_none())
                    .for_each(|told| told.forgotten = Some(step));
            }
            Op::Cover(covered) => {
                self.rig.store.broker_covers(&NS.into(), *covered);
                self.model.covered = *covered;
            }
            Op::Book(tokens, streamed) => {
                let pick = self.pick(*tokens);
                let prefill = prefill_of(&pick);
                let rate = prefill
                    .and_then(|id| self.model.rates.get(&id))
                    .filter(|_| !streamed);
                let due = rate.map(|rate| self.model.now + (*tokens as f64 / rate).ceil() as u64);
                self.model.bookings.push(Booked {
                    step,
                    at: self.model.now,
                    decode: decode_of(&pick),
                    prefill,
                    tokens: *tokens,
                    streamed: *streamed,
                    due,
                    arrived: None,
                    open: true,
                });
                let booking = self.rig.book(&pick, *tokens, *streamed);
                self.open.push((self.model.bookings.len() - 1, booking));
            }
            Op::FirstByte(index) => {
                if !self.open.is_empty() {
                    let (place, booking) = &self.open[index.index(self.open.len())];
                    booking.prefill_ended(self.rig.now);
                    let booked = &self.model.bookings[*place];
                    let took = booked.streamed.then(|| self.model.now - booked.at);
                    self.model.prefill_ended(*place, took);
                }
            }
            Op::End(index) => {
                if !self.open.is_empty() {
                    let (place, booking) = self.open.swap_remove(index.index(self.open.len()));
                    drop(booking);
                    self.model.bookings[place].open = false;
                }
            }
            Op::Suspect(worker) => {
                self.rig.store.suspect(&key(*worker), self.rig.now);
                self.model.suspects.insert(*worker, self.model.now + 30_000);
            }
            Op::Pass(ms) => {
                self.rig.pass(*ms);
                self.model.now += ms;
                self.model.advance();
            }
        }
    }

    fn compare(&self) {
        let rows = self.rig.store.rows(MAX_STALENESS, self.rig.now);
        for row in rows {
            let id = row.worker.instance.raw();
            let view = self.model.view(id);
            let word = if view.stalled && view.sample != Freshness::Stale {
                Freshness::Stalled
            } else {
                view.sample
            };
            let value = |field| self.model.believed(id, field).map(|(value, _)| value);
            assert_eq!(row.freshness, word, "{id}");
            assert_eq!(row.suspect, view.suspect, "{id}");
            assert_eq!(
                [
                    row.active_decode_blocks,
                    row.active_prefill_tokens,
                    row.kv_used_blocks
                ],
                [value(0), value(1), value(2)],
                "{id}"
            );
            let booked = if row.role == Role::Prefill {
                row.booked_tokens
            } else {
                row.booked_blocks
            };
            assert_eq!(booked, view.open, "{id}");
        }
    }
}

fn run(workers: &[Build], ops: &[Op]) {
    let mut pair = Pair::new(workers);
    for op in ops {
        pair.apply(op);
        pair.compare();
    }
    pair.open.clear();
    let rows = pair.rig.store.rows(MAX_STALENESS, Millis(u64::MAX));
    assert!(
        rows.iter()
            .all(|row| (row.booked_requests, row.booked_blocks, row.booked_tokens) == (0, 0, 0))
    );
    assert!(pair.rig.store.is_idle());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn aggregated_fleets_agree_with_the_naive_model(ops in prop::collection::vec(any_op(), 0..80)) {
        run(&[aggregated(1), aggregated(2), aggregated(3).blocks(300), decode(4).blocks(50)], &ops);
    }

    #[test]
    fn pairs_agree_with_the_naive_model(ops in prop::collection::vec(any_op(), 0..80)) {
        run(&[prefill(1), prefill(2), decode(3), decode(4).blocks(150)], &ops);
    }
}

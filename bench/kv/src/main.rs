//! Times lookups and events of our index and the peer's. Exits with 1 when a ratio is below its gate.
//!
//! `bench-kv [WORKERS]`: one fleet size alone.

use std::{process::ExitCode, time::Duration};

use bench_kv::{
    measure::{PACE, Rig, median},
    shapes::{FLEETS, FULL, fleet},
    subjects::{Crtc, Ours, Subject},
    table::{Bar, Ratio, print},
    workload::Workload,
};
use continuum_kv_index::Caps;

/// Times that both indexes are filled.
const ROUNDS: usize = 5;
/// Turns of lookups, and how long one takes.
const TURNS: usize = 15;
const TURN: Duration = Duration::from_millis(150);
/// Turns of lookups while events come in, and the events of one.
const BUSY_TURNS: usize = 7;
const BUSY_EVENTS: usize = PACE / 2;
/// Longest lookup of a hundred in a full index under all events that it can take, in microseconds.
const FULL_P99: f64 = 200.0;

fn main() -> ExitCode {
    let only: Option<usize> = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let mut good = true;
    for ((workers, room), gates) in FLEETS.into_iter().zip([(1.2, 1.5), (1.5, 2.0), (2.5, 4.0)]) {
        if only.is_none_or(|only| only == workers) {
            good &= compare(&Workload::new(fleet((workers, room))), gates);
        }
    }
    if only.is_none() {
        good &= full();
    }
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn compare(workload: &Workload, (gate, aim): (f64, f64)) -> bool {
    println!(
        "\n{} workers, {} blocks resident ({} different), prompts of {} blocks\n",
        workload.shape.workers,
        workload.resident,
        workload.distinct,
        workload.prompt_blocks()
    );
    let mut pairs = Pairs::default();
    let mut rigs = None;
    for round in 0..ROUNDS {
        drop(rigs.take());
        let (mut ours, mut peer) = (Rig::<Ours>::new(workload), Rig::<Crtc>::new(workload));
        let fill = alternate(
            round,
            || ours.ingest(&workload.fill),
            || peer.ingest(&workload.fill),
        );
        let churn = alternate(
            round,
            || ours.ingest(&workload.churn),
            || peer.ingest(&workload.churn),
        );
        pairs.add("blocks a second, fill", fill);
        pairs.add("blocks a second, churn", churn);
        rigs = Some((ours, peer));
    }
    let Some((mut ours, mut peer)) = rigs else {
        return false;
    };
    let same = ours.checksum() == peer.checksum();
    for turn in 0..TURNS {
        for (threads, name) in [
            (1, "lookups a second, 1 thread"),
            (2, "lookups a second, 2 threads"),
        ] {
            let rates = alternate(turn, || ours.find(threads, TURN), || peer.find(threads, TURN));
            pairs.add(name, rates);
        }
    }
    for turn in 0..BUSY_TURNS {
        let from = turn * BUSY_EVENTS % (workload.churn.len() - BUSY_EVENTS);
        let events = &workload.churn[from..from + BUSY_EVENTS];
        let busy = alternate(
            turn,
            || ours.busy(events, Some(PACE)),
            || peer.busy(events, Some(PACE)),
        );
        pairs.add("lookup p50 with events, µs", (busy.0.p50, busy.1.p50));
        pairs.add("lookup p99 with events, µs", (busy.0.p99, busy.1.p99));
        pairs.add("events a second then", (busy.0.events, busy.1.events));
    }
    let rows = pairs.rows(|what| match what {
        "lookups a second, 1 thread" | "lookups a second, 2 threads" => Some(Bar::AtLeast(gate, aim)),
        "blocks a second, churn" => Some(Bar::AtLeast(0.8, 1.2)),
        "lookup p99 with events, µs" => Some(Bar::AtMost(1.2, 0.8)),
        _ => None,
    });
    let good = print(Crtc::NAME, &rows);
    if !same {
        println!("\nThe answers differ.");
    }
    good && same
}

/// A full index of ours under all the events that it can take.
fn full() -> bool {
    let workload = Workload::new(FULL);
    let caps = Caps::default();
    let mut rig = Rig::of(Ours::with(workload.shape.workers, caps), &workload);
    rig.ingest(&workload.fill);
    rig.ingest(&workload.churn);
    let stats = rig.subject.index().stats();
    let mut p99 = Vec::new();
    let mut events = Vec::new();
    for part in workload.churn.chunks(workload.churn.len() / BUSY_TURNS) {
        let busy = rig.busy(part, None);
        p99.push(busy.p99);
        events.push(busy.events);
    }
    let p99 = median(&p99);
    println!(
        "\n{} blocks of {} ranks, {:.0} events a second, no pause: lookup p99 {p99:.1} µs (gate ≤ {FULL_P99} µs)",
        stats.blocks,
        stats.ranks,
        median(&events)
    );
    // Workers drop blocks at the end as well, so that it is not full to the last one.
    p99 <= FULL_P99 && stats.blocks >= caps.blocks * 95 / 100
}

/// Measures both, in turn the one or the other first.
fn alternate<T>(turn: usize, ours: impl FnOnce() -> T, peer: impl FnOnce() -> T) -> (T, T) {
    if turn.is_multiple_of(2) {
        let first = ours();
        (first, peer())
    } else {
        let first = peer();
        (ours(), first)
    }
}

/// What was measured in turns, by name.
#[derive(Default)]
struct Pairs(Vec<(&'static str, Vec<(f64, f64)>)>);

impl Pairs {
    fn add(&mut self, name: &'static str, pair: (f64, f64)) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, pairs)) => pairs.push(pair),
            None => self.0.push((name, vec![pair])),
        }
    }

    fn rows(&self, bar: impl Fn(&str) -> Option<Bar>) -> Vec<Ratio> {
        let row = |(name, pairs): &(&'static str, Vec<(f64, f64)>)| {
            let of = |value: fn(&(f64, f64)) -> f64| median(&pairs.iter().map(value).collect::<Vec<_>>());
            let ours = of(|pair| pair.0);
            Ratio {
                what: (*name).to_owned(),
                ours,
                peer: of(|pair| pair.1),
                digits: if ours < 1e3 { 2 } else { 0 },
                ratio: of(|pair| pair.0 / pair.1),
                bar: bar(name),
            }
        };
        self.0.iter().map(row).collect()
    }
}

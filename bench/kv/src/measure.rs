//! What is measured. Both indexes are measured in turns, a fraction of a second each: what else the machine does hits
//! both.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread::{scope, sleep},
    time::{Duration, Instant},
};

use crate::{
    subjects::Subject,
    workload::{Event, Workload, blocks_in},
};

/// Events that may wait in front of an index.
const QUEUE: usize = 8_192;
/// Events a second while lookups are timed.
pub const PACE: usize = 100_000;
/// Lookups between two looks at the clock.
const BURST: usize = 64;

/// An index with the workload in its own form.
pub struct Rig<'a, S: Subject> {
    pub subject: S,
    workload: &'a Workload,
    prompts: Vec<S::Prompt>,
    /// The next prompt.
    at: usize,
    events: u64,
}

/// Times of lookups while events come in.
pub struct Busy {
    pub p50: f64,
    pub p99: f64,
    /// Events a second that were taken meanwhile.
    pub events: f64,
}

impl<'a, S: Subject> Rig<'a, S> {
    pub fn new(workload: &'a Workload) -> Self {
        Self::of(S::new(workload.shape.workers), workload)
    }

    pub fn of(subject: S, workload: &'a Workload) -> Self {
        Self {
            subject,
            workload,
            prompts: workload.prompts.iter().map(|hashes| S::prompt(hashes)).collect(),
            at: 0,
            events: 0,
        }
    }

    /// Blocks a second, while events are applied as fast as they can be.
    pub fn ingest(&mut self, events: &[Event]) -> f64 {
        let mut spent = Duration::ZERO;
        for part in events.chunks(QUEUE) {
            let own = self.own(part);
            let begun = Instant::now();
            for event in own {
                self.subject.apply(event);
            }
            self.subject.settle();
            spent += begun.elapsed();
        }
        blocks_in(events) as f64 / spent.as_secs_f64()
    }

    /// Lookups a second by so many threads.
    pub fn find(&mut self, threads: usize, span: Duration) -> f64 {
        let this = &*self;
        let rates: Vec<(usize, f64)> = scope(|scope| {
            let one = |thread: usize| {
                let from = this.at + thread * this.prompts.len() / threads;
                scope.spawn(move || this.find_for(from, span))
            };
            let running: Vec<_> = (0..threads).map(one).collect();
            running
                .into_iter()
                .map(|thread| thread.join().expect("a lookup does not panic"))
                .collect()
        });
        self.at += rates[0].0;
        rates.iter().map(|(_, rate)| rate).sum()
    }

    /// Microseconds of lookups, while another thread applies events: so many a second, or as many as it can.
    pub fn busy(&mut self, events: &[Event], pace: Option<usize>) -> Busy {
        let own = self.own(events);
        let count = own.len() as f64;
        let stop = AtomicBool::new(false);
        let this = &*self;
        let (mut nanos, took) = scope(|scope| {
            let reader = scope.spawn(|| this.time_until(&stop));
            let begun = Instant::now();
            for (number, event) in own.into_iter().enumerate() {
                if let Some(pace) = pace
                    && number % 32 == 0
                {
                    let due = begun + Duration::from_secs_f64(number as f64 / pace as f64);
                    sleep(due.saturating_duration_since(Instant::now()));
                }
                this.subject.apply(event);
            }
            this.subject.settle();
            let took = begun.elapsed();
            stop.store(true, Ordering::Relaxed);
            (reader.join().expect("a lookup does not panic"), took)
        });
        nanos.sort_unstable();
        let at = |share: usize| {
            nanos
                .get(nanos.len() * share / 100)
                .map_or(0.0, |nanos| f64::from(*nanos) / 1e3)
        };
        Busy {
            p50: at(50),
            p99: at(99),
            events: count / took.as_secs_f64(),
        }
    }

    /// The sum of all scores of some prompts: equal answers have equal sums.
    pub fn checksum(&self) -> u64 {
        let some = self.prompts.iter().take(3_000);
        let scores = some.flat_map(|prompt| self.subject.answer(prompt));
        scores.fold(0, |sum: u64, (worker, blocks)| {
            sum.wrapping_add((worker + 1).wrapping_mul(u64::from(blocks)))
        })
    }

    fn own(&mut self, events: &[Event]) -> Vec<S::Event> {
        let first = self.events;
        self.events += events.len() as u64;
        (first..)
            .zip(events)
            .map(|(id, event)| self.subject.event(event, id))
            .collect()
    }

    fn find_for(&self, from: usize, span: Duration) -> (usize, f64) {
        let begun = Instant::now();
        let mut done = 0;
        while begun.elapsed() < span {
            for _ in 0..BURST {
                self.subject
                    .find(&self.prompts[(from + done) % self.prompts.len()]);
                done += 1;
            }
        }
        (done, done as f64 / begun.elapsed().as_secs_f64())
    }

    fn time_until(&self, stop: &AtomicBool) -> Vec<u32> {
        let mut nanos = Vec::with_capacity(4 << 20);
        let mut last = Instant::now();
        while !stop.load(Ordering::Relaxed) && nanos.len() < nanos.capacity() {
            self.subject.find(&self.prompts[nanos.len() % self.prompts.len()]);
            let now = Instant::now();
            nanos.push((now - last).as_nanos().min(u128::from(u32::MAX)) as u32);
            last = now;
        }
        nanos
    }

    pub const fn workload(&self) -> &'a Workload {
        self.workload
    }
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

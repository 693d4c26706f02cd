//! What a pick costs, and what following the fleet costs. Prints Markdown tables; one thread picks.
//!
//! `cargo run --release --bin routing`, in `bench/micro`.

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use continuum_fleet::{
    graphs::Generation,
    ids::{Graph, InstanceId, ModelName, Namespace, PublisherId, Rank, WorkerKey},
    view::{Capacity, Card, FleetView, NameKind, Role, Seen, ServedName, Worker},
};
use continuum_kv_index::{Caps, Index, Matches, RankKey};
use continuum_routing::{
    Millis,
    load::{Dispatch, Sample, Store},
    picker::{
        Pool, Request, Settings, Table,
        kv::{self, Held, InUse, Prompt},
        pick,
    },
};
use continuum_wire::router_event::{Block, Data, Stored, Tier};

/// How long one figure is measured.
const MEASURE: Duration = Duration::from_millis(300);

fn main() {
    println!("### Picks, nanoseconds each (pair of prefill and decode; half of the ranks are each)\n");
    println!(
        "| ranks | idle, all tie | fresh samples | fresh, under a writer | writer, samples/s | with booking |"
    );
    println!("|--:|--:|--:|--:|--:|--:|");
    for ranks in [64, 512, 4_096, 16_384] {
        picks(ranks);
    }
    println!("\n### Picks among one pool of aggregated ranks\n");
    println!("| ranks | fresh samples |\n|--:|--:|");
    for ranks in [64, 512, 4_096] {
        let fleet = Fleet::new(&[(Role::Aggregated, ranks)]);
        fleet.speak(Millis(1_000));
        println!("| {ranks} | {:.0} |", fleet.time(Millis(1_000)));
    }
    println!(
        "\n### Picks that know the prompt (1,000 blocks, of which every rank holds some), fresh samples\n"
    );
    println!("| ranks | pairs | aggregated |\n|--:|--:|--:|");
    for ranks in [64, 512, 4_096] {
        let pairs = Fleet::new(&[(Role::Prefill, ranks / 2), (Role::Decode, ranks / 2)]);
        let alone = Fleet::new(&[(Role::Aggregated, ranks)]);
        println!(
            "| {ranks} | {:.0} | {:.0} |",
            pairs.time_with_prompt(),
            alone.time_with_prompt()
        );
    }
    println!("\n### Following one changed worker, microseconds (store and table)\n");
    println!("| workers | first view | one worker leaves and returns |\n|--:|--:|--:|");
    for workers in [64, 1_024, 16_384] {
        follow(workers);
    }
}

fn picks(ranks: u64) {
    let fleet = Arc::new(Fleet::new(&[
        (Role::Prefill, ranks / 2),
        (Role::Decode, ranks / 2),
    ]));
    let idle = fleet.time(Millis(1_000));
    fleet.speak(Millis(1_000));
    let fresh = fleet.time(Millis(1_000));
    let (stop, samples) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writer = std::thread::spawn({
        let (fleet, stop, samples) = (Arc::clone(&fleet), Arc::clone(&stop), Arc::clone(&samples));
        move || {
            let mut sequence = 1;
            while !stop.load(Ordering::Relaxed) {
                fleet.say(sequence % ranks, 1 + sequence, Millis(1_000));
                sequence += 1;
            }
            samples.store(sequence, Ordering::Relaxed);
        }
    });
    let started = Instant::now();
    let written = fleet.time(Millis(1_000));
    stop.store(true, Ordering::Relaxed);
    let _ = writer.join();
    let rate = samples.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
    let booked = fleet.measure(|fleet| {
        if let Ok(pick) = fleet.pick(Millis(1_000)) {
            let booking = fleet.store.book(
                &pick,
                Dispatch {
                    prompt_tokens: 1_000,
                    streamed: true,
                    shared: 0,
                },
                Millis(1_000),
            );
            booking.first_byte(Millis(1_050));
        }
    });
    println!("| {ranks} | {idle:.0} | {fresh:.0} | {written:.0} | {rate:.0} | {booked:.0} |");
}

fn follow(workers: u64) {
    let full = view(&[(Role::Prefill, workers / 2), (Role::Decode, workers / 2)]);
    let mut less = full.clone();
    if let Some((key, _)) = full.workers.iter().next() {
        less.workers.remove(key);
    }
    let store = Store::new();
    let cpu = cpu_nanos();
    let (mut table, _) = Table::new(1).follow(&full, &store);
    let first = (cpu_nanos() - cpu) as f64 / 1e3;
    let (started, cpu) = (Instant::now(), cpu_nanos());
    let mut rounds = 0;
    while started.elapsed() < MEASURE {
        for next in [&less, &full] {
            (table, _) = table.follow(next, &store);
        }
        rounds += 2;
    }
    black_box(&table);
    println!(
        "| {workers} | {first:.0} | {:.0} |",
        (cpu_nanos() - cpu) as f64 / 1e3 / f64::from(rounds)
    );
}

/// CPU time of this thread: unlike the wall clock it does not count what else the machine does.
fn cpu_nanos() -> u64 {
    // The first read makes the kernel account for the slice that is running.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|nanos| nanos.parse().ok())
        .unwrap_or(0)
}

struct Fleet {
    store: Store,
    table: Table,
    keys: Vec<WorkerKey>,
    model: ModelName,
    graph: Graph,
}

impl Fleet {
    fn new(roles: &[(Role, u64)]) -> Self {
        let view = view(roles);
        let store = Store::new();
        let (table, _) = Table::new(1).follow(&view, &store);
        store.broker_covers(&Namespace::from("dynamo"), true);
        let keys = view.workers.keys().cloned().collect();
        Self {
            store,
            table,
            keys,
            model: "llm".into(),
            graph: "dynamo".into(),
        }
    }

    /// One sample of every worker, all of different load.
    fn speak(&self, now: Millis) {
        for place in 0..self.keys.len() as u64 {
            self.say(place, 1, now);
        }
    }

    fn say(&self, place: u64, sequence: u64, now: Millis) {
        let key = &self.keys[place as usize];
        let sample = Sample {
            worker: key.instance,
            rank: Rank(0),
            active_decode_blocks: None,
            active_prefill_tokens: Some(place * 7 % 997),
            kv_used_blocks: Some((place + sequence) * 7_919 % 9_973),
        };
        black_box(
            self.store
                .apply(PublisherId::new(place), &key.namespace, sequence, &sample, now),
        );
    }

    fn pick(
        &self,
        now: Millis,
    ) -> Result<continuum_routing::picker::Pick, continuum_routing::picker::NoPick> {
        self.pick_for(None, now)
    }

    fn pick_for(
        &self,
        prompt: Option<&Prompt<'_>>,
        now: Millis,
    ) -> Result<continuum_routing::picker::Pick, continuum_routing::picker::NoPick> {
        let pools = [Pool {
            graph: &self.graph,
            listed: true,
        }];
        let request = Request {
            model: &self.model,
            pools: &pools,
            prompt_tokens: 1_000,
            prompt,
            exclude: &[],
            settings: Settings::default(),
        };
        pick(&self.table, &self.store, &request, now)
    }

    fn time_with_prompt(&self) -> f64 {
        let now = Millis(1_000);
        self.speak(now);
        let index = Index::new(Caps::default());
        let key = |worker: &WorkerKey| RankKey {
            worker: worker.clone(),
            rank: 0,
        };
        index.set_live(&self.keys.iter().map(key).collect::<Vec<_>>());
        for (place, worker) in (1_u64..).zip(&self.keys) {
            let block = |n| Block {
                hash: n,
                tokens: n,
                multimodal: false,
            };
            let blocks = (1..=1 + place * 7 % 600).map(block).collect();
            let stored = Data::Stored(Stored { parent: None, blocks });
            index.apply(&key(worker), Tier::Device, &stored);
        }
        let mut cached = Matches::new();
        index.find(&(1..=1_000).collect::<Vec<_>>(), &mut cached);
        let held = [Held {
            block_size: 16,
            cached,
            in_flight: InUse::default(),
        }];
        let prompt = Prompt {
            tokens: 16_000,
            held: &held,
            settings: kv::Settings::default(),
            chance: [0.0; 2],
        };
        self.measure(|fleet| {
            black_box(fleet.pick_for(Some(&prompt), now).is_ok());
        })
    }

    fn time(&self, now: Millis) -> f64 {
        self.measure(|fleet| {
            black_box(fleet.pick(now).is_ok());
        })
    }

    /// CPU nanoseconds per call.
    fn measure(&self, call: impl Fn(&Self)) -> f64 {
        let (started, cpu) = (Instant::now(), cpu_nanos());
        let mut calls = 0_u64;
        while started.elapsed() < MEASURE {
            (0..64).for_each(|_| call(self));
            calls += 64;
        }
        (cpu_nanos() - cpu) as f64 / calls as f64
    }
}

fn view(roles: &[(Role, u64)]) -> FleetView {
    let mut view = FleetView::default();
    let mut id = 0;
    for (role, count) in roles {
        let card = Arc::new(card(*role));
        for _ in 0..*count {
            id += 1;
            let key = WorkerKey {
                namespace: "dynamo".into(),
                instance: InstanceId::new(id),
            };
            let worker = Worker {
                key: key.clone(),
                graph: "dynamo".into(),
                component: role.as_str().into(),
                endpoint: "generate".into(),
                generation: Generation::Base,
                role: *role,
                names: Arc::from([ServedName {
                    name: "llm".into(),
                    kind: NameKind::Base,
                }]),
                card: Some(Arc::clone(&card)),
                seen: Seen {
                    first: jiff::Timestamp::UNIX_EPOCH,
                    updated: jiff::Timestamp::UNIX_EPOCH,
                },
            };
            view.workers.insert(key, Arc::new(worker));
        }
    }
    view
}

fn card(role: Role) -> Card {
    Card {
        display_name: Some("llm".into()),
        worker_type: Some(role),
        block_size: Some(16),
        capacity: Capacity {
            total_kv_blocks: Some(12_000),
            max_num_batched_tokens: Some(8_192),
            max_num_seqs: None,
        },
        context_length: Some(32_768),
        ..Card::default()
    }
}

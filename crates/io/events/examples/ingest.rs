//! How many block events a second one thread reads, from bytes of the network to the index, and how long its longest
//! step without a pause is: `cargo run --release -p continuum-events --example ingest`.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use continuum_fleet::{
    ids::{InstanceId, Namespace, PublisherId},
    view::{FleetView, Role, Worker},
};
use continuum_kv_index::{Caps, Cursors, Index, Intake, Origin};
use continuum_testkit::view;
use continuum_wire::{
    Delivery, Expected, Limits, envelope,
    router_event::{self, Block, Data, Domain, RouterEvent, Stored, Tier},
    zmtp::{Event, Subscriber, write_message},
};

const NS: &str = "dynamo";

fn main() {
    println!("workers  events/message  blocks/event   events/s   blocks/s  longest message");
    for (workers, events, blocks) in [
        (8, 1, 4),
        (64, 1, 4),
        (64, 16, 4),
        (256, 1, 4),
        (256, 16, 32),
        (8, 1, 20_000),
    ] {
        run(workers, events, blocks);
    }
}

fn run(workers: u64, events: u64, blocks: u64) {
    let intake = Intake::new(Arc::new(Index::new(Caps::default())));
    intake.follow(&fleet(workers), Duration::ZERO);
    let messages = (400_000 / (events * blocks).max(4)).clamp(20, 40_000);
    let mut streams: Vec<_> = (1..=workers)
        .map(|id| (id, Cursors::new(id), subscriber(), 0_u64, 0_u64))
        .collect();
    let (mut spent, mut longest) = (Duration::ZERO, Duration::ZERO);
    for message in 0..messages {
        let at = usize::try_from(message % workers).unwrap_or_default();
        let Some((worker, cursors, subscriber, next, sequence)) = streams.get_mut(at) else {
            continue;
        };
        let list: Vec<_> = (0..events)
            .map(|_| {
                *next += 1;
                // Each third chain is one that all workers hold.
                let salt = if *next % 3 == 0 { 0 } else { *worker };
                stored(*worker, *next, *next << 40 | salt << 20, blocks)
            })
            .collect();
        let payload = router_event::encode(&list);
        let mut bytes = Vec::new();
        let frames = envelope::encode(
            b"kv-events",
            "kv-events",
            PublisherId::new(*worker),
            *sequence,
            0,
            &payload,
        );
        write_message(&frames, &mut bytes);
        *sequence += 1;
        let begun = Instant::now();
        for mut chunk in bytes.chunks(64 * 1024) {
            while let Ok(Some(event)) = subscriber.push(&mut chunk) {
                let Event::Message(message) = event else { continue };
                let expected = Expected {
                    topic: "kv-events",
                    first_frame: Some(b"kv-events"),
                    publisher: Some(PublisherId::new(*worker)),
                };
                if let Ok(delivery) = Delivery::decode(&message, &expected, &Limits::KV_EVENTS) {
                    let namespace = Namespace::from(NS);
                    let from = Origin {
                        publisher: delivery.publisher,
                        namespace: &namespace,
                        now: spent,
                    };
                    intake.accept(cursors, from, &delivery.payload, &Limits::KV_EVENTS);
                }
            }
        }
        let took = begun.elapsed();
        spent += took;
        longest = longest.max(took);
    }
    let rate = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / spent.as_secs_f64();
    println!(
        "{workers:7}  {events:14}  {blocks:12} {:10.0} {:10.0}  {longest:?}   ({} blocks held)",
        rate(messages * events),
        rate(messages * events * blocks),
        intake.index().stats().ownerships,
    );
}

fn stored(worker: u64, id: u64, first: u64, blocks: u64) -> RouterEvent {
    let block = |n: u64| Block {
        hash: (first + n).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        tokens: (first + n).wrapping_mul(0xd6e8_feb8_6659_fd93),
        multimodal: false,
    };
    RouterEvent {
        worker_id: worker,
        tier: Tier::Device,
        domain: Domain::Worker,
        event_id: id,
        rank: 0,
        data: Data::Stored(Stored {
            parent: None,
            blocks: (0..blocks).map(block).collect(),
        }),
    }
}

/// A subscriber whose handshake is done.
fn subscriber() -> Subscriber {
    let mut subscriber = Subscriber::new(Limits::KV_EVENTS, [b"kv-events".as_slice()]);
    let handshake = continuum_testkit::fuzz::handshake();
    let mut input = handshake.as_slice();
    while let Ok(Some(_)) = subscriber.push(&mut input) {}
    subscriber
}

fn fleet(workers: u64) -> FleetView {
    let card = Arc::new(view::card());
    let worker = |id| {
        let mut worker = Worker::clone(&view::worker(NS, id, Role::Aggregated));
        worker.card = Some(Arc::clone(&card));
        debug_assert_eq!(worker.key.instance, InstanceId::new(id));
        (worker.key.clone(), Arc::new(worker))
    };
    FleetView {
        workers: (1..=workers).map(worker).collect(),
        ..FleetView::default()
    }
}

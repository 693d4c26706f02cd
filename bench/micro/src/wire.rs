//! What a message costs from socket bytes to a sample. Prints a Markdown table; one thread decodes.
//!
//! `cargo run --release --bin wire`, in `bench/micro`.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use continuum_fleet::ids::{InstanceId, PublisherId, Rank};
use continuum_wire::{
    ActiveLoad, Delivery, Expected, Limits, envelope,
    zmtp::{Event, Publisher, Subscriber, write_message},
};

/// How long one figure is measured.
const MEASURE: Duration = Duration::from_millis(300);

fn main() {
    println!("### Messages of the event plane, one thread\n");
    println!("| payload | read in pieces of | ns per message | MB/s |\n|--:|--:|--:|--:|");
    let load = ActiveLoad {
        worker: InstanceId::new(0x13b0_a229_bad2_ba0c),
        rank: Rank(0),
        active_decode_blocks: None,
        active_prefill_tokens: None,
        kv_used_blocks: Some(777),
    };
    messages("kv_metrics", &Limits::KV_METRICS, &load.encode(), 2048);
    messages("kv_metrics", &Limits::KV_METRICS, &load.encode(), 64);
    messages("kv-events", &Limits::KV_EVENTS, &[0; 64 * 1024], 16 * 1024);
    messages(
        "kv-events",
        &Limits::KV_EVENTS,
        &[0; 8 * 1024 * 1024 - 128],
        64 * 1024,
    );
}

fn messages(topic: &str, limits: &Limits, payload: &[u8], piece: usize) {
    let mut subscriber = connected(topic, limits);
    let expected = Expected {
        topic,
        first_frame: Some(topic.as_bytes()),
        publisher: Some(PublisherId::new(7)),
    };
    let batch = (1 << 20) / payload.len().max(1) + 1;
    let mut bytes = Vec::new();
    for sequence in 0..batch as u64 {
        let id = PublisherId::new(7);
        write_message(
            &envelope::encode(topic.as_bytes(), topic, id, sequence, 0, payload),
            &mut bytes,
        );
    }
    let (started, mut count) = (Instant::now(), 0_u64);
    while started.elapsed() < MEASURE {
        for mut input in bytes.chunks(piece) {
            while let Ok(Some(event)) = subscriber.push(&mut input) {
                let Event::Message(message) = event else { continue };
                let delivery = Delivery::decode(&message, &expected, limits).expect("our own message");
                if topic == "kv_metrics" {
                    black_box(ActiveLoad::decode(&delivery.payload, limits).expect("our own sample"));
                }
                black_box(delivery.sequence);
                count += 1;
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let per_message = seconds * 1e9 / count as f64;
    let rate = count as f64 * (bytes.len() / batch) as f64 / seconds / 1e6;
    println!("| {} | {piece} | {per_message:.0} | {rate:.0} |", payload.len());
}

/// A subscriber whose handshake is done.
fn connected(topic: &str, limits: &Limits) -> Subscriber {
    let (mut subscriber, mut publisher) = (Subscriber::new(*limits, [topic.as_bytes()]), Publisher::new());
    for _ in 0..3 {
        publisher.push(subscriber.outgoing()).expect("our own subscriber");
        subscriber.sent(usize::MAX);
        let mut input = publisher.outgoing();
        while subscriber.push(&mut input).expect("our own publisher").is_some() {}
        publisher.sent(usize::MAX);
    }
    assert!(publisher.wants(topic.as_bytes()));
    subscriber
}

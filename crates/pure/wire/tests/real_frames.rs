//! What real workers of three Dynamo versions sent, through the whole decoder and back.

#![expect(
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "tests read fixtures and stop at the first surprise"
)]

use std::{collections::BTreeSet, fs, path::PathBuf};

use continuum_wire::{
    ActiveLoad, Delivery, Expected, Limits, envelope,
    router_event::{self, Data, Domain, Tier},
    zmtp::{Event, Publisher, Subscriber},
};

const VERSIONS: [&str; 3] = ["1.4.2", "1.5.1", "1.6.1"];

/// The messages of every captured file of a topic.
fn captured(topic: &str) -> Vec<(String, Vec<Vec<u8>>)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut messages = Vec::new();
    for version in VERSIONS {
        for entry in fs::read_dir(root.join(version)).expect("fixtures of the version") {
            let path = entry.expect("fixture").path();
            if !path.to_string_lossy().ends_with(&format!("{topic}.bin")) {
                continue;
            }
            let bytes = fs::read(&path).expect("fixture bytes");
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let frames = (0..number(&mut rest)).map(|_| {
                    let (frame, after) = {
                        let len = number(&mut rest);
                        rest.split_at(len)
                    };
                    rest = after;
                    frame.to_vec()
                });
                messages.push((path.display().to_string(), frames.collect()));
            }
        }
    }
    messages
}

fn number(rest: &mut &[u8]) -> usize {
    let (head, after) = rest.split_first_chunk::<4>().expect("a length");
    *rest = after;
    u32::from_be_bytes(*head) as usize
}

/// Sends the messages from a publisher to a subscriber and hands each arrival to `seen`.
fn relay(
    messages: &[(String, Vec<Vec<u8>>)],
    topic: &str,
    limits: Limits,
    mut seen: impl FnMut(usize, &Event<'_>),
) {
    let mut subscriber = Subscriber::new(limits, [topic.as_bytes()]);
    let mut publisher = Publisher::new();
    let mut arrived = 0;
    let mut next = messages.iter();
    loop {
        publisher
            .push(subscriber.outgoing())
            .expect("subscriber keeps the protocol");
        subscriber.sent(subscriber.outgoing().len());
        let published =
            publisher.wants(topic.as_bytes()) && next.next().is_some_and(|(_, m)| publisher.publish(m));
        let bytes = publisher.outgoing().to_vec();
        publisher.sent(bytes.len());
        let mut input = bytes.as_slice();
        while let Some(event) = subscriber.push(&mut input).expect("publisher keeps the protocol") {
            if matches!(event, Event::Message(_)) {
                seen(arrived, &event);
                arrived += 1;
            }
        }
        if !published && publisher.outgoing().is_empty() && subscriber.outgoing().is_empty() {
            break;
        }
    }
    assert_eq!(arrived, messages.len(), "every message arrives");
}

#[test]
fn every_load_sample_decodes_and_encodes_to_the_same_bytes() {
    let messages = captured("kv_metrics");
    assert!(messages.len() > 100, "captured {}", messages.len());
    let expected = Expected {
        topic: "kv_metrics",
        first_frame: Some(b"kv_metrics"),
        publisher: None,
    };
    let mut with_blocks = 0;
    relay(&messages, "kv_metrics", Limits::KV_METRICS, |at, event| {
        let Event::Message(message) = event else { return };
        let (file, frames) = &messages[at];
        let delivery = Delivery::decode(message, &expected, &Limits::KV_METRICS)
            .unwrap_or_else(|refusal| panic!("{file}: {refusal}"));
        let sample = ActiveLoad::decode(&delivery.payload, &Limits::KV_METRICS)
            .unwrap_or_else(|refusal| panic!("{file}: {refusal}"));
        assert_eq!(sample.encode(), *delivery.payload, "{file}");
        assert!(delivery.published_at > 1_700_000_000_000, "{file}");
        assert_eq!(sample.active_prefill_tokens, None, "{file}: no worker fills it");
        with_blocks += u32::from(sample.active_decode_blocks.is_some());
        let again = envelope::encode(
            b"kv_metrics",
            "kv_metrics",
            delivery.publisher,
            delivery.sequence,
            delivery.published_at,
            &delivery.payload,
        );
        assert_eq!(again.as_slice(), frames.as_slice(), "{file}");
    });
    assert!(with_blocks > 0, "scripted workers fill active_decode_blocks");
}

#[test]
fn every_block_event_decodes_and_encodes_to_the_same_bytes() {
    let messages = captured("kv-events");
    let expected = Expected {
        topic: "kv-events",
        first_frame: Some(b"kv-events"),
        publisher: None,
    };
    let mut kinds: BTreeSet<(Tier, &str)> = BTreeSet::new();
    relay(&messages, "kv-events", Limits::KV_EVENTS, |at, event| {
        let Event::Message(message) = event else { return };
        let (file, frames) = &messages[at];
        let delivery = Delivery::decode(message, &expected, &Limits::KV_EVENTS)
            .unwrap_or_else(|refusal| panic!("{file}: {refusal}"));
        let again = envelope::encode(
            b"kv-events",
            "kv-events",
            delivery.publisher,
            delivery.sequence,
            delivery.published_at,
            &delivery.payload,
        );
        assert_eq!(again.as_slice(), frames.as_slice(), "{file}");
        let events: Vec<_> = router_event::Batch::open(&delivery.payload, &Limits::KV_EVENTS)
            .unwrap_or_else(|refusal| panic!("{file}: {refusal}"))
            .map(|event| event.unwrap_or_else(|refusal| panic!("{file}: {refusal}")))
            .collect();
        assert_eq!(router_event::encode(&events), *delivery.payload, "{file}");
        for event in events {
            let old = file.contains("/1.4.2/");
            assert_eq!(
                event.domain,
                if old { Domain::Legacy } else { Domain::Worker },
                "{file}"
            );
            let kind = match event.data {
                Data::Stored(stored) => {
                    let salted = stored.blocks.iter().filter(|block| block.multimodal).count();
                    assert_eq!(salted, 0, "{file}: text alone");
                    "stored"
                }
                Data::Removed(_) => "removed",
                Data::Cleared => "cleared",
            };
            kinds.insert((event.tier, kind));
        }
    });
    assert_eq!(
        kinds.into_iter().collect::<Vec<_>>(),
        [
            (Tier::Device, "cleared"),
            (Tier::Device, "removed"),
            (Tier::Device, "stored"),
            (Tier::HostPinned, "removed"),
            (Tier::HostPinned, "stored"),
            (Tier::Disk, "stored"),
        ],
        "what the captures hold"
    );
}

#[test]
fn sequences_of_a_publisher_start_at_zero_and_have_no_gap() {
    let expected = Expected {
        topic: "kv_metrics",
        first_frame: None,
        publisher: None,
    };
    let messages = captured("kv_metrics");
    let mut last: Option<(String, u64)> = None;
    relay(&messages, "kv_metrics", Limits::KV_METRICS, |at, event| {
        let Event::Message(message) = event else { return };
        let delivery = Delivery::decode(message, &expected, &Limits::KV_METRICS).expect("decodes");
        let file = &messages[at].0;
        let wanted = match &last {
            Some((before, sequence)) if before == file => sequence + 1,
            _ => 0,
        };
        assert_eq!(delivery.sequence, wanted, "{file}");
        last = Some((file.clone(), delivery.sequence));
    });
}

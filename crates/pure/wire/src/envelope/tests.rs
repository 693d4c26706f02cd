use serde::Serialize;

use super::*;
use crate::{
    active_load::tests::{hex, sample},
    zmtp::{Event, Publisher, Subscriber},
};

const EXPECTED: Expected<'static> = Expected {
    topic: "kv_metrics",
    first_frame: Some(b"kv_metrics"),
    publisher: Some(PublisherId::new(2_046_539)),
};

/// Frame 4 for publisher 2046539, sequence 0, published at 1790000000000, without the payload bytes.
const FRAME_HEAD: &str = "01000000a685ac7075626c69736865725f6964ce001f3a4ba873657175656e636500ac7075626c69736865645f\
                          6174cf000001a0c4506c00a5746f706963aa6b765f6d657472696373a77061796c6f6164c458";

fn good() -> [Vec<u8>; 4] {
    encode(
        b"kv_metrics",
        "kv_metrics",
        PublisherId::new(2_046_539),
        0,
        1_790_000_000_000,
        &sample().encode(),
    )
}

/// Runs a message through a connection, so that the frames are those of a real [`Message`].
fn judge(frames: &[Vec<u8>]) -> Result<(u64, u64, u64, Vec<u8>), Refusal> {
    let mut subscriber = Subscriber::new(Limits::KV_METRICS, [b"".as_slice()]);
    let mut publisher = Publisher::new();
    for _ in 0..3 {
        publisher.push(subscriber.outgoing()).unwrap();
        subscriber.sent(usize::MAX);
        let bytes = publisher.outgoing().to_vec();
        publisher.sent(bytes.len());
        let mut input = bytes.as_slice();
        while subscriber.push(&mut input).unwrap().is_some() {}
    }
    assert!(publisher.publish(frames));
    let mut input = publisher.outgoing();
    let Some(Event::Message(message)) = subscriber.push(&mut input).unwrap() else {
        panic!("no message")
    };
    Delivery::decode(&message, &EXPECTED, &Limits::KV_METRICS).map(|d| {
        (
            d.publisher.raw(),
            d.sequence,
            d.published_at,
            d.payload.into_owned(),
        )
    })
}

fn frame(version: u8, declared: usize, body: &[u8]) -> Vec<u8> {
    [
        &[version],
        u32::try_from(declared).unwrap().to_be_bytes().as_slice(),
        body,
    ]
    .concat()
}

fn with_frame(frame: Vec<u8>) -> Vec<Vec<u8>> {
    let [topic, publisher, sequence, _] = good();
    vec![topic, publisher, sequence, frame]
}

fn with_envelope(envelope: &impl Serialize) -> Vec<Vec<u8>> {
    let body = rmp_serde::to_vec_named(envelope).unwrap();
    with_frame(frame(1, body.len(), &body))
}

#[test]
fn the_contract_vector_is_written_and_read() {
    let frames = good();
    assert_eq!(frames[3], [hex(FRAME_HEAD), sample().encode()].concat());
    assert_eq!(
        judge(&frames),
        Ok((2_046_539, 0, 1_790_000_000_000, sample().encode()))
    );
}

#[test]
fn looser_spellings_are_read() {
    #[derive(Serialize)]
    struct Reordered<'a> {
        payload: Vec<u8>,
        extra: Option<&'a str>,
        topic: &'a str,
        publisher_id: u64,
    }
    let wanted = Ok((2_046_539, 0, 0, vec![1, 200, 3]));
    let reordered = Reordered {
        payload: vec![1, 200, 3],
        extra: None,
        topic: "kv_metrics",
        publisher_id: 2_046_539,
    };
    assert_eq!(
        judge(&with_envelope(&reordered)),
        wanted,
        "map in another order, payload an array"
    );
    let by_position = (
        2_046_539_u64,
        0_u64,
        0_u64,
        "kv_metrics",
        vec![1_u8, 200, 3],
        "later field",
    );
    assert_eq!(judge(&with_envelope(&by_position)), wanted, "array by position");
    let [topic, publisher, sequence, mut last] = good();
    last.extend_from_slice(b"behind the declared length");
    assert!(judge(&[topic, publisher, sequence, last]).is_ok());
}

#[test]
fn each_broken_rule_has_its_own_word() {
    let [topic, publisher, sequence, last] = good();
    let frames = |n: usize| good().into_iter().take(n).collect::<Vec<_>>();
    let body = &last[FRAME_HEADER_BYTES..];
    let other = |topic: &'static str, id: u64| {
        encode(b"kv_metrics", topic, PublisherId::new(id), 0, 0, b"x")[3].clone()
    };
    let table: Vec<(&str, Vec<Vec<u8>>, Refusal)> = vec![
        ("one frame", frames(1), Refusal::Malformed),
        ("three frames", frames(3), Refusal::Malformed),
        (
            "long topic",
            vec![
                b"kv_metrics2".to_vec(),
                publisher.clone(),
                sequence.clone(),
                last.clone(),
            ],
            Refusal::TopicMismatch,
        ),
        (
            "id of 7 bytes",
            vec![topic.clone(), vec![0; 7], sequence.clone(), last.clone()],
            Refusal::Malformed,
        ),
        (
            "sequence of 9 bytes",
            vec![topic.clone(), publisher, vec![0; 9], last.clone()],
            Refusal::Malformed,
        ),
        ("empty frame", with_frame(vec![]), Refusal::Malformed),
        ("head alone", with_frame(vec![1, 0, 0]), Refusal::Malformed),
        (
            "version 2",
            with_frame(frame(2, body.len(), body)),
            Refusal::UnknownVersion,
        ),
        (
            "version 0, nothing else",
            with_frame(vec![0]),
            Refusal::UnknownVersion,
        ),
        (
            "declares 16 KiB + 1",
            with_frame(frame(1, 16 * 1024 + 1, body)),
            Refusal::Oversized,
        ),
        (
            "declares 4 GiB",
            with_frame([&[1, 255, 255, 255, 255], body].concat()),
            Refusal::Oversized,
        ),
        (
            "declares more than it has",
            with_frame(frame(1, body.len() + 1, body)),
            Refusal::Malformed,
        ),
        (
            "declares less than it has",
            with_frame(frame(1, body.len() - 1, body)),
            Refusal::Malformed,
        ),
        (
            "not msgpack",
            with_frame(frame(1, 1, &[0xc1])),
            Refusal::Malformed,
        ),
        (
            "other topic inside",
            with_frame(other("kv-events", 2_046_539)),
            Refusal::TopicMismatch,
        ),
        (
            "other publisher inside",
            with_frame(other("kv_metrics", 1)),
            Refusal::IdentityMismatch,
        ),
        (
            "other publisher than the record's",
            encode(b"kv_metrics", "kv_metrics", PublisherId::new(1), 0, 0, b"x").to_vec(),
            Refusal::IdentityMismatch,
        ),
        (
            "payload that claims 4 GiB",
            with_frame(frame(1, 15, &hex("81a77061796c6f6164ddffffffff01"))),
            Refusal::Malformed,
        ),
        (
            "payload with a byte above 255",
            with_envelope(&(2_046_539_u64, 0_u64, 0_u64, "kv_metrics", vec![256_u64])),
            Refusal::Malformed,
        ),
    ];
    for (case, frames, refusal) in table {
        assert_eq!(judge(&frames), Err(refusal), "{case}");
    }
}

#[test]
fn a_payload_of_exactly_the_limit_passes() {
    let [topic, publisher, sequence, _] = good();
    let around = encode(
        b"kv_metrics",
        "kv_metrics",
        PublisherId::new(2_046_539),
        0,
        0,
        &[0; 60_000],
    )[3]
    .len()
        - FRAME_HEADER_BYTES
        - 60_000;
    let payload = vec![7; Limits::KV_METRICS.payload - around];
    let last = encode(
        b"kv_metrics",
        "kv_metrics",
        PublisherId::new(2_046_539),
        0,
        0,
        &payload,
    )[3]
    .clone();
    assert_eq!(last.len(), Limits::KV_METRICS.frame);
    assert!(judge(&[topic, publisher, sequence, last]).is_ok());
}

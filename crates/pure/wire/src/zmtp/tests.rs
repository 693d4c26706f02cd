use proptest::prelude::*;

use super::{frame::write_message, *};
use crate::{
    Budget,
    limits::{
        FIRST_BUFFER_BYTES, KEPT_BUDGETED_BUFFER_BYTES, KEPT_BUFFER_BYTES, Limits, MAX_COMMAND_BYTES,
        MAX_PENDING_PONGS,
    },
};

/// What a libzmq 4.3 PUB socket sends: greeting 3.1 with its signature length of 1, then READY with an
/// empty identity.
fn libzmq_greeting(minor: u8) -> Vec<u8> {
    let mut greeting = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, minor];
    greeting.extend_from_slice(b"NULL");
    greeting.resize(64, 0);
    greeting
}

fn libzmq_ready() -> Vec<u8> {
    let mut body = b"\x05READY\x0bSocket-Type\0\0\0\x03PUB".to_vec();
    body.extend_from_slice(b"\x08Identity\0\0\0\0");
    command(&body)
}

fn command(body: &[u8]) -> Vec<u8> {
    [&[4, u8::try_from(body.len()).unwrap()], body].concat()
}

fn handshake(minor: u8) -> Vec<u8> {
    [libzmq_greeting(minor), libzmq_ready()].concat()
}

fn message(frames: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    write_message(frames, &mut out);
    out
}

fn subscriber() -> Subscriber {
    Subscriber::new(Limits::KV_METRICS, [b"kv_metrics".as_slice()])
}

/// What came out of a stream: messages as frames, other events as words.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Ready(u8),
    Alive,
    Message(Vec<Vec<u8>>),
}

fn feed(subscriber: &mut Subscriber, mut input: &[u8], seen: &mut Vec<Seen>) -> Result<(), Error> {
    while let Some(event) = subscriber.push(&mut input)? {
        seen.push(match event {
            Event::Ready { minor } => Seen::Ready(minor),
            Event::Alive => Seen::Alive,
            Event::Message(message) => Seen::Message(
                (0..message.len())
                    .map(|at| message.frame(at).unwrap().to_vec())
                    .collect(),
            ),
        });
    }
    assert!(input.is_empty(), "input is used up");
    Ok(())
}

fn run(input: &[u8]) -> (Vec<Seen>, Option<Error>) {
    let mut seen = Vec::new();
    let end = feed(&mut subscriber(), input, &mut seen).err();
    (seen, end)
}

#[test]
fn a_libzmq_peer_is_greeted_and_asked() {
    let mut subscriber = subscriber();
    assert_eq!(
        subscriber.outgoing(),
        libzmq_greeting(1),
        "greeting first, without waiting"
    );
    subscriber.sent(64);
    let mut seen = Vec::new();
    feed(&mut subscriber, &libzmq_greeting(1), &mut seen).unwrap();
    assert_eq!(
        subscriber.outgoing(),
        command(b"\x05READY\x0bSocket-Type\0\0\0\x03SUB")
    );
    subscriber.sent(usize::MAX);
    feed(&mut subscriber, &libzmq_ready(), &mut seen).unwrap();
    assert_eq!(seen, [Seen::Alive, Seen::Ready(1)]);
    let asked = [message(&[b"\x01kv_metrics"]), command(b"\x09SUBSCRIBEkv_metrics")].concat();
    assert_eq!(subscriber.outgoing(), asked);
    subscriber.sent(usize::MAX);
    subscriber.subscribe(b"kv_metrics");
    assert_eq!(subscriber.outgoing(), b"", "known already");
    subscriber.subscribe(b"x");
    subscriber.cancel(b"x");
    let more = [
        message(&[b"\x01x"]),
        command(b"\x09SUBSCRIBEx"),
        message(&[b"\x00x"]),
        command(b"\x06CANCELx"),
    ];
    assert_eq!(subscriber.outgoing(), more.concat());
}

#[test]
fn a_peer_of_minor_0_gets_the_message_form_and_no_ping() {
    let mut subscriber = subscriber();
    let mut seen = Vec::new();
    feed(&mut subscriber, &libzmq_greeting(0), &mut seen).unwrap();
    subscriber.sent(usize::MAX);
    assert!(!subscriber.ping(30), "not before the handshake");
    feed(&mut subscriber, &libzmq_ready(), &mut seen).unwrap();
    assert_eq!(seen, [Seen::Alive, Seen::Ready(0)]);
    assert_eq!(subscriber.outgoing(), message(&[b"\x01kv_metrics"]));
    assert!(!subscriber.ping(30));
}

#[test]
fn pings_are_answered_and_sent() {
    let mut subscriber = subscriber();
    let mut seen = Vec::new();
    feed(&mut subscriber, &handshake(1), &mut seen).unwrap();
    subscriber.sent(usize::MAX);
    feed(&mut subscriber, &command(b"\x04PING\0\x0acontext"), &mut seen).unwrap();
    assert_eq!(subscriber.outgoing(), command(b"\x04PONGcontext"));
    subscriber.sent(usize::MAX);
    assert!(subscriber.ping(600));
    assert_eq!(subscriber.outgoing(), command(b"\x04PING\x02\x58"));
    feed(&mut subscriber, &command(b"\x04PONG"), &mut seen).unwrap();
    assert_eq!(seen, [Seen::Alive, Seen::Ready(1), Seen::Alive, Seen::Alive]);
}

#[test]
fn a_ping_between_two_frames_of_a_message_does_not_disturb_it() {
    let first = [&[1, 1], b"a".as_slice()].concat();
    let last = [&[0, 1], b"b".as_slice()].concat();
    let input = [handshake(1), first, command(b"\x04PING\0\0"), last].concat();
    let (seen, end) = run(&input);
    assert_eq!(end, None);
    assert_eq!(
        seen[2..],
        [Seen::Alive, Seen::Message(vec![b"a".to_vec(), b"b".to_vec()])]
    );
}

#[test]
fn a_message_is_under_way_from_its_first_head_to_its_last_byte() {
    let mut subscriber = subscriber();
    let mut seen = Vec::new();
    feed(&mut subscriber, &handshake(0), &mut seen).unwrap();
    let table: [(&[u8], bool); 11] = [
        (b"", false),
        (b"\x04\x07\x04PI", false),
        (b"NG\0\0", false),
        (b"\x01\x02", true),
        (b"ab", true),
        (b"\x04\x07\x04PI", true),
        (b"NG\0\0", true),
        (b"\x00\x01", true),
        (b"c", false),
        (b"\x00\x01d\x00\x01", true),
        (b"e\x00\x00", false),
    ];
    for (bytes, within) in table {
        feed(&mut subscriber, bytes, &mut seen).unwrap();
        assert_eq!(subscriber.is_within_message(), within, "{bytes:?}");
    }
}

#[test]
fn frames_of_any_legal_spelling_are_read() {
    let long = [&[2, 0, 0, 0, 0, 0, 0, 0, 3], b"abc".as_slice()].concat();
    let (seen, end) = run(&[
        handshake(1),
        long,
        message(&[b""]),
        message(&[b"", b"", b"", b""]),
    ]
    .concat());
    assert_eq!(end, None);
    let empty = Vec::new;
    assert_eq!(
        seen[2..],
        [
            Seen::Message(vec![b"abc".to_vec()]),
            Seen::Message(vec![empty()]),
            Seen::Message(vec![empty(), empty(), empty(), empty()])
        ]
    );
}

#[test]
fn hostile_peers_are_cut_with_a_word() {
    let after = |bytes: &[u8]| [handshake(1), bytes.to_vec()].concat();
    let greeting_with = |at: usize, byte: u8| {
        let mut greeting = libzmq_greeting(1);
        greeting[at] = byte;
        greeting
    };
    let in_handshake = |bytes: &[u8]| [libzmq_greeting(1), bytes.to_vec()].concat();
    let ready = |properties: &[u8]| in_handshake(&command(&[b"\x05READY", properties].concat()));
    let long_frame = |flags: u8, len: u64| [&[flags | 2], len.to_be_bytes().as_slice()].concat();
    let topic = message(&[b"kv_metrics"]);
    let more_topic = [&[1], &topic[1..]].concat();
    let table: Vec<(&str, Vec<u8>, Error)> = vec![
        ("HTTP", b"HTTP/1.1 400".to_vec(), Error::NotZmtp),
        ("TLS alert", vec![21, 3, 3], Error::NotZmtp),
        ("no signature end", greeting_with(9, 0), Error::NotZmtp),
        ("ZMTP 2", greeting_with(10, 1), Error::OldVersion),
        ("CURVE", greeting_with(12, b'C'), Error::Mechanism),
        ("NULLX", greeting_with(16, b'X'), Error::Mechanism),
        ("message before READY", in_handshake(&topic), Error::NoReady),
        (
            "PING before READY",
            in_handshake(&command(b"\x04PING\0\0")),
            Error::NoReady,
        ),
        (
            "ERROR before READY",
            in_handshake(&command(b"\x05ERROR\x03no!")),
            Error::Refused,
        ),
        (
            "REP peer",
            ready(b"\x0bSocket-Type\0\0\0\x03REP"),
            Error::SocketType,
        ),
        (
            "SUB peer",
            ready(b"\x0bSocket-Type\0\0\0\x03SUB"),
            Error::SocketType,
        ),
        ("no socket type", ready(b""), Error::SocketType),
        (
            "property without name",
            ready(b"\0\0\0\0\0"),
            Error::MalformedCommand,
        ),
        (
            "property cut",
            ready(b"\x0bSocket-Type\0\0\0\x04PUB"),
            Error::MalformedCommand,
        ),
        (
            "property of 4 GiB",
            ready(b"\x01x\xff\xff\xff\xff"),
            Error::MalformedCommand,
        ),
        (
            "17 properties",
            ready(&b"\x01x\0\0\0\0".repeat(17)),
            Error::MalformedCommand,
        ),
        ("READY twice", after(&libzmq_ready()), Error::SecondReady),
        ("ERROR later", after(&command(b"\x05ERROR\x00")), Error::Refused),
        (
            "ERROR cut",
            after(&command(b"\x05ERROR\x09no")),
            Error::MalformedCommand,
        ),
        (
            "nameless command",
            after(&command(b"\x00")),
            Error::MalformedCommand,
        ),
        ("empty command", after(&command(b"")), Error::MalformedCommand),
        (
            "name beyond the body",
            after(&command(b"\x09PING")),
            Error::MalformedCommand,
        ),
        (
            "PING without ttl",
            after(&command(b"\x04PING\0")),
            Error::MalformedCommand,
        ),
        (
            "PING context of 17",
            after(&command(b"\x04PING\0\x00aaaaaaaaaaaaaaaaa")),
            Error::MalformedCommand,
        ),
        (
            "command of 513",
            after(&long_frame(4, 513)),
            Error::CommandTooLong,
        ),
        ("command with more", after(&[5, 1]), Error::SplitCommand),
        ("reserved bit 3", after(&[8]), Error::ReservedBits),
        ("reserved bit 7", after(&[0x80]), Error::ReservedBits),
        ("topic of 257", after(&long_frame(0, 257)), Error::FrameTooLong),
        (
            "frame of 2^64 - 1",
            after(&[more_topic.clone(), long_frame(0, u64::MAX)].concat()),
            Error::FrameTooLong,
        ),
        (
            "frame over the cap",
            after(&[more_topic.clone(), long_frame(0, 16_390)].concat()),
            Error::FrameTooLong,
        ),
        (
            "message over the cap",
            after(
                &[
                    more_topic,
                    long_frame(1, 16_000),
                    vec![0; 16_000],
                    long_frame(0, 16_000),
                ]
                .concat(),
            ),
            Error::FrameTooLong,
        ),
        (
            "fifth frame",
            after(&[[1, 0].repeat(4), vec![0, 0]].concat()),
            Error::TooManyFrames,
        ),
    ];
    for (case, input, error) in table {
        assert_eq!(run(&input).1, Some(error), "{case}");
    }
}

#[test]
fn a_ping_flood_is_cut_only_when_the_answers_are_not_read() {
    let mut subscriber = subscriber();
    let mut seen = Vec::new();
    feed(&mut subscriber, &handshake(1), &mut seen).unwrap();
    let ping = command(b"\x04PING\0\0");
    for _ in 0..10 * MAX_PENDING_PONGS {
        subscriber.sent(usize::MAX);
        feed(&mut subscriber, &ping, &mut seen).unwrap();
    }
    subscriber.sent(usize::MAX);
    let flood = ping.repeat(MAX_PENDING_PONGS + 1);
    assert_eq!(feed(&mut subscriber, &flood, &mut seen), Err(Error::PingFlood));
}

#[test]
fn memory_follows_the_bytes_that_came_and_is_given_back() {
    let mut subscriber = Subscriber::new(Limits::KV_EVENTS, [b"kv-events".as_slice()]);
    let mut seen = Vec::new();
    feed(&mut subscriber, &handshake(1), &mut seen).unwrap();
    assert!(subscriber.capacity() <= FIRST_BUFFER_BYTES);
    // Eight megabytes are declared, nothing comes.
    let megabytes = Limits::KV_EVENTS.frame;
    let head = [&[3], (megabytes as u64).to_be_bytes().as_slice()].concat();
    feed(
        &mut subscriber,
        &[message(&[b"kv-events"])[..0].to_vec(), vec![1, 0], head].concat(),
        &mut seen,
    )
    .unwrap();
    assert!(
        subscriber.capacity() <= FIRST_BUFFER_BYTES,
        "{}",
        subscriber.capacity()
    );
    let chunk = vec![7; 100_000];
    feed(&mut subscriber, &chunk, &mut seen).unwrap();
    assert!(subscriber.capacity() <= 128 * 1024, "{}", subscriber.capacity());
    let mut left = megabytes - chunk.len();
    while left > 0 {
        let some = left.min(chunk.len());
        feed(&mut subscriber, &chunk[..some], &mut seen).unwrap();
        left -= some;
    }
    assert!(
        subscriber.capacity() <= megabytes + MAX_COMMAND_BYTES,
        "{}",
        subscriber.capacity()
    );
    // Commands of any length behind a long frame make it move no more.
    let held = subscriber.capacity();
    for context in 0..=16 {
        let pong = command(&[b"\x04PONG", vec![7; context].as_slice()].concat());
        feed(&mut subscriber, &pong, &mut seen).unwrap();
    }
    assert_eq!(subscriber.capacity(), held);
    feed(&mut subscriber, &[0, 0], &mut seen).unwrap();
    assert!(matches!(seen.last(), Some(Seen::Message(frames)) if frames[1].len() == megabytes));
    feed(&mut subscriber, &command(b"\x04PONG"), &mut seen).unwrap();
    assert!(subscriber.capacity() <= KEPT_BUFFER_BYTES);
}

#[test]
fn a_publisher_serves_what_was_asked_for() {
    let mut publisher = Publisher::new();
    let ready = command(b"\x05READY\x0bSocket-Type\0\0\0\x03SUB");
    assert!(!publisher.publish(&[b"kv_metrics"]));
    publisher
        .push(&[libzmq_greeting(0), ready, message(&[b"\x01kv_"])].concat())
        .unwrap();
    publisher.sent(usize::MAX);
    assert!(publisher.publish(&[b"kv_metrics", b"more123456"]) && !publisher.publish(&[b"kv-events"]));
    assert_eq!(publisher.outgoing(), message(&[b"kv_metrics", b"more123456"]));
    publisher.push(&message(&[b"\x00kv_"])).unwrap();
    assert!(!publisher.wants(b"kv_metrics"));
    publisher.push(&command(b"\x09SUBSCRIBE")).unwrap();
    assert!(publisher.wants(b"anything"));
    assert_eq!(publisher.push(&message(&[&[1; 2000]])), Err(Error::FrameTooLong));
}

fn legal_stream() -> impl Strategy<Value = Vec<u8>> {
    let frames = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..=4);
    let item = prop_oneof![
        4 => frames.prop_map(|mut frames| {
            frames[0].truncate(256);
            message(&frames.iter().map(Vec::as_slice).collect::<Vec<_>>())
        }),
        1 => prop::collection::vec(any::<u8>(), 0..=16)
            .prop_map(|context| command(&[b"\x04PONG", context.as_slice()].concat())),
    ];
    prop::collection::vec(item, 0..6).prop_map(|items| [handshake(1), items.concat()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_split_of_the_bytes_gives_the_same_events(
        mut stream in legal_stream(),
        noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        for (at, byte) in noise {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        let whole = run(&stream);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.push(stream.len());
        cuts.sort_unstable();
        let (mut one, mut seen, mut end, mut from) = (subscriber(), Vec::new(), None, 0);
        for to in cuts {
            end = feed(&mut one, &stream[from..to], &mut seen).err();
            if end.is_some() { break }
            from = to;
        }
        prop_assert_eq!((seen, end), whole);
    }
}

#[test]
fn a_message_that_does_not_fit_into_the_budget_ends_its_own_connection() {
    let budget = Budget::new(1 << 20);
    let connect = || {
        let mut subscriber =
            Subscriber::new(Limits::KV_EVENTS, [b"kv-events".as_slice()]).within(Some(budget.clone()));
        feed(&mut subscriber, &handshake(1), &mut Vec::new()).unwrap();
        subscriber
    };
    let (mut one, mut other) = (connect(), connect());
    let idle = budget.held();
    let body = vec![7; 800_000];
    let bytes = message(&[b"kv-events", &body]);
    // Long messages have three quarters of the megabyte.
    assert_eq!(feed(&mut one, &bytes, &mut Vec::new()), Err(Error::OverBudget));
    drop(one);
    assert_eq!(budget.held(), idle / 2);
    let mut seen = Vec::new();
    for _ in 0..3 {
        feed(&mut other, &message(&[b"kv-events", &body[..300_000]]), &mut seen).unwrap();
        assert!(budget.held() <= KEPT_BUDGETED_BUFFER_BYTES, "{}", budget.held());
    }
    assert_eq!(seen.len(), 3);
    budget.set_limit(2 << 20);
    feed(&mut other, &bytes, &mut seen).unwrap();
    assert_eq!(seen.len(), 4);
    drop(other);
    assert_eq!(budget.held(), 0);
}

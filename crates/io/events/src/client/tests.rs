use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{DuplexStream, ReadBuf},
    time::sleep,
};

use super::*;
use crate::testing::{Peer, message};

#[derive(Default)]
struct Seen {
    ready: usize,
    messages: usize,
}

impl Handler for Seen {
    fn ready(&mut self) {
        self.ready += 1;
    }

    fn message(&mut self, _: &Message<'_>) {
        self.messages += 1;
    }
}

fn topic() -> Topics {
    Topics::Fixed(b"kv_metrics".as_slice().into())
}

async fn subscribe(stream: DuplexStream) -> (Ended, Seen, Duration) {
    let started = Instant::now();
    let mut seen = Seen::default();
    let ended = run(stream, Limits::KV_METRICS, None, topic(), &mut seen).await;
    (ended, seen, started.elapsed())
}

fn pair() -> (DuplexStream, Peer) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    (ours, Peer::new(theirs))
}

/// The handshake of a ZMTP 3.0 peer, which knows no PING.
fn old_peer() -> Vec<u8> {
    let mut bytes = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0];
    bytes.extend_from_slice(b"NULL");
    bytes.resize(64, 0);
    bytes.extend_from_slice(b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB");
    bytes
}

#[tokio::test(start_paused = true)]
async fn messages_arrive_until_the_peer_closes() {
    let (ours, mut peer) = pair();
    let play = async {
        peer.until_wanted(b"kv_metrics").await;
        for sequence in 0..10 {
            peer.publish(&message(1, sequence, 5)).await;
        }
        drop(peer);
    };
    let ((ended, seen, _), ()) = tokio::join!(subscribe(ours), play);
    assert!(matches!(ended, Ended::Closed), "{ended}");
    assert_eq!((seen.ready, seen.messages), (1, 10));
}

/// Notes how much each read asks for.
struct Measured(DuplexStream, Arc<AtomicUsize>);

impl AsyncRead for Measured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.1.store(buffer.remaining(), Relaxed);
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Measured {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test(start_paused = true)]
async fn the_read_buffer_is_large_within_a_message_alone() {
    let (ours, mut peer) = pair();
    let asked = Arc::new(AtomicUsize::new(0));
    let measured = Measured(ours, Arc::clone(&asked));
    let mut seen = Seen::default();
    let topic = Topics::Fixed(b"kv-events".as_slice().into());
    let run = run(measured, Limits::KV_EVENTS, None, topic, &mut seen);
    let play = async {
        peer.until_wanted(b"kv-events").await;
        assert_eq!(asked.load(Relaxed), READ_BUFFER_BYTES);
        // Ends in the middle of a large read, with an end of its own, and with a full one.
        for length in [200_000, 64 * 1024 - 20, 300_000, 2 * 64 * 1024] {
            peer.publish(&[b"kv-events".to_vec(), vec![0; length]]).await;
            sleep(Duration::from_secs(1)).await;
            assert_eq!(asked.load(Relaxed), READ_BUFFER_BYTES, "after {length} bytes");
        }
        // A message that is under way.
        let begun = [
            b"\x01\x09kv-events\x02".as_slice(),
            &100_000_u64.to_be_bytes(),
            &[0; 50_000],
        ]
        .concat();
        peer.stream.write_all(&begun).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        assert!(asked.load(Relaxed) > READ_BUFFER_BYTES);
        drop(peer);
    };
    let (ended, ()) = tokio::join!(run, play);
    assert!(matches!(ended, Ended::Closed), "{ended}");
    assert_eq!(seen.messages, 4);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_says_nothing_gets_ten_seconds() {
    let (ours, _peer) = pair();
    let (ended, seen, took) = subscribe(ours).await;
    assert!(matches!(ended, Ended::Handshake), "{ended}");
    assert_eq!((seen.ready, took), (0, HANDSHAKE_TIMEOUT));
}

#[tokio::test(start_paused = true)]
async fn an_answering_peer_stays_however_quiet() {
    let (ours, mut peer) = pair();
    tokio::select! {
        (ended, ..) = subscribe(ours) => panic!("ended: {ended}"),
        () = peer.serve() => panic!("subscriber left"),
        () = sleep(10 * SILENT_AFTER) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_peer_is_dropped() {
    let (ours, mut peer) = pair();
    let play = async {
        peer.until_wanted(b"kv_metrics").await;
        sleep(10 * SILENT_AFTER).await;
    };
    let ended = tokio::select! {
        (ended, seen, took) = subscribe(ours) => (ended, seen.ready, took),
        () = play => panic!("still connected"),
    };
    assert!(
        matches!(ended, (Ended::Silent, 1, took) if took == SILENT_AFTER),
        "{ended:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_knows_no_ping_may_be_silent() {
    let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
    theirs.write_all(&old_peer()).await.unwrap();
    tokio::select! {
        (ended, ..) = subscribe(ours) => panic!("ended: {ended}"),
        () = sleep(10 * SILENT_AFTER) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_must_end_in_time_whatever_comes_in_between() {
    let ping = b"\x04\x07\x04PING\0\0";
    let table: [(&str, &[u8], &[u8]); 3] = [
        ("nothing", b"\x01\x0akv_", b""),
        ("a byte at a time", b"\x01\xc8", b"k"),
        ("pings between its frames", b"\x01\x0akv_metrics", ping),
    ];
    for (what, begin, then) in table {
        let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
        theirs.write_all(&old_peer()).await.unwrap();
        theirs.write_all(begin).await.unwrap();
        let play = async {
            for _ in 0..20 {
                sleep(Duration::from_secs(4)).await;
                theirs.write_all(then).await.unwrap();
            }
        };
        let (ended, seen, took) = tokio::select! {
            ended = subscribe(ours) => ended,
            () = play => panic!("{what}: still connected"),
        };
        assert!(matches!(ended, Ended::Unfinished), "{what}: {ended}");
        assert_eq!(
            (seen.ready, seen.messages, took),
            (1, 0, MESSAGE_TIMEOUT),
            "{what}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn each_message_has_its_own_time() {
    let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
    let mut bytes = Vec::new();
    zmtp::write_message(&message(1, 0, 5), &mut bytes);
    let half = bytes.len() / 2;
    let play = async {
        theirs.write_all(&old_peer()).await.unwrap();
        theirs.write_all(&bytes[..half]).await.unwrap();
        for _ in 0..5 {
            sleep(MESSAGE_TIMEOUT * 2 / 3).await;
            // The end of one and the beginning of the next.
            theirs.write_all(&bytes[half..]).await.unwrap();
            theirs.write_all(&bytes[..half]).await.unwrap();
        }
        drop(theirs);
    };
    let ((ended, seen, _), ()) = tokio::join!(subscribe(ours), play);
    assert!(matches!(ended, Ended::Closed), "{ended}");
    assert_eq!(seen.messages, 5);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_is_dropped() {
    // Room for our greeting and not for our READY.
    let (ours, mut theirs) = tokio::io::duplex(70);
    let play = async {
        let bytes = old_peer();
        let (first, rest) = bytes.split_at(64);
        theirs.write_all(first).await.unwrap();
        theirs.write_all(rest).await.unwrap();
        sleep(10 * WRITE_TIMEOUT).await;
    };
    let ended = tokio::select! {
        (ended, ..) = subscribe(ours) => ended,
        () = play => panic!("still connected"),
    };
    assert!(matches!(ended, Ended::Stuck), "{ended}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_breaks_the_protocol_is_refused() {
    let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
    theirs.write_all(b"HTTP/1.1 400 Bad Request\r\n").await.unwrap();
    let (ended, ..) = subscribe(ours).await;
    assert!(matches!(ended, Ended::Refused(zmtp::Error::NotZmtp)), "{ended}");
}

#[tokio::test(start_paused = true)]
async fn subjects_follow_their_list_while_connected() {
    let (ours, mut peer) = pair();
    let asked = watch::Sender::new(vec![b"a".as_slice().into()]);
    let topics = Topics::Following(asked.subscribe());
    let mut seen = Seen::default();
    let play = async {
        peer.until_wanted(b"a").await;
        asked.send_replace(vec![b"b".as_slice().into()]);
        peer.until_wanted(b"b").await;
        drop(peer);
    };
    let (ended, ()) = tokio::join!(run(ours, Limits::KV_METRICS, None, topics, &mut seen), play);
    assert!(matches!(ended, Ended::Closed | Ended::Io(_)), "{ended}");
}

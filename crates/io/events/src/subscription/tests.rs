use std::time::Duration;

use tokio::{sync::mpsc::UnboundedReceiver, task::JoinHandle};

use super::*;
use crate::{
    status::{Board, Key, Row, Via},
    testing::{Recorder, Scripted, Told, message},
};

const ID: PublisherId = PublisherId::new(7);

struct Fixture {
    connector: Arc<Scripted>,
    tries: UnboundedReceiver<Instant>,
    sink: Arc<Recorder>,
    metrics: Metrics,
    board: Board,
    settings: watch::Sender<Settings>,
    task: JoinHandle<()>,
}

/// A running subscription whose waits are the whole ceiling.
fn fixture(prepare: impl FnOnce(&Scripted)) -> Fixture {
    let (connector, tries) = Scripted::new();
    prepare(&connector);
    let metrics = Metrics::new().unwrap();
    let board = Board::new(metrics.lines().clone());
    let sink = Arc::new(Recorder::default());
    let settings = watch::Sender::new(Settings::default());
    let row = Row {
        family: Topic::KvMetrics,
        publisher: Some(ID),
        namespace: None,
        component: None,
        state: State::Connecting,
        via: Via::Direct,
    };
    let line = Line {
        target: Target {
            family: Topic::KvMetrics,
            namespace: None,
            publisher: Some(ID),
            endpoint: "".into(),
        },
        connector: Arc::clone(&connector) as Arc<dyn Connector>,
        settings: settings.subscribe(),
        budget: None,
        lines: metrics.lines().clone(),
        mark: board.enter(Key::Publisher(ID), row),
        backoff: Backoff::with_jitter(RECONNECT_INITIAL, RECONNECT_MAX, || 1.0),
        outages: Arc::default(),
    };
    let mut session = Publisher::new(
        ID,
        "ns".into(),
        Arc::clone(&sink) as Arc<dyn LoadSink>,
        metrics.clone(),
    );
    let topics = || Topics::Fixed(b"kv_metrics".as_slice().into());
    let task = tokio::spawn(async move { line.keep(topics, &mut session).await });
    Fixture {
        connector,
        tries,
        sink,
        metrics,
        board,
        settings,
        task,
    }
}

impl Fixture {
    /// Seconds between this try and the one before it.
    async fn gaps(&mut self, count: usize) -> Vec<f64> {
        let mut gaps = Vec::new();
        let mut before = None;
        while gaps.len() < count {
            let at = self.tries.recv().await.unwrap();
            if let Some(before) = before {
                gaps.push((at - before as Instant).as_secs_f64());
            }
            before = Some(at);
        }
        gaps
    }

    fn state(&self) -> State {
        self.board.rows()[0].state
    }
}

#[tokio::test(start_paused = true)]
async fn waits_double_up_to_thirty_seconds() {
    let mut f = fixture(|_| {});
    assert_eq!(f.gaps(8).await, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]);
    assert_eq!(
        f.metrics.counted(Outcome::TransportRefused),
        0,
        "out of reach is not refused"
    );
    f.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_settings_ends_a_wait_and_hurries_nobody_else() {
    let mut f = fixture(|_| {});
    assert_eq!(f.gaps(6).await.last(), Some(&16.0));
    // As much as is needed for the line to wait.
    sleep(Duration::from_secs(1)).await;
    let changed = Instant::now();
    f.settings.send_modify(|settings| settings.blocks.payload += 1);
    assert_eq!(
        f.tries.recv().await,
        Some(changed),
        "it may have been what was wrong"
    );
    // The next wait is a whole one, also after a change while a connection stood.
    let mut peer = f.connector.offer();
    f.tries.recv().await.unwrap();
    peer.until_wanted(b"kv_metrics").await;
    f.settings.send_modify(|settings| settings.blocks.payload += 1);
    let lost = Instant::now();
    drop(peer);
    assert!(f.tries.recv().await.unwrap() - lost > Duration::from_secs(1));
    f.task.abort();
}

#[tokio::test(start_paused = true)]
async fn only_a_long_session_forgets_earlier_failures() {
    for (session, expected) in [
        (RECONNECT_MAX, 0.5),
        (RECONNECT_MAX - Duration::from_secs(1), 16.0),
    ] {
        let mut f = fixture(|_| {});
        f.gaps(4).await;
        let mut peer = f.connector.offer();
        let connected = f.tries.recv().await.unwrap();
        peer.until_wanted(b"kv_metrics").await;
        assert_eq!((f.state(), Instant::now()), (State::Connected, connected));
        sleep(session).await;
        drop(peer);
        let again = f.tries.recv().await.unwrap();
        assert_eq!((again - connected - session).as_secs_f64(), expected);
        f.task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_accepts_and_breaks_the_protocol_is_counted_and_backed_off_from() {
    use tokio::io::AsyncWriteExt as _;
    let mut f = fixture(|_| {});
    f.tries.recv().await.unwrap();
    let mut gaps = Vec::new();
    let mut before = None;
    for _ in 0..4 {
        let mut peer = f.connector.offer();
        peer.stream
            .write_all(b"\xff\0\0\0\0\0\0\0\x01\x7f\x02")
            .await
            .unwrap();
        let at = f.tries.recv().await.unwrap();
        gaps.extend(before.map(|before| (at - before as Instant).as_secs_f64()));
        before = Some(at);
        // Held until the other side has read it.
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(gaps, [1.0, 2.0, 4.0]);
    assert_eq!(f.metrics.counted(Outcome::TransportRefused), 4);
    assert_eq!(f.state(), State::Backoff);
    f.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_leaves_messages_unfinished_is_backed_off_from() {
    use tokio::io::AsyncWriteExt as _;
    let mut f = fixture(|_| {});
    f.tries.recv().await.unwrap();
    let mut waits = Vec::new();
    for _ in 0..4 {
        let mut peer = f.connector.offer();
        let connected = f.tries.recv().await.unwrap();
        peer.until_wanted(b"kv_metrics").await;
        peer.stream.write_all(b"\x01\x0akv_").await.unwrap();
        // It answers pings, and never says the rest.
        tokio::select! {
            () = peer.serve() => {}
            () = sleep(Duration::from_secs(60)) => panic!("still connected"),
        }
        let next = Instant::now();
        assert_eq!(next - connected, crate::limits::MESSAGE_TIMEOUT);
        waits.push(next);
    }
    let gaps: Vec<_> = waits
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_secs_f64() - 30.0)
        .collect();
    assert_eq!(gaps, [1.0, 2.0, 4.0]);
    f.task.abort();
}

#[tokio::test(start_paused = true)]
async fn what_a_connection_tells_the_store() {
    let mut peer = None;
    let mut f = fixture(|connector| peer = Some(connector.offer()));
    let mut peer = peer.unwrap();
    peer.until_wanted(b"kv_metrics").await;
    // A late joiner begins anywhere; 4 comes twice; 5 does not decode; 6 shows the gap; 9 too.
    for sequence in [3, 4, 4] {
        peer.publish(&message(7, sequence, sequence)).await;
    }
    let mut broken = message(7, 5, 5);
    broken[3] = continuum_wire::envelope::encode(b"", "kv_metrics", ID, 5, 0, b"\xc1")[3].clone();
    peer.publish(&broken).await;
    for sequence in [6, 7, 10] {
        peer.publish(&message(7, sequence, sequence)).await;
    }
    peer.publish(&message(8, 11, 0)).await;
    peer.publish(&[b"kv_metrics".to_vec()]).await;
    drop(peer);
    f.tries.recv().await.unwrap();
    let mut peer = f.connector.offer();
    f.tries.recv().await.unwrap();
    peer.until_wanted(b"kv_metrics").await;
    peer.publish(&message(7, 0, 1)).await;
    peer.publish(&message(7, 0, 1)).await;
    sleep(Duration::from_millis(1)).await;
    f.task.abort();
    assert!(f.task.await.unwrap_err().is_cancelled());

    let apply = |sequence| Told::Apply(ID, sequence, Some(sequence));
    assert_eq!(
        f.sink.told(),
        [
            Told::Forget(ID),
            Told::Subscribed(ID, true),
            apply(3),
            apply(4),
            Told::Forget(ID),
            apply(6),
            apply(7),
            Told::Forget(ID),
            apply(10),
            Told::Subscribed(ID, false),
            Told::Forget(ID),
            Told::Subscribed(ID, true),
            Told::Apply(ID, 0, Some(1)),
            Told::Subscribed(ID, false),
        ]
    );
    let counted = |outcome| f.metrics.counted(outcome);
    assert_eq!(counted(Outcome::Applied), 6);
    assert_eq!(counted(Outcome::Duplicate), 2);
    assert_eq!(counted(Outcome::Gap), 2);
    assert_eq!(counted(Outcome::Refused(Refusal::Malformed)), 2);
    assert_eq!(counted(Outcome::Refused(Refusal::IdentityMismatch)), 1);
    assert_eq!(f.board.rows(), [], "a stopped subscription leaves the board");
    for state in State::ALL {
        assert_eq!(f.metrics.subscriptions(state, Via::Direct).get(), 0, "{state:?}");
    }
}

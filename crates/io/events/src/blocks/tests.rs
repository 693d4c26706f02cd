use std::time::Duration;

use continuum_fleet::{
    ids::{InstanceId, WorkerKey},
    view::{PublisherKey, Role, Transport, Worker},
};
use continuum_kv_index::{Matches, RankKey};
use continuum_testkit::view;
use continuum_wire::{
    Limits, envelope,
    router_event::{self, Block, Data, Domain, RouterEvent, Stored, Tier},
};
use tokio::{sync::mpsc::UnboundedReceiver, task::JoinHandle, time::sleep};

use super::*;
use crate::{
    client::Topics,
    connector::{Connector, Target},
    status::{Board, Key, Row, State, Via},
    subscription::{Line, backoff},
    testing::{Peer, Scripted},
};

const ID: PublisherId = PublisherId::new(7);

fn seen() -> FleetView {
    let mut worker = Worker::clone(&view::worker("ns", 1, Role::Aggregated));
    worker.card = Some(Arc::new(view::card()));
    FleetView {
        workers: [(worker.key.clone(), Arc::new(worker))].into_iter().collect(),
        ..FleetView::default()
    }
}

fn unchanged() -> watch::Receiver<Settings> {
    watch::channel(Settings::default()).1
}

fn publisher() -> Publisher {
    Publisher {
        key: PublisherKey {
            topic: Topic::KvEvents,
            id: ID,
        },
        namespace: "ns".into(),
        graph: "ns".into(),
        component: None,
        transport: Transport::Zmq { endpoint: "".into() },
        feeds: None,
    }
}

struct Fixture {
    connector: Arc<Scripted>,
    blocks: Blocks,
    task: JoinHandle<()>,
    _tries: UnboundedReceiver<Instant>,
}

/// A running subscription of one publisher, whose connections a test plays.
fn fixture() -> (Fixture, Peer) {
    let (connector, tries) = Scripted::new();
    let peer = connector.offer();
    let metrics = BlockMetrics::new().unwrap();
    let blocks = Blocks::new(metrics, 1);
    blocks.follow(&seen(), &Settings::default());
    let row = Row {
        family: Topic::KvEvents,
        publisher: Some(ID),
        namespace: None,
        component: None,
        state: State::Connecting,
        via: Via::Direct,
    };
    let line = Line {
        target: Target {
            family: Topic::KvEvents,
            namespace: None,
            publisher: Some(ID),
            endpoint: "".into(),
        },
        connector: Arc::clone(&connector) as Arc<dyn Connector>,
        settings: unchanged(),
        budget: blocks.budget(),
        lines: blocks.lines().clone(),
        mark: Board::new(blocks.lines().clone()).enter(Key::Publisher(ID), row),
        backoff: backoff(),
        outages: Arc::default(),
    };
    let mut session = blocks.direct(&publisher(), &unchanged());
    let topics = || Topics::Fixed(b"kv-events".as_slice().into());
    let task = tokio::spawn(async move { line.keep(topics, &mut session).await });
    (
        Fixture {
            connector,
            blocks,
            task,
            _tries: tries,
        },
        peer,
    )
}

fn message(sequence: u64, event_id: u64, tokens: u64) -> [Vec<u8>; 4] {
    let payload = router_event::encode(&[RouterEvent {
        worker_id: 1,
        tier: Tier::Device,
        domain: Domain::Worker,
        event_id,
        rank: 0,
        data: Data::Stored(Stored {
            parent: None,
            blocks: vec![Block {
                hash: tokens,
                tokens,
                multimodal: false,
            }],
        }),
    }]);
    envelope::encode(b"kv-events", "kv-events", ID, sequence, 0, &payload)
}

impl Fixture {
    fn holds(&self, tokens: u64) -> bool {
        let mut matches = Matches::new();
        self.blocks.intake.index().find(&[tokens], &mut matches);
        let rank = RankKey {
            worker: WorkerKey {
                namespace: "ns".into(),
                instance: InstanceId::new(1),
            },
            rank: 0,
        };
        matches.of(&rank).device == 1
    }

    async fn until(&self, tokens: u64) {
        while !self.holds(tokens) {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

const ALMOST: Duration = Duration::from_secs(59);
const A_LITTLE: Duration = Duration::from_secs(2);

#[tokio::test(start_paused = true)]
async fn what_a_lost_subscription_said_is_forgotten_after_a_minute() {
    let (f, mut peer) = fixture();
    peer.until_wanted(b"kv-events").await;
    // An idle publisher is no lost one.
    peer.publish(&message(0, 1, 11)).await;
    f.until(11).await;
    tokio::select! {
        () = peer.serve() => unreachable!("it stays connected"),
        () = sleep(10 * ALMOST) => {}
    }
    assert!(f.holds(11));
    drop(peer);
    sleep(ALMOST).await;
    assert!(f.holds(11), "not yet");
    sleep(A_LITTLE).await;
    assert!(!f.holds(11));
    // Connected again: a repeated event is known to be one, the next one counts.
    let mut peer = f.connector.offer();
    peer.until_wanted(b"kv-events").await;
    peer.publish(&message(0, 1, 11)).await;
    peer.publish(&message(1, 2, 12)).await;
    f.until(12).await;
    assert!(!f.holds(11));
    assert_eq!(f.blocks.metrics.counted(Outcome::Duplicate), 1);
    assert_eq!(f.blocks.metrics.counted(Outcome::Gap), 0);
    f.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_short_loss_costs_nothing() {
    let (f, mut peer) = fixture();
    for (at, tokens) in [(1, 11), (2, 12), (3, 13)] {
        peer.until_wanted(b"kv-events").await;
        peer.publish(&message(at, at, tokens)).await;
        f.until(tokens).await;
        drop(peer);
        // The wait for a connection is at most 30 s.
        sleep(Duration::from_secs(20)).await;
        peer = f.connector.offer();
    }
    assert!(f.holds(11) && f.holds(12) && f.holds(13));
    f.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_only_shakes_hands_is_away() {
    let (f, mut peer) = fixture();
    peer.until_wanted(b"kv-events").await;
    peer.publish(&message(0, 1, 11)).await;
    f.until(11).await;
    drop(peer);
    let lost = Instant::now();
    let mut sessions = 0;
    while lost.elapsed() < BLOCK_EVENTS_STALE_AFTER {
        assert!(f.holds(11), "not yet");
        peer = f.connector.offer();
        peer.until_wanted(b"kv-events").await;
        drop(peer);
        sessions += 1;
    }
    sleep(Duration::from_millis(1)).await;
    assert!(sessions > 1 && !f.holds(11), "{sessions} sessions");
    f.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_set_of_brokers_that_only_shake_hands_is_away() {
    let (f, peer) = fixture();
    drop(peer);
    f.task.abort();
    let streams = f.blocks.relay(&unchanged());
    streams.ask([(b"subject".as_slice().into(), Namespace::from("ns"))].into());
    streams.connected();
    zmtp_message(&message(0, 1, 11), b"subject").deliver(|message| streams.message(message));
    streams.lost();
    for _ in 0..3 {
        sleep(BLOCK_EVENTS_STALE_AFTER / 3).await;
        assert!(f.holds(11));
        streams.connected();
        streams.lost();
        streams.stale();
    }
    assert!(!f.holds(11));
}

#[tokio::test(start_paused = true)]
async fn a_set_of_brokers_is_lost_with_its_last_connection() {
    let (f, peer) = fixture();
    drop(peer);
    f.task.abort();
    let streams = f.blocks.relay(&unchanged());
    let frames = message(0, 1, 11);
    let mut subject = zmtp_message(&frames, b"subject");
    streams.ask([(b"subject".as_slice().into(), Namespace::from("ns"))].into());
    streams.connected();
    streams.connected();
    subject.deliver(|message| streams.message(message));
    assert!(f.holds(11));
    streams.lost();
    sleep(2 * BLOCK_EVENTS_STALE_AFTER).await;
    streams.stale();
    assert!(f.holds(11), "one connection stands");
    streams.lost();
    streams.stale();
    assert!(f.holds(11), "for no time yet");
    sleep(BLOCK_EVENTS_STALE_AFTER).await;
    streams.stale();
    assert!(!f.holds(11));
}

#[tokio::test]
async fn a_new_bound_of_cursors_is_that_of_running_subscriptions() {
    let blocks = Blocks::new(BlockMetrics::new().unwrap(), 1);
    let mut settings = Settings::default();
    settings.blocks.cursors = 0;
    blocks.follow(&seen(), &settings);
    let streams = blocks.relay(&unchanged());
    streams.ask([(b"subject".as_slice().into(), Namespace::from("ns"))].into());
    let mut bytes = zmtp_message(&message(0, 1, 11), b"subject");
    bytes.deliver(|message| streams.message(message));
    assert_eq!(blocks.metrics.counted(Outcome::OverCapacity), 1);
    settings.blocks.cursors = 1;
    blocks.follow(&seen(), &settings);
    bytes.deliver(|message| streams.message(message));
    assert_eq!(blocks.metrics.counted(Outcome::Stored), 1);
}

/// A message of a broker, as its bytes arrive.
struct Bytes(Vec<u8>);

fn zmtp_message(frames: &[Vec<u8>; 4], subject: &[u8]) -> Bytes {
    let mut bytes = continuum_testkit::fuzz::handshake();
    let mut frames = frames.clone();
    frames[0] = subject.to_vec();
    continuum_wire::zmtp::write_message(&frames, &mut bytes);
    Bytes(bytes)
}

impl Bytes {
    fn deliver(&mut self, mut to: impl FnMut(&Message<'_>)) {
        use continuum_wire::zmtp::{Event, Subscriber};
        let mut subscriber = Subscriber::new(Limits::KV_EVENTS.brokered(), [b"subject".as_slice()]);
        let mut input = self.0.as_slice();
        while let Some(event) = subscriber.push(&mut input).unwrap() {
            if let Event::Message(message) = event {
                to(&message);
            }
        }
    }
}

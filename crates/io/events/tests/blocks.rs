//! Block events over real sockets, from an independent ZeroMQ implementation to the index.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say why and stop"
)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use continuum_events::{BlockMetrics, Filled, Handle, Settings, State, spawn_blocks};
use continuum_fleet::{
    ids::{InstanceId, PublisherId, Rank, WorkerKey},
    view::{FleetView, Publisher, PublisherKey, Role, Topic, Transport, Worker},
};
use continuum_kv_index::{Matches, Outcome, RankKey, Unscored};
use continuum_runtime::{cell::Cell, tasks::Tasks};
use continuum_testkit::{loopback::Loopback, view};
use continuum_wire::router_event::{Block, Data, Domain, RouterEvent, Stored, Tier};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{sleep, timeout},
};

/// Everything here happens in milliseconds; this is for machines under load.
const PATIENCE: Duration = Duration::from_secs(30);
const NS: &str = "dynamo";

struct Router {
    tasks: Tasks,
    view: Arc<Cell<FleetView>>,
    settings: watch::Sender<Settings>,
    metrics: BlockMetrics,
    handle: Handle,
    filled: Filled,
}

impl Router {
    fn start() -> Self {
        let tasks = Tasks::new();
        let view = Arc::new(Cell::new(FleetView::default()));
        let settings = watch::Sender::new(Settings::default());
        let metrics = BlockMetrics::new().unwrap();
        let (handle, filled) = spawn_blocks(
            &tasks.spawner(),
            Arc::clone(&view),
            settings.subscribe(),
            1,
            metrics.clone(),
            None,
        );
        Self {
            tasks,
            view,
            settings,
            metrics,
            handle,
            filled,
        }
    }

    /// Publishes a view of two workers, 1 and 2, and of these publishers; each feeds the worker of its own number.
    fn sees<'a>(&self, publishers: impl IntoIterator<Item = &'a Loopback>) {
        let publisher = |p: &Loopback| Publisher {
            key: PublisherKey {
                topic: Topic::KvEvents,
                id: p.id,
            },
            namespace: NS.into(),
            graph: NS.into(),
            component: Some("decode".into()),
            transport: Transport::Zmq {
                endpoint: p.endpoint.as_str().into(),
            },
            feeds: Some((InstanceId::new(p.id.raw()), Rank(0))),
        };
        self.view.publish(FleetView {
            workers: [1, 2].map(worker).into_iter().collect(),
            publishers: publishers
                .into_iter()
                .map(publisher)
                .map(|p| (p.key, Arc::new(p)))
                .collect(),
            ..FleetView::default()
        });
    }

    /// Blocks of a prompt that a worker is known to hold.
    fn holds(&self, worker: u64, tokens: &[u64]) -> u32 {
        let Some(index) = self.filled.load() else { return 0 };
        let mut matches = Matches::new();
        index.find(tokens, &mut matches);
        matches.of(&rank(worker)).device
    }

    fn counted(&self, outcome: Outcome) -> u64 {
        self.metrics.counted(outcome)
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let wait = async {
            while !holds(self) {
                sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(PATIENCE, wait)
            .await
            .unwrap_or_else(|_| unreachable!("never {what}: {:?}", self.handle.rows()));
    }

    async fn until_connected(&self, count: usize) {
        self.until("connected", |router| {
            let rows = router.handle.rows();
            rows.len() == count && rows.iter().all(|row| row.state == State::Connected)
        })
        .await;
    }

    /// PUB sockets drop what is published before a subscription has arrived: stores a block under the next event ids
    /// until it is known.
    async fn reaches(&self, publisher: &mut Loopback, next: &mut u64, tokens: u64) {
        let worker = publisher.id.raw();
        loop {
            *next += 1;
            publisher
                .publish_events(&[stored(worker, *next, None, tokens)])
                .await;
            let arrives = self.until("arrives", |router| router.holds(worker, &[tokens]) == 1);
            if timeout(Duration::from_millis(50), arrives).await.is_ok() {
                return;
            }
        }
    }

    async fn stop(self) {
        assert!(
            self.tasks
                .drain(Duration::from_secs(5), std::future::pending())
                .await
        );
        assert_eq!(self.handle.rows(), []);
    }
}

fn worker(id: u64) -> (WorkerKey, Arc<Worker>) {
    let mut worker = Worker::clone(&view::worker(NS, id, Role::Aggregated));
    worker.card = Some(Arc::new(view::card()));
    (worker.key.clone(), Arc::new(worker))
}

fn rank(worker: u64) -> RankKey {
    RankKey {
        worker: WorkerKey {
            namespace: NS.into(),
            instance: InstanceId::new(worker),
        },
        rank: 0,
    }
}

fn event(worker_id: u64, event_id: u64, data: Data) -> RouterEvent {
    RouterEvent {
        worker_id,
        tier: Tier::Device,
        domain: Domain::Worker,
        event_id,
        rank: 0,
        data,
    }
}

/// One block behind `parent`; the engine calls a block by its tokens.
fn stored(worker: u64, id: u64, parent: Option<u64>, tokens: u64) -> RouterEvent {
    let blocks = vec![Block {
        hash: tokens,
        tokens,
        multimodal: false,
    }];
    event(worker, id, Data::Stored(Stored { parent, blocks }))
}

#[tokio::test]
async fn events_of_each_worker_arrive_and_go_with_its_publisher() {
    let router = Router::start();
    let (mut one, mut two) = (Loopback::bind_events(1).await, Loopback::bind_events(2).await);
    let (mut at_one, mut at_two) = (0, 0);
    router.sees([&one, &two]);
    router.reaches(&mut one, &mut at_one, 11).await;
    router.reaches(&mut two, &mut at_two, 22).await;
    one.publish_events(&[stored(1, at_one + 1, Some(11), 12), stored(2, 1_000, None, 23)])
        .await;
    router
        .until("continued", |router| router.holds(1, &[11, 12]) == 2)
        .await;
    assert_eq!(
        router.counted(Outcome::Foreign),
        1,
        "it speaks of the other worker"
    );
    assert_eq!(router.holds(2, &[23]), 0);
    assert_eq!(router.counted(Outcome::Gap), 0);

    router.sees([&two]);
    router
        .until("left", |router| router.holds(1, &[11, 12]) == 0)
        .await;
    assert_eq!(router.holds(2, &[22]), 1);
    router.stop().await;
}

#[tokio::test]
async fn cursors_outlive_connections_and_a_change_of_the_settings() {
    let router = Router::start();
    let (mut one, mut at) = (Loopback::bind_events(1).await, 0);
    router.sees([&one]);
    router.reaches(&mut one, &mut at, 11).await;
    let allow = |networks: &[&str]| {
        let networks = networks.iter().map(|network| network.parse().unwrap()).collect();
        router
            .settings
            .send_modify(|settings| settings.allowed = networks);
    };
    allow(&["10.0.0.0/8"]);
    router
        .until("ended", |router| {
            let rows = router.handle.rows();
            rows.iter().all(|row| row.state == State::Backoff)
        })
        .await;
    assert_eq!(router.holds(1, &[11]), 1, "nothing is forgotten");
    allow(&["10.0.0.0/8", "127.0.0.0/8"]);
    router.until_connected(1).await;
    assert_eq!(router.holds(1, &[11]), 1, "nothing is forgotten");
    assert_eq!(router.counted(Outcome::Gap), 0);
    // While nobody listened, event `at + 1` was published. The next one shows it.
    at += 1;
    router.reaches(&mut one, &mut at, 12).await;
    assert_eq!(router.counted(Outcome::Gap), 1);
    assert_eq!(router.holds(1, &[11]), 0);
    router.stop().await;
}

#[tokio::test]
async fn other_limits_and_networks_end_no_connection_that_they_allow() {
    let router = Router::start();
    let (mut one, mut at) = (Loopback::bind_events(1).await, 0);
    // What stands in between counts the connections.
    let (inner, listener) = (
        one.endpoint.clone(),
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
    );
    one.endpoint = format!("tcp://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let between = tokio::spawn(async move {
        while let Ok((mut outer, _)) = listener.accept().await {
            counted.fetch_add(1, Relaxed);
            let mut inner = TcpStream::connect(inner.trim_start_matches("tcp://"))
                .await
                .unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut outer, &mut inner).await });
        }
    });
    router.sees([&one]);
    router.reaches(&mut one, &mut at, 11).await;
    let change = |blocks: usize, networks: &[&str]| {
        let networks = networks.iter().map(|network| network.parse().unwrap()).collect();
        router.settings.send_modify(|settings| {
            settings.blocks.payload += 1;
            settings.blocks.caps.blocks = blocks;
            settings.allowed = networks;
        });
    };
    for (blocks, networks) in [
        (1_000, &["127.0.0.0/8"][..]),
        (1_001, &["10.0.0.0/8", "127.0.0.1/32"]),
    ] {
        change(blocks, networks);
        let taken_over = |router: &Router| router.filled.load().unwrap().caps().blocks == blocks;
        router.until("taken over", taken_over).await;
        router.reaches(&mut one, &mut at, 100 + blocks as u64).await;
    }
    // Whatever a change ends is made anew before the next one is looked at.
    change(1_002, &[]);
    let taken_over = |router: &Router| router.filled.load().unwrap().caps().blocks == 1_002;
    router.until("taken over", taken_over).await;
    router.until_connected(1).await;
    assert_eq!((connections.load(Relaxed), router.counted(Outcome::Gap)), (1, 0));
    assert_eq!(router.holds(1, &[11]), 1);
    between.abort();
    router.stop().await;
}

#[tokio::test]
async fn who_comes_ends_no_stream_that_fills_the_index() {
    let router = Router::start();
    router
        .settings
        .send_modify(|settings| settings.max_subscriptions = 1);
    let (one, mut two) = (Loopback::bind_events(1).await, Loopback::bind_events(2).await);
    let mut at = 0;
    let unscored = |router: &Router, id| router.filled.unscored(&worker(id).0);
    router.sees([&two]);
    router.reaches(&mut two, &mut at, 21).await;
    router.sees([&one, &two]);
    router
        .until("one waits", |router| {
            unscored(router, 1) == Some(Unscored::NotSubscribed)
        })
        .await;
    assert_eq!(unscored(&router, 2), None);
    router.reaches(&mut two, &mut at, 22).await;
    assert_eq!((router.holds(2, &[21]), router.counted(Outcome::Gap)), (1, 0));
    // A stream whose rank has no place makes way.
    router
        .settings
        .send_modify(|settings| settings.blocks.caps.ranks = 1);
    router.sees([&one]);
    router.until_connected(1).await;
    router.sees([&one, &two]);
    router
        .until("two has no place", |router| {
            unscored(router, 2) == Some(Unscored::OverCapacity)
        })
        .await;
    router.sees([&two]);
    router
        .until("two has one", |router| {
            unscored(router, 1) == Some(Unscored::OverCapacity)
        })
        .await;
    router.reaches(&mut two, &mut at, 23).await;
    router.stop().await;
}

#[tokio::test]
async fn turned_off_there_is_neither_index_nor_subscription() {
    let router = Router::start();
    let (mut one, mut at) = (Loopback::bind_events(1).await, 0);
    router.sees([&one]);
    router.reaches(&mut one, &mut at, 11).await;
    router.settings.send_modify(|settings| settings.enabled = false);
    router
        .until("off", |router| {
            router.filled.load().is_none() && router.handle.rows().is_empty()
        })
        .await;
    router.settings.send_modify(|settings| settings.enabled = true);
    router.reaches(&mut one, &mut at, 12).await;
    assert_eq!(router.holds(1, &[11]), 0);
    // Other caps are those of the same index.
    router
        .settings
        .send_modify(|settings| settings.blocks.caps.blocks = 4);
    router
        .until("taken over", |router| {
            router.filled.load().is_some_and(|index| index.caps().blocks == 4)
        })
        .await;
    assert_eq!(router.holds(1, &[12]), 1);
    router.reaches(&mut one, &mut at, 13).await;
    assert_eq!(router.holds(1, &[12]), 1);
    assert_eq!(router.counted(Outcome::Gap), 0);
    router.stop().await;
}

#[tokio::test]
async fn what_a_cleared_rank_leaves_is_swept_while_the_fleet_is_silent() {
    let router = Router::start();
    let (mut one, mut at) = (Loopback::bind_events(1).await, 0);
    router.sees([&one]);
    router.reaches(&mut one, &mut at, 11).await;
    let blocks = (0..5_000).map(|n| Block {
        hash: 1_000 + n,
        tokens: n,
        multimodal: false,
    });
    let many = Data::Stored(Stored {
        parent: None,
        blocks: blocks.collect(),
    });
    let ownerships = |router: &Router| router.filled.load().unwrap().stats().ownerships;
    one.publish_events(&[event(1, at + 1, many)]).await;
    router.until("stored", |router| ownerships(router) == 5_001).await;
    // The last that is heard of the fleet. The event itself sweeps a small part.
    one.publish_events(&[event(1, at + 2, Data::Cleared)]).await;
    router.until("swept", |router| ownerships(router) == 0).await;
    router.stop().await;
}

#[tokio::test]
async fn a_message_beyond_the_budget_ends_its_own_subscription_alone() {
    let router = Router::start();
    router
        .settings
        .send_modify(|settings| settings.blocks.budget = 256 * 1024);
    let (mut loud, mut quiet) = (Loopback::bind_events(1).await, Loopback::bind_events(2).await);
    let (mut at_loud, mut at_quiet) = (0, 0);
    router.sees([&loud, &quiet]);
    router.reaches(&mut loud, &mut at_loud, 11).await;
    router.reaches(&mut quiet, &mut at_quiet, 21).await;
    at_loud += 1;
    let many = Data::Removed((0..40_000).map(|n| u64::MAX - n).collect());
    loud.publish_events(&[event(1, at_loud, many)]).await;
    router
        .until("refused", |router| router.counted(Outcome::OverBudget) == 1)
        .await;
    router.reaches(&mut quiet, &mut at_quiet, 22).await;
    assert_eq!(router.counted(Outcome::Gap), 0);
    // It comes back, and the message that it missed is a hole.
    router.reaches(&mut loud, &mut at_loud, 12).await;
    assert_eq!(router.counted(Outcome::Gap), 1);
    assert_eq!((router.holds(1, &[11]), router.holds(2, &[21])), (0, 1));
    assert_eq!(router.counted(Outcome::TransportRefused), 0);
    router.stop().await;
}

#[tokio::test]
async fn brokers_relay_publishers_without_records() {
    let router = Router::start();
    let subject = "namespace.dynamo.component.decode.endpoint.generate.kv-events";
    let (mut one, mut other) = (
        Loopback::bind_broker(1, subject).await,
        Loopback::bind_broker(1, subject).await,
    );
    let endpoints = [&one, &other].map(|broker| broker.endpoint.as_str().into());
    router
        .settings
        .send_modify(|settings| settings.xpub_endpoints = endpoints.into());
    router.sees([]);
    router.until_connected(2).await;
    let mut at = 0;
    router.reaches(&mut one, &mut at, 11).await;
    // The other broker is late with the same messages, then it is the first.
    let mut late = 0;
    while late < at {
        late += 1;
        other.publish_events(&[stored(1, late, None, 11)]).await;
    }
    router.reaches(&mut other, &mut at, 12).await;
    assert!(router.counted(Outcome::Duplicate) > 0);
    assert_eq!(router.counted(Outcome::Gap), 0);
    assert_eq!(router.holds(1, &[11]), 1);
    // A set that loses a broker and gets another one knows what it knew.
    let third = Loopback::bind_broker(1, subject).await;
    let endpoints = [&other, &third].map(|broker| broker.endpoint.as_str().into());
    router
        .settings
        .send_modify(|settings| settings.xpub_endpoints = endpoints.into());
    drop(one);
    router.until_connected(2).await;
    at += 1;
    other.publish_events(&[stored(1, at, None, 13)]).await;
    router
        .until("arrives", |router| router.holds(1, &[13]) == 1)
        .await;
    assert_eq!(router.counted(Outcome::Gap), 0);
    assert_eq!(router.holds(1, &[11]), 1);
    // Another set of brokers: what the old one fed is not known any more.
    router
        .settings
        .send_modify(|settings| settings.xpub_endpoints = Arc::default());
    router.until("ended", |router| router.holds(1, &[11]) == 0).await;
    router.stop().await;
}

#[tokio::test]
async fn publisher_ids_are_checked() {
    let router = Router::start();
    let (mut one, mut at) = (Loopback::bind_events(1).await, 0);
    router.sees([&one]);
    router.reaches(&mut one, &mut at, 11).await;
    one.id = PublisherId::new(2);
    let wrong = continuum_wire::Refusal::IdentityMismatch;
    let refused = |router: &Router| router.counted(Outcome::Refused(wrong)) == 1;
    one.publish_events(&[event(1, at + 1, Data::Cleared)]).await;
    router.until("refused", refused).await;
    assert_eq!(router.holds(1, &[11]), 1);
    router.stop().await;
}

//! Subscriptions against an independent ZeroMQ implementation, over real sockets.

#![expect(
    clippy::expect_used,
    reason = "a test that cannot go on should say why and stop"
)]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use continuum_config::model::Transport as Reach;
use continuum_events::{LoadSink, Metrics, Outcome, Row, Settings, State, StoreSink, Via, supervisor};
use continuum_fleet::{
    graphs::Generation,
    ids::{InstanceId, Namespace, PublisherId, Rank, WorkerKey},
    view::{FleetView, Publisher, PublisherKey, Role, Seen, Topic, Transport, Worker},
};
use continuum_routing::{
    Millis,
    load::{Applied, Freshness, Store},
    picker::Table,
};
use continuum_runtime::{cell::Cell, tasks::Tasks};
use continuum_testkit::loopback::Loopback;
use continuum_wire::{ActiveLoad, Refusal};
use jiff::Timestamp;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

/// Everything here happens in milliseconds; this is for machines under load.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the store would know.
#[derive(Debug, Default)]
struct Known {
    /// Values by publisher, in order of arrival.
    values: BTreeMap<PublisherId, Vec<u64>>,
    forgotten: BTreeMap<PublisherId, usize>,
    live: BTreeMap<PublisherId, bool>,
    covered: BTreeMap<String, bool>,
}

#[derive(Debug)]
struct Sink {
    known: Mutex<Known>,
    changes: watch::Sender<u64>,
}

impl Sink {
    fn change(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.known.lock().expect("no panic under the lock"));
        self.changes.send_modify(|count| *count += 1);
    }
}

impl LoadSink for Sink {
    fn apply(&self, publisher: PublisherId, _: &Namespace, _: u64, load: &ActiveLoad) -> Applied {
        self.change(|known| {
            known
                .values
                .entry(publisher)
                .or_default()
                .extend(load.kv_used_blocks)
        });
        Applied::Applied
    }

    fn forget(&self, publisher: PublisherId) {
        self.change(|known| *known.forgotten.entry(publisher).or_default() += 1);
    }

    fn subscribed(&self, publisher: PublisherId, live: bool) {
        self.change(|known| {
            known.live.insert(publisher, live);
        });
    }

    fn broker_covers(&self, namespace: &Namespace, live: bool) {
        self.change(|known| {
            known.covered.insert(namespace.to_string(), live);
        });
    }
}

struct Router {
    tasks: Tasks,
    view: Arc<Cell<FleetView>>,
    settings: watch::Sender<Settings>,
    sink: Arc<Sink>,
    metrics: Metrics,
    handle: supervisor::Handle,
}

impl Router {
    fn start() -> Self {
        let tasks = Tasks::new();
        let view = Arc::new(Cell::new(FleetView::default()));
        let settings = watch::Sender::new(Settings {
            reach: Reach::Direct,
            allowed: Arc::default(),
            max_subscriptions: 100,
            xpub_endpoints: Arc::default(),
            ..Settings::default()
        });
        let sink = Arc::new(Sink {
            known: Mutex::default(),
            changes: watch::Sender::default(),
        });
        let metrics = Metrics::new().expect("names are right");
        let handle = supervisor::spawn(
            &tasks.spawner(),
            Arc::clone(&view),
            settings.subscribe(),
            Arc::clone(&sink) as Arc<dyn LoadSink>,
            metrics.clone(),
            None,
        );
        Self {
            tasks,
            view,
            settings,
            sink,
            metrics,
            handle,
        }
    }

    /// Publishes a view of these publishers.
    fn sees<'a>(&self, publishers: impl IntoIterator<Item = &'a Loopback>) {
        self.publish(publishers.into_iter().map(|p| {
            let endpoint = p.endpoint.as_str().into();
            publisher(p.id, Transport::Zmq { endpoint })
        }));
    }

    fn publish(&self, publishers: impl IntoIterator<Item = Publisher>) {
        let publishers = publishers.into_iter().map(|p| (p.key, Arc::new(p))).collect();
        self.view.publish(FleetView {
            publishers,
            ..FleetView::default()
        });
    }

    async fn until(&self, what: &str, mut holds: impl FnMut(&Known) -> bool) {
        let mut changes = self.sink.changes.subscribe();
        let wait = async {
            while !holds(&self.sink.known.lock().expect("no panic under the lock")) {
                changes.changed().await.expect("the sink lives");
            }
        };
        timeout(PATIENCE, wait)
            .await
            .unwrap_or_else(|_| unreachable!("never {what}: {:?} {:?}", self.sink.known, self.handle.rows()));
    }

    /// Waits for a state that has no notification of its own.
    async fn until_rows(&self, what: &str, holds: impl Fn(&[Row]) -> bool) {
        let wait = async {
            while !holds(&self.handle.rows()) {
                sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(PATIENCE, wait)
            .await
            .unwrap_or_else(|_| unreachable!("never {what}: {:?}", self.handle.rows()));
    }

    /// PUB sockets drop what is published before a subscription has arrived: publishes the value until it is
    /// known.
    async fn reaches(&self, publisher: &mut Loopback, value: u64) {
        let id = publisher.id;
        loop {
            publisher.publish(&load(value)).await;
            let arrived = self.until("arrives", |known| {
                known.values.get(&id).is_some_and(|v| v.contains(&value))
            });
            if timeout(Duration::from_millis(50), arrived).await.is_ok() {
                return;
            }
        }
    }

    fn states(&self) -> Vec<State> {
        self.handle.rows().iter().map(|row| row.state).collect()
    }

    async fn stop(self) {
        assert!(
            self.tasks
                .drain(Duration::from_secs(5), std::future::pending())
                .await,
            "all tasks listen"
        );
        assert_eq!(self.handle.rows(), []);
        for (state, via) in State::ALL
            .into_iter()
            .flat_map(|state| Via::ALL.map(|via| (state, via)))
        {
            assert_eq!(
                self.metrics.subscriptions(state, via).get(),
                0,
                "{state:?} {via:?}"
            );
        }
        assert!(
            self.sink
                .known
                .lock()
                .expect("no panic under the lock")
                .live
                .values()
                .all(|live| !live)
        );
    }
}

fn publisher(id: PublisherId, transport: Transport) -> Publisher {
    Publisher {
        key: PublisherKey {
            topic: Topic::KvMetrics,
            id,
        },
        namespace: "dynamo".into(),
        graph: "dynamo".into(),
        component: Some("backend".into()),
        transport,
        feeds: None,
    }
}

fn worker() -> Worker {
    Worker {
        key: WorkerKey {
            namespace: "dynamo".into(),
            instance: InstanceId::new(0xa),
        },
        graph: "dynamo".into(),
        component: "backend".into(),
        endpoint: "generate".into(),
        generation: Generation::Base,
        role: Role::Aggregated,
        names: Arc::default(),
        card: None,
        seen: Seen {
            first: Timestamp::UNIX_EPOCH,
            updated: Timestamp::UNIX_EPOCH,
        },
    }
}

fn load(blocks: u64) -> ActiveLoad {
    ActiveLoad {
        worker: InstanceId::new(0xa),
        rank: Rank(0),
        active_decode_blocks: None,
        active_prefill_tokens: None,
        kv_used_blocks: Some(blocks),
    }
}

#[tokio::test]
async fn samples_arrive_from_late_and_restarted_publishers() {
    let router = Router::start();
    let (mut first, mut second) = (Loopback::bind(1).await, Loopback::bind(2).await);
    first.sequence = 1_000;
    router.sees([&first]);
    router.reaches(&mut first, 11).await;
    router.sees([&first, &second]);
    router.reaches(&mut second, 22).await;
    assert_eq!(router.states(), [State::Connected, State::Connected]);

    // A restarted worker is another publisher on another port.
    let mut third = Loopback::bind(3).await;
    router.sees([&second, &third]);
    router.reaches(&mut third, 33).await;
    router
        .until("left", |known| known.live.get(&first.id) == Some(&false))
        .await;
    let ids: Vec<_> = router
        .handle
        .rows()
        .iter()
        .filter_map(|row| row.publisher)
        .collect();
    assert_eq!(ids, [second.id, third.id]);

    // Numbers that are left out are a gap; the sample behind it counts.
    let forgotten = |known: &Known| known.forgotten.get(&PublisherId::new(3)).copied().unwrap_or(0);
    assert_eq!(router.metrics.counted(Outcome::Gap), 0);
    third.sequence += 5;
    router.reaches(&mut third, 34).await;
    router.until("forgotten", |known| forgotten(known) == 2).await;
    assert_eq!(router.metrics.counted(Outcome::Gap), 1);
    router.stop().await;
}

#[tokio::test]
async fn an_oversized_frame_ends_its_own_subscription_alone() {
    let router = Router::start();
    let (mut good, mut bad) = (Loopback::bind(1).await, Loopback::bind(2).await);
    router.sees([&good, &bad]);
    router.reaches(&mut good, 1).await;
    router.reaches(&mut bad, 1).await;
    let mut frames = bad.frames(&load(2)).to_vec();
    frames[3] = vec![0; 16 * 1024 + 6];
    bad.send(&frames).await;
    router
        .until("cut", |known| known.live.get(&bad.id) == Some(&false))
        .await;
    assert_eq!(router.metrics.counted(Outcome::TransportRefused), 1);
    router.reaches(&mut good, 3).await;
    // It comes back after its wait.
    router.reaches(&mut bad, 4).await;
    router.stop().await;
}

#[tokio::test]
async fn refused_messages_do_not_end_a_subscription() {
    let router = Router::start();
    let mut peer = Loopback::bind(1).await;
    router.sees([&peer]);
    router.reaches(&mut peer, 1).await;
    let good = peer.frames(&load(2)).to_vec();
    let with = |at: usize, frame: Vec<u8>| {
        let mut frames = good.clone();
        frames[at] = frame;
        frames
    };
    let table = [
        (with(1, vec![1]), Refusal::Malformed),
        (good[..3].to_vec(), Refusal::Malformed),
        (with(0, b"kv_metrics2".to_vec()), Refusal::TopicMismatch),
        (with(3, vec![9, 0, 0, 0, 0]), Refusal::UnknownVersion),
        (with(3, vec![1, 0, 1, 0, 0]), Refusal::Oversized),
        (with(1, vec![0; 8]), Refusal::IdentityMismatch),
    ];
    for (frames, _) in &table {
        peer.send(frames).await;
    }
    router.reaches(&mut peer, 3).await;
    for refusal in Refusal::ALL {
        let expected = table.iter().filter(|(_, wanted)| *wanted == refusal).count();
        assert_eq!(
            router.metrics.counted(Outcome::Refused(refusal)),
            expected as u64,
            "{refusal}"
        );
    }
    assert_eq!(router.states(), [State::Connected]);
    router.stop().await;
}

#[tokio::test]
async fn a_flood_arrives_in_order_and_starves_nobody() {
    const FLOOD: u64 = 20_000;
    let router = Router::start();
    let (mut loud, mut quiet) = (Loopback::bind(1).await, Loopback::bind(2).await);
    router.sees([&loud, &quiet]);
    router.reaches(&mut loud, 0).await;
    router.reaches(&mut quiet, 0).await;
    for value in 1..=FLOOD {
        loud.publish(&load(value)).await;
        if value % 1000 == 0 {
            quiet.publish(&load(value)).await;
            tokio::task::yield_now().await;
        }
    }
    for id in [loud.id, quiet.id] {
        router
            .until("all arrived", |known| known.values[&id].last() == Some(&FLOOD))
            .await;
    }
    {
        let known = router.sink.known.lock().expect("no panic under the lock");
        assert!(known.values[&loud.id].is_sorted(), "in order");
        assert_eq!(
            known.values[&quiet.id].iter().filter(|value| **value > 0).count(),
            20
        );
    }
    router.stop().await;
}

#[tokio::test]
async fn the_cap_keeps_who_runs_then_admits_the_lowest_ids_and_moves_up() {
    let router = Router::start();
    router
        .settings
        .send_modify(|settings| settings.max_subscriptions = 2);
    let (one, two, mut three) = (
        Loopback::bind(1).await,
        Loopback::bind(2).await,
        Loopback::bind(3).await,
    );
    router.sees([&three, &two, &one]);
    let states = |wanted: &'static [State]| {
        move |rows: &[Row]| rows.iter().map(|r| r.state).eq(wanted.iter().copied())
    };
    router
        .until_rows(
            "two of three",
            states(&[State::Connected, State::Connected, State::Pending]),
        )
        .await;
    assert_eq!(router.metrics.subscriptions(State::Pending, Via::Direct).get(), 1);
    router.sees([&two, &three]);
    router.reaches(&mut three, 5).await;
    // A larger cap takes effect without a reconnect of those that run.
    let before = router
        .sink
        .known
        .lock()
        .expect("no panic under the lock")
        .forgotten
        .clone();
    router
        .settings
        .send_modify(|settings| settings.max_subscriptions = 3);
    router.sees([&one, &two, &three]);
    router
        .until_rows("all three", states(&[State::Connected; 3]))
        .await;
    let after = router
        .sink
        .known
        .lock()
        .expect("no panic under the lock")
        .forgotten
        .clone();
    assert_eq!(
        (before[&two.id], before[&three.id]),
        (after[&two.id], after[&three.id])
    );
    router.stop().await;
}

#[tokio::test]
async fn allowed_networks_change_live() {
    let router = Router::start();
    let networks = |text: &str| -> Arc<[ipnet::IpNet]> { Arc::new([text.parse().expect("a network")]) };
    router
        .settings
        .send_modify(|settings| settings.allowed = networks("10.0.0.0/8"));
    let mut peer = Loopback::bind(1).await;
    router.sees([&peer]);
    router
        .until_rows("refused", |rows| {
            rows.iter().any(|row| row.state == State::Backoff)
        })
        .await;
    assert!(router.metrics.counted(Outcome::TransportRefused) >= 1);
    router
        .settings
        .send_modify(|settings| settings.allowed = networks("127.0.0.0/8"));
    router.reaches(&mut peer, 1).await;
    // Through the event bus, which this build does not have here, nothing is reached.
    router
        .settings
        .send_modify(|settings| settings.reach = Reach::Broker);
    router
        .until_rows("pending", |rows| {
            rows.iter().all(|row| row.state == State::Pending)
        })
        .await;
    assert_eq!(router.handle.rows()[0].via, Via::Broker);
    router
        .settings
        .send_modify(|settings| settings.reach = Reach::Direct);
    router.reaches(&mut peer, 2).await;
    router.stop().await;
}

#[tokio::test]
async fn brokers_of_one_set_relay_each_message_once() {
    const SUBJECT: &str = "namespace.dynamo.component.backend.endpoint.generate.kv_metrics";
    let router = Router::start();
    let mut a = Loopback::bind_broker(5, SUBJECT).await;
    let mut b = Loopback::bind_broker(5, SUBJECT).await;
    let record = publisher(
        PublisherId::new(0xb),
        Transport::ZmqBroker {
            xpub_endpoints: Arc::new([a.endpoint.clone(), b.endpoint.clone()]),
        },
    );
    let worker = worker();
    router.view.publish(FleetView {
        workers: [(worker.key.clone(), Arc::new(worker))].into_iter().collect(),
        publishers: [(record.key, Arc::new(record))].into_iter().collect(),
        ..FleetView::default()
    });
    router
        .until("covered", |known| known.covered.get("dynamo") == Some(&true))
        .await;
    router
        .until_rows("both", |rows| {
            rows.len() == 2 && rows.iter().all(|r| r.state == State::Connected)
        })
        .await;
    assert!(
        router
            .handle
            .rows()
            .iter()
            .all(|row| row.via == Via::Broker && row.publisher.is_none())
    );
    router.reaches(&mut a, 1).await;
    // The same publisher through the other broker: what came is known already, what is new counts.
    b.sequence = 0;
    router.reaches(&mut b, 1).await;
    b.sequence = a.sequence;
    router.reaches(&mut b, 2).await;
    let duplicates = router.metrics.counted(Outcome::Duplicate);
    a.publish(&load(2)).await;
    let again = async {
        while router.metrics.counted(Outcome::Duplicate) == duplicates {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, again)
        .await
        .expect("the second copy is a duplicate");
    router.publish([]);
    router
        .until("no longer covered", |known| {
            known.covered.get("dynamo") == Some(&false)
        })
        .await;
    router.stop().await;
}

#[tokio::test]
async fn samples_reach_the_store_that_picks_read() {
    let started = Instant::now();
    let store = Arc::new(Store::new());
    let tasks = Tasks::new();
    let mut peer = Loopback::bind(1).await;
    let record = publisher(
        peer.id,
        Transport::Zmq {
            endpoint: peer.endpoint.as_str().into(),
        },
    );
    let worker = worker();
    let view = FleetView {
        workers: [(worker.key.clone(), Arc::new(worker))].into_iter().collect(),
        publishers: [(record.key, Arc::new(record))].into_iter().collect(),
        ..FleetView::default()
    };
    let (table, _) = Table::new(0).follow(&view, &store);
    let (_settings, settings) = watch::channel(Settings {
        reach: Reach::Direct,
        allowed: Arc::default(),
        max_subscriptions: 1,
        xpub_endpoints: Arc::default(),
        ..Settings::default()
    });
    let view = Arc::new(Cell::new(view));
    let _handle = supervisor::spawn(
        &tasks.spawner(),
        Arc::clone(&view),
        settings,
        Arc::new(StoreSink::new(Arc::clone(&store), started)),
        Metrics::new().expect("names are right"),
        None,
    );
    let row = || {
        let now = Millis(u64::try_from(started.elapsed().as_millis()).expect("a short test"));
        store
            .rows(60_000, now)
            .into_iter()
            .next()
            .expect("the rank of the worker")
    };
    assert_eq!(
        row().freshness,
        Freshness::Unknown,
        "nobody could speak for it yet"
    );
    let arrives = async {
        while row().kv_used_blocks != Some(42) {
            peer.publish(&load(42)).await;
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, arrives).await.expect("the sample is stored");
    assert_eq!(row().freshness, Freshness::Fresh);
    // Without its publisher nobody speaks for the rank any more, and what it said is void.
    let mut without = FleetView::clone(&view.load());
    without.publishers.clear();
    let _followed = table.follow(&without, &store);
    view.publish(without);
    let unknown = async {
        while row().freshness != Freshness::Unknown {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, unknown).await.expect("the rank is unknown");
    assert_eq!(row().kv_used_blocks, None);
    assert!(tasks.drain(Duration::from_secs(5), std::future::pending()).await);
}

//! Subscriptions follow the view: one task per publisher, one per broker endpoint.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use continuum_config::model::{Load, Transport as Reach};
use continuum_fleet::{
    ids::PublisherId,
    view::{FleetView, Publisher, PublisherKey, Topic, Transport},
};
use continuum_runtime::{
    cell::Cell,
    tasks::{Spawner, Task, TaskError},
};
use continuum_wire::Limits;
use ipnet::IpNet;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    beyond::Beyond,
    broker::{self, Coverage, Group, Relayed, Subjects},
    client::Topics,
    connector::{Connector, Direct, Target},
    limits::STOP_GRACE,
    metrics::Metrics,
    outages::Outages,
    sink::LoadSink,
    status::{Board, Key, Mark, Row, State, Via},
    subscription::{self, Line, Session},
};

/// What the operator decides. A change takes effect without touching what the store holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How publishers are reached.
    pub reach: Reach,
    /// Networks that endpoints must lie in; empty allows all.
    pub allowed: Arc<[IpNet]>,
    /// Most subscriptions at a time; the lowest publisher ids come first.
    pub max_subscriptions: usize,
    /// XPUB endpoints of brokers that no record names, `tcp://host:port`.
    pub xpub_endpoints: Arc<[Arc<str>]>,
}

impl From<&Load> for Settings {
    fn from(load: &Load) -> Self {
        Self {
            reach: load.transport,
            allowed: load.direct_allow_cidrs.clone().into(),
            max_subscriptions: usize::try_from(load.max_subscriptions).unwrap_or(usize::MAX),
            xpub_endpoints: load
                .zmq_broker
                .xpub_endpoints
                .iter()
                .map(|e| e.to_string().into())
                .collect(),
        }
    }
}

/// A look at the supervisor's work.
#[derive(Clone, Debug)]
pub struct Handle {
    board: Board,
}

impl Handle {
    /// All subscriptions, publishers in order first, then brokers. Never an address.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        self.board.rows()
    }
}

/// Starts following. `view` should be published only after the store has taken the view over, so that no
/// sample arrives for a worker that the store does not know.
///
/// `bus` reaches publishers while the settings say [`Reach::Broker`]; without it those stay pending.
pub fn spawn(
    spawner: &Spawner,
    view: Arc<Cell<FleetView>>,
    settings: watch::Receiver<Settings>,
    sink: Arc<dyn LoadSink>,
    metrics: Metrics,
    bus: Option<Arc<dyn Connector>>,
) -> Handle {
    let board = Board::new(metrics.clone());
    let supervisor = Supervisor {
        spawner: spawner.clone(),
        coverage: Arc::new(Coverage::new(Arc::clone(&sink))),
        outages: Arc::default(),
        beyond: Beyond::default(),
        sink,
        metrics,
        bus,
        board: board.clone(),
        way: None,
        publishers: BTreeMap::new(),
        pending: BTreeMap::new(),
        groups: BTreeMap::new(),
    };
    spawner.essential("load subscriptions", |stop| supervisor.run(view, settings, stop));
    Handle { board }
}

struct Supervisor {
    spawner: Spawner,
    sink: Arc<dyn LoadSink>,
    metrics: Metrics,
    bus: Option<Arc<dyn Connector>>,
    board: Board,
    coverage: Arc<Coverage>,
    outages: Arc<Outages>,
    /// What the log knows to be kept out by a cap.
    beyond: Beyond,
    way: Option<Way>,
    publishers: BTreeMap<PublisherId, (Arc<Publisher>, Task)>,
    /// Wanted, but beyond the cap or without a connector.
    pending: BTreeMap<PublisherId, (Arc<Publisher>, Mark)>,
    groups: BTreeMap<BTreeSet<Arc<str>>, Running>,
}

/// The connector in force and the settings that it was made of.
struct Way {
    reach: Reach,
    allowed: Arc<[IpNet]>,
    connector: Option<Arc<dyn Connector>>,
}

/// The connections to one set of brokers.
struct Running {
    group: Arc<Group>,
    asked: watch::Sender<Vec<Box<[u8]>>>,
    tasks: Vec<Task>,
}

impl Supervisor {
    async fn run(
        mut self,
        view: Arc<Cell<FleetView>>,
        mut settings: watch::Receiver<Settings>,
        stop: CancellationToken,
    ) -> Result<(), TaskError> {
        let mut generations = view.subscribe();
        loop {
            generations.mark_unchanged();
            let wanted = settings.borrow_and_update().clone();
            self.reconcile(&view.load(), &wanted).await;
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // The cell is ours as well, so its end cannot come first.
                _ = generations.changed() => {}
                changed = settings.changed() => if changed.is_err() {
                    // Nobody can change the settings any more.
                    tokio::select! {
                        () = stop.cancelled() => break,
                        _ = generations.changed() => {}
                    }
                },
            }
        }
        self.stop_all().await;
        Ok(())
    }

    async fn reconcile(&mut self, view: &FleetView, settings: &Settings) {
        let connector = self.connector_for(settings).await;
        let first = PublisherKey {
            topic: Topic::KvMetrics,
            id: PublisherId::new(0),
        };
        let last = PublisherKey {
            topic: Topic::KvMetrics,
            id: PublisherId::new(u64::MAX),
        };
        let all = || {
            view.publishers
                .range(first..=last)
                .map(|(_, publisher)| publisher)
        };
        let (groups, mut out) = broker::sets(view, all(), settings);
        let lines: usize = groups.keys().map(BTreeSet::len).sum();
        let room = match connector {
            Some(_) => settings.max_subscriptions.saturating_sub(lines),
            None => 0,
        };
        let mut direct = all().filter(|publisher| matches!(publisher.transport, Transport::Zmq { .. }));
        let admitted: BTreeMap<_, _> = direct.by_ref().take(room).map(|p| (p.key.id, p)).collect();
        let beyond: BTreeMap<_, _> = direct.map(|p| (p.key.id, p)).collect();

        if connector.is_some() {
            out.publishers = beyond.len();
        }
        out.complain(self.beyond, settings.max_subscriptions, &self.metrics);
        self.beyond = out;

        let mut stopping = Vec::new();
        let gone = |id: &PublisherId, publisher: &Arc<Publisher>| {
            admitted
                .get(id)
                .is_none_or(|wanted| !same_line(wanted, publisher))
        };
        for (_, (_, task)) in self
            .publishers
            .extract_if(.., |id, (publisher, _)| gone(id, publisher))
        {
            stopping.push(task);
        }
        for (_, running) in self
            .groups
            .extract_if(.., |endpoints, _| !groups.contains_key(endpoints))
        {
            stopping.extend(running.tasks);
        }
        stop(stopping).await;

        self.pending
            .retain(|id, (publisher, _)| beyond.get(id).is_some_and(|wanted| same_line(wanted, publisher)));
        for (id, publisher) in beyond {
            let board = &self.board;
            self.pending.entry(id).or_insert_with(|| {
                let row = row(publisher, State::Pending, via_of(settings.reach));
                (Arc::clone(publisher), board.enter(Key::Publisher(id), row))
            });
        }
        let Some(connector) = connector else { return };
        for (id, publisher) in admitted {
            if !self.publishers.contains_key(&id)
                && let Some(task) = self.subscribe(publisher, settings.reach, &connector)
            {
                self.publishers.insert(id, (Arc::clone(publisher), task));
            }
        }
        for (endpoints, subjects) in groups {
            self.ask(endpoints, subjects, &connector);
        }
    }

    /// The connector of these settings. When it changes, every connection of the old one ends first.
    async fn connector_for(&mut self, settings: &Settings) -> Option<Arc<dyn Connector>> {
        if let Some(way) = &self.way
            && way.reach == settings.reach
            && way.allowed == settings.allowed
        {
            return way.connector.clone();
        }
        self.stop_all().await;
        let connector = match settings.reach {
            Reach::Direct => Some(Arc::new(Direct::new(Arc::clone(&settings.allowed))) as Arc<dyn Connector>),
            Reach::Broker => self.bus.clone(),
        };
        self.way = Some(Way {
            reach: settings.reach,
            allowed: Arc::clone(&settings.allowed),
            connector: connector.clone(),
        });
        connector
    }

    fn subscribe(&self, publisher: &Publisher, reach: Reach, connector: &Arc<dyn Connector>) -> Option<Task> {
        let Transport::Zmq { endpoint } = &publisher.transport else {
            return None;
        };
        let id = publisher.key.id;
        let line = Line {
            target: Target {
                family: Topic::KvMetrics,
                namespace: Some(publisher.namespace.clone()),
                publisher: Some(id),
                endpoint: Arc::clone(endpoint),
            },
            connector: Arc::clone(connector),
            limits: Limits::KV_METRICS,
            metrics: self.metrics.clone(),
            mark: self.board.enter(
                Key::Publisher(id),
                row(publisher, State::Connecting, via_of(reach)),
            ),
            backoff: subscription::backoff(),
            outages: Arc::clone(&self.outages),
        };
        let session = subscription::Publisher::new(
            id,
            publisher.namespace.clone(),
            Arc::clone(&self.sink),
            self.metrics.clone(),
        );
        let topics = || Topics::Fixed(Topic::KvMetrics.as_str().as_bytes().into());
        Some(
            self.spawner
                .spawn("load subscription", |stop| keep(line, topics, session, stop)),
        )
    }

    /// Starts the connections to a set of brokers, or tells the running ones what is asked now.
    fn ask(&mut self, endpoints: BTreeSet<Arc<str>>, subjects: Subjects, connector: &Arc<dyn Connector>) {
        let topics: Vec<Box<[u8]>> = subjects.keys().cloned().collect();
        if let Some(running) = self.groups.get(&endpoints) {
            running.group.ask(subjects);
            running.asked.send_if_modified(|asked| {
                let differs = *asked != topics;
                *asked = topics;
                differs
            });
            return;
        }
        let group = Arc::new(Group::new(Arc::clone(&self.coverage), self.metrics.clone()));
        group.ask(subjects);
        let asked = watch::Sender::new(topics);
        let start = |endpoint: &Arc<str>| {
            let first = Row {
                family: Topic::KvMetrics,
                publisher: None,
                namespace: None,
                component: None,
                state: State::Connecting,
                via: Via::Broker,
            };
            let line = Line {
                target: Target {
                    family: Topic::KvMetrics,
                    namespace: None,
                    publisher: None,
                    endpoint: Arc::clone(endpoint),
                },
                connector: Arc::clone(connector),
                limits: Limits::KV_METRICS.brokered(),
                metrics: self.metrics.clone(),
                mark: self.board.enter(Key::Broker(Arc::clone(endpoint)), first),
                backoff: subscription::backoff(),
                outages: Arc::clone(&self.outages),
            };
            let list = asked.subscribe();
            let topics = move || Topics::Following(list.clone());
            let session = Relayed::new(Arc::clone(&group));
            self.spawner
                .spawn("broker subscription", |stop| keep(line, topics, session, stop))
        };
        let tasks = endpoints.iter().map(start).collect();
        self.groups.insert(endpoints, Running { group, asked, tasks });
    }

    async fn stop_all(&mut self) {
        self.pending.clear();
        let publishers = std::mem::take(&mut self.publishers)
            .into_values()
            .map(|(_, task)| task);
        let groups = std::mem::take(&mut self.groups)
            .into_values()
            .flat_map(|running| running.tasks);
        stop(publishers.chain(groups)).await;
    }
}

/// Runs a line until it is asked to stop.
async fn keep(
    line: Line,
    topics: impl FnMut() -> Topics,
    mut session: impl Session,
    stop: CancellationToken,
) {
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = line.keep(topics, &mut session) => {}
    }
}

/// Ends tasks side by side; the slowest decides how long it takes.
async fn stop(tasks: impl IntoIterator<Item = Task>) {
    let mut ends: JoinSet<bool> = tasks.into_iter().map(|task| task.stop(STOP_GRACE)).collect();
    while ends.join_next().await.is_some() {}
}

/// Whether a running subscription serves the publisher as it is now.
fn same_line(wanted: &Publisher, running: &Publisher) -> bool {
    wanted.transport == running.transport
        && wanted.namespace == running.namespace
        && wanted.component == running.component
}

const fn via_of(reach: Reach) -> Via {
    match reach {
        Reach::Direct => Via::Direct,
        Reach::Broker => Via::Broker,
    }
}

fn row(publisher: &Publisher, state: State, via: Via) -> Row {
    Row {
        family: publisher.key.topic,
        publisher: Some(publisher.key.id),
        namespace: Some(publisher.namespace.clone()),
        component: publisher.component.clone(),
        state,
        via,
    }
}

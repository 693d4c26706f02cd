//! Subscriptions follow the view: one task per publisher, one per broker endpoint.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use continuum_config::model::Transport as Reach;
use continuum_fleet::{
    ids::PublisherId,
    view::{FleetView, Publisher, Transport},
};
use continuum_runtime::{
    cell::Cell,
    tasks::{Spawner, Task, TaskError},
};
use tokio::{
    sync::watch,
    task::{JoinSet, yield_now},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use self::wanted::{Admitted, Wanted};
use crate::{
    beyond::Beyond,
    blocks::{Blocks, Filled},
    broker::Subjects,
    client::Topics,
    connector::{Connector, Direct, Target},
    family::{Family, LoadSamples, Relay as _, Relayed},
    limits::{STOP_GRACE, TIDY_EVERY},
    metrics::{BlockMetrics, Metrics},
    outages::Outages,
    settings::Settings,
    sink::LoadSink,
    status::{Board, Key, Mark, Row, State, Via},
    subscription::{self, Line, Session},
};

mod wanted;

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
    let family = LoadSamples::new(sink, metrics);
    let supervisor = Supervisor::new(spawner, settings, family, bus);
    let board = supervisor.board.clone();
    spawner.essential("load subscriptions", |stop| supervisor.run(view, stop));
    Handle { board }
}

/// Starts following for block events, which fill an index as long as the settings want it.
///
/// Everything that it does is done where it is called: see [`crate::apart`] for a thread of its own.
pub fn spawn_blocks(
    spawner: &Spawner,
    view: Arc<Cell<FleetView>>,
    settings: watch::Receiver<Settings>,
    seed: u64,
    metrics: BlockMetrics,
    bus: Option<Arc<dyn Connector>>,
) -> (Handle, Filled) {
    let blocks = Blocks::new(metrics, seed);
    let filled = blocks.filled();
    let supervisor = Supervisor::new(spawner, settings, blocks, bus);
    let board = supervisor.board.clone();
    spawner.essential("block event subscriptions", |stop| supervisor.run(view, stop));
    (Handle { board }, filled)
}

struct Supervisor<F: Family> {
    spawner: Spawner,
    settings: watch::Receiver<Settings>,
    family: F,
    bus: Option<Arc<dyn Connector>>,
    board: Board,
    outages: Arc<Outages>,
    /// What the log knows to be kept out by a cap.
    beyond: Beyond,
    way: Option<Way>,
    publishers: BTreeMap<PublisherId, (Arc<Publisher>, Task)>,
    /// Wanted, but beyond the cap or without a connector.
    pending: BTreeMap<PublisherId, (Arc<Publisher>, Mark)>,
    groups: BTreeMap<BTreeSet<Arc<str>>, Running<F::Relay>>,
}

/// The connector in force. Other settings are read for each connection, and end none but those that they forbid.
struct Way {
    reach: Reach,
    connector: Option<Arc<dyn Connector>>,
}

/// The connections to one set of brokers.
struct Running<R> {
    relay: Arc<R>,
    asked: watch::Sender<Vec<Box<[u8]>>>,
    tasks: BTreeMap<Arc<str>, Task>,
}

impl<F: Family> Supervisor<F> {
    fn new(
        spawner: &Spawner,
        settings: watch::Receiver<Settings>,
        family: F,
        bus: Option<Arc<dyn Connector>>,
    ) -> Self {
        Self {
            spawner: spawner.clone(),
            settings,
            board: Board::new(family.lines().clone()),
            family,
            bus,
            outages: Arc::default(),
            beyond: Beyond::default(),
            way: None,
            publishers: BTreeMap::new(),
            pending: BTreeMap::new(),
            groups: BTreeMap::new(),
        }
    }

    async fn run(mut self, view: Arc<Cell<FleetView>>, stop: CancellationToken) -> Result<(), TaskError> {
        let mut generations = view.subscribe();
        let mut settings = self.settings.clone();
        loop {
            generations.mark_unchanged();
            let wanted = settings.borrow_and_update().clone();
            self.family.follow(&view.load(), &wanted);
            self.reconcile(&view.load(), &wanted).await;
            let pending = self.pending.values().map(|(publisher, _)| &**publisher);
            self.family.subscribed(&self.publishers, pending);
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
                        () = keep_tidy(&self.family) => {}
                    }
                },
                () = keep_tidy(&self.family) => {}
            }
        }
        self.stop_all().await;
        Ok(())
    }

    async fn reconcile(&mut self, view: &FleetView, settings: &Settings) {
        let connector = self.connector_for(settings).await;
        // Who tells nothing that can be used makes way, then who comes anew: the end of a stream forgets what it told.
        let order = |publisher: &Publisher| {
            let runs = self.publishers.contains_key(&publisher.key.id);
            (!self.family.is_of_use(publisher), !runs)
        };
        let wanted = Wanted::of(view, F::TOPIC, settings, connector.is_some(), order);
        let lines = self.family.lines();
        wanted
            .out
            .complain(self.beyond, settings.max_subscriptions, F::TOPIC, lines);
        self.beyond = wanted.out;
        self.end_others(&wanted).await;
        self.hold_back(&wanted.beyond, settings.reach);
        let Some(connector) = connector else { return };
        for (id, publisher) in wanted.admitted {
            if !self.publishers.contains_key(&id)
                && let Some(task) = self.subscribe(publisher, settings, &connector)
            {
                self.publishers.insert(id, (Arc::clone(publisher), task));
            }
        }
        for (endpoints, subjects) in wanted.groups {
            self.ask(endpoints, subjects, &connector);
        }
    }

    /// Ends what is wanted no more, or otherwise.
    async fn end_others(&mut self, wanted: &Wanted<'_>) {
        let gone = |id: &PublisherId, (publisher, _): &mut (Arc<Publisher>, Task)| {
            let wanted = wanted.admitted.get(id);
            wanted.is_none_or(|wanted| !same_line(wanted, publisher))
        };
        let publishers = self.publishers.extract_if(.., gone);
        let mut stopping: Vec<_> = publishers.map(|(_, (_, task))| task).collect();
        let others = |endpoints: &BTreeSet<_>, _: &mut _| !wanted.groups.contains_key(endpoints);
        let mut others: Vec<_> = self.groups.extract_if(.., others).collect();
        for endpoints in wanted.groups.keys() {
            if self.groups.contains_key(endpoints) {
                continue;
            }
            // A set that gains or loses an endpoint is the same one: what it knows stays.
            let shared = |(before, _): &(BTreeSet<_>, _)| before.intersection(endpoints).count();
            let like = (0..others.len()).max_by_key(|at| others.get(*at).map_or(0, shared));
            if let Some(at) = like
                && others.get(at).is_some_and(|other| shared(other) > 0)
            {
                let (_, mut running) = others.swap_remove(at);
                let lost = running
                    .tasks
                    .extract_if(.., |endpoint, _| !endpoints.contains(endpoint));
                stopping.extend(lost.map(|(_, task)| task));
                self.groups.insert(endpoints.clone(), running);
            }
        }
        let mut ended = Vec::new();
        for (_, running) in others {
            stopping.extend(running.tasks.into_values());
            ended.push(running.relay);
        }
        stop(stopping).await;
        for relay in ended {
            relay.end();
        }
    }

    /// Shows the publishers that wait for a subscription, and those alone.
    fn hold_back(&mut self, beyond: &Admitted<'_>, reach: Reach) {
        self.pending
            .retain(|id, (publisher, _)| beyond.get(id).is_some_and(|wanted| same_line(wanted, publisher)));
        for (id, publisher) in beyond {
            let board = &self.board;
            self.pending.entry(*id).or_insert_with(|| {
                let row = row(publisher, State::Pending, via_of(reach));
                (Arc::clone(publisher), board.enter(Key::Publisher(*id), row))
            });
        }
    }

    /// The connector of these settings. When it changes, every connection of the old one ends first.
    async fn connector_for(&mut self, settings: &Settings) -> Option<Arc<dyn Connector>> {
        if let Some(way) = &self.way
            && way.reach == settings.reach
        {
            return way.connector.clone();
        }
        self.stop_all().await;
        let connector = match settings.reach {
            Reach::Direct => Some(Arc::new(Direct::following(self.settings.clone())) as Arc<dyn Connector>),
            Reach::Broker => self.bus.clone(),
        };
        self.way = Some(Way {
            reach: settings.reach,
            connector: connector.clone(),
        });
        connector
    }

    fn subscribe(
        &self,
        publisher: &Publisher,
        settings: &Settings,
        connector: &Arc<dyn Connector>,
    ) -> Option<Task> {
        let Transport::Zmq { endpoint } = &publisher.transport else {
            return None;
        };
        let id = publisher.key.id;
        let target = Target {
            family: F::TOPIC,
            namespace: Some(publisher.namespace.clone()),
            publisher: Some(id),
            endpoint: Arc::clone(endpoint),
        };
        let mark = self.board.enter(
            Key::Publisher(id),
            row(publisher, State::Connecting, via_of(settings.reach)),
        );
        let line = self.line(target, connector, mark);
        let session = self.family.direct(publisher, &self.settings);
        let topics = || Topics::Fixed(F::TOPIC.as_str().as_bytes().into());
        Some(
            self.spawner
                .spawn(F::TASK, |stop| keep(line, topics, session, stop)),
        )
    }

    /// Starts the connections to a set of brokers that there are not yet, and tells the others what is asked now.
    fn ask(&mut self, endpoints: BTreeSet<Arc<str>>, subjects: Subjects, connector: &Arc<dyn Connector>) {
        let topics: Vec<Box<[u8]>> = subjects.keys().cloned().collect();
        let running = self.groups.remove(&endpoints);
        let mut running = running.unwrap_or_else(|| Running {
            relay: Arc::new(self.family.relay(&self.settings)),
            asked: watch::Sender::default(),
            tasks: BTreeMap::new(),
        });
        running.relay.ask(subjects);
        running.asked.send_if_modified(|asked| {
            let differs = *asked != topics;
            *asked = topics;
            differs
        });
        for endpoint in &endpoints {
            if !running.tasks.contains_key(endpoint) {
                let task = self.relayed(endpoint, &running, connector);
                running.tasks.insert(Arc::clone(endpoint), task);
            }
        }
        self.groups.insert(endpoints, running);
    }

    /// Starts the connection to one broker of a set.
    fn relayed(
        &self,
        endpoint: &Arc<str>,
        running: &Running<F::Relay>,
        connector: &Arc<dyn Connector>,
    ) -> Task {
        let first = Row {
            family: F::TOPIC,
            publisher: None,
            namespace: None,
            component: None,
            state: State::Connecting,
            via: Via::Broker,
        };
        let target = Target {
            family: F::TOPIC,
            namespace: None,
            publisher: None,
            endpoint: Arc::clone(endpoint),
        };
        let mark = self.board.enter(Key::Broker(Arc::clone(endpoint)), first);
        let line = self.line(target, connector, mark);
        let list = running.asked.subscribe();
        let topics = move || Topics::Following(list.clone());
        let session = Relayed::new(Arc::clone(&running.relay));
        self.spawner
            .spawn("broker subscription", |stop| keep(line, topics, session, stop))
    }

    fn line(&self, target: Target, connector: &Arc<dyn Connector>, mark: Mark) -> Line {
        Line {
            target,
            connector: Arc::clone(connector),
            settings: self.settings.clone(),
            budget: self.family.budget(),
            lines: self.family.lines().clone(),
            mark,
            backoff: subscription::backoff(),
            outages: Arc::clone(&self.outages),
        }
    }

    async fn stop_all(&mut self) {
        self.pending.clear();
        let publishers = std::mem::take(&mut self.publishers)
            .into_values()
            .map(|(_, task)| task);
        let groups: Vec<_> = std::mem::take(&mut self.groups).into_values().collect();
        let (relays, tasks): (Vec<_>, Vec<_>) = groups
            .into_iter()
            .map(|running| (running.relay, running.tasks.into_values()))
            .unzip();
        stop(publishers.chain(tasks.into_iter().flatten())).await;
        for relay in relays {
            relay.end();
        }
    }
}

/// Cleans up as long as it is polled, a part at a time, also while nothing is heard of the fleet.
async fn keep_tidy<F: Family>(family: &F) {
    loop {
        while family.tidy() {
            yield_now().await;
        }
        sleep(TIDY_EVERY).await;
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

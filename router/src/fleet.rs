//! The fleet as this process knows it: what discovery finds, the load store, and the candidates of a pick.
//!
//! One task follows the published view: the store takes over the new set of ranks, the candidate table is laid
//! out anew where something changed, and only then subscriptions see the view, so that no sample arrives for a
//! worker that the store does not know.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use arc_swap::{ArcSwap, Guard};
use continuum_config::{Config, model::Load};
use continuum_discovery::{Discovery, Pushed, Status};
use continuum_events::{Settings, StoreSink, supervisor};
use continuum_fleet::{ids::Graph, view::FleetView};
use continuum_routing::{
    Millis,
    load::{Followed, Store},
    picker::Table,
};
use continuum_runtime::{cell::Cell, tasks::Spawner};
use prometheus::Registry;
use tokio::{sync::watch, task::spawn_blocking, time::Instant};

use crate::{app::Error, dispatch::limits::SETTLING, kv_index::KvIndex, prompts::Prompts};

/// What a request and the admin view read of the fleet.
pub struct Fleet {
    /// Load and bookings of every rank.
    pub store: Arc<Store>,
    /// Which blocks every rank holds.
    pub kv: KvIndex,
    /// Prompts as workers index them.
    pub prompts: Prompts,
    discovery: Discovery,
    table: Arc<ArcSwap<Table>>,
    followed: Arc<Cell<FleetView>>,
    over_capacity: Arc<AtomicUsize>,
    moved: Arc<Moved>,
    subscriptions: supervisor::Handle,
    load_settings: watch::Sender<Settings>,
    max_ranks: watch::Sender<usize>,
    clock: Clock,
}

impl Fleet {
    /// Starts discovery and subscriptions, which follow `config` from now on. With the source `controller` the fleet is
    /// what `pushed` holds.
    ///
    /// # Errors
    /// When their metrics are registered already, or the system gives no thread.
    pub fn start(
        spawner: &Spawner,
        config: &watch::Receiver<Arc<Config>>,
        registry: &Registry,
        pushed: watch::Receiver<Pushed>,
    ) -> Result<Self, Error> {
        let started = Instant::now();
        let clock = Clock(started);
        let load = config.borrow().dynamo.load.clone();
        let (max_ranks, ranks) = watch::channel(max_ranks_of(&load));
        let store = Arc::new(Store::with_capacity(*ranks.borrow()));
        let discovery = Discovery::spawn_with(spawner, config.clone(), registry, Some(pushed))?;
        let table = Arc::new(ArcSwap::from_pointee(Table::new(rand::random())));
        let followed = Arc::<Cell<FleetView>>::default();
        let (load_settings, settings) = watch::channel(Settings::from(&load));
        let metrics = continuum_events::metrics::Metrics::new()?;
        metrics.register(registry)?;
        let subscriptions = supervisor::spawn(
            spawner,
            followed.clone(),
            settings,
            Arc::new(StoreSink::new(store.clone(), started)),
            metrics,
            None,
        );
        let kv = KvIndex::start(spawner, followed.clone(), &config.borrow(), registry)?;
        let prompts = Prompts::start(
            spawner,
            followed.clone(),
            kv.filled().clone(),
            &config.borrow(),
            registry,
        )?;
        let over_capacity = Arc::new(AtomicUsize::new(0));
        let moved = Arc::<Moved>::default();
        let follower = Follower {
            moved: moved.clone(),
            clock,
            over_capacity: over_capacity.clone(),
            store: store.clone(),
            table: table.clone(),
            followed: followed.clone(),
            max_ranks: ranks,
        };
        let found = discovery.fleet();
        spawner.essential("fleet view", |stop| async move {
            stop.run_until_cancelled(follower.run(found)).await;
            Ok(())
        });
        Ok(Self {
            store,
            kv,
            prompts,
            discovery,
            table,
            followed,
            over_capacity,
            moved,
            subscriptions,
            load_settings,
            max_ranks,
            clock,
        })
    }

    /// The candidates of the newest view.
    #[must_use]
    pub fn table(&self) -> Guard<Arc<Table>> {
        self.table.load()
    }

    /// The newest view that candidates exist for.
    #[must_use]
    pub fn view(&self) -> Arc<FleetView> {
        self.followed.load()
    }

    /// Number of the view, for operators: it moves when the fleet changes.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.followed.generation()
    }

    /// Wakes after each change of the view, once candidates exist for it.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.followed.subscribe()
    }

    /// How discovery fares.
    #[must_use]
    pub fn status(&self) -> Arc<Status> {
        self.discovery.status().load()
    }

    /// Wakes after each change of how discovery fares.
    #[must_use]
    pub fn status_changes(&self) -> watch::Receiver<u64> {
        self.discovery.status().subscribe()
    }

    /// The number of the pushed view that picks are made from; `None` while the newest one is on its way to the table.
    #[must_use]
    pub fn pushed_in_force(&self) -> Option<u64> {
        // In this order: what is shown is never older than its number.
        let number = self.status().pushed;
        let (shown, followed) = (self.discovery.fleet().load(), self.view());
        let same = (shown.workers.ptr_eq(&followed.workers) && shown.publishers.ptr_eq(&followed.publishers))
            || shown == followed;
        (number > 0 && same).then_some(number)
    }

    /// All subscriptions to load.
    #[must_use]
    pub fn subscriptions(&self) -> Vec<continuum_events::status::Row> {
        self.subscriptions.rows()
    }

    /// Ranks of the view that are not picked, because `dynamo.load.max_ranks` is reached.
    #[must_use]
    pub fn ranks_over_capacity(&self) -> usize {
        self.over_capacity.load(Relaxed)
    }

    /// Takes over new load settings; what the store holds stays.
    pub fn reload(&self, config: &Config) {
        let next = Settings::from(&config.dynamo.load);
        self.load_settings.send_if_modified(|now| {
            let changed = *now != next;
            *now = next;
            changed
        });
        self.kv.reload(config);
        self.prompts.reload(config);
        let next = max_ranks_of(&config.dynamo.load);
        self.max_ranks
            .send_if_modified(|now| std::mem::replace(now, next) != next);
    }

    /// Milliseconds since the fleet was started: the clock of the store.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.clock.now()
    }

    /// The same clock, to keep.
    pub(crate) const fn clock(&self) -> Clock {
        self.clock
    }

    /// Whether discovery stands behind the view; otherwise it is the last one known, of this process or of one before.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        let status = self.status();
        status.connected && !status.stale
    }

    /// Whether workers have joined or left the graph within [`SETTLING`]: its frontends may know others than the view
    /// does.
    #[must_use]
    pub fn is_settling(&self, graph: &Graph) -> bool {
        let moved = self.moved.load();
        let settling = u64::try_from(SETTLING.as_millis()).unwrap_or(u64::MAX);
        moved
            .get(graph)
            .is_some_and(|at| self.now().0.saturating_sub(at.0) < settling)
    }
}

/// When workers last joined or left each graph; graphs of which nobody is left are forgotten once they have settled.
type Moved = ArcSwap<BTreeMap<Graph, Millis>>;

/// The clock of the store: milliseconds since the fleet was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn now(self) -> Millis {
        Millis(u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

/// The one writer of the table.
struct Follower {
    store: Arc<Store>,
    table: Arc<ArcSwap<Table>>,
    followed: Arc<Cell<FleetView>>,
    over_capacity: Arc<AtomicUsize>,
    moved: Arc<Moved>,
    clock: Clock,
    max_ranks: watch::Receiver<usize>,
}

impl Follower {
    async fn run(mut self, found: Arc<Cell<FleetView>>) {
        let mut generation = found.subscribe();
        loop {
            generation.borrow_and_update();
            let view = found.load();
            self.store.set_capacity(*self.max_ranks.borrow_and_update());
            // A large fleet takes its time: off the threads that carry streams.
            let (table, store, next) = (self.table.load_full(), self.store.clone(), view.clone());
            let laid_out = spawn_blocking(move || table.follow(&next, &store)).await;
            match laid_out {
                Ok((table, followed)) => self.show(table, &view, &followed),
                Err(_) => {
                    tracing::error!("the candidates of a new view were lost, those of the view before stay");
                }
            }
            tokio::select! {
                changed = generation.changed() => if changed.is_err() {
                    return;
                },
                changed = self.max_ranks.changed() => if changed.is_err() {
                    return;
                },
            }
        }
    }

    /// Candidates first: whoever sees the view finds them.
    fn show(&self, table: Table, view: &FleetView, followed: &Followed) {
        self.note_moves(view);
        self.table.store(Arc::new(table));
        self.followed.publish(view.clone());
        let known = self.over_capacity.swap(followed.over_capacity, Relaxed);
        if followed.over_capacity > 0 && known == 0 {
            tracing::warn!(
                ranks = followed.over_capacity,
                "`dynamo.load.max_ranks` is reached: some ranks get no requests"
            );
        }
    }

    fn note_moves(&self, view: &FleetView) {
        let now = self.clock.now();
        let before = self.followed.load();
        let graphs = view.graphs_moved_since(&before);
        if graphs.is_empty() {
            return;
        }
        let settling = u64::try_from(SETTLING.as_millis()).unwrap_or(u64::MAX);
        let mut moved = BTreeMap::clone(&self.moved.load());
        moved.retain(|_, at| now.0.saturating_sub(at.0) < settling);
        moved.extend(graphs.into_iter().map(|graph| (graph, now)));
        self.moved.store(Arc::new(moved));
    }
}

fn max_ranks_of(load: &Load) -> usize {
    usize::try_from(load.max_ranks).unwrap_or(usize::MAX)
}

//! Builders for the tests of this crate: a fleet in a few words, and a router's view of it.

use std::sync::Arc;

use continuum_fleet::{
    graphs::Generation,
    ids::{Graph, InstanceId, ModelName, Namespace, PublisherId, Rank, WorkerKey},
    view::{
        Capacity, Card, FleetView, KvTransfer, KvTransferEnforcement, NameKind, Publisher, PublisherKey,
        RankRange, Role, Seen, ServedName, Topic, Transport, Worker,
    },
};
use jiff::Timestamp;

use crate::{
    Millis,
    load::{Applied, Booking, Dispatch, Followed, Sample, Store},
    picker::{Explained, NoPick, Pick, Pool, Request, Settings, Table, explain, kv::Prompt, pick},
};

pub(crate) const MODEL: &str = "llm";
pub(crate) const NS: &str = "dynamo";

/// A worker of model `llm` in namespace `dynamo`: 100 blocks of 16 tokens, 1,000 tokens a step, rank 0.
#[derive(Clone, Debug)]
pub(crate) struct Build(pub(crate) Worker);

pub(crate) fn prefill(id: u64) -> Build {
    Build::new(id, Role::Prefill)
}

pub(crate) fn decode(id: u64) -> Build {
    Build::new(id, Role::Decode)
}

pub(crate) fn aggregated(id: u64) -> Build {
    Build::new(id, Role::Aggregated)
}

impl Build {
    pub(crate) fn new(id: u64, role: Role) -> Self {
        let card = Card {
            display_name: Some(ModelName::from(MODEL)),
            worker_type: Some(role),
            block_size: Some(16),
            capacity: Capacity {
                total_kv_blocks: Some(100),
                max_num_batched_tokens: Some(1_000),
                max_num_seqs: None,
            },
            context_length: Some(4_096),
            ..Card::default()
        };
        Self(Worker {
            key: WorkerKey {
                namespace: NS.into(),
                instance: InstanceId::new(id),
            },
            graph: NS.into(),
            generation: Generation::Base,
            component: role.as_str().into(),
            endpoint: "generate".into(),
            role,
            names: Arc::from([ServedName {
                name: MODEL.into(),
                kind: NameKind::Base,
            }]),
            card: Some(Arc::new(card)),
            seen: Seen {
                first: Timestamp::UNIX_EPOCH,
                updated: Timestamp::UNIX_EPOCH,
            },
        })
    }

    pub(crate) fn card(mut self, change: impl FnOnce(&mut Card)) -> Self {
        let mut card = self.0.card.as_deref().expect("a worker with a card").clone();
        change(&mut card);
        self.0.card = Some(Arc::new(card));
        self
    }

    pub(crate) fn namespace(mut self, namespace: &str) -> Self {
        self.0.key.namespace = namespace.into();
        self
    }

    pub(crate) fn graph(mut self, graph: &str) -> Self {
        self.0.graph = graph.into();
        self
    }

    pub(crate) fn generation(mut self, hash: u32) -> Self {
        self.0.generation = Generation::Hash(hash);
        self
    }

    pub(crate) fn component(mut self, component: &str) -> Self {
        self.0.component = component.into();
        self
    }

    pub(crate) fn name(mut self, name: &str, kind: NameKind) -> Self {
        let mut names = self.0.names.to_vec();
        names.push(ServedName {
            name: name.into(),
            kind,
        });
        self.0.names = names.into();
        self
    }

    pub(crate) fn ranks(self, start: u32, size: u32) -> Self {
        self.card(|card| card.ranks = RankRange { start, size })
    }

    pub(crate) fn blocks(self, total: u64) -> Self {
        self.card(|card| card.capacity.total_kv_blocks = Some(total))
    }

    pub(crate) fn no_capacity(self) -> Self {
        self.card(|card| card.capacity = Capacity::default())
    }

    pub(crate) fn no_card(mut self) -> Self {
        self.0.card = None;
        self
    }

    pub(crate) fn needs(self, needs: &[&[Role]]) -> Self {
        self.card(|card| card.needs = needs.iter().map(|all| all.to_vec()).collect())
    }

    pub(crate) fn zone(self, zone: &str) -> Self {
        self.card(|card| {
            card.topology_domains.insert("zone".into(), zone.into());
        })
    }

    pub(crate) fn transfer(self, enforcement: KvTransferEnforcement) -> Self {
        self.card(|card| {
            card.kv_transfer = Some(KvTransfer {
                domain: "zone".into(),
                enforcement,
            })
        })
    }
}

pub(crate) fn publisher(id: u64, component: &str) -> Publisher {
    Publisher {
        key: PublisherKey {
            topic: Topic::KvMetrics,
            id: PublisherId::new(id),
        },
        namespace: NS.into(),
        graph: NS.into(),
        component: Some(component.into()),
        transport: Transport::Zmq {
            endpoint: "tcp://127.0.0.1:1".into(),
        },
        feeds: None,
    }
}

/// A view of these workers and publishers.
pub(crate) fn view(workers: &[Build], publishers: &[Publisher]) -> FleetView {
    FleetView {
        workers: workers
            .iter()
            .map(|Build(worker)| (worker.key.clone(), Arc::new(worker.clone())))
            .collect(),
        publishers: publishers
            .iter()
            .map(|record| (record.key, Arc::new(record.clone())))
            .collect(),
        ..FleetView::default()
    }
}

/// A sample of decode blocks.
pub(crate) fn blocks(worker: u64, value: u64) -> Sample {
    Sample {
        active_decode_blocks: Some(value),
        ..silent(worker)
    }
}

/// A sample of used blocks, as real workers send it.
pub(crate) fn used(worker: u64, value: u64) -> Sample {
    Sample {
        kv_used_blocks: Some(value),
        ..silent(worker)
    }
}

/// A sample of prefill tokens.
pub(crate) fn tokens(worker: u64, value: u64) -> Sample {
    Sample {
        active_prefill_tokens: Some(value),
        ..silent(worker)
    }
}

/// A sample that says nothing.
pub(crate) fn silent(worker: u64) -> Sample {
    Sample {
        worker: InstanceId::new(worker),
        rank: Rank(0),
        active_decode_blocks: None,
        active_prefill_tokens: None,
        kv_used_blocks: None,
    }
}

/// A router's store and table over one fleet. The publisher of a worker has the worker's number.
pub(crate) struct Rig {
    pub(crate) store: Store,
    pub(crate) table: Table,
    pub(crate) now: Millis,
    pub(crate) settings: Settings,
    pub(crate) followed: Followed,
    pub(crate) sequence: u64,
}

impl Rig {
    /// All workers of namespace `dynamo` are covered by a broker subscription, unless a test says otherwise.
    pub(crate) fn new(workers: &[Build]) -> Self {
        let rig = Self::uncovered(workers);
        rig.store.broker_covers(&NS.into(), true);
        rig
    }

    pub(crate) fn uncovered(workers: &[Build]) -> Self {
        let mut rig = Self {
            store: Store::new(),
            table: Table::new(7),
            now: Millis(100_000),
            settings: Settings::default(),
            followed: Followed::default(),
            sequence: 0,
        };
        rig.follow(&view(workers, &[]));
        rig
    }

    pub(crate) fn follow(&mut self, view: &FleetView) {
        (self.table, self.followed) = self.table.follow(view, &self.store);
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.now = self.now.plus(ms);
    }

    /// A sample of the worker's own publisher.
    pub(crate) fn hear(&mut self, sample: Sample) {
        let publisher = sample.worker.raw();
        assert_eq!(self.hear_from(publisher, sample), Applied::Applied);
    }

    pub(crate) fn hear_from(&mut self, publisher: u64, sample: Sample) -> Applied {
        self.sequence += 1;
        self.store.apply(
            PublisherId::new(publisher),
            &Namespace::from(NS),
            self.sequence,
            &sample,
            self.now,
        )
    }

    pub(crate) fn pick(&self) -> Result<Pick, NoPick> {
        self.ask(|_| {})
    }

    pub(crate) fn excluding(&self, workers: &[u64]) -> Result<Pick, NoPick> {
        let exclude: Vec<_> = workers.iter().map(|id| key(*id)).collect();
        let graph = Graph::from(NS);
        let pools = [Pool {
            graph: &graph,
            listed: false,
        }];
        let model = MODEL.into();
        let request = Request {
            model: &model,
            pools: &pools,
            prompt_tokens: 16,
            prompt: None,
            exclude: &exclude,
            settings: self.settings,
        };
        pick(&self.table, &self.store, &request, self.now)
    }

    /// A pick with a known prompt, and what a dry run says of it.
    pub(crate) fn pick_by(&self, prompt: &Prompt<'_>) -> (Result<Pick, NoPick>, Vec<Explained>) {
        let ask = Ask::new(|ask| ask.prompt_tokens = prompt.tokens);
        let graph = Graph::from(NS);
        let pools = [Pool {
            graph: &graph,
            listed: false,
        }];
        let request = Request {
            prompt: Some(prompt),
            ..ask.request(&pools, self.settings)
        };
        let rows = explain(&self.table, &self.store, &request, self.now);
        (pick(&self.table, &self.store, &request, self.now), rows)
    }

    pub(crate) fn ask(&self, change: impl FnOnce(&mut Ask)) -> Result<Pick, NoPick> {
        let ask = Ask::new(change);
        let pools: Vec<_> = ask
            .pools
            .iter()
            .map(|graph| Pool {
                graph,
                listed: ask.listed,
            })
            .collect();
        let request = ask.request(&pools, self.settings);
        pick(&self.table, &self.store, &request, self.now)
    }

    pub(crate) fn explain(&self) -> Vec<Explained> {
        let ask = Ask::new(|_| {});
        let pools: Vec<_> = ask
            .pools
            .iter()
            .map(|graph| Pool {
                graph,
                listed: ask.listed,
            })
            .collect();
        explain(
            &self.table,
            &self.store,
            &ask.request(&pools, self.settings),
            self.now,
        )
    }

    /// Numbers of decode workers of `count` picks in a row.
    pub(crate) fn decodes(&self, count: usize) -> Vec<u64> {
        (0..count)
            .map(|_| decode_of(&self.pick().expect("a pick")))
            .collect()
    }

    pub(crate) fn book(&self, pick: &Pick, prompt_tokens: u64, streamed: bool) -> Booking {
        self.book_beside(pick, prompt_tokens, streamed, 0)
    }

    /// Beside open requests that hold `shared` blocks of the prompt.
    pub(crate) fn book_beside(
        &self,
        pick: &Pick,
        prompt_tokens: u64,
        streamed: bool,
        shared: u32,
    ) -> Booking {
        let dispatch = Dispatch {
            prompt_tokens,
            streamed,
            shared,
        };
        self.store.book(pick, dispatch, self.now)
    }
}

/// A request in the making.
pub(crate) struct Ask {
    pub(crate) model: ModelName,
    pub(crate) pools: Vec<Graph>,
    pub(crate) listed: bool,
    pub(crate) prompt_tokens: u64,
}

impl Ask {
    fn new(change: impl FnOnce(&mut Self)) -> Self {
        let mut ask = Self {
            model: MODEL.into(),
            pools: vec![NS.into()],
            listed: false,
            prompt_tokens: 16,
        };
        change(&mut ask);
        ask
    }

    fn request<'a>(&'a self, pools: &'a [Pool<'a>], settings: Settings) -> Request<'a> {
        Request {
            model: &self.model,
            pools,
            prompt_tokens: self.prompt_tokens,
            prompt: None,
            exclude: &[],
            settings,
        }
    }
}

pub(crate) fn key(id: u64) -> WorkerKey {
    WorkerKey {
        namespace: NS.into(),
        instance: InstanceId::new(id),
    }
}

pub(crate) fn decode_of(pick: &Pick) -> u64 {
    pick.decode.worker.key.instance.raw()
}

pub(crate) fn prefill_of(pick: &Pick) -> Option<u64> {
    pick.prefill
        .as_ref()
        .map(|chosen| chosen.worker.key.instance.raw())
}

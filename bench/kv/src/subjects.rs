//! The indexes that are compared, behind one trait.

use std::{cell::RefCell, hint::black_box, sync::OnceLock};

use continuum_fleet::ids::{InstanceId, Namespace, WorkerKey};
use continuum_kv_index::{Caps, Index, Matches, RankKey};
use continuum_wire::router_event::{Data, Tier};
use dynamo_kv_router::{
    ConcurrentRadixTreeCompressed, LocalBlockHash, RouterEvent, SyncIndexer, ThreadPoolIndexer,
    protocols::{
        ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
        KvCacheStoredBlockData,
    },
};
use tokio::runtime::{Builder, Runtime};

use crate::workload::Event;

/// An index under test.
pub trait Subject: Sync {
    /// An event in the form that the index takes.
    type Event: Send;
    /// A prompt in the form that the index takes.
    type Prompt: Sync;

    const NAME: &'static str;

    /// An empty index for so many workers.
    fn new(workers: usize) -> Self;
    fn event(&self, event: &Event, id: u64) -> Self::Event;
    fn prompt(hashes: &[u64]) -> Self::Prompt;
    /// Takes an event; it need not be applied before [`Subject::settle`] returns.
    fn apply(&self, event: Self::Event);
    fn settle(&self);
    /// One lookup with its whole answer, which is not looked at.
    fn find(&self, prompt: &Self::Prompt);
    /// The answer to one lookup: workers and blocks.
    fn answer(&self, prompt: &Self::Prompt) -> Vec<(u64, u32)>;
}

/// Ours.
pub struct Ours {
    index: Index,
    ranks: Vec<RankKey>,
}

impl Ours {
    /// An index with these caps.
    pub fn with(workers: usize, caps: Caps) -> Self {
        let rank = |worker| RankKey {
            worker: WorkerKey {
                namespace: Namespace::new("dynamo"),
                instance: InstanceId::new(worker),
            },
            rank: 0,
        };
        let ranks: Vec<_> = (0..workers as u64).map(rank).collect();
        let index = Index::new(caps);
        index.set_live(&ranks);
        Self { index, ranks }
    }

    pub const fn index(&self) -> &Index {
        &self.index
    }
}

impl Subject for Ours {
    type Event = Event;
    type Prompt = Vec<u64>;

    const NAME: &'static str = "ours";

    fn new(workers: usize) -> Self {
        // The peer knows no caps: neither may we make way for anything.
        let caps = Caps {
            blocks: 2 * Caps::default().blocks,
            ..Caps::default()
        };
        Self::with(workers, caps)
    }

    fn event(&self, event: &Event, _id: u64) -> Event {
        event.clone()
    }

    fn prompt(hashes: &[u64]) -> Vec<u64> {
        hashes.to_vec()
    }

    fn apply(&self, event: Event) {
        black_box(
            self.index
                .apply(&self.ranks[event.worker], Tier::Device, &event.data),
        );
    }

    fn settle(&self) {}

    fn find(&self, prompt: &Vec<u64>) {
        thread_local!(static OUT: RefCell<Matches> = RefCell::new(Matches::new()));
        OUT.with_borrow_mut(|out| {
            self.index.find(prompt, out);
            black_box(out);
        });
    }

    fn answer(&self, prompt: &Vec<u64>) -> Vec<(u64, u32)> {
        let mut out = Matches::new();
        self.index.find(prompt, &mut out);
        let pairs = out
            .iter()
            .map(|(rank, overlap)| (rank.worker.instance.raw(), overlap.device));
        let mut pairs: Vec<_> = pairs.collect();
        pairs.sort_unstable();
        pairs
    }
}

/// Dynamo's fastest: the concurrent compressed radix tree with one thread for events, as it runs in production.
pub struct Crtc(ThreadPoolIndexer<ConcurrentRadixTreeCompressed>);

impl Subject for Crtc {
    type Event = RouterEvent;
    type Prompt = Vec<LocalBlockHash>;

    const NAME: &'static str = "CRTC";

    fn new(_workers: usize) -> Self {
        Self(ThreadPoolIndexer::new(
            ConcurrentRadixTreeCompressed::new(),
            1,
            64,
        ))
    }

    fn event(&self, event: &Event, id: u64) -> RouterEvent {
        let data = match &event.data {
            Data::Stored(stored) => KvCacheEventData::Stored(KvCacheStoreData {
                parent_hash: stored.parent.map(ExternalSequenceBlockHash),
                start_position: None,
                blocks: stored
                    .blocks
                    .iter()
                    .map(|block| KvCacheStoredBlockData {
                        block_hash: ExternalSequenceBlockHash(block.hash),
                        tokens_hash: LocalBlockHash(block.tokens),
                        mm_extra_info: None,
                    })
                    .collect(),
            }),
            Data::Removed(names) => KvCacheEventData::Removed(KvCacheRemoveData {
                block_hashes: names.iter().copied().map(ExternalSequenceBlockHash).collect(),
            }),
            Data::Cleared => KvCacheEventData::Cleared,
        };
        let event_id = id + 1;
        RouterEvent::new(
            event.worker as u64,
            KvCacheEvent {
                event_id,
                data,
                dp_rank: 0,
            },
        )
    }

    fn prompt(hashes: &[u64]) -> Vec<LocalBlockHash> {
        hashes.iter().copied().map(LocalBlockHash).collect()
    }

    fn apply(&self, event: RouterEvent) {
        self.0.enqueue_event(event).expect("the thread for events runs");
    }

    fn settle(&self) {
        static RUNTIME: OnceLock<Runtime> = OnceLock::new();
        let new = || {
            Builder::new_multi_thread()
                .worker_threads(1)
                .build()
                .expect("a runtime")
        };
        let settled = RUNTIME.get_or_init(new).block_on(self.0.flush_and_wait());
        settled.expect("the thread for events runs");
    }

    fn find(&self, prompt: &Vec<LocalBlockHash>) {
        black_box(self.0.backend().find_matches(prompt, false));
    }

    fn answer(&self, prompt: &Vec<LocalBlockHash>) -> Vec<(u64, u32)> {
        let found = self.0.backend().find_matches(prompt, false);
        let mut pairs: Vec<_> = found
            .scores
            .iter()
            .map(|(worker, blocks)| (worker.worker_id, *blocks))
            .collect();
        pairs.sort_unstable();
        pairs
    }
}

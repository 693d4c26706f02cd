//! One simulated worker: who it is, and how full its KV cache is.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::publisher::Publisher;

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads prompts.
    Prefill,
    /// Generates.
    Decode,
    /// Both.
    Aggregated,
}

impl Role {
    /// The word of the card and the default component name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Aggregated => "aggregated",
        }
    }
}

/// A worker that registers, publishes its load and "generates".
#[derive(Debug)]
pub struct Worker {
    /// Dynamo namespace.
    pub namespace: String,
    /// Component.
    pub component: String,
    /// Served model.
    pub model: String,
    /// What it does.
    pub role: Role,
    /// Instance id.
    pub instance: u64,
    /// Id of its `kv_metrics` publisher.
    pub publisher: u64,
    /// Tokens per KV block.
    pub block_size: u32,
    /// KV blocks per rank.
    pub total_kv_blocks: u64,
    used_blocks: Box<[AtomicU64]>,
    served: AtomicU64,
    alive: AtomicBool,
    events: OnceLock<Publisher>,
}

/// What makes a worker.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Dynamo namespace.
    pub namespace: String,
    /// Served model.
    pub model: String,
    /// What it does.
    pub role: Role,
    /// Instance id.
    pub instance: u64,
    /// Data-parallel ranks, at least 1.
    pub ranks: u32,
}

/// Tokens per KV block of every simulated worker.
const BLOCK_SIZE: u32 = 16;
/// KV blocks per rank of every simulated worker.
const TOTAL_KV_BLOCKS: u64 = 2048;
/// Publisher ids are 53 bits wide, so that readers which use floats stay exact.
const PUBLISHER_MASK: u64 = (1 << 53) - 1;

/// The finaliser of SplitMix64: every bit of the input moves the low bits of the output.
const fn scatter(id: u64) -> u64 {
    let mut mixed = id.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Worker {
    /// A worker that is alive and idle.
    #[must_use]
    pub fn new(who: Identity) -> Self {
        Self {
            component: who.role.as_str().to_owned(),
            publisher: scatter(who.instance) & PUBLISHER_MASK,
            block_size: BLOCK_SIZE,
            total_kv_blocks: TOTAL_KV_BLOCKS,
            used_blocks: (0..who.ranks.max(1)).map(|_| AtomicU64::new(0)).collect(),
            served: AtomicU64::new(0),
            alive: AtomicBool::new(true),
            events: OnceLock::new(),
            namespace: who.namespace,
            model: who.model,
            role: who.role,
            instance: who.instance,
        }
    }

    /// Data-parallel ranks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        u32::try_from(self.used_blocks.len()).unwrap_or(u32::MAX)
    }

    /// Requests that this worker has taken part in.
    #[must_use]
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// False once it was killed: registered for a while yet, but deaf.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    /// Ends the worker without a goodbye.
    pub fn kill(&self) {
        self.alive.store(false, Ordering::Relaxed);
    }

    /// Port of its event publisher, if one runs.
    #[must_use]
    pub fn publisher_port(&self) -> Option<u16> {
        self.events.get().map(Publisher::port)
    }

    pub(crate) fn publish_through(&self, events: Publisher) {
        let _first = self.events.set(events);
    }

    /// Holds the blocks of a prompt on a rank until the returned guard is dropped.
    pub(crate) fn occupy(self: &std::sync::Arc<Self>, rank: u32, prompt_tokens: u64) -> Occupied {
        self.served.fetch_add(1, Ordering::Relaxed);
        let blocks = prompt_tokens.div_ceil(u64::from(self.block_size));
        self.change(rank, |used| used.saturating_add(blocks));
        Occupied {
            worker: self.clone(),
            rank,
            blocks,
        }
    }

    fn change(&self, rank: u32, next: impl Fn(u64) -> u64) {
        let Some(cell) = self.used_blocks.get(rank as usize) else {
            return;
        };
        let before = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| Some(next(used)));
        if let (Ok(before), Some(events)) = (before, self.events.get()) {
            events.publish(self.instance, rank, next(before));
        }
    }
}

/// Blocks of one running request.
pub(crate) struct Occupied {
    worker: std::sync::Arc<Worker>,
    rank: u32,
    blocks: u64,
}

impl Drop for Occupied {
    fn drop(&mut self) {
        self.worker
            .change(self.rank, |used| used.saturating_sub(self.blocks));
    }
}

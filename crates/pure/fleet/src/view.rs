//! The immutable picture of the fleet that a request works on.
//!
//! A view is cheap to clone (persistent maps of shared values), ordered, and equal to another view when a
//! router would behave the same on both: time stamps take no part in equality, so that a re-list of an
//! unchanged fleet is not a change.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use imbl::{OrdMap, ordmap::DiffItem};
use jiff::Timestamp;

use crate::graphs::Generation;
use crate::ids::{Graph, InstanceId, ModelName, Namespace, PublisherId, Rank, WorkerKey};

/// Everything a source knows of the fleet at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetView {
    /// Workers by (namespace, instance id).
    pub workers: OrdMap<WorkerKey, Arc<Worker>>,
    /// Event publishers by (topic, publisher id), those that can be subscribed to.
    pub publishers: OrdMap<PublisherKey, Arc<Publisher>>,
    /// Caps that stand between the fleet and this view; empty in a healthy fleet.
    pub capped: Capped,
}

impl FleetView {
    /// The graphs that a worker has joined or left since `before`.
    #[must_use]
    pub fn graphs_moved_since(&self, before: &Self) -> BTreeSet<Graph> {
        before
            .workers
            .diff(&self.workers)
            .filter_map(|change| match change {
                DiffItem::Add(_, worker) | DiffItem::Remove(_, worker) => Some(worker.graph.clone()),
                DiffItem::Update { .. } => None,
            })
            .collect()
    }
}

/// Counts of what a cap kept out of the view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capped {
    /// Keys refused because a key space was full.
    pub records: u64,
    /// Cards whose opaque JSON was dropped (too large, or the total budget was spent).
    pub cards: u64,
}

/// What a worker does for a request. The order is the order of tables and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Reads the prompt, hands its KV blocks to a decode worker.
    Prefill,
    /// Generates from KV blocks that a prefill worker made.
    Decode,
    /// Does both by itself.
    Aggregated,
    /// Encodes media; shown, never picked.
    Encode,
    /// Neither its component nor its card names a role that we know; shown, never picked.
    Unknown,
}

impl Role {
    /// Every role, in order.
    pub const ALL: [Self; 5] = [
        Self::Prefill,
        Self::Decode,
        Self::Aggregated,
        Self::Encode,
        Self::Unknown,
    ];

    /// The word for logs, metrics and the admin view.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Aggregated => "aggregated",
            Self::Encode => "encode",
            Self::Unknown => "unknown",
        }
    }
}

/// One instance of endpoint `generate`, joined with its base card.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// Who it is.
    pub key: WorkerKey,
    /// The configured namespace that it belongs to: its shim pool.
    pub graph: Graph,
    /// Component it registered under, for instance `decode` or `backend`.
    pub component: Arc<str>,
    /// Endpoint, always `generate` today.
    pub endpoint: Arc<str>,
    /// Which rollout of the graph it belongs to; a pair never mixes two.
    pub generation: Generation,
    /// What it does.
    pub role: Role,
    /// Names that it serves: base name first, then aliases, then adapters, each once. Empty without a card.
    pub names: Arc<[ServedName]>,
    /// What the card says, shared by content among workers. `None` until a base card is known.
    pub card: Option<Arc<Card>>,
    /// When it was seen. Takes no part in equality.
    pub seen: Seen,
}

impl Worker {
    /// The base model name.
    #[must_use]
    pub fn model(&self) -> Option<&ModelName> {
        self.names
            .iter()
            .find(|n| n.kind == NameKind::Base)
            .map(|n| &n.name)
    }

    /// The declared global ranks; `None` when no card tells (then no rank header is sent).
    #[must_use]
    pub fn ranks(&self) -> Option<RankRange> {
        self.card.as_ref().map(|card| card.ranks)
    }
}

/// A name under which a worker can be asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServedName {
    /// The name.
    pub name: ModelName,
    /// Where it comes from.
    pub kind: NameKind,
}

/// Where a served name comes from. Adapters and aliases are offered only while the frontends list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameKind {
    /// `display_name` of the base card.
    Base,
    /// `aliases` of the base card.
    Alias,
    /// `display_name` of a LoRA card.
    Adapter,
}

/// Times of a worker in this process. All values are equal to each other.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// First time that this process saw the worker; survives resynchronisation.
    pub first: Timestamp,
    /// Last time that one of its records changed.
    pub updated: Timestamp,
}

impl Seen {
    /// Whether the times are the same ones.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.first == other.first && self.updated == other.updated
    }
}

impl PartialEq for Seen {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A model deployment card, reduced to what routing reads. Fields absent in the record stay `None`. The default one says
/// nothing, and has rank 0 alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Card {
    /// `display_name`, else `name`.
    pub display_name: Option<ModelName>,
    /// Other served names.
    pub aliases: Vec<ModelName>,
    /// Explicit `worker_type`, if it is a word that we know.
    pub worker_type: Option<Role>,
    /// Peers without which a frontend answers 503: outer list OR, inner list AND.
    pub needs: Vec<Vec<Role>>,
    /// Tokens per KV block; `None` when absent or 0.
    pub block_size: Option<u32>,
    /// Declared ranks; a card without them has rank 0 alone.
    pub ranks: RankRange,
    /// Per-rank and per-worker capacity.
    pub capacity: Capacity,
    /// Longest context in tokens: of the runtime, else of the card, else of the architecture; 0 is absent.
    pub context_length: Option<u64>,
    /// Topology domains of the worker, for instance `zone` to `a`.
    pub topology_domains: BTreeMap<String, String>,
    /// The domain that a prefill and a decode worker must, or should, share.
    pub kv_transfer: Option<KvTransfer>,
    /// The card carries a `router_config`: its frontend may answer without pins.
    pub has_router_config: bool,
    /// A disaggregated endpoint is declared; its host is an internal address and never shown.
    pub has_disaggregated_endpoint: bool,
    /// `enable_eagle`: block hashes of this worker need one token more than a block.
    pub enable_eagle: bool,
    /// `kv_event_source_mode`, as written; empty when it is no word.
    pub kv_event_source_mode: Option<String>,
    /// The namespace of `kv_state_endpoint`, where block events of the worker are published; empty when it cannot be
    /// read.
    pub kv_state_namespace: Option<String>,
    /// Tokenizer and template slots, as written; small, kept when the opaque JSON is dropped.
    pub artifacts: Artifacts,
    /// The whole card as JSON text, opaque; `None` above the retained size or beyond the total budget. Text and
    /// not a tree: it is a quarter of the size, and nobody reads it for most workers.
    pub json: Option<Arc<str>>,
}

/// How a worker cuts prompts into blocks that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blocks {
    /// Tokens in a block.
    pub size: u32,
    /// The token after a block is part of its name: the worker has a speculative head.
    pub ahead: bool,
}

impl Card {
    /// Its blocks; `None` when it has none.
    #[must_use]
    pub fn blocks(&self) -> Option<Blocks> {
        let ahead = self.enable_eagle;
        self.block_size.map(|size| Blocks { size, ahead })
    }
}

/// Declared capacity of a worker. All counts are per rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// KV blocks.
    pub total_kv_blocks: Option<u64>,
    /// Tokens in one engine step.
    pub max_num_batched_tokens: Option<u64>,
    /// Sequences at once.
    pub max_num_seqs: Option<u64>,
}

/// Global ranks `start .. start + size`, `size` at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankRange {
    /// First global rank.
    pub start: u32,
    /// How many.
    pub size: u32,
}

impl Default for RankRange {
    /// Rank 0 alone.
    fn default() -> Self {
        Self { start: 0, size: 1 }
    }
}

impl RankRange {
    /// The ranks, in order.
    pub fn iter(self) -> impl Iterator<Item = Rank> {
        (self.start..self.start.saturating_add(self.size)).map(Rank)
    }

    /// Whether the worker has this rank.
    #[must_use]
    pub fn contains(self, rank: Rank) -> bool {
        rank.0 >= self.start && rank.0 - self.start < self.size
    }
}

/// `kv_transfer_domain` of a card and how it binds.
#[derive(Clone, Debug, PartialEq)]
pub struct KvTransfer {
    /// Name of the domain, looked up in [`Card::topology_domains`] of both workers.
    pub domain: String,
    /// Filter, or weight.
    pub enforcement: KvTransferEnforcement,
}

/// How a topology domain binds a pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KvTransferEnforcement {
    /// The decode worker must share the domain's value.
    Required,
    /// A decode worker that shares it is preferred by this weight.
    Preferred {
        /// `kv_transfer_preferred_weight`, 1.0 when absent.
        weight: f64,
    },
}

/// Files that a later feature may load, exactly as the card names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Artifacts {
    /// `tokenizer` slot.
    pub tokenizer: Option<Arc<str>>,
    /// `prompt_formatter` slot.
    pub prompt_formatter: Option<Arc<str>>,
    /// `chat_template_file` slot.
    pub chat_template_file: Option<Arc<str>>,
}

/// A topic that this router subscribes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// `kv_metrics`: load samples.
    KvMetrics,
    /// `kv-events`: KV block events.
    KvEvents,
}

impl Topic {
    /// Every topic, in order.
    pub const ALL: [Self; 2] = [Self::KvMetrics, Self::KvEvents];

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::KvMetrics => "kv_metrics",
            Self::KvEvents => "kv-events",
        }
    }
}

/// Identity of a publisher: an id is unique within its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublisherKey {
    /// Topic.
    pub topic: Topic,
    /// Publisher id.
    pub id: PublisherId,
}

/// One event channel that can be subscribed to.
#[derive(Clone, Debug, PartialEq)]
pub struct Publisher {
    /// Who it is.
    pub key: PublisherKey,
    /// The namespace of its scope.
    pub namespace: Namespace,
    /// The configured namespace that it belongs to.
    pub graph: Graph,
    /// Component of its scope, if it has one.
    pub component: Option<Arc<str>>,
    /// Where to connect. Never shown outside debug logs.
    pub transport: Transport,
    /// Worker and rank, where an `EventSource` record names them.
    pub feeds: Option<(InstanceId, Rank)>,
}

/// How a publisher can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A ZMQ PUB socket, `tcp://host:port`; frame 1 is the bare topic.
    Zmq {
        /// Endpoint as advertised.
        endpoint: Arc<str>,
    },
    /// XPUB sockets of brokers. Frame 1 is the full subject; a broker carries every worker of its namespace, so
    /// the subjects to ask for are those of the namespace's workers, not of this record.
    ZmqBroker {
        /// Endpoints as advertised, in order.
        xpub_endpoints: Arc<[String]>,
    },
}

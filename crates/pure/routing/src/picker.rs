//! The pick: which decode or aggregated rank, and which prefill rank, a request is pinned to, and why.
//!
//! Decode is chosen first, then prefill in the same namespace (a namespace is one generation of a graph). Costs
//! are relative to capacity; where no fresh sample exists our own bookings decide, and where those say nothing a
//! rotating cursor does.

use std::sync::Arc;

use continuum_fleet::{
    ids::{Graph, ModelName, Rank, WorkerKey},
    view::{NameKind, Role, Worker},
};

use self::cursor::Turn;
pub use self::table::Table;
use crate::{
    Millis,
    load::{Freshness, Store, slot::Slot},
};

mod choose;
mod contest;
mod cursor;
mod explain;
mod group;
pub mod kv;
mod table;
mod topology;

/// What a request asks of the fleet.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The name that workers are looked up by (`model_map` already applied).
    pub model: &'a ModelName,
    /// Pools that this request may use: graphs of the running config with a usable shim replica. Others are never pinned.
    pub pools: &'a [Pool<'a>],
    /// Prompt length, see [`prompt_tokens`].
    pub prompt_tokens: u64,
    /// The prompt's blocks and who holds them; `None`: workers are chosen by load.
    pub prompt: Option<&'a kv::Prompt<'a>>,
    /// Workers that earlier tries of this request failed on.
    pub exclude: &'a [WorkerKey],
    /// Settings of the running config.
    pub settings: Settings,
}

/// One pool that a request may use.
#[derive(Clone, Copy, Debug)]
pub struct Pool<'a> {
    /// The configured namespace.
    pub graph: &'a Graph,
    /// The pool's frontends list the requested name. Aliases and adapters are offered only then; a base name
    /// needs no listing.
    pub listed: bool,
}

/// Settings that a pick reads; they may change between two picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Oldest sample that counts as fresh, milliseconds (100 ms to 5 min).
    pub max_staleness: u64,
    /// How equally cheap candidates are told apart.
    pub ties: Ties,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_staleness: 3_000,
            ties: Ties::Rotate,
        }
    }
}

/// How equally cheap candidates are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ties {
    /// One after the other; each process starts at a place of its own.
    #[default]
    Rotate,
    /// Uniformly at random, as upstream.
    Random,
}

/// Who serves a request, and why.
#[derive(Clone, Debug)]
pub struct Pick {
    /// The graph, whose shim pool executes the pin.
    pub graph: Graph,
    /// The decode or aggregated worker.
    pub decode: Chosen,
    /// The prefill worker of a pair; always of the decode worker's namespace, never beside an aggregated worker.
    pub prefill: Option<Chosen>,
    /// Why this decode worker.
    pub decode_reason: Reason,
    /// Why this prefill worker, or why none.
    pub prefill_reason: Reason,
    /// What the rank that reads the prompt holds of it; `None` where load alone decided.
    pub credit: Option<kv::Credit>,
    /// Worker sets (namespace, component, role) among which a frontend of the pool draws: with more than one, a
    /// correct pin may be refused by chance.
    pub sets_in_pool: u32,
    /// The decode worker's card carries a `router_config`: its frontend may answer without the pin.
    pub router_config: bool,
}

impl Pick {
    /// The pinned workers: decode, then prefill.
    pub fn workers(&self) -> impl Iterator<Item = &WorkerKey> {
        std::iter::once(&self.decode)
            .chain(self.prefill.as_ref())
            .map(|chosen| &chosen.worker.key)
    }

    /// The head of the answer tells that the prompt has been read, a decode step or two before the first byte: a frontend
    /// sends it when the decode worker has taken the request, and asks that one once the prefill worker has answered.
    /// Where a bootstrap endpoint is declared (SGLang) both are asked at once, and the head tells nothing. Picks by load
    /// alone wait for the first byte (ruling on the load of a rank).
    #[must_use]
    pub fn head_ends_prefill(&self) -> bool {
        let hands_over = |chosen: &Chosen| {
            let card = chosen.worker.card.as_ref();
            card.is_some_and(|card| !card.has_disaggregated_endpoint)
        };
        self.credit.is_some() && self.prefill.as_ref().is_some_and(hands_over)
    }
}

/// One pinned rank.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The worker.
    pub worker: Arc<Worker>,
    /// The global rank to send; `None` when it is not known for every worker of the pin (then none is sent).
    pub rank: Option<Rank>,
    pub(crate) slot: Arc<Slot>,
}

/// Why a rank was chosen, or none: the label of `continuum_dynamo_selection_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The cheapest, and a fresh sample took part.
    Load,
    /// The cheapest by our own bookings alone.
    Booked,
    /// The cursor's turn: neither samples nor bookings tell candidates apart.
    RoundRobinStale,
    /// The cheapest by what it holds of the prompt and by the work in front of it.
    KvAware,
    /// It reads the prompt itself, although there are prefill workers.
    ConditionalBypass,
    /// No prefill worker goes with this decode side.
    NoPrefillPool,
    /// Nobody could be chosen.
    NoCandidate,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::Load,
        Self::Booked,
        Self::RoundRobinStale,
        Self::KvAware,
        Self::ConditionalBypass,
        Self::NoPrefillPool,
        Self::NoCandidate,
    ];

    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Booked => "booked",
            Self::RoundRobinStale => "round_robin_stale",
            Self::KvAware => "kv_aware",
            Self::ConditionalBypass => "conditional_bypass",
            Self::NoPrefillPool => "no_prefill_pool",
            Self::NoCandidate => "no_candidate",
        }
    }
}

/// Why no worker was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPick {
    /// No worker of the allowed pools serves the name: ordinary routing may.
    #[error("no worker serves the model")]
    NoModel,
    /// Workers are there, but those that they declare to need are not: a frontend answers 503.
    #[error("workers of the model wait for peers")]
    NotReady,
    /// Workers serve the name, but none can take this request: no decode side, no possible pair, or every
    /// candidate was tried already.
    #[error("no worker can take the request")]
    NoCandidate,
}

/// One candidate of a dry run.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// The graph.
    pub graph: Graph,
    /// The worker.
    pub worker: WorkerKey,
    /// The rank; `None` when the worker declares none.
    pub rank: Option<Rank>,
    /// Its role.
    pub role: Role,
    /// Cost, lower is better; `None` when undefined.
    pub cost: Option<f64>,
    /// How much its load is known.
    pub freshness: Freshness,
    /// What speaks for or against it.
    pub standing: Standing,
    /// What it holds of the prompt; `None` where that is not known or does not count.
    pub credit: Option<kv::Credit>,
}

/// What speaks for or against a candidate of a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// The pick.
    Chosen,
    /// Competes.
    Candidate,
    /// Its cost is undefined while others have one.
    UndefinedCost,
    /// Stalled while others are not.
    Stalled,
    /// Suspected to be dead.
    Suspect,
    /// Its peers are missing.
    NotReady,
    /// No prefill worker may be paired with it, or it may not be paired with the chosen decode worker.
    NoPair,
    /// Aggregated beside prefill and decode workers: pairs serve this namespace.
    BesidePairs,
    /// Prefill without a pair: no decode worker in its namespace was chosen.
    Unused,
    /// An earlier try failed on it.
    Excluded,
}

impl Standing {
    /// The word of the admin view.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chosen => "chosen",
            Self::Candidate => "candidate",
            Self::UndefinedCost => "undefined_cost",
            Self::Stalled => "stalled",
            Self::Suspect => "suspect",
            Self::NotReady => "not_ready",
            Self::NoPair => "no_pair",
            Self::BesidePairs => "beside_pairs",
            Self::Unused => "unused",
            Self::Excluded => "excluded",
        }
    }
}

/// A name that can be asked for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The name.
    pub name: ModelName,
    /// The pool.
    pub graph: Graph,
    /// Strongest kind of the name in this pool: a base name needs no listing by the frontends.
    pub kind: NameKind,
    /// Shortest context of the workers that serve it, tokens.
    pub max_model_len: Option<u64>,
    /// A pick could succeed now.
    pub ready: bool,
}

/// Chooses. Reads `store` without a lock; counts nothing: book the result before it is dispatched.
///
/// # Errors
/// [`NoPick`] tells a name that nobody serves from workers that cannot take the request.
pub fn pick(table: &Table, store: &Store, request: &Request<'_>, now: Millis) -> Result<Pick, NoPick> {
    store.advance(now);
    choose::choose(table, store, request, now, Turn::Take).map(|outcome| outcome.pick)
}

/// A dry run: all candidates of the name in the allowed pools, in order, and the pick that would be made. The
/// cursors do not move.
#[must_use]
pub fn explain(table: &Table, store: &Store, request: &Request<'_>, now: Millis) -> Vec<Explained> {
    store.advance(now);
    explain::explain(table, store, request, now)
}

/// Prompt length without a tokenizer: four ASCII characters are a token, any other character is one; at least 1.
#[must_use]
pub const fn prompt_tokens(ascii: u64, other: u64) -> u64 {
    let tokens = (ascii / 4).saturating_add(other);
    if tokens == 0 { 1 } else { tokens }
}

#[cfg(test)]
mod tests;

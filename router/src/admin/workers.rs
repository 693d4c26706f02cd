//! `GET /admin/dynamo/workers`: the fleet as this router sees it. Never an address, never a card.

use std::collections::BTreeMap;

use continuum_discovery::SourceKind;
use continuum_fleet::{
    Lottery,
    ids::WorkerKey,
    lotteries,
    view::{NameKind, Role, Topic, Worker as FleetWorker},
};
use continuum_kv_index::Unscored;
use continuum_routing::load::Row;
use serde::Serialize;

use super::moment;
use crate::app::App;

/// The answer.
#[derive(Serialize)]
pub(super) struct Workers {
    enabled: bool,
    connected: bool,
    source: Option<&'static str>,
    signals: Signals,
    namespace: Option<String>,
    namespaces: Vec<String>,
    /// Number of the view: it moves when the fleet changes.
    generation: u64,
    /// The view was kept by an earlier process and is not confirmed yet.
    stale: bool,
    workers: Vec<Worker>,
    load_publishers: usize,
    kv_event_publishers: usize,
    subscriptions: Vec<Subscription>,
    caps: Caps,
    /// Models that a frontend cannot serve every time, though every pin is correct; empty in a healthy fleet.
    degraded: Vec<Degraded>,
}

/// A frontend draws one worker set of the model and looks the pin up in it alone.
#[derive(Serialize)]
struct Degraded {
    graph: String,
    model: String,
    namespaces: usize,
    sets: usize,
    mixed_namespaces: Vec<String>,
}

#[derive(Serialize)]
struct Signals {
    load: bool,
    capacity: bool,
}

/// What a cap keeps out; zeros in a healthy fleet.
#[derive(Serialize)]
struct Caps {
    /// Records beyond `dynamo.discovery.limits`.
    records: u64,
    /// Cards whose opaque part was dropped.
    cards: u64,
    /// Ranks beyond `dynamo.load.max_ranks`: they are not picked.
    ranks: usize,
    /// Publishers of load beyond `dynamo.load.max_subscriptions`: they are not heard.
    subscriptions: usize,
}

#[derive(Serialize)]
struct Worker {
    instance_id: String,
    /// The namespace that it registered in.
    namespace: String,
    /// The configured namespace that it belongs to.
    graph: String,
    /// Which rollout of it.
    generation: String,
    worker_id: String,
    role: &'static str,
    model: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    aliases: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    adapters: Vec<String>,
    component: String,
    endpoint: String,
    dp_start_rank: Option<u32>,
    dp_size: Option<u32>,
    block_size: Option<u32>,
    /// Why its cache, or that of some of its ranks, is not looked at; `null` where it is.
    kv_unscored: Option<&'static str>,
    capacity: Capacity,
    /// Whether it declares one; what it declares is an internal address.
    has_disaggregated_endpoint: bool,
    /// Peers without which it does not serve: one of the outer, all of the inner.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    needs: Vec<Vec<&'static str>>,
    /// Its frontend may answer without a pin.
    router_config: bool,
    /// Suspected to be dead: not picked while others can serve.
    suspect: bool,
    ranks: Vec<Rank>,
    first_seen: String,
    last_updated: String,
}

#[derive(Serialize)]
struct Capacity {
    total_kv_blocks: Option<u64>,
    max_num_batched_tokens: Option<u64>,
    max_num_seqs: Option<u64>,
    context_length: Option<u64>,
}

/// One rank: what it says of its load, and what this router has sent to it.
#[derive(Serialize)]
struct Rank {
    dp_rank: u32,
    load: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    active_decode_blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    active_prefill_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kv_used_blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sample_age_ms: Option<u64>,
    booked_requests: u64,
    booked_blocks: u64,
    booked_tokens: u64,
}

#[derive(Serialize)]
struct Subscription {
    family: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    publisher_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    component: Option<String>,
    state: &'static str,
    transport: &'static str,
}

impl Workers {
    pub(super) fn of(app: &App) -> Self {
        let fleet = &app.fleet;
        let live = app.live();
        let status = fleet.status();
        let view = fleet.view();
        let mut ranks = BTreeMap::<WorkerKey, Vec<Row>>::new();
        for row in fleet.store.rows(live.picker.max_staleness, fleet.now()) {
            ranks.entry(row.worker.clone()).or_default().push(row);
        }
        let publishers = |topic: Topic| view.publishers.keys().filter(|key| key.topic == topic).count();
        let load_publishers = publishers(Topic::KvMetrics);
        let most = usize::try_from(live.config.dynamo.load.max_subscriptions).unwrap_or(usize::MAX);
        let namespaces: Vec<String> = status.namespaces.iter().map(ToString::to_string).collect();
        Self {
            enabled: status.enabled,
            connected: status.connected,
            source: status.source.map(SourceKind::as_str),
            signals: Signals {
                load: status.signals.load,
                capacity: status.signals.capacity,
            },
            namespace: namespaces.first().cloned(),
            namespaces,
            generation: fleet.generation(),
            stale: status.stale,
            workers: view
                .workers
                .values()
                .map(|worker| {
                    let rows = ranks.remove(&worker.key).unwrap_or_default();
                    Worker::of(worker, rows, fleet.kv.filled().unscored(&worker.key))
                })
                .collect(),
            load_publishers,
            kv_event_publishers: publishers(Topic::KvEvents),
            subscriptions: fleet
                .subscriptions()
                .into_iter()
                .chain(fleet.kv.subscriptions())
                .map(Subscription::of)
                .collect(),
            caps: Caps {
                records: view.capped.records,
                cards: view.capped.cards,
                ranks: fleet.ranks_over_capacity(),
                subscriptions: load_publishers.saturating_sub(most),
            },
            degraded: lotteries(&view).into_iter().map(Degraded::of).collect(),
        }
    }
}

impl Worker {
    /// `unscored`: why its blocks are not followed, whatever its records say.
    fn of(worker: &FleetWorker, rows: Vec<Row>, unscored: Option<Unscored>) -> Self {
        let card = worker.card.as_deref();
        let capacity = card.map(|card| card.capacity).unwrap_or_default();
        let names = |kind| {
            let of_kind = worker.names.iter().filter(move |name| name.kind == kind);
            of_kind.map(|name| name.name.to_string()).collect()
        };
        Self {
            instance_id: worker.key.instance.hex(),
            namespace: worker.key.namespace.to_string(),
            graph: worker.graph.to_string(),
            generation: worker.generation.to_string(),
            worker_id: worker.key.instance.decimal(),
            role: worker.role.as_str(),
            model: worker.model().map(ToString::to_string),
            aliases: names(NameKind::Alias),
            adapters: names(NameKind::Adapter),
            component: worker.component.to_string(),
            endpoint: worker.endpoint.to_string(),
            dp_start_rank: worker.ranks().map(|ranks| ranks.start),
            dp_size: worker.ranks().map(|ranks| ranks.size),
            block_size: card.and_then(|card| card.block_size),
            kv_unscored: continuum_kv_index::unscored(worker)
                .or(unscored)
                .map(Unscored::as_str),
            capacity: Capacity {
                total_kv_blocks: capacity.total_kv_blocks,
                max_num_batched_tokens: capacity.max_num_batched_tokens,
                max_num_seqs: capacity.max_num_seqs,
                context_length: card.and_then(|card| card.context_length),
            },
            has_disaggregated_endpoint: card.is_some_and(|card| card.has_disaggregated_endpoint),
            needs: card.map_or_else(Vec::new, |card| {
                let words = |roles: &Vec<Role>| roles.iter().map(|role| role.as_str()).collect();
                card.needs.iter().map(words).collect()
            }),
            router_config: card.is_some_and(|card| card.has_router_config),
            suspect: rows.iter().any(|row| row.suspect),
            ranks: rows.into_iter().map(Rank::of).collect(),
            first_seen: moment(worker.seen.first),
            last_updated: moment(worker.seen.updated),
        }
    }
}

impl Degraded {
    fn of(lottery: Lottery) -> Self {
        Self {
            graph: lottery.graph.to_string(),
            model: lottery.model.to_string(),
            namespaces: lottery.namespaces,
            sets: lottery.sets,
            mixed_namespaces: lottery.mixed.iter().map(ToString::to_string).collect(),
        }
    }
}

impl Rank {
    fn of(row: Row) -> Self {
        Self {
            dp_rank: row.rank.0,
            load: row.freshness.as_str(),
            active_decode_blocks: row.active_decode_blocks,
            active_prefill_tokens: row.active_prefill_tokens,
            kv_used_blocks: row.kv_used_blocks,
            sample_age_ms: row.sample_age_ms,
            booked_requests: row.booked_requests,
            booked_blocks: row.booked_blocks,
            booked_tokens: row.booked_tokens,
        }
    }
}

impl Subscription {
    fn of(row: continuum_events::status::Row) -> Self {
        Self {
            family: row.family.as_str(),
            publisher_id: row.publisher.map(|id| id.decimal()),
            namespace: row.namespace.map(|namespace| namespace.to_string()),
            component: row.component.map(|component| component.to_string()),
            state: row.state.as_str(),
            transport: row.via.as_str(),
        }
    }
}

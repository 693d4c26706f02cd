//! From the model to messages.

use bytes::Bytes;
use continuum_fleet::{
    Generation,
    ids::WorkerKey,
    view::{
        Card, KvTransferEnforcement, NameKind, Publisher, PublisherKey, Role, ServedName, Topic, Transport,
        Worker,
    },
};
use prost::Message as _;

use crate::{ids::Digest, push};

/// A worker as it travels; `card` is the digest of its encoded card.
pub(crate) fn worker(worker: &Worker, card: Option<Digest>) -> Bytes {
    let message = push::Worker {
        key: Some(worker_key(&worker.key)),
        graph: worker.graph.as_str().to_owned(),
        component: worker.component.to_string(),
        endpoint: worker.endpoint.to_string(),
        generation: generation(&worker.generation),
        role: role(worker.role).into(),
        names: worker.names.iter().map(name).collect(),
        card: card.map(Digest::to_wire).unwrap_or_default(),
    };
    message.encode_to_vec().into()
}

/// A card as it travels: without its JSON.
pub(crate) fn card(card: &Card) -> Bytes {
    let text = |name: &continuum_fleet::ids::ModelName| name.as_str().to_owned();
    let slot = |slot: &Option<std::sync::Arc<str>>| slot.as_deref().map(str::to_owned);
    let message = push::Card {
        display_name: card.display_name.as_ref().map(text),
        aliases: card.aliases.iter().map(text).collect(),
        worker_type: card.worker_type.map(|r| role(r).into()),
        needs: card.needs.iter().map(|all| peers(all)).collect(),
        block_size: card.block_size,
        rank_start: card.ranks.start,
        rank_size: card.ranks.size,
        total_kv_blocks: card.capacity.total_kv_blocks,
        max_num_batched_tokens: card.capacity.max_num_batched_tokens,
        max_num_seqs: card.capacity.max_num_seqs,
        context_length: card.context_length,
        topology_domains: card.topology_domains.clone(),
        kv_transfer: card.kv_transfer.as_ref().map(|transfer| push::KvTransfer {
            domain: transfer.domain.clone(),
            preferred_weight: match transfer.enforcement {
                KvTransferEnforcement::Required => None,
                KvTransferEnforcement::Preferred { weight } => Some(weight),
            },
        }),
        has_router_config: card.has_router_config,
        has_disaggregated_endpoint: card.has_disaggregated_endpoint,
        enable_eagle: card.enable_eagle,
        kv_event_source_mode: card.kv_event_source_mode.clone(),
        kv_state_namespace: card.kv_state_namespace.clone(),
        tokenizer: slot(&card.artifacts.tokenizer),
        prompt_formatter: slot(&card.artifacts.prompt_formatter),
        chat_template_file: slot(&card.artifacts.chat_template_file),
    };
    message.encode_to_vec().into()
}

/// A publisher as it travels.
pub(crate) fn publisher(publisher: &Publisher) -> Bytes {
    let (endpoint, xpub_endpoints) = match &publisher.transport {
        Transport::Zmq { endpoint } => (endpoint.to_string(), Vec::new()),
        Transport::ZmqBroker { xpub_endpoints } => (String::new(), xpub_endpoints.to_vec()),
    };
    let message = push::Publisher {
        key: Some(publisher_key(&publisher.key)),
        namespace: publisher.namespace.as_str().to_owned(),
        graph: publisher.graph.as_str().to_owned(),
        component: publisher.component.as_deref().map(str::to_owned),
        endpoint,
        xpub_endpoints,
        feeds: publisher.feeds.map(|(instance, rank)| push::Feeds {
            instance: instance.raw(),
            rank: rank.0,
        }),
    };
    message.encode_to_vec().into()
}

pub(crate) fn worker_key(key: &WorkerKey) -> push::WorkerKey {
    push::WorkerKey {
        namespace: key.namespace.as_str().to_owned(),
        instance: key.instance.raw(),
    }
}

pub(crate) fn publisher_key(key: &PublisherKey) -> push::PublisherKey {
    let topic = match key.topic {
        Topic::KvMetrics => push::Topic::KvMetrics,
        Topic::KvEvents => push::Topic::KvEvents,
    };
    push::PublisherKey {
        topic: topic.into(),
        id: key.id.raw(),
    }
}

fn generation(generation: &Generation) -> Option<push::Generation> {
    use push::generation::Kind;
    let kind = match generation {
        Generation::Base => return None,
        Generation::Legacy => Kind::Legacy(true),
        Generation::Hash(hash) => Kind::Hash(*hash),
        Generation::Suffix(suffix) => Kind::Suffix(suffix.to_string()),
    };
    Some(push::Generation { kind: Some(kind) })
}

const fn role(role: Role) -> push::Role {
    match role {
        Role::Prefill => push::Role::Prefill,
        Role::Decode => push::Role::Decode,
        Role::Aggregated => push::Role::Aggregated,
        Role::Encode => push::Role::Encode,
        Role::Unknown => push::Role::Unknown,
    }
}

fn peers(all: &[Role]) -> push::Peers {
    push::Peers {
        all: all.iter().map(|r| role(*r).into()).collect(),
    }
}

fn name(served: &ServedName) -> push::ServedName {
    let kind = match served.kind {
        NameKind::Base => push::NameKind::Base,
        NameKind::Alias => push::NameKind::Alias,
        NameKind::Adapter => push::NameKind::Adapter,
    };
    push::ServedName {
        name: served.name.as_str().to_owned(),
        kind: kind.into(),
    }
}

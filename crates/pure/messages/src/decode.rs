//! From messages to the model. Whatever a source could not have said is refused.
//!
//! What a newer controller may say and this version has no word for is no reason to go without a view: a role is unknown
//! then, and names and publishers of unknown kinds are left out.

use std::sync::Arc;

use continuum_fleet::{
    Generation,
    ids::{Graph, InstanceId, ModelName, Namespace, PublisherId, Rank, WorkerKey},
    limits::{
        MAX_ALIASES_PER_CARD, MAX_ARTIFACT_BYTES, MAX_BROKER_ENDPOINTS, MAX_CARD_TEXT_BYTES,
        MAX_ENDPOINT_BYTES, MAX_KEY_BYTES, MAX_MODEL_NAME_BYTES, MAX_NAMES_PER_WORKER, MAX_NEEDS,
        MAX_RANKS_PER_WORKER, MAX_TOPOLOGY_DOMAINS,
    },
    view::{
        Artifacts, Capacity, Card, KvTransfer, KvTransferEnforcement, NameKind, Publisher, PublisherKey,
        RankRange, Role, ServedName, Topic, Transport,
    },
};
use prost::Message as _;

use crate::{
    ids::{self, Digest},
    limits::{MAX_CARD_BYTES, MAX_PUBLISHER_BYTES, MAX_WORKER_BYTES},
    push,
};

/// Why a message is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The bytes are no such message.
    #[error("the bytes are not the message that they should be")]
    Bytes,
    /// A part of the message that must be there is not.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A text, a list or an entry is longer than a source could have made it.
    #[error("{0} is too long")]
    TooLong(&'static str),
    /// A value has no meaning, in this version.
    #[error("{0} has a value that means nothing here")]
    Value(&'static str),
}

impl From<ids::Error> for Malformed {
    fn from(_: ids::Error) -> Self {
        Self::Value("identity")
    }
}

/// A worker whose card is still a digest.
pub(crate) struct WorkerEntry {
    pub(crate) key: WorkerKey,
    pub(crate) graph: Graph,
    pub(crate) component: Arc<str>,
    pub(crate) endpoint: Arc<str>,
    pub(crate) generation: Generation,
    pub(crate) role: Role,
    pub(crate) names: Arc<[ServedName]>,
    pub(crate) card: Option<Digest>,
}

/// What orders publishers: topics are numbered in the order that they have in a view, and new ones come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PublisherPlace {
    topic: i32,
    id: PublisherId,
}

pub(crate) fn worker(bytes: &[u8]) -> Result<WorkerEntry, Malformed> {
    at_most(bytes.len(), MAX_WORKER_BYTES, "worker")?;
    let worker = push::Worker::decode(bytes).map_err(|_inner| Malformed::Bytes)?;
    at_most(worker.names.len(), MAX_NAMES_PER_WORKER, "names")?;
    let names = worker.names.into_iter().map(served);
    let names: Result<Vec<ServedName>, Malformed> = names.filter_map(Result::transpose).collect();
    Ok(WorkerEntry {
        key: worker_key(worker.key.ok_or(Malformed::Missing("worker key"))?)?,
        graph: Graph::new(name(worker.graph, "graph")?),
        component: name(worker.component, "component")?.into(),
        endpoint: name(worker.endpoint, "endpoint")?.into(),
        generation: generation(worker.generation)?,
        role: role(worker.role),
        names: names?.into(),
        card: match worker.card.as_ref() {
            [] => None,
            digest => Some(Digest::from_wire(digest)?),
        },
    })
}

pub(crate) fn card(bytes: &[u8]) -> Result<Card, Malformed> {
    at_most(bytes.len(), MAX_CARD_BYTES, "card")?;
    let card = push::Card::decode(bytes).map_err(|_inner| Malformed::Bytes)?;
    at_most(card.aliases.len(), MAX_ALIASES_PER_CARD, "aliases")?;
    at_most(card.needs.len(), MAX_NEEDS, "needs")?;
    at_most(
        card.topology_domains.len(),
        MAX_TOPOLOGY_DOMAINS,
        "topology domains",
    )?;
    for (domain, value) in &card.topology_domains {
        at_most(
            domain.len().max(value.len()),
            MAX_CARD_TEXT_BYTES,
            "topology domain",
        )?;
    }
    if card.block_size == Some(0) {
        return Err(Malformed::Value("block size"));
    }
    Ok(Card {
        display_name: card.display_name.map(model).transpose()?,
        aliases: card.aliases.into_iter().map(model).collect::<Result<_, _>>()?,
        worker_type: card.worker_type.map(role),
        needs: card.needs.into_iter().map(peers).collect::<Result<_, _>>()?,
        block_size: card.block_size,
        ranks: ranks(card.rank_start, card.rank_size)?,
        capacity: Capacity {
            total_kv_blocks: card.total_kv_blocks,
            max_num_batched_tokens: card.max_num_batched_tokens,
            max_num_seqs: card.max_num_seqs,
        },
        context_length: card.context_length,
        topology_domains: card.topology_domains,
        kv_transfer: card.kv_transfer.map(kv_transfer).transpose()?,
        has_router_config: card.has_router_config,
        has_disaggregated_endpoint: card.has_disaggregated_endpoint,
        enable_eagle: card.enable_eagle,
        kv_event_source_mode: card
            .kv_event_source_mode
            .map(|mode| text(mode, MAX_CARD_TEXT_BYTES, "kv_event_source_mode"))
            .transpose()?,
        kv_state_namespace: card
            .kv_state_namespace
            .map(|namespace| text(namespace, MAX_CARD_TEXT_BYTES, "kv_state_namespace"))
            .transpose()?,
        artifacts: Artifacts {
            tokenizer: slot(card.tokenizer)?,
            prompt_formatter: slot(card.prompt_formatter)?,
            chat_template_file: slot(card.chat_template_file)?,
        },
        json: None,
    })
}

pub(crate) fn publisher(bytes: &[u8]) -> Result<(PublisherPlace, Option<Publisher>), Malformed> {
    at_most(bytes.len(), MAX_PUBLISHER_BYTES, "publisher")?;
    let publisher = push::Publisher::decode(bytes).map_err(|_inner| Malformed::Bytes)?;
    let (place, key) = publisher_key(publisher.key.ok_or(Malformed::Missing("publisher key"))?)?;
    let Some(key) = key else {
        return Ok((place, None));
    };
    at_most(
        publisher.xpub_endpoints.len(),
        MAX_BROKER_ENDPOINTS,
        "broker endpoints",
    )?;
    let brokers = publisher.xpub_endpoints.into_iter();
    let brokers: Result<Vec<String>, Malformed> =
        brokers.map(|e| text(e, MAX_ENDPOINT_BYTES, "endpoint")).collect();
    let transport = if publisher.endpoint.is_empty() {
        Transport::ZmqBroker {
            xpub_endpoints: brokers?.into(),
        }
    } else {
        Transport::Zmq {
            endpoint: text(publisher.endpoint, MAX_ENDPOINT_BYTES, "endpoint")?.into(),
        }
    };
    let publisher = Publisher {
        key,
        namespace: Namespace::new(name(publisher.namespace, "namespace")?),
        graph: Graph::new(name(publisher.graph, "graph")?),
        component: publisher
            .component
            .map(|component| name(component, "component").map(Into::into))
            .transpose()?,
        transport,
        feeds: publisher
            .feeds
            .map(|feeds| (InstanceId::new(feeds.instance), Rank(feeds.rank))),
    };
    Ok((place, Some(publisher)))
}

pub(crate) fn worker_key(key: push::WorkerKey) -> Result<WorkerKey, Malformed> {
    Ok(WorkerKey {
        namespace: Namespace::new(name(key.namespace, "namespace")?),
        instance: InstanceId::new(key.instance),
    })
}

/// Where a publisher is in the digest of a view, and its key unless it is of a topic that this version does not know.
pub(crate) fn publisher_key(
    key: push::PublisherKey,
) -> Result<(PublisherPlace, Option<PublisherKey>), Malformed> {
    let topic = match push::Topic::try_from(key.topic) {
        Ok(push::Topic::KvMetrics) => Some(Topic::KvMetrics),
        Ok(push::Topic::KvEvents) => Some(Topic::KvEvents),
        Ok(push::Topic::Unspecified) => return Err(Malformed::Value("topic")),
        Err(_) => None,
    };
    let id = PublisherId::new(key.id);
    let place = PublisherPlace { topic: key.topic, id };
    Ok((place, topic.map(|topic| PublisherKey { topic, id })))
}

fn generation(generation: Option<push::Generation>) -> Result<Generation, Malformed> {
    use push::generation::Kind;
    Ok(match generation {
        None => Generation::Base,
        Some(push::Generation { kind: None }) => return Err(Malformed::Value("generation")),
        Some(push::Generation { kind: Some(kind) }) => match kind {
            Kind::Legacy(_) => Generation::Legacy,
            Kind::Hash(hash) => Generation::Hash(hash),
            Kind::Suffix(suffix) => Generation::Suffix(text(suffix, MAX_KEY_BYTES, "generation")?.into()),
        },
    })
}

fn role(role: i32) -> Role {
    match push::Role::try_from(role) {
        Ok(push::Role::Prefill) => Role::Prefill,
        Ok(push::Role::Decode) => Role::Decode,
        Ok(push::Role::Aggregated) => Role::Aggregated,
        Ok(push::Role::Encode) => Role::Encode,
        Ok(push::Role::Unknown) | Err(_) => Role::Unknown,
    }
}

/// `None`: of a kind that this version does not know.
fn served(served: push::ServedName) -> Result<Option<ServedName>, Malformed> {
    let kind = match push::NameKind::try_from(served.kind) {
        Ok(push::NameKind::Base) => NameKind::Base,
        Ok(push::NameKind::Alias) => NameKind::Alias,
        Ok(push::NameKind::Adapter) => NameKind::Adapter,
        Ok(push::NameKind::Unspecified) => return Err(Malformed::Value("kind of name")),
        Err(_) => return Ok(None),
    };
    Ok(Some(ServedName {
        name: model(served.name)?,
        kind,
    }))
}

fn peers(peers: push::Peers) -> Result<Vec<Role>, Malformed> {
    at_most(peers.all.len(), MAX_NEEDS, "needs")?;
    Ok(peers.all.into_iter().map(role).collect())
}

fn ranks(start: u32, size: u32) -> Result<RankRange, Malformed> {
    if size == 0 || size > MAX_RANKS_PER_WORKER || start.checked_add(size - 1).is_none() {
        return Err(Malformed::Value("ranks"));
    }
    Ok(RankRange { start, size })
}

fn kv_transfer(transfer: push::KvTransfer) -> Result<KvTransfer, Malformed> {
    let enforcement = match transfer.preferred_weight {
        None => KvTransferEnforcement::Required,
        Some(weight) if weight.is_finite() => KvTransferEnforcement::Preferred { weight },
        Some(_) => return Err(Malformed::Value("weight")),
    };
    Ok(KvTransfer {
        domain: text(transfer.domain, MAX_CARD_TEXT_BYTES, "domain")?,
        enforcement,
    })
}

fn slot(slot: Option<String>) -> Result<Option<Arc<str>>, Malformed> {
    slot.map(|slot| text(slot, MAX_ARTIFACT_BYTES, "artifact").map(Into::into))
        .transpose()
}

fn model(name: String) -> Result<ModelName, Malformed> {
    text(name, MAX_MODEL_NAME_BYTES, "model name").map(ModelName::new)
}

fn name(name: String, what: &'static str) -> Result<String, Malformed> {
    text(name, MAX_KEY_BYTES, what)
}

fn text(text: String, most: usize, what: &'static str) -> Result<String, Malformed> {
    at_most(text.len(), most, what)?;
    Ok(text)
}

const fn at_most(len: usize, most: usize, what: &'static str) -> Result<(), Malformed> {
    if len > most {
        return Err(Malformed::TooLong(what));
    }
    Ok(())
}

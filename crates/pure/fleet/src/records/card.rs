//! The typed part of a model deployment card.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::lenient::{FirstN, TextMap, number, object, present, text};
use crate::{
    ids::ModelName,
    limits::{
        MAX_ALIASES_PER_CARD, MAX_ARTIFACT_BYTES, MAX_CARD_TEXT_BYTES, MAX_MODEL_NAME_BYTES, MAX_NEEDS,
        MAX_RANKS_PER_WORKER, MAX_TOPOLOGY_DOMAINS,
    },
    view::{Artifacts, Capacity, Card, KvTransfer, KvTransferEnforcement, RankRange, Role},
};

/// Largest tokens per block that block hashing supports.
const MAX_BLOCK_SIZE: u64 = 65_536;

/// What a card says of its worker's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// `worker_type` with a word that we know.
    Explicit(Role),
    /// No `worker_type`, and a `model_type` of old prefill workers.
    OldPrefill,
    /// No `worker_type` and nothing that hints at one.
    Absent,
    /// A `worker_type` that we do not know; it claims nothing.
    Unrecognised,
}

/// A card as it was read.
#[derive(Debug)]
pub(crate) struct ParsedCard {
    pub(crate) card: Card,
    pub(crate) claim: Claim,
    /// Field and text of a version, if the card names one.
    pub(crate) release: Option<(&'static str, Arc<str>)>,
    /// It declares more ranks than take part in routing.
    pub(crate) ranks_cut: bool,
}

#[derive(Default, Deserialize)]
struct Raw<'a> {
    #[serde(borrow)]
    display_name: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    aliases: Option<&'a RawValue>,
    #[serde(borrow)]
    worker_type: Option<&'a RawValue>,
    #[serde(borrow)]
    model_type: Option<&'a RawValue>,
    #[serde(borrow)]
    needs: Option<&'a RawValue>,
    #[serde(borrow)]
    kv_cache_block_size: Option<&'a RawValue>,
    #[serde(borrow)]
    context_length: Option<&'a RawValue>,
    #[serde(borrow)]
    architectural_max_context_length: Option<&'a RawValue>,
    #[serde(borrow)]
    tokenizer: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_formatter: Option<&'a RawValue>,
    #[serde(borrow)]
    chat_template_file: Option<&'a RawValue>,
    #[serde(borrow)]
    router_config: Option<&'a RawValue>,
    #[serde(borrow)]
    runtime_config: Option<&'a RawValue>,
    #[serde(borrow)]
    dynamo_version: Option<&'a RawValue>,
    #[serde(borrow)]
    runtime_version: Option<&'a RawValue>,
    #[serde(borrow)]
    version: Option<&'a RawValue>,
    #[serde(borrow)]
    release: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct RawRuntime<'a> {
    #[serde(borrow)]
    context_length: Option<&'a RawValue>,
    #[serde(borrow)]
    total_kv_blocks: Option<&'a RawValue>,
    #[serde(borrow)]
    max_num_seqs: Option<&'a RawValue>,
    #[serde(borrow)]
    max_num_batched_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    data_parallel_start_rank: Option<&'a RawValue>,
    #[serde(borrow)]
    data_parallel_size: Option<&'a RawValue>,
    #[serde(borrow)]
    topology_domains: Option<&'a RawValue>,
    #[serde(borrow)]
    kv_transfer_domain: Option<&'a RawValue>,
    #[serde(borrow)]
    kv_transfer_enforcement: Option<&'a RawValue>,
    #[serde(borrow)]
    kv_transfer_preferred_weight: Option<&'a RawValue>,
    #[serde(borrow)]
    disaggregated_endpoint: Option<&'a RawValue>,
    #[serde(borrow)]
    enable_eagle: Option<&'a RawValue>,
    #[serde(borrow)]
    kv_event_source_mode: Option<&'a RawValue>,
    #[serde(borrow)]
    kv_state_endpoint: Option<&'a RawValue>,
}

/// The namespace of an endpoint.
fn state_namespace(raw: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Endpoint<'a> {
        #[serde(borrow)]
        namespace: Option<&'a RawValue>,
    }
    short(object::<Endpoint<'_>>(raw.get())?.namespace)
}

/// Reads the typed part of a card. It never fails: what cannot be read is absent.
pub(crate) fn parse(json: &str) -> ParsedCard {
    let raw: Raw<'_> = object(json).unwrap_or_default();
    let runtime: RawRuntime<'_> = present(raw.runtime_config)
        .and_then(|raw| object(raw.get()))
        .unwrap_or_default();
    let (ranks, ranks_cut) = ranks(&runtime);
    let claim = claim(&raw);
    let card = Card {
        display_name: model_name(raw.display_name).or_else(|| model_name(raw.name)),
        aliases: aliases(raw.aliases),
        worker_type: match claim {
            Claim::Explicit(role) => Some(role),
            Claim::OldPrefill | Claim::Absent | Claim::Unrecognised => None,
        },
        needs: needs(raw.needs),
        block_size: count(raw.kv_cache_block_size)
            .filter(|size| (1..=MAX_BLOCK_SIZE).contains(size))
            .and_then(|size| u32::try_from(size).ok()),
        ranks,
        capacity: Capacity {
            total_kv_blocks: count(runtime.total_kv_blocks),
            max_num_batched_tokens: count(runtime.max_num_batched_tokens),
            max_num_seqs: count(runtime.max_num_seqs),
        },
        context_length: [
            runtime.context_length,
            raw.context_length,
            raw.architectural_max_context_length,
        ]
        .into_iter()
        .find_map(|length| count(length).filter(|length| *length > 0)),
        topology_domains: topology(runtime.topology_domains),
        kv_transfer: kv_transfer(&runtime),
        has_router_config: present(raw.router_config).is_some(),
        has_disaggregated_endpoint: present(runtime.disaggregated_endpoint).is_some(),
        enable_eagle: present(runtime.enable_eagle).is_some_and(|raw| raw.get() == "true"),
        // What is declared and cannot be read is not the same as nothing declared.
        kv_event_source_mode: present(runtime.kv_event_source_mode)
            .map(|raw| text(raw, MAX_CARD_TEXT_BYTES).unwrap_or_default()),
        kv_state_namespace: present(runtime.kv_state_endpoint)
            .map(|raw| state_namespace(raw).unwrap_or_default()),
        artifacts: Artifacts {
            tokenizer: artifact(raw.tokenizer),
            prompt_formatter: artifact(raw.prompt_formatter),
            chat_template_file: artifact(raw.chat_template_file),
        },
        json: None,
    };
    ParsedCard {
        card,
        claim,
        release: release(&raw),
        ranks_cut,
    }
}

/// The role that a word of a card names; any case.
fn role(word: &str) -> Option<Role> {
    [Role::Prefill, Role::Decode, Role::Aggregated, Role::Encode]
        .into_iter()
        .find(|role| role.as_str().eq_ignore_ascii_case(word))
}

fn claim(raw: &Raw<'_>) -> Claim {
    if let Some(word) = present(raw.worker_type) {
        return short(Some(word))
            .and_then(|word| role(&word))
            .map_or(Claim::Unrecognised, Claim::Explicit);
    }
    let old_prefill =
        short(raw.model_type).is_some_and(|flags| flags.split('|').any(|flag| flag.trim() == "Prefill"));
    if old_prefill {
        Claim::OldPrefill
    } else {
        Claim::Absent
    }
}

fn aliases(raw: Option<&RawValue>) -> Vec<ModelName> {
    let aliases =
        present(raw).and_then(|raw| serde_json::from_str::<FirstN<'_, MAX_ALIASES_PER_CARD>>(raw.get()).ok());
    aliases.map_or_else(Vec::new, |aliases| {
        aliases
            .items
            .into_iter()
            .filter_map(|alias| model_name(Some(alias)))
            .collect()
    })
}

/// Outer list OR, inner list AND. A lone word is a list of one; words that we do not know bind nobody.
fn needs(raw: Option<&RawValue>) -> Vec<Vec<Role>> {
    let outer = present(raw).and_then(|raw| serde_json::from_str::<FirstN<'_, MAX_NEEDS>>(raw.get()).ok());
    let alternative = |raw: &RawValue| -> Vec<Role> {
        match serde_json::from_str::<FirstN<'_, MAX_NEEDS>>(raw.get()) {
            Ok(words) => words
                .items
                .into_iter()
                .filter_map(|word| short(Some(word)))
                .filter_map(|word| role(&word))
                .collect(),
            Err(_) => short(Some(raw))
                .and_then(|word| role(&word))
                .into_iter()
                .collect(),
        }
    };
    outer.map_or_else(Vec::new, |outer| {
        outer.items.into_iter().map(alternative).collect()
    })
}

/// The declared range, and whether it was cut to what takes part in routing.
fn ranks(runtime: &RawRuntime<'_>) -> (RankRange, bool) {
    let field = |raw| count(raw).and_then(|number| u32::try_from(number).ok());
    let start = field(runtime.data_parallel_start_rank).unwrap_or(0);
    let declared = count(runtime.data_parallel_size).unwrap_or(1).max(1);
    // The last rank must fit 32 bits as well.
    let room = u64::from(u32::MAX - start) + 1;
    let size = declared.min(u64::from(MAX_RANKS_PER_WORKER)).min(room);
    (
        RankRange {
            start,
            size: u32::try_from(size).unwrap_or(1),
        },
        size < declared,
    )
}

fn topology(raw: Option<&RawValue>) -> BTreeMap<String, String> {
    let domains = present(raw).and_then(|raw| {
        serde_json::from_str::<TextMap<MAX_TOPOLOGY_DOMAINS, MAX_CARD_TEXT_BYTES>>(raw.get()).ok()
    });
    domains.map_or_else(BTreeMap::new, |domains| domains.0)
}

fn kv_transfer(runtime: &RawRuntime<'_>) -> Option<KvTransfer> {
    let domain = short(runtime.kv_transfer_domain).filter(|domain| !domain.is_empty())?;
    let weight = present(runtime.kv_transfer_preferred_weight)
        .and_then(|raw| serde_json::from_str::<f64>(raw.get()).ok())
        .filter(|weight| weight.is_finite())
        .map_or(1.0, |weight| weight.clamp(0.0, 1.0));
    let enforcement = match short(runtime.kv_transfer_enforcement).as_deref() {
        // Writers that do not say mean `required`: it is Dynamo's default.
        None | Some("required") => KvTransferEnforcement::Required,
        Some(_) => KvTransferEnforcement::Preferred { weight },
    };
    Some(KvTransfer { domain, enforcement })
}

fn release(raw: &Raw<'_>) -> Option<(&'static str, Arc<str>)> {
    [
        ("dynamo_version", raw.dynamo_version),
        ("runtime_version", raw.runtime_version),
        ("version", raw.version),
        ("release", raw.release),
    ]
    .into_iter()
    .find_map(|(field, raw)| Some((field, short(raw).filter(|text| !text.is_empty())?.into())))
}

fn count(raw: Option<&RawValue>) -> Option<u64> {
    present(raw).and_then(number)
}

fn short(raw: Option<&RawValue>) -> Option<String> {
    present(raw).and_then(|raw| text(raw, MAX_CARD_TEXT_BYTES))
}

fn model_name(raw: Option<&RawValue>) -> Option<ModelName> {
    let name = present(raw).and_then(|raw| text(raw, MAX_MODEL_NAME_BYTES))?;
    (!name.is_empty()).then(|| ModelName::new(name))
}

fn artifact(raw: Option<&RawValue>) -> Option<Arc<str>> {
    present(raw)
        .map(RawValue::get)
        .filter(|slot| slot.len() <= MAX_ARTIFACT_BYTES)
        .map(Arc::from)
}

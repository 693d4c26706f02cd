//! One record of the registry: key and value together, read tolerantly.
//!
//! Writers may be some releases older or newer than this code, so every field is optional and unknown ones are
//! ignored. What identifies a record is strict: the value may leave names out, but must not contradict its key.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    ids::{InstanceId, PublisherId, Rank},
    keys::{Place, Subject},
    limits::{MAX_BROKER_ENDPOINTS, MAX_ENDPOINT_BYTES, MAX_NAME_BYTES},
    notes::{Malformed, Mismatch},
    records::lenient::{FirstN, hex_or_number, number, object, present, text},
    view::{Topic, Transport},
};

pub(crate) mod card;
pub(crate) mod lenient;

/// The one endpoint that serves inference.
pub(crate) const GENERATE: &str = "generate";

/// Topic under which a broker registers itself; it carries all topics of its namespace.
const BROKER_TOPIC: &str = "broker";

/// Why a record is not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Refusal {
    /// It cannot be read.
    Malformed(Malformed),
    /// Key and value contradict each other.
    Mismatch(Mismatch),
}

impl From<Malformed> for Refusal {
    fn from(why: Malformed) -> Self {
        Self::Malformed(why)
    }
}

impl From<Mismatch> for Refusal {
    fn from(what: Mismatch) -> Self {
        Self::Mismatch(what)
    }
}

/// Which card of an instance a record is. The order puts scoped cards first, base cards before adapters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Slot {
    /// Registered for one component's `generate`.
    Scoped {
        /// The component.
        component: Arc<str>,
        /// Adapter slug.
        suffix: Option<Arc<str>>,
    },
    /// Written without component and endpoint; joined by instance id alone.
    Unscoped {
        /// Adapter slug.
        suffix: Option<Arc<str>>,
    },
}

/// What an event channel's record says beyond its key. `None`: a transport that we do not speak.
pub(crate) type ChannelTransport = Option<Transport>;

/// Topics that a channel of this topic carries, of those that we subscribe to; empty for all others.
pub(crate) fn topics(topic: &str) -> &'static [Topic] {
    match topic {
        "kv_metrics" => &[Topic::KvMetrics],
        "kv-events" => &[Topic::KvEvents],
        BROKER_TOPIC => &[Topic::KvMetrics, Topic::KvEvents],
        _ => &[],
    }
}

/// Checks an `Endpoint` record. Everything that routing needs of it stands in its key.
pub(crate) fn instance(at: &Place<'_>, value: &str) -> Result<(), Refusal> {
    #[derive(Deserialize)]
    struct Raw<'a> {
        #[serde(borrow, rename = "type")]
        kind: Option<&'a RawValue>,
        #[serde(borrow)]
        component: Option<&'a RawValue>,
        #[serde(borrow)]
        endpoint: Option<&'a RawValue>,
        #[serde(borrow)]
        instance_id: Option<&'a RawValue>,
    }
    let raw: Raw<'_> = object(value).ok_or(Malformed::Json)?;
    check_type(raw.kind, "Endpoint")?;
    check_instance_id(raw.instance_id, at.id)?;
    check_name(raw.component, at.component)?;
    check_name(raw.endpoint, at.endpoint)
}

/// A `Model` record: which card it is, and the card's own text.
#[derive(Debug)]
pub(crate) struct Model<'a> {
    pub(crate) slot: Slot,
    pub(crate) card: &'a str,
}

/// Reads a `Model` record. `None`: it belongs to another endpoint than `generate`.
pub(crate) fn model<'a>(
    at: &Place<'_>,
    suffix: Option<&str>,
    value: &'a str,
) -> Result<Option<Model<'a>>, Refusal> {
    #[derive(Deserialize)]
    struct Raw<'a> {
        #[serde(borrow, rename = "type")]
        kind: Option<&'a RawValue>,
        #[serde(borrow)]
        component: Option<&'a RawValue>,
        #[serde(borrow)]
        endpoint: Option<&'a RawValue>,
        #[serde(borrow)]
        instance_id: Option<&'a RawValue>,
        #[serde(borrow)]
        model_suffix: Option<&'a RawValue>,
        #[serde(borrow)]
        card_json: Option<&'a RawValue>,
    }
    let raw: Raw<'a> = object(value).ok_or(Malformed::Json)?;
    check_type(raw.kind, "Model")?;
    check_instance_id(raw.instance_id, at.id)?;
    if !at.component.is_empty() {
        check_name(raw.component, at.component)?;
    }
    if !at.endpoint.is_empty() {
        check_name(raw.endpoint, at.endpoint)?;
    }
    let component = name(raw.component)?;
    let endpoint = name(raw.endpoint)?;
    let suffix = match (suffix, name(raw.model_suffix)?) {
        (Some(key), Some(value)) if key != value => return Err(Mismatch::Scope.into()),
        (key, value) => key.map(Arc::from).or_else(|| value.map(Arc::from)),
    };
    let scope = match (component, endpoint) {
        (None, None) => None,
        (component, _) => component.or_else(|| (!at.component.is_empty()).then(|| at.component.to_owned())),
    };
    let serves = endpoint_or(raw.endpoint, at.endpoint)?;
    if serves.as_deref().is_some_and(|endpoint| endpoint != GENERATE) {
        return Ok(None);
    }
    let card = present(raw.card_json).map_or("{}", RawValue::get);
    if !card.starts_with('{') {
        return Err(Malformed::Json.into());
    }
    let slot = match scope {
        Some(component) => Slot::Scoped {
            component: component.into(),
            suffix,
        },
        None => Slot::Unscoped { suffix },
    };
    Ok(Some(Model { slot, card }))
}

/// Reads an `EventChannel` record.
pub(crate) fn channel(on: &Subject<'_>, value: &str) -> Result<ChannelTransport, Refusal> {
    #[derive(Deserialize)]
    struct Raw<'a> {
        #[serde(borrow, rename = "type")]
        kind: Option<&'a RawValue>,
        #[serde(borrow)]
        scope: Option<&'a RawValue>,
        #[serde(borrow)]
        topic: Option<&'a RawValue>,
        #[serde(borrow)]
        instance_id: Option<&'a RawValue>,
        #[serde(borrow)]
        transport: Option<&'a RawValue>,
    }
    let raw: Raw<'_> = object(value).ok_or(Malformed::Json)?;
    check_type(raw.kind, "EventChannel")?;
    check_publisher_id(raw.instance_id, on.id)?;
    check_name(raw.topic, &on.topic)?;
    check_scope(raw.scope, on)?;
    transport(raw.transport).map_err(Refusal::from)
}

/// Reads an `EventSource` record: the worker and rank that the publisher speaks for, if it names them.
pub(crate) fn source(on: &Subject<'_>, value: &str) -> Result<Option<(InstanceId, Rank)>, Refusal> {
    #[derive(Deserialize)]
    struct Raw<'a> {
        #[serde(borrow, rename = "type")]
        kind: Option<&'a RawValue>,
        #[serde(borrow)]
        scope: Option<&'a RawValue>,
        #[serde(borrow)]
        topic: Option<&'a RawValue>,
        #[serde(borrow)]
        publisher_id: Option<&'a RawValue>,
        #[serde(borrow)]
        metadata: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Metadata<'a> {
        #[serde(borrow)]
        worker: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Worker<'a> {
        #[serde(borrow)]
        worker_id: Option<&'a RawValue>,
        #[serde(borrow)]
        dp_rank: Option<&'a RawValue>,
    }
    let raw: Raw<'_> = object(value).ok_or(Malformed::Json)?;
    check_type(raw.kind, "EventSource")?;
    check_publisher_id(raw.publisher_id, on.id)?;
    check_name(raw.topic, &on.topic)?;
    check_scope(raw.scope, on)?;
    let worker = present(raw.metadata)
        .and_then(|raw| object::<Metadata<'_>>(raw.get()))
        .and_then(|metadata| present(metadata.worker))
        .and_then(|raw| object::<Worker<'_>>(raw.get()));
    Ok(worker.and_then(|worker| {
        let id = present(worker.worker_id).and_then(hex_or_number)?;
        let rank = match present(worker.dp_rank) {
            Some(rank) => u32::try_from(number(rank)?).ok()?,
            None => 0,
        };
        Some((InstanceId::new(id), Rank(rank)))
    }))
}

fn transport(raw: Option<&RawValue>) -> Result<ChannelTransport, Malformed> {
    #[derive(Deserialize)]
    struct Raw<'a> {
        #[serde(borrow)]
        kind: Option<&'a RawValue>,
        #[serde(borrow)]
        config: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Config<'a> {
        #[serde(borrow)]
        endpoint: Option<&'a RawValue>,
        #[serde(borrow)]
        xpub_endpoints: Option<&'a RawValue>,
    }
    let raw = present(raw)
        .and_then(|raw| object::<Raw<'_>>(raw.get()))
        .ok_or(Malformed::Transport)?;
    let kind = present(raw.kind)
        .and_then(|kind| text(kind, MAX_NAME_BYTES))
        .ok_or(Malformed::Transport)?;
    let config = || {
        present(raw.config)
            .and_then(|raw| object::<Config<'_>>(raw.get()))
            .ok_or(Malformed::Transport)
    };
    match kind.as_str() {
        "Zmq" => {
            let endpoint = address(config()?.endpoint)?;
            Ok(Some(Transport::Zmq {
                endpoint: endpoint.into(),
            }))
        }
        "ZmqBroker" => {
            let endpoints = present(config()?.xpub_endpoints).ok_or(Malformed::Transport)?;
            let endpoints: FirstN<'_, MAX_BROKER_ENDPOINTS> =
                serde_json::from_str(endpoints.get()).map_err(|_| Malformed::Transport)?;
            if endpoints.more {
                return Err(Malformed::TooLong);
            }
            let endpoints: Vec<String> = endpoints
                .items
                .into_iter()
                .map(|raw| address(Some(raw)))
                .collect::<Result<_, _>>()?;
            if endpoints.is_empty() {
                return Err(Malformed::Transport);
            }
            Ok(Some(Transport::ZmqBroker {
                xpub_endpoints: endpoints.into(),
            }))
        }
        _ => Ok(None),
    }
}

/// A `tcp://` endpoint within its cap. Whether it may be connected to is decided when it is.
fn address(raw: Option<&RawValue>) -> Result<String, Malformed> {
    let raw = present(raw).ok_or(Malformed::Transport)?;
    let address = text(raw, MAX_ENDPOINT_BYTES).ok_or(Malformed::Transport)?;
    if address
        .strip_prefix("tcp://")
        .is_some_and(|rest| !rest.is_empty())
    {
        Ok(address)
    } else {
        Err(Malformed::Transport)
    }
}

fn check_type(raw: Option<&RawValue>, expected: &str) -> Result<(), Refusal> {
    match present(raw) {
        Some(kind) if text(kind, MAX_NAME_BYTES).as_deref() != Some(expected) => Err(Malformed::Type.into()),
        Some(_) | None => Ok(()),
    }
}

fn check_instance_id(raw: Option<&RawValue>, key: InstanceId) -> Result<(), Refusal> {
    match present(raw).and_then(hex_or_number) {
        None => Err(Malformed::NoId.into()),
        Some(id) if InstanceId::new(id) != key => Err(Mismatch::Id.into()),
        Some(_) => Ok(()),
    }
}

fn check_publisher_id(raw: Option<&RawValue>, key: PublisherId) -> Result<(), Refusal> {
    match present(raw).and_then(hex_or_number) {
        None => Err(Malformed::NoId.into()),
        Some(id) if PublisherId::new(id) != key => Err(Mismatch::Id.into()),
        Some(_) => Ok(()),
    }
}

/// A name that is present must be the key's. The namespace is not checked: the key alone decides it.
fn check_name(raw: Option<&RawValue>, key: &str) -> Result<(), Refusal> {
    match name(raw)? {
        Some(name) if name != key => Err(Mismatch::Scope.into()),
        Some(_) | None => Ok(()),
    }
}

/// Component and endpoint of a scope that is present must be the key's, level included.
fn check_scope(raw: Option<&RawValue>, on: &Subject<'_>) -> Result<(), Refusal> {
    #[derive(Deserialize)]
    struct Scope<'a> {
        #[serde(borrow)]
        kind: Option<&'a RawValue>,
        #[serde(borrow)]
        component: Option<&'a RawValue>,
        #[serde(borrow)]
        endpoint: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Endpoint<'a> {
        #[serde(borrow)]
        component: Option<&'a RawValue>,
        #[serde(borrow)]
        name: Option<&'a RawValue>,
    }
    let Some(raw) = present(raw) else { return Ok(()) };
    let scope: Scope<'_> = object(raw.get()).ok_or(Malformed::Json)?;
    let kind = present(scope.kind)
        .and_then(|kind| text(kind, MAX_NAME_BYTES))
        .ok_or(Malformed::Type)?;
    let (component, endpoint) = match kind.as_str() {
        "namespace" => (None, None),
        "component" => (name(scope.component)?, None),
        "endpoint" => {
            let raw = present(scope.endpoint).ok_or(Malformed::Json)?;
            let endpoint: Endpoint<'_> = object(raw.get()).ok_or(Malformed::Json)?;
            (name(endpoint.component)?, name(endpoint.name)?)
        }
        _ => return Err(Malformed::Type.into()),
    };
    if component.as_deref() == on.component.as_deref() && endpoint.as_deref() == on.endpoint.as_deref() {
        Ok(())
    } else {
        Err(Mismatch::Scope.into())
    }
}

fn endpoint_or(raw: Option<&RawValue>, key: &str) -> Result<Option<String>, Malformed> {
    Ok(name(raw)?.or_else(|| (!key.is_empty()).then(|| key.to_owned())))
}

/// A name of a value; empty, `null` and foreign types are absent.
fn name(raw: Option<&RawValue>) -> Result<Option<String>, Malformed> {
    let Some(raw) = present(raw).filter(|raw| raw.get().starts_with('"')) else {
        return Ok(None);
    };
    let name = text(raw, MAX_NAME_BYTES).ok_or(Malformed::TooLong)?;
    Ok(Some(name).filter(|name| !name.is_empty()))
}

#[cfg(test)]
mod tests;

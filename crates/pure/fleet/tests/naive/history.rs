//! Histories: what hostile and honest writers put, as meaning first and as bytes second, so that the model need
//! not read JSON.

use continuum_fleet::Change;
use proptest::prelude::*;
use serde_json::json;

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Change(Item),
    Reset(Vec<Item>),
    Retain(Vec<&'static str>),
}

#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) key: Key,
    pub(crate) value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) kind: Kind,
    pub(crate) namespace: &'static str,
    pub(crate) component: &'static str,
    pub(crate) id: u64,
    pub(crate) spelling: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Instance { endpoint: &'static str },
    Card { suffix: Option<&'static str> },
    Channel { topic: &'static str },
    Source { topic: &'static str },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// Sound; the fields that do not belong to the kind are ignored.
    Sound(Sound),
    /// Not readable.
    Garbage,
    /// Another id than the key's.
    ForeignId,
    /// Another component than the key's.
    ForeignScope,
    /// The key is deleted.
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sound {
    /// Ids as hex text.
    pub(crate) hex: bool,
    /// A card without component and endpoint.
    pub(crate) unscoped: bool,
    pub(crate) worker_type: Option<&'static str>,
    pub(crate) model: &'static str,
    pub(crate) aliases: Vec<&'static str>,
    pub(crate) ranks: u32,
    pub(crate) transport: &'static str,
    pub(crate) feeds: (u64, u32),
}

impl Key {
    pub(crate) fn text(&self) -> String {
        let id = match self.spelling {
            0 => format!("{:x}", self.id),
            1 => format!("{:X}", self.id),
            _ => format!("00{:x}", self.id),
        };
        let Self {
            namespace, component, ..
        } = self;
        let scope = format!("namespace/{namespace}/component/{component}/endpoint/generate/topic");
        match self.kind {
            Kind::Instance { endpoint } => format!("v1/instances/{namespace}/{component}/{endpoint}/{id}"),
            Kind::Card { suffix: None } => format!("v1/mdc/{namespace}/{component}/generate/{id}"),
            Kind::Card { suffix: Some(suffix) } => {
                format!("v1/mdc/{namespace}/{component}/generate/{id}/{suffix}")
            }
            Kind::Channel { topic } => format!("v1/event_channels/{scope}/{topic}/{id}"),
            Kind::Source { topic } => format!("v1/event_sources/{scope}/{topic}/{id}"),
        }
    }
}

pub(crate) fn change(item: &Item) -> Change {
    let key = item.key.text();
    if item.value == Value::Gone {
        Change::Delete { key }
    } else {
        Change::Put {
            key,
            value: bytes(item),
        }
    }
}

pub(crate) fn entry(item: &Item) -> (String, Vec<u8>) {
    (item.key.text(), bytes(item))
}

fn bytes(item: &Item) -> Vec<u8> {
    let Item { key, value } = item;
    let (id, component, sound) = match value {
        Value::Sound(sound) => (key.id, key.component, sound.clone()),
        Value::ForeignId => (key.id + 1, key.component, plain()),
        Value::ForeignScope => (key.id, "elsewhere", plain()),
        Value::Garbage | Value::Gone => return b"{\"type\":".to_vec(),
    };
    let id = if sound.hex {
        json!(format!("{id:X}"))
    } else {
        json!(id)
    };
    let namespace = "whatever the value says";
    let scope = json!({"kind": "endpoint", "endpoint": {"namespace": namespace, "component": component, "name": "generate"}});
    let (shown, endpoint) = if sound.unscoped {
        ("", "")
    } else {
        (component, "generate")
    };
    let json = match key.kind {
        Kind::Instance { endpoint } => json!({
            "type": "Endpoint", "namespace": namespace, "component": component, "endpoint": endpoint,
            "instance_id": id, "transport": {"tcp": "10.0.0.1:1/x"},
        }),
        Kind::Card { .. } => json!({
            "type": "Model", "namespace": namespace, "component": shown, "endpoint": endpoint, "instance_id": id,
            "card_json": {
                "display_name": sound.model, "worker_type": sound.worker_type, "aliases": sound.aliases,
                "runtime_config": {"data_parallel_size": sound.ranks},
            },
        }),
        Kind::Channel { topic } => json!({
            "type": "EventChannel", "scope": scope, "topic": topic, "instance_id": id,
            "transport": match sound.transport {
                "Zmq" => json!({"kind": "Zmq", "config": {"endpoint": "tcp://10.0.0.1:5000"}}),
                "ZmqBroker" => json!({"kind": "ZmqBroker", "config": {"xpub_endpoints": ["tcp://10.0.0.2:5001"]}}),
                other => json!({"kind": other, "config": {}}),
            },
        }),
        Kind::Source { topic } => json!({
            "type": "EventSource", "scope": scope, "topic": topic, "publisher_id": id,
            "metadata": {"worker": {"worker_id": sound.feeds.0, "dp_rank": sound.feeds.1}},
        }),
    };
    json.to_string().into_bytes()
}

fn plain() -> Sound {
    Sound {
        hex: false,
        unscoped: false,
        worker_type: None,
        model: "m",
        aliases: vec![],
        ranks: 1,
        transport: "Zmq",
        feeds: (10, 0),
    }
}

pub(crate) fn history() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        30 => item().prop_map(Op::Change),
        1 => prop::collection::vec(item().prop_filter("a list has no deletes", |item| item.value != Value::Gone), 0..25)
            .prop_map(Op::Reset),
        1 => prop_oneof![
            Just(vec!["g"]), Just(vec!["g", "h"]), Just(vec!["h"]), Just(vec!["g", "g-legacy", "h"])
        ].prop_map(Op::Retain),
    ];
    prop::collection::vec(op, 0..60)
}

fn item() -> impl Strategy<Value = Item> {
    (key(), value()).prop_map(|(key, value)| Item { key, value })
}

fn key() -> impl Strategy<Value = Key> {
    let kind = prop_oneof![
        6 => Just(Kind::Instance { endpoint: "generate" }),
        1 => Just(Kind::Instance { endpoint: "load_metrics" }),
        6 => Just(Kind::Card { suffix: None }),
        2 => Just(Kind::Card { suffix: Some("ad") }),
        3 => prop::sample::select(vec!["kv_metrics", "kv-events", "broker", "forward-pass-metrics"])
            .prop_map(|topic| Kind::Channel { topic }),
        2 => prop::sample::select(vec!["kv_metrics", "kv-events"]).prop_map(|topic| Kind::Source { topic }),
    ];
    (
        kind,
        prop::sample::select(vec!["g", "g", "g-legacy", "g-0a1b2c3d", "h", "elsewhere"]),
        prop::sample::select(vec!["prefill", "decode", "backend"]),
        10_u64..13,
        prop_oneof![8 => Just(0_u8), 1 => Just(1), 1 => Just(2)],
    )
        .prop_map(|(kind, namespace, component, id, spelling)| Key {
            kind,
            namespace,
            component,
            id,
            spelling,
        })
}

fn value() -> impl Strategy<Value = Value> {
    let sound = (
        any::<bool>(),
        prop::bool::weighted(0.2),
        prop::sample::select(vec![
            None,
            Some("Prefill"),
            Some("decode"),
            Some("aggregated"),
            Some("encode"),
            Some("odd"),
        ]),
        prop::sample::select(vec!["m", "n"]),
        prop_oneof![3 => Just(vec![]), 1 => Just(vec!["m", "alias"])],
        prop_oneof![4 => Just(1_u32), 1 => Just(2)],
        prop::sample::select(vec!["Zmq", "Zmq", "ZmqBroker", "Nats"]),
        (10_u64..13, 0_u32..2),
    )
        .prop_map(
            |(hex, unscoped, worker_type, model, aliases, ranks, transport, feeds)| {
                Value::Sound(Sound {
                    hex,
                    unscoped,
                    worker_type,
                    model,
                    aliases,
                    ranks,
                    transport,
                    feeds,
                })
            },
        );
    prop_oneof![14 => sound, 4 => Just(Value::Gone), 1 => Just(Value::Garbage), 1 => Just(Value::ForeignId), 1 => Just(Value::ForeignScope)]
}

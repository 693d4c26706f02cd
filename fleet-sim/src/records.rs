//! The discovery records of a simulated worker, shaped like those that a Dynamo 1.6 mocker writes.

use serde_json::{Value, json};

use crate::worker::Worker;

/// One record: its bucket, its key inside the bucket, and its JSON value.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// `v1/instances`, `v1/mdc` or `v1/event_channels`.
    pub bucket: &'static str,
    /// Relative key, without the bucket.
    pub key: String,
    /// The record.
    pub value: Value,
}

/// Everything that a worker registers: its card first, as a real worker does, then its instance and channel.
#[must_use]
pub fn of_worker(worker: &Worker) -> Vec<Record> {
    let place = format!(
        "{}/{}/generate/{:x}",
        worker.namespace, worker.component, worker.instance
    );
    let mut records = vec![
        Record {
            bucket: "v1/mdc",
            key: place.clone(),
            value: model(worker),
        },
        Record {
            bucket: "v1/instances",
            key: place,
            value: instance(worker),
        },
    ];
    if let Some(port) = worker.publisher_port() {
        records.push(Record {
            bucket: "v1/event_channels",
            key: format!(
                "namespace/{}/component/{}/endpoint/generate/topic/kv_metrics/{:x}",
                encode(&worker.namespace),
                encode(&worker.component),
                worker.publisher
            ),
            value: channel(worker, port),
        });
    }
    records
}

/// Percent-encodes a segment of an event key: ASCII letters, digits, `-` and `_` stay.
#[must_use]
pub fn encode(segment: &str) -> String {
    escape(segment, |b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// The file name under which the file store keeps a key: only ASCII letters and digits stay.
#[must_use]
pub fn file_name(key: &str) -> String {
    escape(key, |b| b.is_ascii_alphanumeric())
}

fn escape(text: &str, plain: impl Fn(u8) -> bool) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if plain(byte) {
            out.push(char::from(byte));
        } else {
            let _infallible = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn instance(worker: &Worker) -> Value {
    json!({
        "type": "Endpoint",
        "component": worker.component,
        "endpoint": "generate",
        "namespace": worker.namespace,
        "instance_id": worker.instance,
        "transport": {"tcp": format!("127.0.0.1:9/{:x}/{}/{}/generate", worker.instance, worker.namespace, worker.component)},
        "device_type": "cuda",
        "request_plane_codec": "msgpack",
    })
}

fn model(worker: &Worker) -> Value {
    json!({
        "type": "Model",
        "namespace": worker.namespace,
        "component": worker.component,
        "endpoint": "generate",
        "instance_id": worker.instance,
        "card_json": {
            "display_name": worker.model,
            "kv_cache_block_size": worker.block_size,
            "context_length": 32_768,
            "model_type": if worker.role == crate::Role::Prefill { "" } else { "Chat | Completions" },
            "model_input": "Tokens",
            "worker_type": worker.role.as_str(),
            "needs": match worker.role {
                crate::Role::Prefill => json!([["decode"]]),
                crate::Role::Decode => json!([["prefill"]]),
                crate::Role::Aggregated => json!([]),
            },
            "runtime_config": {
                "total_kv_blocks": worker.total_kv_blocks,
                "max_num_seqs": 256,
                "max_num_batched_tokens": 8192,
                "context_length": 32_768,
                "data_parallel_start_rank": 0,
                "data_parallel_size": worker.ranks(),
                "enable_eagle": false,
            },
        },
    })
}

fn channel(worker: &Worker, port: u16) -> Value {
    json!({
        "type": "EventChannel",
        "scope": {
            "kind": "endpoint",
            "endpoint": {"namespace": worker.namespace, "component": worker.component, "name": "generate"},
        },
        "topic": "kv_metrics",
        "instance_id": worker.publisher,
        "transport": {"kind": "Zmq", "config": {"endpoint": format!("tcp://127.0.0.1:{port}")}},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_the_file_store_does() {
        assert_eq!(
            file_name("dynamo/decode/generate/79be"),
            "dynamo%2Fdecode%2Fgenerate%2F79be"
        );
        assert_eq!(file_name("topic/kv_metrics/1"), "topic%2Fkv%5Fmetrics%2F1");
        assert_eq!(file_name("kv-events"), "kv%2Devents");
        assert_eq!(encode("ns.one-a_b"), "ns%2Eone-a_b");
    }
}

//! What the fleet model costs per record: a full list, and one change in a fleet of that size.
//!
//! `cargo run --release --bin reducer`, in `bench/micro`.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use continuum_fleet::{
    graphs::NamespaceMatch,
    ids::Graph,
    limits::Limits,
    reducer::{Change, Reducer, Settings},
};
use jiff::Timestamp;

/// How long one figure is measured.
const MEASURE: Duration = Duration::from_millis(300);

fn main() {
    println!("### The fleet model, microseconds (records are shaped like those of Dynamo 1.6)\n");
    println!(
        "| workers | records | full list | per record | one worker re-put | one worker leaves and returns |"
    );
    println!("|--:|--:|--:|--:|--:|--:|");
    for workers in [64, 1_024, 16_384] {
        fleet(workers);
    }
}

fn fleet(workers: u64) {
    let records: Vec<_> = (1..=workers).flat_map(records).collect();
    let mut reducer = Reducer::new(Settings {
        namespaces: vec![Graph::from("dynamo")],
        namespace_match: NamespaceMatch::Generation,
        limits: Limits::default(),
    });
    let started = Instant::now();
    black_box(reducer.reset(records.iter().cloned(), Timestamp::UNIX_EPOCH));
    let list = started.elapsed().as_secs_f64() * 1e6;
    assert_eq!(reducer.view().workers.len() as u64, workers);
    let again = time(|id| {
        for (key, value) in self::records(id % workers + 1) {
            reducer.apply(Change::Put { key, value }, Timestamp::UNIX_EPOCH);
        }
        black_box(reducer.view());
    });
    let returns = time(|id| {
        let records = self::records(id % workers + 1);
        for (key, _) in &records {
            reducer.apply(Change::Delete { key: key.clone() }, Timestamp::UNIX_EPOCH);
        }
        for (key, value) in records {
            reducer.apply(Change::Put { key, value }, Timestamp::UNIX_EPOCH);
        }
        black_box(reducer.view());
    });
    let per_record = list / records.len() as f64;
    println!(
        "| {workers} | {} | {list:.0} | {per_record:.1} | {again:.1} | {returns:.1} |",
        records.len()
    );
}

/// Microseconds of one call; calls walk over the fleet.
fn time(mut work: impl FnMut(u64)) -> f64 {
    let (started, mut count) = (Instant::now(), 0);
    while started.elapsed() < MEASURE {
        // A stride that is coprime to every fleet size: neighbours share cache lines, a fleet's changes do not.
        work(count * 7_919);
        count += 1;
    }
    started.elapsed().as_secs_f64() * 1e6 / count as f64
}

/// Instance, card and load channel of one worker.
fn records(id: u64) -> [(String, Vec<u8>); 3] {
    let role = if id % 2 == 0 { "prefill" } else { "decode" };
    let card = format!(
        r#"{{"type":"Model","namespace":"dynamo","component":"{role}","endpoint":"generate","instance_id":{id},"card_json":{{"display_name":"Qwen/Qwen3-32B","slug":"qwen3","kv_cache_block_size":64,"model_type":"Chat | Completions","model_input":"Tokens","worker_type":"{role}","runtime_config":{{"total_kv_blocks":12000,"max_num_seqs":256,"max_num_batched_tokens":8192,"data_parallel_start_rank":0,"data_parallel_size":1}}}}}}"#
    );
    let instance = format!(
        r#"{{"type":"Endpoint","component":"{role}","endpoint":"generate","namespace":"dynamo","instance_id":{id},"transport":{{"tcp":"10.0.0.4:31000/{id:x}/dynamo/{role}/generate"}},"device_type":"cuda","request_plane_codec":"msgpack"}}"#
    );
    let channel = format!(
        r#"{{"type":"EventChannel","scope":{{"kind":"endpoint","endpoint":{{"namespace":"dynamo","component":"{role}","name":"generate"}}}},"topic":"kv_metrics","instance_id":{id},"transport":{{"kind":"Zmq","config":{{"endpoint":"tcp://10.0.0.4:41000"}}}}}}"#
    );
    [
        (format!("v1/mdc/dynamo/{role}/generate/{id:x}"), card.into_bytes()),
        (
            format!("v1/instances/dynamo/{role}/generate/{id:x}"),
            instance.into_bytes(),
        ),
        (
            format!(
                "v1/event_channels/namespace/dynamo/component/{role}/endpoint/generate/topic/kv_metrics/{id:x}"
            ),
            channel.into_bytes(),
        ),
    ]
}

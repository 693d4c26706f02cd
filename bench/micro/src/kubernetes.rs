//! What the join of Kubernetes objects costs: a full list, one worker's readiness, one edited resource.
//!
//! `cargo run --release --bin kubernetes`, in `bench/micro`.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use continuum_fleet::{
    kubernetes::{Endpoint, Limits, Metadata, Owner, Slice, metadata::Join},
    pod_hash::pod_hash,
};
use serde_json::value::RawValue;

/// How long one figure is measured.
const MEASURE: Duration = Duration::from_millis(300);
/// Endpoints of one slice, as Kubernetes fills them.
const SLICE: u64 = 100;

fn main() {
    println!("### The join of Kubernetes objects, microseconds\n");
    println!(
        "| workers | full list | per worker | one slice of 100 changes by a worker | one resource edited |"
    );
    println!("|--:|--:|--:|--:|--:|");
    for workers in [100, 4_096, 16_384] {
        fleet(workers);
    }
}

fn fleet(workers: u64) {
    let resources: Vec<Metadata> = (0..workers).map(|n| resource(n, 0)).collect();
    let slices: Vec<Slice> = (0..workers.div_ceil(SLICE))
        .map(|n| slice(n, workers, None))
        .collect();
    let mut join = Join::new(Limits::default());
    let started = Instant::now();
    let (entries, _) = black_box(join.reset(resources, slices, Vec::new()));
    let list = started.elapsed().as_secs_f64() * 1e6;
    assert_eq!(entries.len() as u64, 3 * workers);
    let turned = time(|n| {
        let worker = n / 2 % workers;
        let gone = (n % 2 == 0).then_some(worker);
        let (changes, _) = join.put_slice(slice(worker / SLICE, workers, gone));
        assert_eq!(changes.len(), 3);
    });
    let edited = time(|n| {
        let (changes, _) = join.put_metadata(resource(n % workers, n / workers + 1));
        assert_eq!(changes.len(), 1);
    });
    let per_worker = list / workers as f64;
    println!("| {workers} | {list:.0} | {per_worker:.1} | {turned:.1} | {edited:.1} |");
}

/// Microseconds of one call.
fn time(mut work: impl FnMut(u64)) -> f64 {
    let (started, mut count) = (Instant::now(), 0);
    // An even count leaves every worker ready.
    while started.elapsed() < MEASURE || count % 2 == 1 {
        work(count);
        count += 1;
    }
    started.elapsed().as_secs_f64() * 1e6 / count as f64
}

fn slice(n: u64, workers: u64, gone: Option<u64>) -> Slice {
    let endpoint = |worker: u64| Endpoint {
        name: Some(format!("worker-{worker}")),
        uid: Some(format!("uid-{worker}")),
        ready: gone != Some(worker),
    };
    Slice {
        name: format!("slice-{n}"),
        backend: None,
        endpoints: (n * SLICE..workers.min((n + 1) * SLICE)).map(endpoint).collect(),
    }
}

/// Endpoint, card of 2 KB and load channel of one worker.
fn resource(worker: u64, edit: u64) -> Metadata {
    let name = format!("worker-{worker}");
    let (id, hex) = (pod_hash(&name).raw(), pod_hash(&name).hex());
    let pad = "x".repeat(2_000);
    let data = format!(
        r#"{{"endpoints":{{"dynamo/backend/generate/{hex}":{{"type":"Endpoint","component":"backend","endpoint":"generate","instance_id":{id}}}}},"model_cards":{{"dynamo/backend/generate/{hex}":{{"type":"Model","instance_id":{id},"card_json":{{"display_name":"m","pad":"{pad}","edit":{edit}}}}}}},"event_channels":{{"namespace/dynamo/component/backend/topic/kv_metrics/{worker:x}":{{"type":"EventChannel","instance_id":{worker},"transport":{{"kind":"Zmq","config":{{"endpoint":"tcp://10.0.0.4:20000"}}}}}}}}}}"#
    );
    Metadata {
        uid: format!("cr-{worker}"),
        owner: Some(Owner {
            uid: format!("uid-{worker}"),
            name: name.clone(),
        }),
        name,
        data: RawValue::from_string(data).ok(),
        left_out: false,
    }
}

//! The controller's push side, with records where the watch would be.

use std::{io::BufRead as _, sync::Arc};

use continuum_controller::push::{
    AuthError, Authenticator, Fleet, Hub, Identity, Key, Metrics, Pod, Server, tls_config,
};
use continuum_fleet::{Change, Graphs, NamespaceMatch, Reducer, Settings, ids::Graph, limits::Limits};
use continuum_messages::Epoch;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::process::now;

/// The worker that comes and goes: the only one of its model.
const PROBE: u64 = 1;

/// Who says that it is a pod is one.
struct Anybody;

impl Authenticator for Anybody {
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Identity, AuthError>> {
        Box::pin(async move {
            Ok(Identity {
                key: key(),
                pod: Pod {
                    name: token.into(),
                    uid: token.into(),
                },
            })
        })
    }
}

/// Serves a fleet of `workers`, and makes a change for each line of its input.
pub fn run(workers: u64) {
    let graph = Graph::from("dynamo");
    let mut reducer = Reducer::new(Settings {
        namespaces: vec![graph.clone()],
        namespace_match: NamespaceMatch::Generation,
        limits: Limits::default(),
    });
    reducer.reset((1..=workers).flat_map(records), Timestamp::UNIX_EPOCH);
    let metrics = Metrics::register(&prometheus::Registry::new()).expect("metrics");
    let hub = Hub::new("controller-0", Epoch::from_raw([1; 16]), metrics);
    let source = hub.add_source();
    let graphs = Graphs::new([graph], NamespaceMatch::Generation);
    hub.set_fleet(&key(), Some(Fleet { source, graphs, origins: [].into() }));
    hub.set_config(&key(), "", 1, "version: 1\n");
    hub.set_view(source, &reducer.view());

    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (port, ca) = runtime.block_on(serve(Arc::clone(&hub)));
    println!("{port}\n{}", ca.trim());
    let mut present = true;
    for _ in std::io::stdin().lock().lines() {
        let at = now();
        for (key, value) in records(PROBE) {
            let change = if present {
                Change::Delete { key }
            } else {
                Change::Put { key, value }
            };
            reducer.apply(change, Timestamp::UNIX_EPOCH);
        }
        present = !present;
        hub.set_view(source, &reducer.view());
        println!("{at}");
    }
}

async fn serve(hub: Arc<Hub>) -> (u16, String) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let private = rustls_pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let config = tls_config(vec![made.cert.der().clone()], private).expect("TLS");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("its port").port();
    let (sender, receiver) = watch::channel(config);
    let server = Server::new(hub, Arc::new(Anybody));
    tokio::spawn(async move {
        let _kept = sender;
        server
            .run(listener, receiver, CancellationToken::new())
            .await
            .expect("the server runs");
    });
    (port, made.cert.pem())
}

fn key() -> Key {
    Key {
        namespace: "bench".into(),
        name: "push".into(),
    }
}

/// Instance, card and two event channels of one worker, shaped like those of Dynamo 1.6.
fn records(id: u64) -> [(String, Vec<u8>); 4] {
    let (role, model) = match id {
        PROBE => ("backend", "probe"),
        _ if id % 2 == 0 => ("prefill", "Qwen/Qwen3-32B"),
        _ => ("decode", "Qwen/Qwen3-32B"),
    };
    let kind = if id == PROBE { "aggregated" } else { role };
    let card = format!(
        r#"{{"type":"Model","namespace":"dynamo","component":"{role}","endpoint":"generate","instance_id":{id},"card_json":{{"display_name":"{model}","slug":"qwen3","kv_cache_block_size":64,"model_type":"Chat | Completions","model_input":"Tokens","worker_type":"{kind}","runtime_config":{{"total_kv_blocks":12000,"max_num_seqs":256,"max_num_batched_tokens":8192,"data_parallel_start_rank":0,"data_parallel_size":1}}}}}}"#
    );
    let instance = format!(
        r#"{{"type":"Endpoint","component":"{role}","endpoint":"generate","namespace":"dynamo","instance_id":{id},"transport":{{"tcp":"10.0.0.4:31000/{id:x}/dynamo/{role}/generate"}},"device_type":"cuda","request_plane_codec":"msgpack"}}"#
    );
    let channel = |topic: &str| {
        let value = format!(
            r#"{{"type":"EventChannel","scope":{{"kind":"endpoint","endpoint":{{"namespace":"dynamo","component":"{role}","name":"generate"}}}},"topic":"{topic}","instance_id":{id},"transport":{{"kind":"Zmq","config":{{"endpoint":"tcp://10.0.0.4:41000"}}}}}}"#
        );
        let key = format!(
            "v1/event_channels/namespace/dynamo/component/{role}/endpoint/generate/topic/{topic}/{id:x}"
        );
        (key, value.into_bytes())
    };
    [
        (format!("v1/mdc/dynamo/{role}/generate/{id:x}"), card.into_bytes()),
        (
            format!("v1/instances/dynamo/{role}/generate/{id:x}"),
            instance.into_bytes(),
        ),
        channel("kv_metrics"),
        channel("kv-events"),
    ]
}

//! The simulated fleet, used as the router uses it: its records, its socket, its frontend.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::Path, time::Duration};

use bytes::Bytes;
use continuum_fleet_sim::{Pace, Settings, Sim};
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

async fn sim(store: &Path) -> Sim {
    Sim::start(Settings {
        namespace: "dynamo".to_owned(),
        model: "sim/tiny".to_owned(),
        prefill: 2,
        decode: 2,
        aggregated: 0,
        ranks: 2,
        store: store.to_owned(),
        frontends: vec![([127, 0, 0, 1], 0).into()],
        pace: Pace {
            prefill_tokens_per_second: 1_000_000,
            token: Duration::from_millis(1),
        },
    })
    .await
    .unwrap()
}

async fn ask(sim: &Sim, headers: &[(&str, String)], body: Value) -> (StatusCode, Bytes) {
    let socket = TcpStream::connect(sim.frontends()[0]).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let mut request = Request::post("/v1/chat/completions").header("host", "frontend");
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let answer = sender
        .send_request(request.body(Full::new(Bytes::from(body.to_string()))).unwrap())
        .await
        .unwrap();
    let status = answer.status();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    connection.abort();
    (status, body)
}

fn id(sim: &Sim, role: &str, index: usize) -> u64 {
    sim.fleet()
        .workers()
        .iter()
        .filter(|w| w.role.as_str() == role)
        .nth(index)
        .unwrap()
        .instance
}

fn pins(sim: &Sim) -> Vec<(&'static str, String)> {
    vec![
        ("x-dynamo-worker-instance-id", id(sim, "decode", 1).to_string()),
        ("x-dynamo-prefill-instance-id", id(sim, "prefill", 0).to_string()),
        ("x-dynamo-dp-rank", "1".to_owned()),
        ("x-dynamo-prefill-dp-rank", "0".to_owned()),
    ]
}

fn question(stream: bool) -> Value {
    json!({
        "model": "sim/tiny", "stream": stream, "max_tokens": 3, "nvext": {"extra_fields": ["worker_id"]},
        "messages": [{"role": "user", "content": "hello there"}],
    })
}

#[tokio::test]
async fn pinned_workers_answer_and_say_so() {
    let store = tempfile::tempdir().unwrap();
    let sim = sim(store.path()).await;
    let (status, body) = ask(&sim, &pins(&sim), question(false)).await;
    assert_eq!(status, StatusCode::OK);
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        answer["nvext"]["worker_id"]["decode_worker_id"],
        id(&sim, "decode", 1)
    );
    assert_eq!(
        answer["nvext"]["worker_id"]["prefill_worker_id"],
        id(&sim, "prefill", 0)
    );
    assert_eq!(answer["nvext"]["worker_id"]["decode_dp_rank"], 1);

    let (status, body) = ask(&sim, &pins(&sim), question(true)).await;
    assert_eq!(status, StatusCode::OK);
    let text = String::from_utf8(body.to_vec()).unwrap();
    assert_eq!(text.matches("chat.completion.chunk").count(), 3);
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    sim.stop().await;
}

#[tokio::test]
async fn refusals_are_those_of_a_real_frontend() {
    let store = tempfile::tempdir().unwrap();
    let sim = sim(store.path()).await;
    let without = |name: &str| {
        pins(&sim)
            .into_iter()
            .filter(|(n, _)| *n != name)
            .collect::<Vec<_>>()
    };
    let with = |name: &'static str, value: &str| [without(name), vec![(name, value.to_owned())]].concat();
    let cases = [
        (vec![], StatusCode::INTERNAL_SERVER_ERROR),
        (
            without("x-dynamo-prefill-instance-id"),
            StatusCode::INTERNAL_SERVER_ERROR,
        ),
        (without("x-dynamo-worker-instance-id"), StatusCode::BAD_REQUEST),
        (
            with("x-dynamo-worker-instance-id", "12345"),
            StatusCode::BAD_REQUEST,
        ),
        (
            with("x-dynamo-worker-instance-id", "0x10"),
            StatusCode::BAD_REQUEST,
        ),
        (with("x-dynamo-dp-rank", "7"), StatusCode::BAD_REQUEST),
    ];
    for (headers, expected) in cases {
        let (status, body) = ask(&sim, &headers, question(false)).await;
        assert_eq!(status, expected, "{headers:?}: {body:?}");
    }
    let mut unknown = question(false);
    unknown["model"] = json!("nobody/serves-this");
    assert_eq!(ask(&sim, &pins(&sim), unknown).await.0, StatusCode::NOT_FOUND);
    sim.fleet()
        .workers()
        .iter()
        .find(|w| w.instance == id(&sim, "decode", 1))
        .unwrap()
        .kill();
    assert_eq!(
        ask(&sim, &pins(&sim), question(false)).await.0,
        StatusCode::SERVICE_UNAVAILABLE
    );
    sim.stop().await;
}

#[tokio::test]
async fn records_stand_in_the_store_and_go_with_the_worker() {
    let store = tempfile::tempdir().unwrap();
    let mut sim = sim(store.path()).await;
    let count = |bucket: &str| {
        std::fs::read_dir(store.path().join("v1").join(bucket))
            .unwrap()
            .count()
    };
    assert_eq!(
        (count("instances"), count("mdc"), count("event_channels")),
        (4, 4, 4)
    );
    sim.leave(id(&sim, "prefill", 0)).unwrap();
    assert_eq!(
        (count("instances"), count("mdc"), count("event_channels")),
        (3, 3, 3)
    );
    sim.stop().await;
    assert_eq!(
        (count("instances"), count("mdc"), count("event_channels")),
        (0, 0, 0)
    );
}

//! What clients get.

use std::{collections::BTreeSet, sync::Arc};

use continuum_testkit::stub::{self, Act, Gate, Stub};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
    task::JoinSet,
};

use crate::support::{MODEL, Router, ask, chat, config, fleet, post, send, until};

/// What a stub answers that serves whatever it is asked.
fn served(seen: &stub::Seen) -> Vec<Act> {
    let asked: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
    let model = asked["model"].as_str().unwrap();
    if asked["stream"] == true {
        let event = json!({"model": model, "choices": [{"delta": {"content": model}}]}).to_string();
        return stub::stream(&[&event, "[DONE]"]);
    }
    stub::json(
        200,
        &json!({"model": model, "choices": [{"message": {"content": model}}]}).to_string(),
    )
}

async fn shim(handler: impl Fn(&stub::Seen) -> Vec<Act> + Send + Sync + 'static) -> Stub {
    let shim = Stub::tcp(handler).await.unwrap();
    shim.list_models(&[MODEL]);
    shim
}

#[tokio::test]
async fn a_request_is_answered_by_the_workers_that_were_pinned() {
    let (sim, store) = fleet(1).await;
    let router = Router::before(&sim, &store, "").await;
    for stream in [false, true] {
        let answer = ask(
            router.clients(),
            post().header("x-backend", ""),
            chat(MODEL, stream).to_string(),
        )
        .await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        let told = if stream {
            assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
            answer.events().remove(0)["nvext"]["worker_id"].clone()
        } else {
            answer.json()["nvext"]["worker_id"].clone()
        };
        let worker = |role: &str| format!("dynamo/{}@0", told[format!("{role}_worker_id")]);
        assert_eq!(
            answer.header("x-continuum-decode-worker"),
            Some(worker("decode").as_str())
        );
        assert_eq!(
            answer.header("x-continuum-prefill-worker"),
            Some(worker("prefill").as_str())
        );
        assert_eq!(answer.header("x-continuum-backend"), Some("shim-0"));
        assert_eq!(answer.header("x-continuum-routing-path"), Some("disaggregated"));
    }
    // Without `x-backend` nothing tells of workers.
    let answer = ask(router.clients(), post(), chat(MODEL, false).to_string()).await;
    assert_eq!(answer.header("x-continuum-routing-path"), Some("disaggregated"));
    assert!(
        answer
            .headers
            .keys()
            .all(|name| { !name.as_str().starts_with("x-continuum-") || name == "x-continuum-routing-path" })
    );
    assert!(!answer.text().contains("worker_id"), "{}", answer.text());
    assert_eq!(
        router.metric(
            "disaggregated_requests_total",
            &[("routing_path", "disaggregated")]
        ),
        3.0
    );
    assert!(router.stop().await);
}

#[tokio::test]
async fn pins_of_clients_reach_nobody() {
    let (sim, store) = fleet(0).await;
    let shim = shim(served).await;
    let router = Router::start(&config(&store, &[shim.url().to_owned()], "")).await;
    router.settle(4).await;
    let mut request = post();
    for name in [
        "x-dynamo-worker-instance-id",
        "x-dynamo-anything",
        "x-worker-instance-id",
        "x-prefill-instance-id",
        "x-dp-rank",
        "x-data-parallel-rank",
        "x-prefill-dp-rank",
        "x-prefiller-host-port",
        "x-enable-local-updates",
        "x-bypass-remote-prefill",
        "x-gateway-destination-endpoint",
        "x-gateway-inference-model",
        "x-tenant-id",
    ] {
        request = request.header(name, "666");
    }
    let body = r#"{"model":"sim/tiny","messages":[],"seed":1.50,"nvext":{"dp_rank":666,"backend_inst\u0061nce_id":666,
        "agent_hints":{"priority":666,"osl":7},"extra_fields":["worker_id","timing"],"annotations":["query_instance_id:","kept"]}}"#;
    let answer = ask(
        router.clients(),
        request.header("authorization", "Bearer client-key"),
        body,
    )
    .await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let seen = shim.seen().remove(0);
    let ours = [
        "x-dynamo-worker-instance-id",
        "x-dynamo-prefill-instance-id",
        "x-dynamo-dp-rank",
        "x-dynamo-prefill-dp-rank",
    ];
    for (name, value) in &seen.headers {
        assert!(value != "666", "{name}");
        assert!(
            !name.starts_with("x-dynamo-") || ours.contains(&name.as_str()),
            "{name}"
        );
    }
    assert_eq!(seen.header("authorization"), None);
    let workers = sim.fleet().workers();
    let pinned = seen.header(ours[0]).unwrap();
    assert!(
        workers
            .iter()
            .any(|worker| worker.role.as_str() == "decode" && worker.instance.to_string() == pinned)
    );
    let sent = String::from_utf8(seen.body).unwrap();
    assert!(
        !sent.contains("666") && !sent.contains("query_instance_id") && !sent.contains("worker_id"),
        "{sent}"
    );
    for kept in [r#""seed":1.50"#, r#""osl":7"#, "timing", "kept"] {
        assert!(sent.contains(kept), "{kept}: {sent}");
    }
    assert!(router.stop().await);
}

#[tokio::test]
async fn what_cannot_be_served_is_refused_in_words() {
    let (sim, store) = fleet(1).await;
    let router = Router::before(&sim, &store, "").await;
    let to = router.clients();
    let body = chat(MODEL, false).to_string();
    let cases = [
        (Request::get("/v1/nothing"), "", 404, "unknown_path"),
        (
            Request::get("/v1/chat/completions"),
            "",
            405,
            "method_not_allowed",
        ),
        (Request::post("/v1/models"), "", 405, "method_not_allowed"),
        (post(), "{", 400, "invalid_body"),
        (post(), "[]", 400, "invalid_body"),
        (post(), r#"{"messages":[]}"#, 400, "invalid_body"),
        (post(), r#"{"model":"nobody"}"#, 404, "model_not_found"),
        (
            Request::post("/v1/chat/completions").header("content-type", "text/plain"),
            body.as_str(),
            415,
            "unsupported_media_type",
        ),
        (
            post().header("content-encoding", "gzip"),
            body.as_str(),
            415,
            "unsupported_encoding",
        ),
    ];
    for (request, body, status, code) in cases {
        let answer = ask(to, request, body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (status, code),
            "{}",
            answer.text()
        );
        assert!(answer.header("x-request-id").is_some(), "{code}");
    }
    let models = ask(to, Request::get("/v1/models"), "").await.json();
    let ids: Vec<&str> = models["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["mapped", MODEL]);
    assert_eq!(ask(to, Request::get("/v1/models/sim/tiny"), "").await.status, 200);
    assert_eq!(ask(to, Request::get("/v1/models/nobody"), "").await.status, 404);
    assert!(router.stop().await);
}

/// A client that has not finished sending still reads why it was refused, announced length or not.
#[tokio::test]
async fn a_body_that_is_too_large_does_not_cost_the_client_its_answer() {
    let (sim, store) = fleet(1).await;
    let router = Router::before(&sim, &store, "").await;
    let body = vec![b' '; 8 << 20];
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n";
    let announced = format!("{head}content-length: {}\r\n\r\n", body.len());
    let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n", body.len());
    for head in [announced, chunked] {
        let mut client = TcpStream::connect(router.clients()).await.unwrap();
        client.write_all(head.as_bytes()).await.unwrap();
        client.write_all(&body).await.unwrap();
        if head.contains("chunked") {
            client.write_all(b"\r\n0\r\n\r\n").await.unwrap();
        }
        let mut answer = vec![0; 64];
        let read = client.read(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..read]);
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    }
    // Who asks before sending is told before sending.
    let mut client = TcpStream::connect(router.clients()).await.unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 16];
    client.read_exact(&mut answer).await.unwrap();
    assert!(
        answer.starts_with(b"HTTP/1.1 413 "),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    assert!(router.stop().await);
}

#[tokio::test]
async fn more_requests_than_the_limit_are_told_to_come_back() {
    let (_sim, store) = fleet(0).await;
    let gate = Gate::default();
    let held = gate.clone();
    let shim = shim(move |seen| [vec![Act::Hold(held.clone())], served(seen)].concat()).await;
    let config =
        config(&store, &[shim.url().to_owned()], "").replace("max_in_flight: 4096", "max_in_flight: 1");
    let router = Router::start(&config).await;
    router.settle(4).await;
    let to = router.clients();
    let first = tokio::spawn(ask(to, post(), chat(MODEL, false).to_string()));
    shim.until_seen(1).await;
    let second = ask(to, post(), chat(MODEL, false).to_string()).await;
    assert_eq!(
        (second.status.as_u16(), second.code().as_str()),
        (503, "overloaded")
    );
    assert_eq!(second.header("retry-after"), Some("1"));
    // Probes and models are no requests.
    assert_eq!(ask(to, Request::get("/ready"), "").await.status, 200);
    gate.open();
    assert_eq!(first.await.unwrap().status, 200);
    assert_eq!(ask(to, post(), chat(MODEL, false).to_string()).await.status, 200);
    assert!(router.stop().await);
}

#[tokio::test]
async fn a_mapped_name_is_sent_as_the_fleet_knows_it_and_comes_back_as_the_client_does() {
    let (_sim, store) = fleet(0).await;
    let shim = shim(served).await;
    let router = Router::start(&config(&store, &[shim.url().to_owned()], "")).await;
    router.settle(4).await;
    for stream in [false, true] {
        let answer = ask(router.clients(), post(), chat("mapped", stream).to_string()).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        let told = if stream {
            answer.events().remove(0)
        } else {
            answer.json()
        };
        assert_eq!(told["model"], "mapped");
        // Only the name of the model is put back, no text of the answer.
        assert!(told["choices"].to_string().contains(MODEL));
    }
    for seen in shim.seen() {
        let sent: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
        assert_eq!(sent["model"], MODEL);
    }
    assert!(router.stop().await);
}

#[tokio::test]
async fn other_servers_are_routed_to_by_model_and_take_over_where_the_fleet_fails() {
    let (_sim, store) = fleet(0).await;
    let shim = shim(|_| stub::json(500, r#"{"message":"Failed to generate completions","code":500}"#)).await;
    let other = Stub::tcp(served).await.unwrap();
    let more = format!(
        "disaggregated_serving: {{fallback_to_unified: true}}\nbackends:\n  - {{name: other, url: \"{}\", models: [{MODEL}, own], api_key: own-key}}\n",
        other.url()
    );
    let router = Router::start(&config(&store, &[shim.url().to_owned()], &more)).await;
    router.settle(4).await;
    let to = router.clients();
    let answer = ask(
        to,
        post().header("x-backend", "1"),
        chat("own", false).to_string(),
    )
    .await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert_eq!(answer.header("x-continuum-routing-path"), Some("unified"));
    assert_eq!(answer.header("x-continuum-backend"), Some("other"));
    assert_eq!(answer.header("x-continuum-decode-worker"), None);
    // Another path of the API.
    let embeddings = Request::post("/v1/embeddings");
    assert_eq!(
        ask(to, embeddings, r#"{"model":"own","input":"x"}"#).await.status,
        200
    );

    let answer = ask(to, post().header("x-backend", "1"), chat(MODEL, true).to_string()).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert_eq!(answer.header("x-continuum-backend"), Some("other"));
    assert_eq!(answer.header("x-continuum-routing-path"), Some("unified"));
    for seen in other.seen() {
        assert_eq!(seen.header("authorization"), Some("Bearer own-key"));
        assert!(
            seen.headers
                .iter()
                .all(|(name, _)| !name.starts_with("x-dynamo-"))
        );
    }
    assert_eq!(
        router.metric("disaggregated_requests_total", &[("routing_path", "unified")]),
        1.0
    );
    assert_eq!(
        router.metric("disaggregated_requests_total", &[("routing_path", "passthrough")]),
        1.0
    );
    assert_eq!(
        router.metric("disaggregated_errors_total", &[("phase", "decode")]),
        1.0
    );
    assert!(router.stop().await);
}

/// Two workers are dead and still registered, one of each role, and one of them is known to be: nobody sees it.
#[tokio::test]
async fn a_second_dead_worker_is_not_replaced_by_the_first() {
    let (sim, store) = fleet(0).await;
    let workers = sim.fleet().workers();
    let first = |role: &str| {
        let mut of_role = workers.iter().filter(|worker| worker.role.as_str() == role);
        of_role.next().unwrap().instance.to_string()
    };
    let dead = [first("decode"), first("prefill")];
    let gone = dead.clone();
    let shim = shim(move |seen| {
        let pinned = ["x-dynamo-worker-instance-id", "x-dynamo-prefill-instance-id"];
        if pinned
            .iter()
            .any(|name| gone.iter().any(|dead| seen.header(name) == Some(dead)))
        {
            return stub::json(
                503,
                r#"{"error":{"message":"Service temporarily unavailable","code":503}}"#,
            );
        }
        served(seen)
    })
    .await;
    let router = Router::start(&config(&store, &[shim.url().to_owned()], "")).await;
    router.settle(4).await;
    let fleet = &router.serving.app.fleet;
    let known = fleet
        .view()
        .workers
        .keys()
        .find(|key| key.instance.decimal() == dead[0])
        .unwrap()
        .clone();
    fleet.store.suspect(&known, fleet.now());
    for _ in 0..10 {
        let answer = ask(router.clients(), post(), chat(MODEL, false).to_string()).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    }
    assert!(router.stop().await);
}

/// A backend that answers with something other than an answer fails as if it had not answered.
#[tokio::test]
async fn a_backend_cannot_take_the_connection_out_of_http() {
    let other = Stub::tcp(|_| {
        vec![Act::Send(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nhello".to_vec(),
        )]
    })
    .await
    .unwrap();
    let router = Router::start(&format!(
        "server: {{bind_address: '127.0.0.1:0'}}\nadmin: {{bind_address: '127.0.0.1:0'}}\n\
         backends: [{{name: other, url: \"{}\", models: [{MODEL}]}}]\n",
        other.url()
    ))
    .await;
    let answer = ask(
        router.clients(),
        post().header("connection", "upgrade").header("upgrade", "x"),
        chat(MODEL, true).to_string(),
    )
    .await;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY, "{}", answer.text());
    assert_eq!(answer.code(), "backend_failed");
    assert!(router.stop().await);
}

/// Finished, left before the head, left in the middle, reset in the middle: nothing of a stream is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_a_thousand_mixed_streams() {
    const STREAMS: usize = 1000;
    const AT_ONCE: usize = 250;
    let (_sim, store) = fleet(0).await;
    let arrived = watch::Sender::new(BTreeSet::new());
    let arrive = arrived.clone();
    let shim = shim(move |seen| {
        let asked: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
        arrive.send_modify(|arrived| {
            arrived.insert(asked["seed"].as_u64().unwrap());
        });
        let mut acts = vec![stub::stream_head(), stub::chunk("data: {\"a\":1}\n\n")];
        match asked["seed"].as_u64().unwrap() % 4 {
            0 => acts.extend([stub::chunk("data: [DONE]\n\n"), stub::last_chunk()]),
            1 => acts = vec![Act::UntilPeerLeaves],
            2 => acts.push(Act::UntilPeerLeaves),
            _ => acts.push(Act::Reset),
        }
        acts
    })
    .await;
    let router = Router::start(&config(&store, &[shim.url().to_owned()], "")).await;
    router.settle(4).await;
    let to = router.clients();
    let permits = Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
    let mut streams = JoinSet::new();
    for seed in 0..STREAMS {
        let (permits, mut body) = (permits.clone(), chat(MODEL, true));
        body["seed"] = seed.into();
        let mut arrived = arrived.subscribe();
        streams.spawn(async move {
            let _permit = permits.acquire_owned().await.unwrap();
            let stream = TcpStream::connect(to).await.unwrap();
            let answering = send(stream, post(), body.to_string());
            if seed % 4 == 1 {
                // Leaves once the request has reached the frontend.
                tokio::select! {
                    _ = answering => panic!("answered"),
                    all = arrived.wait_for(|all| all.contains(&(seed as u64))) => drop(all.unwrap()),
                }
                return;
            }
            let mut body = answering.await.into_body();
            assert!(body.frame().await.unwrap().is_ok());
            if seed % 4 == 2 {
                return;
            }
            let mut rest = Vec::new();
            while let Some(frame) = body.frame().await {
                rest.extend_from_slice(frame.unwrap().data_ref().unwrap());
            }
            let rest = String::from_utf8(rest).unwrap();
            assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
            assert_eq!(rest.contains("stream_broken"), seed % 4 == 3, "{rest}");
        });
    }
    while let Some(ended) = streams.join_next().await {
        ended.unwrap();
    }
    let app = &router.serving.app;
    until("no request is in flight", || {
        app.in_flight.count() == 0
            && router.metric("continuum_requests_in_flight", &[]) == 0.0
            && app.backends.load().iter().all(|backend| backend.in_flight() == 0)
    })
    .await;
    assert_eq!(router.metric("continuum_dynamo_inflight_booked", &[]), 0.0);
    for worker in router.admin("/admin/dynamo/workers").await["workers"]
        .as_array()
        .unwrap()
    {
        for rank in worker["ranks"].as_array().unwrap() {
            for booked in ["booked_requests", "booked_blocks", "booked_tokens"] {
                assert_eq!(rank[booked], 0, "{worker}");
            }
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a thousand is exact")]
    let all = STREAMS as f64;
    assert_eq!(router.metric("disaggregated_requests_total", &[]), all);
    assert_eq!(router.metric("continuum_requests_total", &[]), all);
    assert!(router.stop().await);
}

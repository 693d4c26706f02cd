//! Memory of request bodies: what is held, for how long, and who is refused.

use continuum_testkit::stub::{self, Act, Gate, Stub};
use http::Request;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::support::{MODEL, Router, ask, chat, config, fleet, post, until};

const BODY_LIMIT: usize = 1 << 20;
const BUDGET: usize = 4 * BODY_LIMIT;

/// A router in front of one server, with a budget of four bodies.
async fn router(server: &Stub) -> Router {
    Router::start(&format!(
        "server: {{bind_address: '127.0.0.1:0', body_limit: {BODY_LIMIT}, body_budget: {BUDGET}}}\n\
         admin: {{bind_address: '127.0.0.1:0'}}\n\
         backends: [{{name: other, url: \"{}\", models: [{MODEL}]}}]\n",
        server.url()
    ))
    .await
}

fn answered() -> Vec<Act> {
    stub::json(200, &json!({"model": MODEL, "choices": []}).to_string())
}

/// A request body of so many bytes.
fn body(bytes: usize) -> String {
    let empty = json!({"model": MODEL, "prompt": ""}).to_string().len();
    json!({"model": MODEL, "prompt": "x".repeat(bytes - empty)}).to_string()
}

fn completions() -> http::request::Builder {
    Request::post("/v1/completions").header("content-type", "application/json")
}

/// A client that sends all of a large body but its last byte.
async fn upload(router: &Router, bytes: usize) -> TcpStream {
    let mut client = TcpStream::connect(router.clients()).await.unwrap();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {bytes}\r\n\r\n"
    );
    client.write_all(head.as_bytes()).await.unwrap();
    client
        .write_all(&body(bytes).as_bytes()[..bytes - 1])
        .await
        .unwrap();
    client
}

/// The beginning of the answer.
async fn status(client: &mut TcpStream) -> String {
    let mut start = vec![0; 12];
    client.read_exact(&mut start).await.unwrap();
    String::from_utf8(start).unwrap()
}

fn held(router: &Router) -> usize {
    let held = router.serving.app.bodies.held();
    assert!(held <= BUDGET, "{held}");
    held
}

/// Uploads that never end take the budget, no more; small requests are still served, large ones told to come back; and
/// with the clients all of it is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_uploads_take_the_budget_and_no_more() {
    const UPLOADS: usize = 32;
    let server = Stub::tcp(|_| answered()).await.unwrap();
    let router = router(&server).await;
    let mut uploads = Vec::new();
    for _ in 0..3 {
        uploads.push(upload(&router, BODY_LIMIT).await);
    }
    until("what was sent is here", || held(&router) == 3 * BODY_LIMIT).await;
    for _ in 3..UPLOADS {
        let mut refused = upload(&router, BODY_LIMIT).await;
        assert_eq!(status(&mut refused).await, "HTTP/1.1 503");
        held(&router);
    }
    for _ in 0..3 {
        let answer = ask(router.clients(), completions(), body(60_000)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let refused = ask(router.clients(), completions(), body(BODY_LIMIT)).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (503, "overloaded")
    );
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert!(
        refused.text().contains("hold as many bytes"),
        "{}",
        refused.text()
    );
    assert_eq!(
        router.metric("continuum_request_body_bytes", &[]),
        held(&router) as f64
    );
    // One ends as it should, the others leave.
    let mut ended = uploads.remove(0);
    ended.write_all(b"}").await.unwrap();
    assert_eq!(status(&mut ended).await, "HTTP/1.1 200");
    drop(uploads);
    until("nothing is held", || held(&router) == 0).await;
    assert_eq!(router.metric("continuum_request_body_bytes", &[]), 0.0);
    let answer = ask(router.clients(), completions(), body(BODY_LIMIT)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(router.stop().await);
}

/// A body is kept for retries until its answer begins, and so is the text that is sent in its place.
#[tokio::test]
async fn a_body_is_counted_until_its_answer_begins() {
    let (begin, end) = (Gate::default(), Gate::default());
    let (begins, ends) = (begin.clone(), end.clone());
    let server = Stub::tcp(move |_| {
        vec![
            Act::Hold(begins.clone()),
            stub::stream_head(),
            stub::chunk("data: {\"a\":1}\n\n"),
            Act::Hold(ends.clone()),
            stub::chunk("data: [DONE]\n\n"),
            stub::last_chunk(),
        ]
    })
    .await
    .unwrap();
    let router = router(&server).await;
    let plain = json!({"model": MODEL, "stream": true, "prompt": "x".repeat(200_000)}).to_string();
    let pinned =
        json!({"model": MODEL, "stream": true, "prompt": "x".repeat(200_000), "nvext": {"dp_rank": 1}});
    let pinned = pinned.to_string();
    let mut asked = tokio::task::JoinSet::new();
    let mut wanted = 0;
    for (nth, (text, times)) in [(&plain, 1), (&pinned, 2)].into_iter().enumerate() {
        asked.spawn(ask(router.clients(), post(), text.clone()));
        server.until_seen(nth + 1).await;
        wanted += times * text.len();
        assert_eq!(held(&router), wanted);
    }
    begin.open();
    until("the answers have begun", || held(&router) == 0).await;
    end.open();
    for answer in asked.join_all().await {
        assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
    }
    assert!(router.stop().await);
}

/// A name that `model_map` replaces is written into another text for each attempt.
#[tokio::test]
async fn what_is_sent_in_place_of_a_body_counts_too() {
    let (_sim, store) = fleet(0).await;
    let gate = Gate::default();
    let held_back = gate.clone();
    let shim = Stub::tcp(move |_| [vec![Act::Hold(held_back.clone())], answered()].concat())
        .await
        .unwrap();
    shim.list_models(&[MODEL]);
    let router = Router::start(&config(&store, &[shim.url().to_owned()], "")).await;
    router.settle(4).await;
    let held = || router.serving.app.bodies.held();
    let mut asked = tokio::task::JoinSet::new();
    let mut wanted = 0;
    // Each has a field that is taken out.
    for (nth, (model, times)) in [(MODEL, 2), ("mapped", 3)].into_iter().enumerate() {
        let text = chat(model, false).to_string();
        wanted += times * text.len();
        asked.spawn(ask(router.clients(), post(), text));
        shim.until_seen(nth + 1).await;
        assert_eq!(held(), wanted, "{model}");
    }
    gate.open();
    for answer in asked.join_all().await {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    until("nothing is held", || held() == 0).await;
    assert!(router.stop().await);
}

//! Pairs: what a request has in front of whom, from the pick to the first byte.

use std::time::Duration;

use continuum_fleet_sim::Role;
use http::Response;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::net::TcpStream;

use super::ground::{Ground, body, chain, selected, stored, text};
use crate::support::{MODEL, PATIENCE, Router, post, send};

/// What the router has booked on the only prefill and the only decode worker: tokens there, blocks here.
async fn booked(router: &Router, ground: &Ground) -> (u64, u64) {
    let shown = router.admin("/admin/dynamo/workers").await;
    let of = |role: Role, what: &str| {
        let worker = ground
            .workers()
            .into_iter()
            .find(|worker| worker.role == role)
            .unwrap();
        let id = Value::from(worker.instance.to_string());
        let rows = shown["workers"].as_array().unwrap();
        let row = rows.iter().find(|row| row["worker_id"] == id).unwrap();
        row["ranks"][0][what].as_u64().unwrap()
    };
    (
        of(Role::Prefill, "booked_tokens"),
        of(Role::Decode, "booked_blocks"),
    )
}

/// The head of an answer whose body does not come.
async fn head(router: &Router, asked: &Value) -> Response<Incoming> {
    let stream = TcpStream::connect(router.clients()).await.unwrap();
    send(stream, post(), asked.to_string()).await
}

#[tokio::test]
async fn a_prompt_that_was_handed_over_is_no_work_of_its_prefill_worker() {
    // The first token does not come while this test lasts.
    let ground = Ground::of([1, 1, 0], 1, Duration::from_secs(3600)).await;
    let text = text(64);
    let mut asked = body(MODEL, &text);
    asked["stream"] = true.into();
    let mut teller = ground.teller(&ground.workers()[0]).await;

    let by_load = Router::before(&ground.sim, &ground.store, "").await;
    let answer = head(&by_load, &asked).await;
    assert_eq!(answer.status(), 200);
    let (tokens, blocks) = booked(&by_load, &ground).await;
    assert!(tokens > 0 && blocks > 0, "{tokens} tokens, {blocks} blocks");

    let by_blocks = Router::before(&ground.sim, &ground.store, &ground.kv("")).await;
    teller
        .first(&by_blocks, stored(None, chain(&text, None)[..20].to_vec()))
        .await;
    let begun = tokio::time::Instant::now();
    // A busy machine may have no time to render the prompt.
    while selected(&by_blocks, "overlap") == 0.0 {
        assert!(begun.elapsed() < PATIENCE, "not scored");
        let answer = head(&by_blocks, &asked).await;
        assert_eq!(answer.status(), 200);
        let (tokens, blocks) = booked(&by_blocks, &ground).await;
        if selected(&by_blocks, "overlap") > 0.0 {
            assert_eq!(tokens, 0, "the head came after the prefill");
            assert!(blocks > 0, "the decode worker has all of it to do");
        }
    }
}

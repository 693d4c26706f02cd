//! Picks by what workers hold of a prompt, before fleets with members that lie.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use continuum_testkit::stub::{self, Stub};
use continuum_wire::router_event::{self, Data};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use self::ground::{
    Ground, KV_EVENTS, TEMPLATE, TEMPLATE_BOMB, block, body, chain, counted, event, names, scored, selected,
    stored, text, tokenizer, until_held,
};
use crate::support::{MODEL, PATIENCE, Router, ask, config, post, until};

mod ground;
mod pairs;

#[tokio::test]
async fn a_worker_that_lies_costs_nobody_else() {
    let ground = Ground::new(3, 1).await;
    let workers = ground.workers();
    let mut tellers = Vec::new();
    for worker in &workers {
        tellers.push(ground.teller(worker).await);
    }
    let limits = "max_index_blocks: 40000, max_blocks_per_rank: 30000";
    let router = Router::before(&ground.sim, &ground.store, &ground.kv(limits)).await;
    let mut liar = tellers.pop().unwrap();
    let text = text(64);
    let asked = body(MODEL, &text);
    let blocks = chain(&text, None);
    assert_eq!(blocks.len(), 64);
    for (teller, held) in tellers.iter_mut().zip([60, 20]) {
        teller.first(&router, stored(None, blocks[..held].to_vec())).await;
    }
    liar.first(&router, stored(None, vec![block(1, 1)])).await;
    let truth = [Some(60), Some(20), Some(0)];
    until_held(&router, &asked, &truth).await;

    // Clients ask all the while.
    let enough = Arc::new(AtomicBool::new(false));
    let clients = tokio::spawn({
        let (to, enough, body) = (
            router.clients(),
            Arc::clone(&enough),
            body(MODEL, "hello").to_string(),
        );
        async move {
            let mut answered = 0;
            while !enough.load(Relaxed) {
                let answer = ask(to, post(), body.clone()).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                answered += 1;
            }
            answered
        }
    });
    let happens = async |result: &str, times: f64| {
        until(result, || counted(&router, result) >= times).await;
        assert_eq!(counted(&router, result), times, "{result}");
        until_held(&router, &asked, &truth).await;
    };

    // In the name of others: what they hold, that they hold more, that they hold nothing; after a hole, too.
    let victim = workers[0].instance;
    let in_their_name = [
        event(victim, 0, 2, names(&blocks[..60])),
        event(
            victim,
            0,
            3,
            stored(blocks.get(59).map(|last| last.hash), blocks[60..].to_vec()),
        ),
        event(victim, 0, 4, Data::Cleared),
        event(victim, 0, 1_000_000, Data::Cleared),
        event(workers[1].instance, 0, 2, stored(None, blocks.clone())),
    ];
    liar.socket.publish_events(&in_their_name).await;
    happens("foreign", 5.0).await;
    // Of ranks and workers that are not there, and as another publisher.
    let of_nobody = [
        event(liar.worker, 7, 1, stored(None, blocks.clone())),
        event(liar.worker, u32::MAX, 1, stored(None, blocks.clone())),
        event(victim, 1, 1, Data::Cleared),
        event(666, 0, 1, stored(None, blocks.clone())),
    ];
    liar.socket.publish_events(&of_nobody).await;
    happens("identity_mismatch", 4.0).await;
    let payload = router_event::encode(&[event(victim, 0, 2, Data::Cleared)]);
    liar.send(KV_EVENTS, victim & 0xffff, &payload).await;
    happens("identity_mismatch", 5.0).await;
    liar.send("kv_metrics", liar.worker & 0xffff, &payload).await;
    happens("topic_mismatch", 1.0).await;
    // Blocks of others are not its own to remove.
    liar.tell(names(&blocks)).await;
    happens("unknown_block", 1.0).await;

    // Blocks that are called as those of another worker, or have their tokens elsewhere in a prompt.
    let known = counted(&router, "stored");
    let called_alike = blocks.iter().zip(2..).map(|(theirs, n)| block(theirs.hash, n));
    liar.tell(stored(None, called_alike.collect())).await;
    let behind = blocks.iter().rev().zip(9_000..);
    let elsewhere = behind.map(|(theirs, n)| block(n, theirs.tokens)).collect();
    liar.tell(stored(Some(1), elsewhere)).await;
    happens("stored", known + 2.0).await;
    let removed = counted(&router, "removed");
    liar.tell(names(&blocks)).await;
    happens("removed", removed + 1.0).await;
    // Chains that go nowhere.
    liar.tell(stored(Some(12), vec![block(12, 1)])).await;
    happens("invalid_sequence", 1.0).await;
    liar.tell(stored(Some(777_777), vec![block(13, 1)])).await;
    happens("missing_parent", 1.0).await;

    // A chain without an end, in events of 20,000 blocks: it makes way for itself.
    let known = counted(&router, "stored");
    let mut parent = None;
    for part in 0..4_u64 {
        let from = 1_000_000 + part * 20_000;
        let long = (from..from + 20_000).map(|n| block(n, n)).collect();
        liar.tell(stored(parent, long)).await;
        parent = Some(from + 19_999);
        happens("stored", known + f64::from(u32::try_from(part).unwrap()) + 1.0).await;
    }
    let nodes = router.metric("continuum_dynamo_kv_index_nodes", &[]);
    assert!((20_000.0..=40_000.0).contains(&nodes), "{nodes}");
    assert!(counted(&router, "evicted") >= 50_000.0);

    // What is no MessagePack, or claims more than it has.
    for (payload, times) in [
        (b"not at all".as_slice(), 1.0),
        (b"\xdd\xff\xff\xff\xff".as_slice(), 2.0),
        (&[0x91; 64], 3.0),
    ] {
        liar.send(KV_EVENTS, liar.worker & 0xffff, payload).await;
        happens("malformed", times).await;
    }
    // A frame over the limit costs the connection.
    liar.send(KV_EVENTS, liar.worker & 0xffff, &vec![0; (8 << 20) + 1])
        .await;
    happens("transport_refused", 1.0).await;

    enough.store(true, Relaxed);
    assert!(clients.await.unwrap() > 0);
    // An honest worker is heard as before, and chosen for what it holds.
    tellers[1]
        .tell(stored(Some(blocks[19].hash), blocks[20..64].to_vec()))
        .await;
    until_held(&router, &asked, &[Some(60), Some(64), Some(0)]).await;
    tellers[0].tell(names(&blocks[30..60])).await;
    until_held(&router, &asked, &[Some(30), Some(64), Some(0)]).await;
    let answer = scored(&router, || post().header("x-backend", ""), &asked).await;
    let reader = format!("dynamo/{}@0", workers[1].instance);
    assert_eq!(answer.header("x-continuum-decode-worker"), Some(reader.as_str()));
    assert!(router.stop().await);
}

#[tokio::test]
async fn what_a_worker_has_read_counts_after_its_events_were_lost_and_only_then() {
    let ground = Ground::new(2, 1).await;
    let workers = ground.workers();
    let mut tellers = [ground.teller(&workers[0]).await, ground.teller(&workers[1]).await];
    let router = Router::before(&ground.sim, &ground.store, &ground.kv("")).await;
    for teller in &mut tellers {
        teller.first(&router, stored(None, vec![block(1, 1)])).await;
    }
    let texts = ["a", "b"].map(|who| format!("{who}{}", text(64)));
    // The first one's second event is lost.
    tellers[0].events += 1;
    for ((teller, text), gaps) in tellers.iter_mut().zip(&texts).zip([1.0, 1.0]) {
        teller.tell(stored(None, chain(text, None)[..10].to_vec())).await;
        until("the gap", || counted(&router, "gap") >= gaps).await;
    }
    for (at, (text, worker)) in texts.iter().zip(&workers).enumerate() {
        let asked = body(MODEL, text);
        let mut held = [Some(0), Some(0)];
        held[at] = Some(10);
        until_held(&router, &asked, &held).await;
        // Nobody reads what the frontend refuses.
        let mut invalid = asked.clone();
        invalid["max_tokens"] = "two".into();
        assert_eq!(
            ask(router.clients(), post(), invalid.to_string()).await.status,
            400
        );
        until("it has ended", || {
            router.metric("continuum_requests_in_flight", &[]) == 0.0
        })
        .await;
        until_held(&router, &asked, &held).await;
        let answer = ask(
            router.clients(),
            post().header("x-backend", ""),
            asked.to_string(),
        )
        .await;
        let reader = format!("dynamo/{}@0", worker.instance);
        assert_eq!(answer.header("x-continuum-decode-worker"), Some(reader.as_str()));
        // What events tell without a hole is the truth.
        held[at] = Some([64, 10][at]);
        until_held(&router, &asked, &held).await;
    }
    // The worker says itself that it holds nothing: from then on its events tell all.
    tellers[0].tell(Data::Cleared).await;
    until("the clearing", || counted(&router, "cleared") >= 1.0).await;
    assert!(router.stop().await);
}

#[tokio::test]
async fn files_that_are_bombs_cost_their_model_alone() {
    let mut ground = Ground::new(1, 1).await;
    let deep = "[".repeat(100_000);
    ground.join("sim/template", 71, &tokenizer(), TEMPLATE_BOMB).await;
    ground.join("sim/tokenizer", 72, &deep, TEMPLATE).await;
    let mut teller = ground.teller(&ground.workers()[0]).await;
    let router = Router::before(&ground.sim, &ground.store, &ground.kv("")).await;
    let text = text(32);
    let asked = body(MODEL, &text);
    teller.first(&router, stored(None, chain(&text, None))).await;
    until_held(&router, &asked, &[Some(32)]).await;
    for (model, result) in [
        ("sim/template", "render_unavailable"),
        ("sim/tokenizer", "tokenizer_unavailable"),
    ] {
        // Loaded in the background: until then there is no tokenizer.
        let begun = tokio::time::Instant::now();
        let before = selected(&router, result);
        while selected(&router, result) == before {
            assert!(begun.elapsed() < PATIENCE, "{result}");
            let answer = ask(router.clients(), post(), body(model, &text).to_string()).await;
            assert_eq!(answer.status, 200, "{model}: {}", answer.text());
        }
    }
    scored(&router, post, &asked).await;
    until_held(&router, &asked, &[Some(32)]).await;
    assert!(router.stop().await);
}

/// The salt that counts is the one that the frontend will see: the body's, and never a client's header.
#[tokio::test]
async fn prompts_are_hashed_with_the_salt_that_the_frontend_sees() {
    let ground = Ground::new(3, 0).await;
    let shim = Stub::tcp(|_| stub::json(200, r#"{"choices":[]}"#)).await.unwrap();
    shim.list_models(&[MODEL]);
    let workers = ground.workers();
    let mut tellers = Vec::new();
    for worker in &workers {
        tellers.push(ground.teller(worker).await);
    }
    let router = Router::start(&config(&ground.store, &[shim.url().to_owned()], &ground.kv(""))).await;
    router.settle(workers.len()).await;
    let text = text(32);
    for (teller, salt) in tellers.iter_mut().zip([None, Some("mine"), Some("theirs")]) {
        teller.first(&router, stored(None, chain(&text, salt))).await;
    }
    let (none, all) = (Some(0), Some(32));
    let salted = |more: Value| {
        let mut body = body(MODEL, &text);
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        body
    };
    until_held(&router, &salted(json!({})), &[all, none, none]).await;
    for (more, expected) in [
        (json!({}), 0),
        (json!({"cache_salt": "mine"}), 1),
        (json!({"nvext": {"cache_salt": "mine"}}), 1),
        (
            json!({"nvext": {"cache_salt": "mine"}, "cache_salt": "theirs"}),
            1,
        ),
        (json!({"nvext": {"cache_salt": ""}, "cache_salt": "theirs"}), 2),
        // The name that the frontend knows, and a field that leaves the body.
        (
            json!({"model": "mapped", "nvext": {"cache_salt": "theirs", "dp_rank": 7}}),
            2,
        ),
    ] {
        let body = salted(more.clone());
        let mut holders = [none; 3];
        holders[expected] = all;
        until_held(&router, &body, &holders).await;
        // The header of a client who wants another's cache.
        let request = || post().header("x-tenant-id", "theirs");
        scored(&router, request, &body).await;
        let seen = shim.seen().pop().unwrap();
        assert_eq!(seen.header("x-tenant-id"), None);
        let sent: Value = serde_json::from_slice(&seen.body).unwrap();
        assert_eq!(sent["cache_salt"], body["cache_salt"]);
        assert_eq!(sent["nvext"]["cache_salt"], body["nvext"]["cache_salt"]);
        let chosen = workers[expected].instance.to_string();
        assert_eq!(
            seen.header("x-dynamo-worker-instance-id"),
            Some(chosen.as_str()),
            "{more}"
        );
    }
    // A salt that nobody has.
    let nobody = salted(json!({"cache_salt": "another"}));
    until_held(&router, &nobody, &[none; 3]).await;
    assert!(router.stop().await);
}

/// What was known is forgotten when it is turned off, and what is said afterwards counts when it is on again.
#[tokio::test]
async fn it_is_turned_off_and_on_while_the_router_runs() {
    let ground = Ground::new(2, 1).await;
    let workers = ground.workers();
    let mut teller = ground.teller(&workers[0]).await;
    let router = Router::before(&ground.sim, &ground.store, &ground.kv("")).await;
    let text = text(32);
    let (asked, blocks) = (body(MODEL, &text), chain(&text, None));
    teller.first(&router, stored(None, blocks.clone())).await;
    until_held(&router, &asked, &[Some(32), Some(0)]).await;
    let on = fs::read_to_string(&router.file).unwrap();
    let reload = async |text: &str| {
        let fresh = router.file.with_extension("new");
        fs::write(&fresh, text).unwrap();
        fs::rename(fresh, &router.file).unwrap();
        let request = http::Request::post("/admin/config/reload");
        let told = ask(router.operators(), request, "").await;
        assert_eq!(told.status, 200, "{}", told.text());
    };
    reload(&on.replace("kv: {enabled: true", "kv: {enabled: false")).await;
    until_held(&router, &asked, &[None, None]).await;
    until("nothing is kept", || {
        router.metric("continuum_dynamo_kv_index_ownerships", &[]) == 0.0
            && router.serving.app.fleet.kv.subscriptions().is_empty()
    })
    .await;
    let answer = ask(router.clients(), post(), asked.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    reload(&on).await;
    until_held(&router, &asked, &[Some(0), Some(0)]).await;
    teller.first(&router, stored(None, blocks[..7].to_vec())).await;
    until_held(&router, &asked, &[Some(7), Some(0)]).await;
    scored(&router, post, &asked).await;
    // Another size forgets nothing.
    reload(&on.replace("limits: {", "limits: {max_index_blocks: 1000")).await;
    until_held(&router, &asked, &[Some(7), Some(0)]).await;
    teller.tell(stored(None, blocks)).await;
    until_held(&router, &asked, &[Some(32), Some(0)]).await;
    // With a place for one rank alone, whoever has one keeps it.
    let unscored = async || {
        let shown = router.admin("/admin/dynamo/workers").await;
        let workers = shown["workers"].as_array().unwrap();
        let mut why: Vec<_> = workers
            .iter()
            .map(|worker| worker["kv_unscored"].clone())
            .collect();
        why.sort_by_key(Value::is_null);
        Value::from(why)
    };
    assert_eq!(unscored().await, json!([null, null]));
    reload(&on.replace("limits: {", "limits: {max_owners_per_node: 1")).await;
    let one_is_out = async {
        while unscored().await != json!(["over_capacity", null]) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, one_is_out).await.unwrap();
    assert!(router.stop().await);
}

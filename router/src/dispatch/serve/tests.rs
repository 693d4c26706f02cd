//! The loop against scripted servers on the loopback address.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use continuum_config::{BackendUrl, Config, model};
use continuum_runtime::tasks::Tasks;
use continuum_testkit::stub::{self, Act, Gate, Seen, Stub};
use http::{Method, uri::PathAndQuery};
use http_body::Body as _;
use http_body_util::BodyExt as _;

use super::*;
use crate::{
    backends::Backends,
    dispatch::{
        metrics::{Outcome, Repicked},
        relay::End,
    },
};
use crate::{dispatch::limits::REFUSAL_BODY, error::Deadline};

const GENERIC: &str =
    r#"{"message":"Failed to generate completions","type":"Internal Server Error","code":500}"#;
const INVALID: &str = r#"{"message":"Invalid request","type":"Bad Request","code":400}"#;
const NOT_READY: &str =
    r#"{"message":"Model `m` is not ready to serve requests yet.","type":"Service Unavailable","code":503}"#;

/// Pins are numbers, sent as a header; each re-pick takes the next.
struct Script {
    graph: Graph,
    next: u32,
    last: u32,
    standing: Standing,
    booked: Arc<AtomicI64>,
    repicked: Vec<Cause>,
    suspected: usize,
    answered: usize,
}

struct Pin {
    graph: Graph,
    number: u32,
    booked: Arc<AtomicI64>,
    ends: Arc<Mutex<Vec<End>>>,
    first_bytes: Arc<AtomicUsize>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.booked.fetch_sub(1, SeqCst);
    }
}

impl Hooks for Pin {
    fn first_byte(&mut self) {
        self.first_bytes.fetch_add(1, SeqCst);
    }

    fn end(&mut self, end: End) {
        self.ends.lock().unwrap().push(end);
    }
}

impl Script {
    fn pin(&mut self) -> Pin {
        self.booked.fetch_add(1, SeqCst);
        self.next += 1;
        Pin {
            graph: self.graph.clone(),
            number: self.next,
            booked: Arc::clone(&self.booked),
            ends: Arc::default(),
            first_bytes: Arc::default(),
        }
    }
}

impl Pins for Script {
    type Pin = Pin;

    fn graph<'a>(&self, pin: &'a Pin) -> &'a Graph {
        &pin.graph
    }

    fn dress(&self, pin: &Pin, _replica: &Backend, headers: &mut HeaderMap, _body: &mut Bytes) {
        headers.insert("x-dynamo-worker-instance-id", pin.number.into());
    }

    fn listed(&self, replica: &Backend) -> Option<bool> {
        replica.lists("m")
    }

    fn standing(&self, _pin: &Pin) -> Standing {
        self.standing
    }

    fn repick(&mut self, refused: Pin, cause: Cause) -> Option<Pin> {
        drop(refused);
        self.repicked.push(cause);
        (self.next < self.last).then(|| self.pin())
    }

    fn suspect_refused(&mut self) {
        self.suspected += 1;
    }

    fn answered(&mut self, _: &Self::Pin) {
        self.answered += 1;
    }
}

const LIVE: Standing = Standing {
    sent_prefill: true,
    prefill_pool_came: true,
    pins_live: true,
    sets_in_pool: 1,
    settling: false,
    confirmed: true,
};

const UNCONFIRMED: Standing = Standing {
    confirmed: false,
    ..LIVE
};

struct World {
    backends: Backends,
    metrics: Metrics,
    booked: Arc<AtomicI64>,
    config: Config,
    _tasks: Tasks,
}

fn backend(name: &str, url: &str) -> model::Backend {
    let mut backend = model::Backend::new(name, BackendUrl::parse(url).unwrap());
    backend.health.enabled = false;
    backend
}

impl World {
    /// Shim replicas `shim0`, `shim1`, … of the pool `dynamo`, and other backends that serve the model `m`.
    fn new(shims: &[&str], others: &[&str]) -> Self {
        Self::with(shims, others, |_| {})
    }

    fn with(shims: &[&str], others: &[&str], change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        for (index, url) in shims.iter().enumerate() {
            config.dynamo.shim.backends.push(format!("shim{index}"));
            config.backends.push(backend(&format!("shim{index}"), url));
        }
        for (index, url) in others.iter().enumerate() {
            let mut other = backend(&format!("other{index}"), url);
            other.models.push("m".to_owned());
            config.backends.push(other);
        }
        change(&mut config);
        let tasks = Tasks::new();
        let metrics = Metrics::new(&prometheus::Registry::new()).unwrap();
        let backends = Backends::new(tasks.spawner(), metrics.clone());
        backends.apply(&config).unwrap();
        Self {
            backends,
            metrics,
            booked: Arc::default(),
            config,
            _tasks: tasks,
        }
    }

    fn script(&self, pins: u32, standing: Standing) -> Script {
        Script {
            graph: Graph::from("dynamo"),
            next: 0,
            last: pins,
            standing,
            booked: Arc::clone(&self.booked),
            repicked: Vec::new(),
            suspected: 0,
            answered: 0,
        }
    }

    async fn pinned(&self, script: &mut Script, fallback: bool) -> Result<Served<Pin>, Error> {
        let first = script.pin();
        pinned(
            &ask(),
            &self.backends.load(),
            script,
            first,
            fallback,
            &self.metrics,
        )
        .await
    }

    fn shim(&self, index: usize) -> Arc<Backend> {
        Arc::clone(self.backends.load().backend(&format!("shim{index}")).unwrap())
    }

    /// Waits until the first replica's model list has been read.
    async fn listed(&self) {
        while self.shim(0).listing().is_none() {
            tokio::task::yield_now().await;
        }
    }

    #[track_caller]
    fn assert_idle(&self) {
        assert_eq!(self.booked.load(SeqCst), 0, "bookings");
        for backend in self.backends.load().iter() {
            assert_eq!(backend.in_flight(), 0, "{}", backend.name());
        }
    }
}

fn ask() -> Ask {
    let mut outbound = Outbound::new(Method::POST, PathAndQuery::from_static("/v1/chat/completions"));
    outbound
        .headers
        .insert("content-type", http::HeaderValue::from_static("application/json"));
    outbound.body = Bytes::from_static(br#"{"model":"m"}"#);
    Ask {
        outbound,
        model: ModelName::from("m"),
        buffered: false,
        started: Instant::now(),
    }
}

type Answered = Response<Relay<Option<Pin>>>;

fn hand_on(served: Served<Pin>) -> Answered {
    served.into_response(|pin| pin)
}

async fn text(answer: Answered) -> (u16, String) {
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn stub(handler: impl Fn(&Seen) -> Vec<Act> + Send + Sync + 'static) -> Stub {
    let stub = Stub::tcp(handler).await.unwrap();
    stub.list_models(&["m"]);
    stub
}

fn pin_of(seen: &Seen) -> &str {
    seen.header("x-dynamo-worker-instance-id").unwrap_or("-")
}

/// A port where nobody listens.
async fn nobody() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[tokio::test]
async fn an_answer_passes_and_its_connection_is_used_again() {
    let shim = stub(|_| stub::json(200, r#"{"ok":1}"#)).await;
    let world = World::new(&[shim.url()], &[]);
    for _ in 0..3 {
        let served = world.pinned(&mut world.script(1, LIVE), false).await.unwrap();
        assert_eq!((world.shim(0).in_flight(), world.booked.load(SeqCst)), (1, 1));
        let answer = hand_on(served);
        assert_eq!(answer.body().size_hint().exact(), Some(8));
        assert_eq!(text(answer).await, (200, r#"{"ok":1}"#.to_owned()));
        world.assert_idle();
    }
    let seen = shim.seen();
    assert!(
        seen.iter()
            .all(|seen| pin_of(seen) == "1" && seen.body == br#"{"model":"m"}"#)
    );
    assert!(
        seen.iter()
            .all(|seen| seen.header("host") == Some(&shim.url()["http://".len()..]))
    );
    assert_eq!(seen[1].connection, seen[2].connection);
    assert_eq!(world.shim(0).count(Outcome::Ok), 3);
}

#[tokio::test]
async fn a_replica_that_refuses_costs_one_retry_and_is_avoided_for_a_while() {
    let shim = stub(|_| stub::json(200, "{}")).await;
    let world = World::new(&[&nobody().await, shim.url()], &[]);
    for _ in 0..4 {
        let served = world.pinned(&mut world.script(1, LIVE), false).await.unwrap();
        assert_eq!(text(hand_on(served)).await.0, 200);
    }
    assert!(
        world.metrics.retries(Retry::Replica) <= 1,
        "the dead one is tried at most once while it cools"
    );
    assert!(
        shim.seen().iter().all(|seen| pin_of(seen) == "1"),
        "the pin stays"
    );
    assert_eq!(
        world.shim(0).count(Outcome::Connect),
        world.metrics.retries(Retry::Replica)
    );
    world.assert_idle();
}

#[tokio::test]
async fn a_connection_that_ends_without_an_answer_is_a_replica_matter() {
    for act in [Act::Reset, Act::Close] {
        let (bad, good) = (
            stub(move |_| vec![act.clone()]).await,
            stub(|_| stub::json(200, "{}")).await,
        );
        let world = World::new(&[bad.url(), good.url()], &[]);
        for _ in 0..2 {
            let served = world.pinned(&mut world.script(1, LIVE), false).await.unwrap();
            assert_eq!(text(hand_on(served)).await.0, 200);
        }
        world.assert_idle();
        let alone = World::new(&[bad.url()], &[]);
        let failed = alone.pinned(&mut alone.script(2, LIVE), false).await.err();
        assert_eq!(failed, Some(Error::DecodeFailed { first: None }));
        assert!(
            failed
                .unwrap()
                .to_string()
                .starts_with("no frontend of this model's pool could be reached")
        );
        assert_eq!(alone.metrics.errors(crate::error::Phase::Decode), 1);
        alone.assert_idle();
    }
}

#[tokio::test]
async fn an_idle_connection_that_the_peer_closes_costs_nothing() {
    // The second request of each connection meets a peer that has given it up.
    let first = |seen: &Seen| match seen.nth {
        0 => stub::json(200, "{}"),
        _ => vec![Act::Reset],
    };
    let shim = Stub::tcp(first).await.unwrap();
    // Without a model list of its own, so that every request on a connection is one of ours.
    let world = World::new(&[], &[shim.url()]);
    for _ in 0..5 {
        let served = unpinned::<Pin>(&ask(), &world.backends.load()).await.unwrap();
        assert_eq!(text(hand_on(served)).await.0, 200);
    }
    assert_eq!(world.metrics.retries(Retry::IdleConnection), 4);
    assert_eq!(world.metrics.retries(Retry::Replica), 0);
    let other = Arc::clone(world.backends.load().backend("other0").unwrap());
    assert_eq!((other.count(Outcome::Ok), other.count(Outcome::Connect)), (5, 0));
    world.assert_idle();
}

#[tokio::test]
async fn half_a_head_is_a_failure_and_is_not_sent_twice() {
    let half = |_: &Seen| vec![Act::Send(b"HTTP/1.1 200 OK\r\ncontent-".to_vec()), Act::Close];
    let (one, two) = (stub(half).await, stub(half).await);
    let world = World::new(&[one.url(), two.url()], &[]);
    let failed = world.pinned(&mut world.script(2, LIVE), false).await.err();
    assert_eq!(failed, Some(Error::DecodeFailed { first: None }));
    assert_eq!(one.seen().len() + two.seen().len(), 1);
    world.assert_idle();
}

#[tokio::test]
async fn a_dead_worker_is_suspected_when_others_answer() {
    let shim = stub(|seen| match pin_of(seen) {
        "1" => stub::json(500, GENERIC),
        _ => stub::json(200, "{}"),
    })
    .await;
    let world = World::new(&[shim.url()], &[]);
    let mut script = world.script(2, LIVE);
    let served = world.pinned(&mut script, false).await.unwrap();
    assert_eq!(served.pin.as_ref().map(|pin| pin.number), Some(2));
    assert_eq!(
        (script.repicked.as_slice(), script.suspected, script.answered),
        (&[Cause::Suspect][..], 1, 1)
    );
    drop(served);
    assert_eq!(world.metrics.repicks(Repicked::Suspect, true), 1);
    world.assert_idle();
}

#[tokio::test]
async fn nobody_is_suspected_when_others_fail_as_well() {
    let shim = stub(|_| stub::json(500, GENERIC)).await;
    let world = World::new(&[shim.url()], &[]);
    let mut script = world.script(9, LIVE);
    let failed = world.pinned(&mut script, false).await.err();
    assert_eq!(
        failed,
        Some(Error::DecodeFailed {
            first: Some(StatusCode::INTERNAL_SERVER_ERROR)
        })
    );
    assert!(failed.unwrap().to_string().starts_with("the workers chosen"));
    assert_eq!(
        (
            script.repicked.len(),
            script.suspected + script.answered,
            shim.seen().len()
        ),
        (1, 0, 2)
    );
    assert_eq!(world.metrics.repicks(Repicked::Suspect, false), 1);
    assert_eq!(world.shim(0).count(Outcome::ServerError), 2);
    world.assert_idle();
}

#[tokio::test]
async fn a_view_that_is_behind_is_picked_again_or_reported() {
    let shim = stub(|seen| match pin_of(seen) {
        "1" => stub::json(400, INVALID),
        _ => stub::json(200, "{}"),
    })
    .await;
    let world = World::new(&[shim.url()], &[]);
    let behind = Standing {
        sent_prefill: false,
        ..LIVE
    };
    assert!(world.pinned(&mut world.script(2, behind), false).await.is_ok());
    let failed = world.pinned(&mut world.script(1, behind), true).await.err();
    assert_eq!(failed, Some(Error::PrefillDecodeUnavailable));
    assert_eq!(world.metrics.errors(crate::error::Phase::Orchestration), 1);
    world.assert_idle();
}

#[tokio::test]
async fn a_lottery_is_drawn_with_the_same_pin() {
    let draws = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&draws);
    let shim = stub(move |_| match counted.fetch_add(1, SeqCst) {
        0..4 => stub::json(400, INVALID),
        _ => stub::json(200, "{}"),
    })
    .await;
    let world = World::new(&[shim.url()], &[]);
    let mut script = world.script(
        2,
        Standing {
            sets_in_pool: 2,
            ..LIVE
        },
    );
    assert!(world.pinned(&mut script, false).await.is_ok());
    assert!(shim.seen().iter().all(|seen| pin_of(seen) == "1"));
    assert_eq!((shim.seen().len(), script.suspected), (5, 0));
    assert_eq!(world.metrics.retries(Retry::Lottery), 4);
    world.assert_idle();
}

#[tokio::test]
async fn a_frontend_that_does_not_know_a_young_worker_yet_is_asked_again() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let shim = stub(move |_| match counted.fetch_add(1, SeqCst) {
        0..2 => stub::json(400, INVALID),
        2 => stub::json(200, "{}"),
        _ => stub::json(400, INVALID),
    })
    .await;
    let world = World::new(&[shim.url()], &[]);
    let settling = Standing {
        settling: true,
        ..LIVE
    };
    let mut script = world.script(2, settling);
    assert!(world.pinned(&mut script, false).await.is_ok());
    assert!(shim.seen().iter().all(|seen| pin_of(seen) == "1"));
    assert_eq!((shim.seen().len(), script.suspected), (3, 0));
    // What stays a refusal is the client's own, as the frontend said it.
    let served = world.pinned(&mut world.script(2, settling), false).await.unwrap();
    assert_eq!(served.head.status, 400);
    assert_eq!(shim.seen().len(), 8);
    drop(served);
    world.assert_idle();
    // Each refusal that another try followed, and not the one that was handed out.
    assert_eq!(world.shim(0).count(Outcome::ServerError), 2 + 4);
}

#[tokio::test]
async fn while_nobody_confirms_the_view_an_invalid_request_is_first_a_dead_worker() {
    let shim = stub(|seen| match pin_of(seen) {
        "1" => stub::json(400, INVALID),
        _ => stub::json(200, "{}"),
    })
    .await;
    let world = World::new(&[shim.url()], &[]);
    let mut script = world.script(2, UNCONFIRMED);
    let served = world.pinned(&mut script, false).await.unwrap();
    assert_eq!(answered(&served), (200, Some(2)));
    assert_eq!(
        (script.repicked.as_slice(), script.suspected, script.answered),
        (&[Cause::Suspect][..], 1, 1)
    );
    drop(served);
    assert_eq!(world.metrics.repicks(Repicked::Suspect, true), 1);
    // The view is confirmed: the same answer is the client's.
    let mut script = world.script(2, LIVE);
    assert_eq!(world.pinned(&mut script, false).await.unwrap().head.status, 400);
    assert_eq!((script.repicked.len(), shim.seen().len()), (0, 3));
    world.assert_idle();
}

/// The status of an answer, and which pin it came for.
fn answered(served: &Served<Pin>) -> (u16, Option<u32>) {
    (
        served.head.status.as_u16(),
        served.pin.as_ref().map(|pin| pin.number),
    )
}

#[tokio::test]
async fn a_worker_that_one_frontend_has_lost_another_may_know() {
    // Nobody is there behind the first pin, and this frontend does not know the second.
    let script_of = |unknown: &'static str| {
        move |seen: &Seen| match pin_of(seen) {
            "1" => stub::json(500, GENERIC),
            _ => stub::json(if unknown.is_empty() { 200 } else { 400 }, unknown),
        }
    };
    let (lost, knows) = (stub(script_of(INVALID)).await, stub(script_of("")).await);
    let world = World::new(&[lost.url(), knows.url()], &[]);
    world.shim(1).cool_down(Duration::from_secs(60));
    let mut script = world.script(2, UNCONFIRMED);
    let served = world.pinned(&mut script, false).await.unwrap();
    assert_eq!(answered(&served), (200, Some(2)));
    assert_eq!((script.repicked.len(), script.suspected), (1, 1));
    let pins = |seen: &Stub| {
        seen.seen()
            .iter()
            .map(|seen| pin_of(seen).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (pins(&lost), pins(&knows)),
        (vec!["1".to_owned(), "2".to_owned()], vec!["2".to_owned()])
    );
    drop(served);
    world.assert_idle();
}

#[tokio::test]
async fn a_frontend_that_refuses_every_worker_is_no_proof_against_them() {
    let (lost, knows) = (
        stub(|_| stub::json(400, INVALID)).await,
        stub(|_| stub::json(200, "{}")).await,
    );
    let world = World::new(&[lost.url(), knows.url()], &[]);
    world.shim(1).cool_down(Duration::from_secs(60));
    let mut script = world.script(2, UNCONFIRMED);
    let served = world.pinned(&mut script, false).await.unwrap();
    assert_eq!(answered(&served), (200, Some(2)));
    assert_eq!(
        (lost.seen().len(), script.repicked.len(), script.suspected),
        (2, 1, 0)
    );
    drop(served);
    world.assert_idle();
}

#[tokio::test]
async fn what_all_workers_were_refused_for_is_the_answer_when_other_frontends_fail() {
    for other in [
        stub(|_| stub::json(503, NOT_READY)).await,
        stub(|_| stub::json(500, GENERIC)).await,
        stub(|_| vec![Act::Close]).await,
    ] {
        let refused = stub(|_| stub::json(400, INVALID)).await;
        let world = World::new(&[refused.url(), other.url()], &[]);
        world.shim(1).cool_down(Duration::from_secs(60));
        let served = world
            .pinned(&mut world.script(2, UNCONFIRMED), false)
            .await
            .unwrap();
        assert!(refused.seen().len() == 2 && !other.seen().is_empty());
        assert_eq!(text(hand_on(served)).await, (400, INVALID.to_owned()));
        world.assert_idle();
    }
}

#[tokio::test]
async fn a_request_that_a_frontend_took_is_not_told_to_be_invalid() {
    let shim = stub(|seen| match pin_of(seen) {
        "1" => stub::json(500, GENERIC),
        _ => stub::json(400, INVALID),
    })
    .await;
    let world = World::new(&[shim.url()], &[]);
    let failed = world.pinned(&mut world.script(2, UNCONFIRMED), false).await.err();
    let first = Some(StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(failed, Some(Error::DecodeFailed { first }));
    world.assert_idle();
}

#[tokio::test]
async fn a_request_that_is_invalid_stays_so_while_nobody_confirms_the_view() {
    let shim = stub(|_| stub::json(400, INVALID)).await;
    let world = World::new(&[shim.url()], &[shim.url()]);
    // With other workers to ask, and without: the fallback is not for the client's mistakes.
    for (pins, tries) in [(9, 2), (1, 1)] {
        let before = shim.seen().len();
        let mut script = world.script(pins, UNCONFIRMED);
        let served = world.pinned(&mut script, true).await.unwrap();
        assert_eq!(
            (script.repicked.len(), script.suspected + script.answered),
            (1, 0)
        );
        assert_eq!(text(hand_on(served)).await, (400, INVALID.to_owned()));
        assert_eq!(shim.seen().len() - before, tries);
    }
    world.assert_idle();
    let shim = world.shim(0);
    assert_eq!(
        (shim.count(Outcome::ServerError), shim.count(Outcome::ClientError)),
        (1, 2)
    );
}

#[tokio::test]
async fn back_pressure_goes_to_the_client_and_falls_back_nowhere() {
    let other = stub(|_| stub::json(200, "{}")).await;
    for (status, body, expected) in [
        (529, "{}", BackPressure::TooMany),
        (429, "{}", BackPressure::TooMany),
        (503, r#"{"message":"queue is full"}"#, BackPressure::Overloaded),
    ] {
        let shim = stub(move |_| stub::json(status, body)).await;
        let world = World::new(&[shim.url()], &[other.url()]);
        let failed = world.pinned(&mut world.script(2, LIVE), true).await.err();
        assert_eq!(failed, Some(Error::BackPressure(expected)));
        assert_eq!((shim.seen().len(), other.seen().len()), (1, 0));
        assert_eq!(world.shim(0).count(Outcome::BackPressure), 1);
        world.assert_idle();
    }
}

#[tokio::test]
async fn another_backend_takes_over_without_pins_when_allowed() {
    let other = stub(|_| stub::json(200, r#"{"other":1}"#)).await;
    for (status, body) in [(503, NOT_READY), (502, ""), (500, GENERIC)] {
        let shim = stub(move |_| stub::json(status, body)).await;
        let world = World::new(&[shim.url()], &[other.url()]);
        let served = world.pinned(&mut world.script(2, LIVE), true).await.unwrap();
        assert!(served.fallback && served.pin.is_none());
        assert_eq!(&**served.backend.name(), "other0");
        assert_eq!(text(hand_on(served)).await, (200, r#"{"other":1}"#.to_owned()));
        assert_eq!(world.metrics.retries(Retry::Fallback), 1);
        let refused = world
            .pinned(&mut world.script(2, LIVE), false)
            .await
            .err()
            .unwrap();
        match status {
            503 => assert_eq!(
                refused,
                Error::ModelNotReady {
                    model: ModelName::from("m")
                }
            ),
            status => assert_eq!(
                refused,
                Error::DecodeFailed {
                    first: StatusCode::from_u16(status).ok()
                }
            ),
        }
        world.assert_idle();
    }
    assert!(other.seen().iter().all(|seen| pin_of(seen) == "-"));
}

#[tokio::test]
async fn a_client_error_is_relayed_whole() {
    let long = format!(r#"{{"message":"{}"}}"#, "x".repeat(3 * REFUSAL_BODY));
    let expected = long.clone();
    let shim = stub(move |_| stub::json(422, &long)).await;
    let world = World::new(&[shim.url()], &[]);
    let served = world.pinned(&mut world.script(2, LIVE), true).await.unwrap();
    assert_eq!(text(hand_on(served)).await, (422, expected));
    assert_eq!(world.shim(0).count(Outcome::ClientError), 1);
    world.assert_idle();
}

#[tokio::test]
async fn a_list_that_lacks_what_is_served_is_read_again() {
    let shim = stub(|_| stub::json(200, "{}")).await;
    shim.list_models(&["other"]);
    let world = World::new(&[shim.url()], &[]);
    let replica = world.shim(0);
    world.listed().await;
    shim.list_models(&["m"]);
    while replica.lists("m") == Some(false) {
        let answer = world.pinned(&mut world.script(1, LIVE), false).await.unwrap();
        assert_eq!(text(hand_on(answer)).await.0, 200);
    }
}

#[tokio::test]
async fn a_shim_is_never_asked_without_pins() {
    let shim = stub(|_| stub::json(200, "{}")).await;
    let world = World::new(&[shim.url()], &[]);
    let failed = unpinned::<Pin>(&ask(), &world.backends.load()).await.err();
    assert_eq!(
        failed,
        Some(Error::ModelNotFound {
            model: ModelName::from("m")
        })
    );
}

#[tokio::test]
async fn a_late_head_is_a_timeout() {
    let shim = stub(|_| vec![Act::UntilPeerLeaves]).await;
    let world = World::with(&[shim.url()], &[], |config| {
        config.server.timeouts.first_token = Duration::from_millis(30);
        config.server.timeouts.header = Duration::from_millis(10);
    });
    let failed = world.pinned(&mut world.script(2, LIVE), false).await.err();
    assert_eq!(failed, Some(Error::TimedOut(Deadline::Header)));
    assert_eq!(world.shim(0).count(Outcome::Timeout), 1);
    world.assert_idle();
}

#[tokio::test]
async fn a_client_that_leaves_before_the_head_closes_the_connection() {
    let shim = stub(|_| vec![Act::UntilPeerLeaves]).await;
    let world = Arc::new(World::new(&[shim.url()], &[]));
    let mut script = world.script(1, LIVE);
    {
        let mut request = std::pin::pin!(world.pinned(&mut script, false));
        tokio::select! {
            _ = &mut request => panic!("nobody answers"),
            () = shim.until_seen(1) => {}
        }
        assert_eq!(world.shim(0).in_flight(), 1);
    }
    world.assert_idle();
    assert_eq!(world.shim(0).count(Outcome::Canceled), 1);
    shim.until_closed(shim.seen()[0].connection).await;
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_closes_the_connection() {
    let shim = stub(|_| {
        vec![
            stub::stream_head(),
            stub::chunk("data: 1\n\n"),
            Act::UntilPeerLeaves,
        ]
    })
    .await;
    let world = World::new(&[shim.url()], &[]);
    let served = world.pinned(&mut world.script(1, LIVE), false).await.unwrap();
    let mut answer = hand_on(served);
    let frame = answer.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "data: 1\n\n");
    let pin = answer.body().hooks().as_ref().unwrap();
    let (ends, first_bytes) = (Arc::clone(&pin.ends), Arc::clone(&pin.first_bytes));
    drop(answer);
    assert_eq!(
        (ends.lock().unwrap().as_slice(), first_bytes.load(SeqCst)),
        (&[End::ClientGone][..], 1)
    );
    assert_eq!(world.shim(0).count(Outcome::Canceled), 1);
    world.assert_idle();
    shim.until_closed(shim.seen()[0].connection).await;
}

#[tokio::test]
async fn a_stream_that_breaks_ends_with_one_error_event_and_no_part_of_another() {
    for part in ["", "data: {\"half\":", "data: 2\n"] {
        let shim = stub(move |_| {
            let mut acts = vec![stub::stream_head(), stub::chunk("data: 1\n\n")];
            if !part.is_empty() {
                acts.push(stub::chunk(part));
            }
            acts.push(Act::Reset);
            acts
        })
        .await;
        let world = World::new(&[shim.url()], &[]);
        let served = world.pinned(&mut world.script(2, LIVE), true).await.unwrap();
        let answer = hand_on(served);
        let ends = Arc::clone(&answer.body().hooks().as_ref().unwrap().ends);
        let (_, body) = text(answer).await;
        let events: Vec<_> = body.split_terminator("\n\n").collect();
        // A reset may overtake the bytes before it.
        let events = events.strip_prefix(&["data: 1"]).unwrap_or(&events);
        assert_eq!(events.len(), 2, "{body}");
        let error: serde_json::Value =
            serde_json::from_str(events[0].strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(error["error"]["code"], "stream_broken");
        assert_eq!(events[1], "data: [DONE]");
        assert_eq!(ends.lock().unwrap().as_slice(), [End::Broken]);
        assert_eq!(world.shim(0).count(Outcome::ServerError), 1);
        world.assert_idle();
    }
}

#[tokio::test]
async fn a_silent_stream_ends_with_a_timeout_event() {
    let shim = stub(|_| {
        vec![
            stub::stream_head(),
            stub::chunk("data: 1\n\n"),
            Act::UntilPeerLeaves,
        ]
    })
    .await;
    let world = World::with(&[shim.url()], &[], |config| {
        config.server.timeouts.idle = Duration::from_millis(20)
    });
    let served = world.pinned(&mut world.script(1, LIVE), false).await.unwrap();
    let answer = hand_on(served);
    let ends = Arc::clone(&answer.body().hooks().as_ref().unwrap().ends);
    let (_, body) = text(answer).await;
    assert!(
        body.starts_with("data: 1\n\ndata: {\"error\"") && body.ends_with("\n\ndata: [DONE]\n\n"),
        "{body}"
    );
    assert_eq!(ends.lock().unwrap().as_slice(), [End::TimedOut(Deadline::Idle)]);
    world.assert_idle();
}

#[tokio::test]
async fn a_buffered_answer_that_breaks_is_aborted() {
    let shim = stub(|_| {
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"half\":";
        vec![Act::Send(head.as_bytes().to_vec()), Act::Close]
    })
    .await;
    let world = World::new(&[shim.url()], &[]);
    let served = world.pinned(&mut world.script(1, LIVE), false).await.unwrap();
    let failed = hand_on(served).into_body().collect().await.err();
    assert_eq!(failed, Some(Error::StreamBroken));
    world.assert_idle();
}

#[tokio::test]
async fn an_error_event_is_relayed_and_counted() {
    let shim = stub(|_| {
        stub::stream(&[
            "1",
            r#"{"error":{"message":"Internal server error","code":500}}"#,
            "[DONE]",
        ])
    })
    .await;
    let world = World::new(&[shim.url()], &[]);
    let served = world.pinned(&mut world.script(1, LIVE), false).await.unwrap();
    let answer = hand_on(served);
    let ends = Arc::clone(&answer.body().hooks().as_ref().unwrap().ends);
    let (_, body) = text(answer).await;
    assert_eq!(
        body,
        "data: 1\n\ndata: {\"error\":{\"message\":\"Internal server error\",\"code\":500}}\n\ndata: [DONE]\n\n"
    );
    assert_eq!(ends.lock().unwrap().as_slice(), [End::ErrorEvent]);
    assert_eq!(world.shim(0).count(Outcome::ServerError), 1);
}

#[tokio::test]
async fn each_chunk_leaves_when_it_arrives() {
    let gates: [Gate; 2] = Default::default();
    let script = gates.clone();
    let shim = stub(move |_| {
        let [first, second] = script.clone();
        vec![
            stub::stream_head(),
            stub::chunk("data: 1\n\n"),
            Act::Hold(first),
            stub::chunk("data: 2\n\n"),
            Act::Hold(second),
            stub::last_chunk(),
        ]
    })
    .await;
    let world = World::new(&[shim.url()], &[]);
    let mut answer = hand_on(world.pinned(&mut world.script(1, LIVE), false).await.unwrap());
    for (gate, expected) in gates.iter().zip(["data: 1\n\n", "data: 2\n\n"]) {
        let frame = answer.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), expected);
        gate.open();
    }
    assert!(answer.body_mut().frame().await.is_none());
    assert!(answer.body().is_end_stream());
    drop(answer);
    world.assert_idle();
}

#[tokio::test]
async fn a_backend_that_leaves_the_configuration_finishes_its_streams() {
    let gate = Gate::default();
    let held = gate.clone();
    let shim = stub(move |_| {
        vec![
            stub::stream_head(),
            stub::chunk("data: 1\n\n"),
            Act::Hold(held.clone()),
            stub::last_chunk(),
        ]
    })
    .await;
    let mut world = World::new(&[shim.url()], &[]);
    let served = world.pinned(&mut world.script(1, LIVE), false).await.unwrap();
    let old = world.shim(0);
    world.config.backends.clear();
    world.config.dynamo.shim.backends.clear();
    world.backends.apply(&world.config).unwrap();
    assert!(world.backends.load().backend("shim0").is_none());
    gate.open();
    assert_eq!(text(hand_on(served)).await, (200, "data: 1\n\n".to_owned()));
    assert_eq!(old.in_flight(), 0);
}

#[tokio::test]
async fn a_unix_socket_is_a_backend() {
    let folder = tempfile::tempdir().unwrap();
    let shim = Stub::unix(&folder.path().join("shim.sock"), |_| stub::json(200, "{}")).unwrap();
    let world = World::new(&[shim.url()], &[]);
    let served = world.pinned(&mut world.script(1, LIVE), false).await.unwrap();
    assert_eq!(text(hand_on(served)).await.0, 200);
    assert_eq!(shim.seen()[0].header("host"), Some("localhost"));
}

#[tokio::test]
async fn the_backends_key_is_sent() {
    let other = stub(|_| stub::json(200, "{}")).await;
    let world = World::with(&[], &[other.url()], |config| {
        config.backends[0].api_key = Some(continuum_config::Secret::new("secret"));
    });
    assert!(unpinned::<Pin>(&ask(), &world.backends.load()).await.is_ok());
    assert_eq!(other.seen()[0].header("authorization"), Some("Bearer secret"));
}

/// Why the first of the tasks failed that fails at all.
async fn first_failure(tasks: &mut tokio::task::JoinSet<()>) -> tokio::task::JoinError {
    while let Some(ended) = tasks.join_next().await {
        if let Err(failed) = ended {
            return failed;
        }
    }
    std::future::pending().await
}

/// A thousand streams at once, each with one of five endings; afterwards nothing of them is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_a_thousand_streams() {
    let all = tokio::time::timeout(Duration::from_secs(60), thousand_streams()).await;
    assert!(all.is_ok(), "something is left, or never came");
}

async fn thousand_streams() {
    let gate = Arc::new(Mutex::new(Gate::default()));
    let current = Arc::clone(&gate);
    let shim = stub(move |seen| {
        let held = current.lock().unwrap().clone();
        let mut acts = vec![stub::stream_head(), stub::chunk("data: 1\n\n")];
        match pin_of(seen) {
            // Finishes.
            "0" => acts.extend([Act::Hold(held), stub::chunk("data: 2\n\n"), stub::last_chunk()]),
            // The client leaves.
            "1" => acts.push(Act::UntilPeerLeaves),
            // Resets.
            "2" => acts.extend([Act::Hold(held), Act::Reset]),
            // Breaks off inside an event.
            "3" => acts.extend([Act::Hold(held), stub::chunk("data: {"), Act::Close]),
            // Never answers; the client leaves before the head.
            _ => acts = vec![Act::UntilPeerLeaves],
        }
        acts
    })
    .await;
    let world = World::with(&[shim.url()], &[], |config| {
        // Nothing but the streams: no check may borrow a connection, and a thousand connects may take a while.
        config.backends[0].health.interval = Duration::from_secs(3600);
        config.backends[0].connect_timeout = Duration::from_secs(60);
        config.backends[0].pool.idle_timeout = Duration::from_secs(3600);
    });
    let world = Arc::new(world);
    world.listed().await;
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    for _round in 0..2 {
        *gate.lock().unwrap() = Gate::default();
        let mut streams = tokio::task::JoinSet::new();
        let mut hanging = tokio::task::JoinSet::new();
        let begun = Arc::new(tokio::sync::Semaphore::new(0));
        for number in 0..1000 {
            let (world, begun) = (Arc::clone(&world), Arc::clone(&begun));
            let stream = async move {
                let mut script = world.script(0, LIVE);
                let mut pin = script.pin();
                pin.number = number % 5;
                let served = pinned(
                    &ask(),
                    &world.backends.load(),
                    &mut script,
                    pin,
                    false,
                    &world.metrics,
                )
                .await;
                let mut body = hand_on(served.unwrap()).into_body();
                assert!(body.frame().await.unwrap().is_ok());
                begun.add_permits(1);
                if number % 5 == 1 {
                    return;
                }
                while let Some(frame) = body.frame().await {
                    frame.unwrap();
                }
            };
            if number % 5 == 4 {
                hanging.spawn(stream);
            } else {
                streams.spawn(stream);
            }
        }
        tokio::select! {
            all = begun.acquire_many(800) => drop(all.unwrap()),
            ended = first_failure(&mut streams) => panic!("{ended}"),
        }
        gate.lock().unwrap().open();
        while let Some(ended) = streams.join_next().await {
            ended.unwrap();
        }
        hanging.shutdown().await;
        world.assert_idle();
        let shim0 = world.shim(0);
        shim.until_open(|| shim0.idle_connections()).await;
    }
    let shim0 = world.shim(0);
    assert_eq!(shim0.count(Outcome::Ok), 400);
    assert_eq!(shim0.count(Outcome::ServerError), 800);
    assert_eq!(shim0.count(Outcome::Canceled), 800);
    // What lives: the stub's accepting and idle connections, our idle connections, and the health task.
    let idle = shim0.idle_connections();
    let wanted = 2 * idle + 2;
    while alive() > wanted {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_request_that_nobody_was_picked_for_is_counted_and_may_fall_back() {
    let other = stub(|_| stub::json(200, "{}")).await;
    let world = World::new(&[], &[other.url()]);
    let set = world.backends.load();
    let failed = || Error::NoCandidate {
        model: ModelName::from("m"),
    };
    let refused = instead::<Pin>(&ask(), &set, failed(), false, &world.metrics).await;
    assert_eq!(refused.err(), Some(failed()));
    let served = instead::<Pin>(&ask(), &set, failed(), true, &world.metrics)
        .await
        .unwrap();
    assert!(served.fallback && served.pin.is_none());
    assert_eq!(world.metrics.errors(crate::error::Phase::Orchestration), 2);
    assert_eq!(world.metrics.retries(Retry::Fallback), 1);
    drop(served);
    world.assert_idle();
}

#[tokio::test]
async fn trailers_stay_here_and_the_stream_is_complete() {
    let shim = stub(|_| {
        let last = Act::Send(b"0\r\nx-dynamo-worker-instance-id: 7\r\n\r\n".to_vec());
        vec![stub::stream_head(), stub::chunk("data: 1\n\n"), last]
    })
    .await;
    let world = World::new(&[shim.url()], &[]);
    let mut script = world.script(1, LIVE);
    let served = world.pinned(&mut script, false).await.ok().unwrap();
    let ends = Arc::clone(&served.pin.as_ref().unwrap().ends);
    let body = hand_on(served).into_body().collect().await.unwrap();
    assert!(body.trailers().is_none());
    assert_eq!(*ends.lock().unwrap(), [End::Complete]);
    drop(body);
    world.assert_idle();
}

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::Instant};

use super::*;

/// An API server with one Lease. It holds back the answers to whom it does not like, and perhaps writes all the same.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lease: Option<Value>,
    version: u64,
    /// From then on this replica hears nothing.
    deaf: Option<(&'static str, Instant)>,
    /// Its requests reach the server nevertheless for this long.
    heard_for: Duration,
    /// How long an answer takes.
    takes: Duration,
}

impl Server {
    fn client(&self, who: &'static str) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(who, request).await) }
        });
        Client::new(service, "ns")
    }

    async fn answer(&self, who: &'static str, request: Request<Body>) -> Response<Body> {
        let takes = self.0.lock().unwrap().takes;
        sleep(takes / 2).await;
        let (deaf, unheard) = {
            let state = self.0.lock().unwrap();
            let since = state.deaf.filter(|(name, _)| *name == who);
            let since = since.and_then(|(_, since)| Instant::now().checked_duration_since(since));
            (
                since.is_some(),
                since.is_some_and(|since| since >= state.heard_for),
            )
        };
        if unheard {
            std::future::pending::<()>().await;
        }
        let method = request.method().clone();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let (status, answer) = self.0.lock().unwrap().answer(&method, &body);
        if deaf {
            std::future::pending::<()>().await;
        }
        sleep(takes / 2).await;
        let body = Body::from(answer.to_string().into_bytes());
        Response::builder().status(status).body(body).unwrap()
    }
}

impl State {
    fn answer(&mut self, method: &Method, body: &[u8]) -> (StatusCode, Value) {
        let failed = |status: StatusCode| {
            let code = status.as_u16();
            (
                status,
                json!({ "kind": "Status", "status": "Failure", "code": code, "reason": status.canonical_reason().map(|reason| reason.replace(' ', "")), "message": "" }),
            )
        };
        if *method == Method::GET {
            return match &self.lease {
                Some(lease) => (StatusCode::OK, lease.clone()),
                None => failed(StatusCode::NOT_FOUND),
            };
        }
        let mut lease: Value = serde_json::from_slice(body).unwrap();
        let current = self
            .lease
            .as_ref()
            .map(|lease| &lease["metadata"]["resourceVersion"]);
        if current.is_some_and(|current| *current != lease["metadata"]["resourceVersion"]) {
            return failed(StatusCode::CONFLICT);
        }
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.lease = Some(lease.clone());
        (StatusCode::OK, lease)
    }
}

/// A replica until it is dropped.
struct Replica {
    leads: watch::Receiver<bool>,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Replica {
    fn start(server: &Server, who: &'static str) -> Self {
        let (election, leads) = Election::new(server.client(who), "ns", "lease", who);
        let stop = CancellationToken::new();
        let running = tokio::spawn(election.run(stop.clone()));
        Self { leads, stop, running }
    }

    fn leads(&self) -> bool {
        *self.leads.borrow()
    }

    async fn until(&mut self, leads: bool) {
        let told = self.leads.wait_for(|now| *now == leads);
        // Of virtual time.
        timeout(Duration::from_secs(120), told).await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_hears_nothing_stops_before_anybody_else_begins() {
    // Wherever in its round the silence begins, and whether or not what it still says is heard.
    for step in 0..40_u64 {
        for (heard, takes) in [(0, 0), (3, 0), (60, 0), (0, 1500), (3, 1500)] {
            let server = Server::default();
            server.0.lock().unwrap().takes = Duration::from_millis(takes);
            let mut first = Replica::start(&server, "first");
            first.until(true).await;
            let mut second = Replica::start(&server, "second");
            sleep(Duration::from_millis(20_000 + step * 100)).await;
            assert!(first.leads() && !second.leads());
            {
                let mut state = server.0.lock().unwrap();
                state.deaf = Some(("first", Instant::now()));
                state.heard_for = Duration::from_secs(heard);
            }
            let silent = Instant::now();
            first.until(false).await;
            let stopped = Instant::now();
            assert!(!second.leads(), "both lead");
            assert!(stopped - silent <= DEADLINE, "{:?}", stopped - silent);
            if heard < 60 {
                second.until(true).await;
                // Time for whatever it was writing when it stopped.
                assert!(
                    stopped.elapsed() >= Duration::from_secs(4),
                    "{:?}",
                    stopped.elapsed()
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_gives_the_lease_up() {
    let server = Server::default();
    let mut first = Replica::start(&server, "first");
    first.until(true).await;
    let mut second = Replica::start(&server, "second");
    sleep(Duration::from_secs(5)).await;
    let asked = Instant::now();
    first.stop.cancel();
    second.until(true).await;
    assert!(!first.leads() && asked.elapsed() <= RETRY);
}

#[tokio::test(start_paused = true)]
async fn a_write_is_given_up_with_the_leadership() {
    let (sender, leads) = watch::channel(true);
    assert_eq!(while_leading(&leads, async { 1 }).await, Some(1));
    let hanging = while_leading(&leads, std::future::pending::<()>());
    let (done, ()) = tokio::join!(hanging, async { sender.send(false).unwrap() });
    assert_eq!(done, None);
    assert_eq!(while_leading(&leads, async { 1 }).await, None);
}

#[test]
fn a_lease_is_taken_when_it_is_free_ours_or_not_renewed() {
    let held = |holder: Option<&str>| LeaseSpec {
        holder_identity: holder.map(str::to_owned),
        lease_duration_seconds: Some(15),
        ..LeaseSpec::default()
    };
    for (holder, unchanged, expected) in [
        (None, 0, Step::Take),
        (Some(""), 0, Step::Take),
        (Some("me"), 0, Step::Take),
        (Some("other"), 15, Step::Wait),
        (Some("other"), 16, Step::Take),
    ] {
        assert_eq!(
            step(&held(holder), "me", Duration::from_secs(unchanged)),
            expected,
            "{holder:?}"
        );
    }
}

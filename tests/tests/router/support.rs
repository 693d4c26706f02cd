//! A whole router in this process, on ports of its own, and a client that sees every byte of its answers.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::OnceLock,
    time::{Duration, Instant},
};

use bytes::Bytes;
use continuum_fleet_sim::{Pace, Settings, Sim};
use continuum_router::{
    cli::BUILD,
    run::{self, Serving},
};
use continuum_runtime::{
    tasks::Tasks,
    telemetry::{self, LevelHandle},
};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

/// The model of every fleet here.
pub(crate) const MODEL: &str = "sim/tiny";
/// How long a state may take to come about.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running router.
pub(crate) struct Router {
    pub(crate) serving: Serving,
    pub(crate) file: PathBuf,
    tasks: Tasks,
    _folder: TempDir,
}

impl Router {
    /// Starts one with this configuration and waits until it is ready.
    pub(crate) async fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("router.yaml");
        // A reload takes the level of the file.
        let config = format!("logging: {{level: error}}\n{config}");
        std::fs::write(&file, &config).unwrap();
        let tasks = Tasks::new();
        let loaded =
            continuum_config::parse(&config, &|_| None, BUILD).unwrap_or_else(|error| panic!("{error}"));
        let serving = run::start(&file, loaded.config, level(), &tasks.spawner())
            .await
            .unwrap();
        let router = Self {
            serving,
            file,
            tasks,
            _folder: folder,
        };
        until("the router is ready", || router.serving.app.not_ready().is_none()).await;
        router
    }

    /// Starts one in front of a simulated fleet, and waits until it sees all of it and its frontends' lists.
    pub(crate) async fn before(sim: &Sim, store: &TempDir, more: &str) -> Self {
        let frontends: Vec<String> = sim
            .frontends()
            .iter()
            .map(|address| format!("http://{address}"))
            .collect();
        let router = Self::start(&config(store, &frontends, more)).await;
        router.settle(sim.fleet().workers().len()).await;
        router
    }

    /// Waits until so many workers are seen and heard, and every frontend has told its models.
    pub(crate) async fn settle(&self, workers: usize) {
        let app = &self.serving.app;
        until("the fleet is seen and heard", || {
            let subscriptions = app.fleet.subscriptions();
            let heard = subscriptions
                .iter()
                .filter(|row| row.state.as_str() == "connected")
                .count();
            app.fleet.view().workers.len() == workers && heard == workers
        })
        .await;
        until("the frontends have told their models", || {
            let set = app.backends.load();
            let told = set.iter().filter(|backend| backend.is_shim());
            told.clone().count() > 0 && told.clone().all(|backend| backend.listing().is_some())
        })
        .await;
    }

    pub(crate) fn clients(&self) -> SocketAddr {
        self.serving.clients[0].parse().unwrap()
    }

    pub(crate) fn operators(&self) -> SocketAddr {
        self.serving.operators.parse().unwrap()
    }

    /// Asks the admin side for JSON.
    pub(crate) async fn admin(&self, path: &str) -> Value {
        let answer = ask(self.operators(), Request::get(path), "").await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
        answer.json()
    }

    /// The value of one series.
    pub(crate) fn metric(&self, family: &str, labels: &[(&str, &str)]) -> f64 {
        let families = self.serving.app.registry.gather();
        let series = families
            .iter()
            .filter(|found| found.name() == family)
            .flat_map(|found| found.get_metric());
        series
            .filter(|series| {
                labels.iter().all(|(name, value)| {
                    let mut pairs = series.get_label().iter();
                    pairs.any(|pair| pair.name() == *name && pair.value() == *value)
                })
            })
            .map(|series| series.get_counter().get_value() + series.get_gauge().get_value())
            .sum()
    }

    /// Drains it; says whether everything ended by itself.
    pub(crate) async fn stop(self) -> bool {
        self.serving.app.drain();
        self.tasks.drain(PATIENCE, std::future::pending()).await
    }
}

/// The log of this process; its level belongs to nobody.
fn level() -> LevelHandle {
    static LEVEL: OnceLock<LevelHandle> = OnceLock::new();
    LEVEL
        .get_or_init(|| telemetry::init(telemetry::Format::Text, "off").unwrap())
        .clone()
}

/// The configuration of a router before a fleet in a file store and its frontends; `more` is appended as it is.
pub(crate) fn config(store: &TempDir, frontends: &[String], more: &str) -> String {
    let names: Vec<String> = (0..frontends.len()).map(|n| format!("shim-{n}")).collect();
    let backends: String = names
        .iter()
        .zip(frontends)
        .map(|(name, url)| {
            format!(
                "  - {{name: {name}, url: \"{url}\", connect_timeout: 20s, health: {{interval: 200ms}}}}\n"
            )
        })
        .collect();
    let (more, extra_backends) = more.split_once("backends:\n").unwrap_or((more, ""));
    format!(
        "server: {{bind_address: '127.0.0.1:0', body_limit: 64KiB, max_in_flight: 4096}}\n\
         admin: {{bind_address: '127.0.0.1:0'}}\n\
         dynamo:\n  enabled: true\n  discovery: {{source: file, file: {{path: {}}}}}\n  \
         load: {{direct_allow_cidrs: [127.0.0.1/32]}}\n  \
         shim: {{backends: [{}], model_map: {{mapped: {MODEL}}}}}\n{more}backends:\n{backends}{extra_backends}",
        store.path().display(),
        names.join(", "),
    )
}

/// A fleet of two prefill and two decode workers, with `frontends` frontends.
pub(crate) async fn fleet(frontends: usize) -> (Sim, TempDir) {
    let store = tempfile::tempdir().unwrap();
    let sim = Sim::start(Settings {
        namespace: "dynamo".to_owned(),
        model: MODEL.to_owned(),
        prefill: 2,
        decode: 2,
        aggregated: 0,
        ranks: 1,
        store: store.path().to_owned(),
        frontends: vec![([127, 0, 0, 1], 0).into(); frontends],
        pace: Pace {
            prefill_tokens_per_second: 1_000_000,
            token: Duration::from_millis(2),
        },
    })
    .await
    .unwrap();
    (sim, store)
}

/// Waits for a state.
pub(crate) async fn until(what: &str, reached: impl Fn() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < PATIENCE, "not reached: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) async fn of(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        Self {
            status: head.status,
            headers: head.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The events of a stream that are JSON.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.text()
            .split("\n\n")
            .filter_map(|event| serde_json::from_str(event.strip_prefix("data: ")?).ok())
            .collect()
    }

    /// `error.code`.
    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap().to_owned()
    }
}

/// One request on a connection of its own, answered to its end.
pub(crate) async fn ask(to: SocketAddr, request: http::request::Builder, body: impl Into<String>) -> Answer {
    Answer::of(send(TcpStream::connect(to).await.unwrap(), request, body).await).await
}

/// Sends one request on a stream; the head of the answer.
pub(crate) async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: http::request::Builder,
    body: impl Into<String>,
) -> Response<Incoming> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut request = request.body(Full::new(Bytes::from(body.into()))).unwrap();
    request
        .headers_mut()
        .entry("host")
        .or_insert(http::HeaderValue::from_static("127.0.0.1"));
    sender.send_request(request).await.unwrap()
}

/// A chat request; the caller may add headers.
pub(crate) fn post() -> http::request::Builder {
    Request::post("/v1/chat/completions").header("content-type", "application/json")
}

/// The body of a chat request.
pub(crate) fn chat(model: &str, stream: bool) -> Value {
    serde_json::json!({
        "model": model, "stream": stream, "max_tokens": 4, "nvext": {"extra_fields": ["worker_id"]},
        "messages": [{"role": "user", "content": "hello there"}],
    })
}

//! Real controllers, what routers find on disk before them, and clients whose requests may not fail meanwhile.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use continuum_config::model::{Discovery, DiscoverySource};
use continuum_controller::push::{
    AuthError, Authenticator, Fleet, Hub, Identity, Key, Metrics, Pod, Server, Session, SourceId, tls_config,
};
use continuum_fleet::{Graphs, NamespaceMatch, ids::Graph, view::FleetView};
use continuum_messages::{Digest, Epoch, push};
use continuum_push::{Client, Report, Settings};
use continuum_runtime::tasks::Tasks;
use futures::future::BoxFuture;
use http::StatusCode;
use prometheus::Registry;
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::support::{MODEL, PATIENCE, ask, chat, post, until};

/// What routers find on disk, and who the controllers are.
pub(super) struct Ground {
    pub(super) folder: TempDir,
    pub(super) tls: Arc<rustls::ServerConfig>,
    pub(super) port: u16,
}

impl Ground {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = rustls_pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let tls = tls_config(vec![made.cert.der().clone()], key).unwrap();
        std::fs::write(folder.path().join("ca.crt"), made.cert.pem()).unwrap();
        std::fs::write(folder.path().join("token"), "a-token\n").unwrap();
        // Free now; taken again by each controller.
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .unwrap()
            .port();
        Self { folder, tls, port }
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn section(&self, generation: i64) -> String {
        format!(
            "controller: {{endpoint: 'https://localhost:{}', ca_file: {}, token_file: {}, generation: {generation}, \
             upstream: kubernetes}}\n",
            self.port,
            self.file("ca.crt").display(),
            self.file("token").display()
        )
    }

    pub(super) fn settings(&self) -> Settings {
        Settings {
            host: "localhost".to_owned(),
            port: self.port,
            ca_file: self.file("ca.crt"),
            token_file: self.file("token"),
            views: true,
            state_dir: Some(self.file("state")),
            origins: vec![origin(NAMESPACE)],
        }
    }
}

/// Every token is the one of the router pod.
pub(super) struct Tokens;

impl Authenticator for Tokens {
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Identity, AuthError>> {
        Box::pin(async move {
            if token != "a-token" {
                return Err(AuthError::Refused("the token is not a router's".to_owned()));
            }
            Ok(Identity {
                key: key(),
                pod: Pod {
                    name: "router-0".into(),
                    uid: "uid-0".into(),
                },
            })
        })
    }
}

pub(super) fn key() -> Key {
    Key {
        namespace: "ns".into(),
        name: "one".into(),
    }
}

/// The Kubernetes namespace of the fleet; the default of the configuration.
pub(super) const NAMESPACE: &str = "dynamo";

/// What routers are told that a view of that Kubernetes namespace is of.
pub(super) fn origin(namespace: &str) -> String {
    let mut discovery = Discovery {
        source: DiscoverySource::Kubernetes,
        ..Discovery::default()
    };
    discovery.kubernetes.namespace = namespace.to_owned();
    discovery.origins(discovery.source).into_values().collect()
}

/// The Dynamo namespace `dynamo` of that Kubernetes namespace.
pub(super) fn seen(source: SourceId, namespace: &str) -> Fleet {
    Fleet {
        source,
        graphs: Graphs::new([Graph::from("dynamo")], NamespaceMatch::Generation),
        origins: [origin(namespace)].into(),
    }
}

/// A controller replica: the real server over a hub that a test fills.
pub(super) struct Controller {
    pub(super) hub: Arc<Hub>,
    pub(super) source: SourceId,
    pub(super) stop: CancellationToken,
    pub(super) serving: JoinHandle<()>,
    _tls: watch::Sender<Arc<rustls::ServerConfig>>,
}

impl Controller {
    pub(super) async fn start(
        ground: &Ground,
        ip: [u8; 4],
        epoch: u8,
        config: (i64, &str),
        view: &FleetView,
    ) -> Self {
        let metrics = Metrics::register(&Registry::new()).unwrap();
        let hub = Hub::new(
            format!("controller-{epoch}"),
            Epoch::from_raw([epoch; 16]),
            metrics,
        );
        let source = hub.add_source();
        hub.set_fleet(&key(), Some(seen(source, NAMESPACE)));
        hub.set_source_state(
            source,
            push::SourceState {
                kind: "kubernetes".to_owned(),
                connected: true,
                synced: true,
                ..push::SourceState::default()
            },
        );
        hub.set_view(source, view);
        hub.set_config(&key(), "", config.0, config.1);
        let address = SocketAddr::from((ip, ground.port));
        let begun = Instant::now();
        let listener = loop {
            match TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{address}: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let (tls, receiver) = watch::channel(ground.tls.clone());
        let stop = CancellationToken::new();
        let (server, token) = (Server::new(hub.clone(), Arc::new(Tokens)), stop.clone());
        let serving = tokio::spawn(async move { server.run(listener, receiver, token).await.unwrap() });
        Self {
            hub,
            source,
            stop,
            serving,
            _tls: tls,
        }
    }

    pub(super) fn view(&self, view: &FleetView) {
        self.hub.set_view(self.source, view);
    }

    /// What the one router has reported.
    pub(super) fn session(&self) -> Option<Session> {
        self.hub.sessions().of(&key()).into_iter().next()
    }

    pub(super) fn report(&self) -> Option<Arc<push::Report>> {
        self.session()?.report.map(|(report, _)| report)
    }

    pub(super) fn acknowledged(&self) -> bool {
        let newest = self.hub.published(&key()).map(|published| published.id);
        newest.is_some() && self.session().and_then(|session| session.view) == newest
    }

    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.serving.await.unwrap();
    }
}

/// What a test's router puts before each configuration.
pub(super) const LOGGING: &str = "logging: {level: error}\n";

pub(super) fn document(ground: &Ground, frontend: &str, generation: i64, more: &str) -> String {
    format!(
        "{LOGGING}server: {{bind_address: '127.0.0.1:0', {more}}}\nadmin: {{bind_address: '127.0.0.1:0'}}\n\
         backends: [{{name: shim, url: '{frontend}', connect_timeout: 20s, health: {{interval: 200ms}}}}]\n\
         dynamo:\n  enabled: true\n  discovery: {{source: controller}}\n  state_dir: {}\n  \
         load: {{direct_allow_cidrs: [127.0.0.1/32]}}\n  shim: {{backends: [shim]}}\n{}",
        ground.file("state").display(),
        ground.section(generation)
    )
}

/// Requests one after the other until it is stopped; none may fail.
pub(super) struct Traffic {
    pub(super) stop: Arc<AtomicBool>,
    pub(super) answered: Arc<AtomicUsize>,
    pub(super) task: JoinHandle<()>,
}

impl Traffic {
    pub(super) fn start(to: SocketAddr) -> Self {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let task = tokio::spawn({
            let (stop, answered) = (stop.clone(), answered.clone());
            async move {
                while !stop.load(Relaxed) {
                    let answer = ask(to, post(), chat(MODEL, true).to_string()).await;
                    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
                    assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
                    answered.fetch_add(1, Relaxed);
                }
            }
        });
        Self { stop, answered, task }
    }

    /// Waits until so many more have been answered.
    pub(super) async fn goes_on(&self) {
        let before = self.answered.load(Relaxed);
        until("requests go on", || {
            assert!(!self.task.is_finished(), "a request has failed");
            self.answered.load(Relaxed) > before + 10
        })
        .await;
    }

    pub(super) async fn stop(self) {
        self.stop.store(true, Relaxed);
        self.task.await.unwrap();
    }
}

/// The first line of the kept view: what it is of.
pub(super) fn kept(ground: &Ground) -> String {
    let file = std::fs::read(ground.file("state").join("pushed-view")).unwrap_or_default();
    let line = file.split(|byte| *byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(line).into_owned()
}

pub(super) fn is_kept_for(ground: &Ground, namespace: &str) -> bool {
    kept(ground).ends_with(&format!(" {}", Digest::of(origin(namespace).as_bytes())))
}

/// Workers that a process begins with whose configuration names that Kubernetes namespace.
pub(super) async fn begins_with(ground: &Ground, namespace: &str) -> usize {
    let tasks = Tasks::new();
    let settings = Settings {
        // Nobody is there.
        port: 1,
        origins: vec![origin(namespace)],
        ..ground.settings()
    };
    let (_to_settings, settings) = watch::channel(Some(settings));
    let (_to_report, report) = watch::channel(Report::default());
    let client = Client::spawn(&tasks.spawner(), settings, report, &Registry::new()).unwrap();
    client
        .status()
        .wait_for(|status| status.last_error.is_some())
        .await;
    let workers = client.pushed().load().view.workers.len();
    tasks.drain(PATIENCE, std::future::pending()).await;
    workers
}

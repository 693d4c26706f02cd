//! A server on a free port, and routers that connect to it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use continuum_controller::push::{
    AuthError, Authenticator, Fleet, Hub, Identity, Key, Metrics, Pod, Server, SourceId, tls_config,
};
use continuum_fleet::{
    Graphs, NamespaceMatch,
    ids::Graph,
    view::{FleetView, Role},
};
use continuum_messages::{
    Assembled, Assembler, ConfigId, Epoch, ViewId,
    limits::{MAX_FROM_CONTROLLER_BYTES, PROTOCOL},
    push::{self, from_controller::Message, push_client::PushClient},
};
pub(crate) use continuum_testkit::view::worker;
use futures::future::BoxFuture;
use jiff::Timestamp;
use prometheus::Registry;
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
    task::JoinHandle,
    time::timeout,
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{
    Request, Status, Streaming,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};

/// Longer than anything takes here.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A server, its hub and the metrics.
pub(crate) struct Rig {
    pub(crate) hub: Arc<Hub>,
    pub(crate) registry: Registry,
    pub(crate) stop: CancellationToken,
    pub(crate) serving: JoinHandle<()>,
    pub(crate) tls: watch::Sender<Arc<rustls::ServerConfig>>,
    pub(crate) ca: String,
    pub(crate) port: u16,
}

/// Tokens are `<namespace>/<name>/<pod>`; any other is refused.
struct Tokens;

impl Authenticator for Tokens {
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Identity, AuthError>> {
        Box::pin(async move {
            let parts: Vec<&str> = token.split('/').collect();
            let [namespace, name, pod] = parts.as_slice() else {
                return Err(AuthError::Refused("the token is not a router's".to_owned()));
            };
            Ok(Identity {
                key: key(namespace, name),
                pod: Pod {
                    name: (*pod).into(),
                    uid: format!("uid-{pod}").into(),
                },
            })
        })
    }
}

pub(crate) fn key(namespace: &str, name: &str) -> Key {
    Key {
        namespace: namespace.into(),
        name: name.into(),
    }
}

pub(crate) fn certificate() -> (Arc<rustls::ServerConfig>, String) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = tls_config(vec![made.cert.der().clone()], key).unwrap();
    (config, made.cert.pem())
}

impl Rig {
    pub(crate) async fn start() -> Self {
        let registry = Registry::new();
        let metrics = Metrics::register(&registry).unwrap();
        let hub = Hub::new("controller-0", Epoch::from_raw([1; 16]), metrics);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (config, ca) = certificate();
        let (tls, receiver) = watch::channel(config);
        let stop = CancellationToken::new();
        let server = Server::new(Arc::clone(&hub), Arc::new(Tokens));
        let token = stop.clone();
        let serving = tokio::spawn(async move { server.run(listener, receiver, token).await.unwrap() });
        Self {
            hub,
            registry,
            stop,
            serving,
            tls,
            ca,
            port,
        }
    }

    /// A `RouterConfig` whose routers see these Dynamo namespaces of a source.
    pub(crate) fn config(&self, name: &str, source: SourceId, graphs: &[&str]) {
        let graphs = Graphs::new(graphs.iter().map(|g| Graph::from(*g)), NamespaceMatch::Generation);
        self.hub.set_fleet(
            &key("ns", name),
            Some(Fleet {
                source,
                graphs,
                origins: [].into(),
            }),
        );
        self.hub.set_config(&key("ns", name), "", 1, "first");
    }

    pub(crate) async fn channel(&self, ca: &str) -> Result<Channel, tonic::transport::Error> {
        self.channel_at(self.port, ca).await
    }

    pub(crate) async fn channel_at(&self, port: u16, ca: &str) -> Result<Channel, tonic::transport::Error> {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
        Endpoint::from_shared(format!("https://localhost:{port}"))
            .unwrap()
            .tls_config(tls)
            .unwrap()
            // Small, so that who does not read is soon sent nothing.
            .initial_stream_window_size(65_535)
            .initial_connection_window_size(65_535)
            .connect()
            .await
    }

    /// Opens a session and says these messages at once.
    pub(crate) async fn open(&self, token: &str, first: Vec<push::FromRouter>) -> Result<Router, Status> {
        let channel = self.channel(&self.ca).await.unwrap();
        self.open_on(channel, token, first).await
    }

    pub(crate) async fn open_on(
        &self,
        channel: Channel,
        token: &str,
        first: Vec<push::FromRouter>,
    ) -> Result<Router, Status> {
        let mut client = PushClient::new(channel).max_decoding_message_size(MAX_FROM_CONTROLLER_BYTES);
        let (sender, outgoing) = mpsc::channel(64);
        for message in first {
            sender.send(message).await.unwrap();
        }
        let mut request = Request::new(ReceiverStream::new(outgoing));
        if !token.is_empty() {
            request
                .metadata_mut()
                .insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        let incoming = client.session(request).await?.into_inner();
        Ok(Router {
            sender,
            incoming,
            assembler: Assembler::new(),
            configs: Vec::new(),
            sources: Vec::new(),
        })
    }

    /// A router that follows and has nothing, welcomed.
    pub(crate) async fn router(&self, token: &str) -> Router {
        let mut router = self
            .open(token, vec![hello(Some(follow(None, None)))])
            .await
            .unwrap();
        router.welcome().await;
        router
    }

    pub(crate) fn metric(&self, name: &str, label: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name).unwrap();
        let metrics = family.get_metric().iter();
        let mut matching =
            metrics.filter(|m| label.is_empty() || m.get_label().iter().any(|l| l.value() == label));
        let metric = matching.next().unwrap();
        metric.get_counter().get_value()
            + metric.get_gauge().get_value()
            + f64::from(u32::try_from(metric.get_histogram().get_sample_count()).unwrap())
    }

    /// Waits until the sessions of a `RouterConfig` meet a condition.
    pub(crate) async fn sessions(
        &self,
        name: &str,
        check: impl Fn(&[continuum_controller::push::Session]) -> bool,
    ) {
        let mut changes = self.hub.sessions().subscribe();
        let wait = async {
            while !check(&self.hub.sessions().of(&key("ns", name))) {
                changes.changed().await.unwrap();
            }
        };
        timeout(PATIENCE, wait).await.unwrap();
    }
}

/// A router's end of a session.
pub(crate) struct Router {
    pub(crate) sender: mpsc::Sender<push::FromRouter>,
    pub(crate) incoming: Streaming<push::FromController>,
    pub(crate) assembler: Assembler,
    pub(crate) configs: Vec<push::ConfigUpdate>,
    pub(crate) sources: Vec<push::SourceState>,
}

impl Router {
    pub(crate) async fn welcome(&mut self) -> push::Welcome {
        let Message::Welcome(welcome) = self.next().await.unwrap() else {
            panic!("a session begins with a welcome")
        };
        welcome
    }

    pub(crate) async fn next(&mut self) -> Result<Message, Status> {
        let message = timeout(PATIENCE, self.incoming.message()).await.unwrap()?;
        Ok(message.expect("a session ends with a status").message.unwrap())
    }

    /// Goes on until a view is whole; reports every heartbeat, as a router does.
    pub(crate) async fn view(&mut self) -> Assembled {
        loop {
            match self.next().await.unwrap() {
                Message::View(part) => {
                    if let Some(whole) = self.assembler.push(part, Timestamp::UNIX_EPOCH).unwrap() {
                        self.report().await;
                        return whole;
                    }
                }
                Message::Config(config) => self.configs.push(config),
                Message::Source(source) => self.sources.push(source),
                Message::Heartbeat(_) => self.report().await,
                Message::Welcome(_) => panic!("welcomed twice"),
            }
        }
    }

    /// Goes on until the view has this many workers.
    pub(crate) async fn workers(&mut self, count: usize) -> Assembled {
        loop {
            let whole = self.view().await;
            if whole.view.workers.len() == count {
                return whole;
            }
        }
    }

    /// Goes on until the session ends.
    pub(crate) async fn end(&mut self) -> Status {
        loop {
            if let Err(status) = self.next().await {
                return status;
            }
        }
    }

    pub(crate) async fn report(&self) {
        let report = push::Report {
            view: self.assembler.id().map(Into::into),
            ready: true,
            ..push::Report::default()
        };
        let _ended = self
            .sender
            .send(message(push::from_router::Message::Report(report)))
            .await;
    }
}

pub(crate) fn hello(follow: Option<push::Follow>) -> push::FromRouter {
    message(push::from_router::Message::Hello(push::Hello {
        protocol: PROTOCOL,
        version: "test".to_owned(),
        follow,
    }))
}

pub(crate) fn follow(view: Option<ViewId>, config: Option<ConfigId>) -> push::Follow {
    push::Follow {
        follow: true,
        view: view.map(Into::into),
        config: config.map(Into::into),
    }
}

pub(crate) const fn message(message: push::from_router::Message) -> push::FromRouter {
    push::FromRouter {
        message: Some(message),
    }
}

/// A fleet: workers by Dynamo namespace.
pub(crate) fn fleet(namespaces: &[(&str, u64)]) -> FleetView {
    let mut view = FleetView::default();
    for (namespace, count) in namespaces {
        for id in 0..*count {
            let worker = worker(namespace, id, Role::Decode);
            view.workers.insert(worker.key.clone(), worker);
        }
    }
    view
}

/// Roles of the workers, for short assertions.
pub(crate) fn roles(view: &FleetView) -> BTreeMap<Role, usize> {
    let mut roles = BTreeMap::new();
    for worker in view.workers.values() {
        *roles.entry(worker.role).or_default() += 1;
    }
    roles
}

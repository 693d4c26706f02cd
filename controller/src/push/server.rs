//! The listener: TLS 1.3, HTTP/2, a bounded number of connections, and who may open a session.

use std::sync::Arc;

use continuum_messages::{
    limits::MAX_FROM_ROUTER_BYTES,
    push::{
        FromRouter,
        push_server::{Push, PushServer},
    },
};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::{
    AuthError, Authenticator, Hub, Identity, Refusal,
    auth::Cached,
    connection::{Connection, Usage},
    limits::{GRACE, HANDSHAKE, KEEP_ALIVE, MAX_HEADER_BYTES, MAX_STRANGERS, MAX_TOKEN_BYTES},
    places::Places,
    session::{Begin, Replies},
    strangers::{Peer, Strangers},
};

/// Streams on one connection: a router opens one, and one more while it replaces it.
const STREAMS: u32 = 4;

/// Pause after the listener failed to accept, for instance for want of file descriptors.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// The push server of one controller replica.
pub struct Server {
    hub: Arc<Hub>,
    authenticator: Arc<Cached>,
    /// Connections of routers.
    places: Arc<Places>,
}

/// TLS 1.3 with HTTP/2, for a certificate chain and its key.
///
/// # Errors
/// When key and certificate do not fit or cannot be used.
pub fn tls_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

impl Server {
    /// A server that gives out what `hub` knows to whom `authenticator` knows.
    #[must_use]
    pub fn new(hub: Arc<Hub>, authenticator: Arc<dyn Authenticator>) -> Self {
        Self {
            hub,
            authenticator: Arc::new(Cached::new(authenticator)),
            places: Arc::default(),
        }
    }

    /// Serves until `stop`, then ends the sessions. A new value in `tls` is used for the next connection.
    ///
    /// # Errors
    /// When the HTTP/2 server ends by itself.
    pub async fn run(
        self,
        listener: TcpListener,
        tls: watch::Receiver<Arc<ServerConfig>>,
        stop: CancellationToken,
    ) -> Result<(), tonic::transport::Error> {
        let (sender, incoming) = mpsc::channel(MAX_STRANGERS);
        let hub = Arc::clone(&self.hub);
        let acceptor = tokio::spawn(accept(listener, tls, sender, Arc::clone(&hub), stop.clone()));
        let service = PushServer::new(self).max_decoding_message_size(MAX_FROM_ROUTER_BYTES);
        let serving = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(KEEP_ALIVE))
            .http2_keepalive_timeout(Some(KEEP_ALIVE))
            .http2_max_header_list_size(MAX_HEADER_BYTES)
            .max_concurrent_streams(STREAMS)
            .add_service(service)
            .serve_with_incoming_shutdown(ReceiverStream::new(incoming), stop.clone().cancelled_owned());
        let ended = tokio::select! {
            ended = serving => ended,
            () = async {
                stop.cancelled().await;
                hub.stop();
                sleep(GRACE).await;
            } => Ok(()),
        };
        acceptor.abort();
        ended
    }
}

#[tonic::async_trait]
impl Push for Server {
    type SessionStream = Replies;

    async fn session(&self, request: Request<Streaming<FromRouter>>) -> Result<Response<Replies>, Status> {
        let Some(usage) = request.extensions().get::<Usage>().cloned() else {
            return Err(Status::internal("a connection of this server is known to it"));
        };
        let identity = match self.identify(&request, usage.peer()).await {
            Ok(identity) => identity,
            Err((reason, status)) => {
                self.hub.metrics.refused(reason);
                usage.refuse();
                return Err(status);
            }
        };
        if self.hub.stopping().is_cancelled() {
            return Err(Status::unavailable("this controller replica stops: use another"));
        }
        let Some(feed) = self.hub.feed(&identity.key) else {
            self.hub.metrics.refused(Refusal::Unknown);
            return Err(Status::not_found(format!(
                "no RouterConfig {} is served here, or not yet",
                identity.key
            )));
        };
        if !usage.known(&self.places, &identity.key) {
            self.hub.metrics.refused(Refusal::Full);
            usage.refuse();
            return Err(Status::resource_exhausted(
                "there are too many connections of routers",
            ));
        }
        let replies = Begin {
            hub: Arc::clone(&self.hub),
            identity,
            feed,
            inbound: request.into_inner(),
            in_use: usage.begin(),
        }
        .spawn();
        Ok(Response::new(replies))
    }
}

impl Server {
    async fn identify(
        &self,
        request: &Request<Streaming<FromRouter>>,
        peer: Peer,
    ) -> Result<Identity, (Refusal, Status)> {
        let token = request
            .metadata()
            .get("authorization")
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "))
            .filter(|token| !token.is_empty() && token.len() <= MAX_TOKEN_BYTES);
        let Some(token) = token else {
            let text = "a bearer token of the router's ServiceAccount is needed";
            return Err((Refusal::NoToken, Status::unauthenticated(text)));
        };
        self.authenticator
            .authenticate(token, peer)
            .await
            .map_err(|error| match &error {
                AuthError::Refused(_) => (Refusal::Token, Status::unauthenticated(error.to_string())),
                AuthError::Unavailable(_) => (Refusal::Review, Status::unavailable(error.to_string())),
                AuthError::Pause => (Refusal::Pause, Status::resource_exhausted(error.to_string())),
            })
    }
}

/// Takes connections until `stop`, each as a stranger; handshakes run beside each other.
async fn accept(
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    sender: mpsc::Sender<Result<Connection, std::convert::Infallible>>,
    hub: Arc<Hub>,
    stop: CancellationToken,
) {
    let strangers = Arc::new(Strangers::default());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let Ok((stream, from)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (stranger, evicted) = strangers.admit(from.ip().into());
        if evicted {
            hub.metrics.refused(Refusal::Full);
        }
        let config = Arc::clone(&tls.borrow());
        let (sender, hub) = (sender.clone(), Arc::clone(&hub));
        tokio::spawn(async move {
            let made_way = stranger.made_way.clone();
            let work = async {
                match timeout(HANDSHAKE, handshake(stream, config)).await {
                    Ok(Some(stream)) => {
                        let connection = Connection::new(stream, from.ip(), stranger, hub.metrics.clone());
                        let _stopped = sender.send(Ok(connection)).await;
                    }
                    Ok(None) | Err(_) => hub.metrics.refused(Refusal::Tls),
                }
            };
            made_way.run_until_cancelled(work).await;
        });
    }
}

async fn handshake(stream: TcpStream, config: Arc<ServerConfig>) -> Option<TlsStream<TcpStream>> {
    // Small messages that must not wait for each other.
    stream.set_nodelay(true).ok()?;
    TlsAcceptor::from(config).accept(stream).await.ok()
}

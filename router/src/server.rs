//! Listeners: from a socket to one HTTP exchange after another.
//!
//! A connection speaks HTTP/1.1 or HTTP/2, told apart by its first bytes (or by ALPN under TLS). When the process
//! drains, listeners close and exchanges go on; each connection ends with its next one, or when it has been idle for a
//! while.

mod exchanges;
pub mod limits;
mod opening;
mod stall;
mod tls;
mod unread;

use std::{
    convert::Infallible,
    future::Future,
    io,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
};

use continuum_config::{
    model::{Server, ServerTls},
    value::BindAddress,
};
use http::{HeaderValue, Request, Response, Version, header::CONNECTION};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    time::{Instant, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info, warn};

use self::{
    exchanges::Exchanges,
    limits::{
        ACCEPT_PAUSE, ACCEPT_SAID_AGAIN, DRAIN_IDLE, DRAIN_PAUSE, HANDSHAKE_TIMEOUT, HEAD_TIMEOUT,
        MAX_CONCURRENT_STREAMS, MAX_HEAD_BYTES, OPENING_TIMEOUT, WRITE_TIMEOUT,
    },
    opening::Opening,
    stall::Stall,
    unread::Answer,
};

/// Why a listener cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// As configured.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The certificate cannot be used.
    #[error("cannot use the certificate of `server.tls`: {0}")]
    Tls(String),
}

/// One bound address.
pub struct Listener {
    socket: Socket,
    tls: Option<TlsAcceptor>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Binds all addresses of the server.
    ///
    /// # Errors
    /// The first address that cannot be bound, or an unusable certificate.
    pub async fn bind_all(server: &Server) -> Result<Vec<Self>, Error> {
        let mut listeners = Vec::new();
        for address in &server.bind_address.0 {
            listeners.push(Self::bind(address, server.tls.as_ref()).await?);
        }
        Ok(listeners)
    }

    /// Binds one address; TLS is for TCP alone.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn bind(address: &BindAddress, tls: Option<&ServerTls>) -> Result<Self, Error> {
        let refused = |source| Error::Bind {
            address: address.to_string(),
            source,
        };
        Ok(match address {
            BindAddress::Tcp(address) => Self {
                socket: Socket::Tcp(TcpListener::bind(address).await.map_err(refused)?),
                tls: tls.map(tls::acceptor).transpose()?,
            },
            BindAddress::Unix(path) => Self {
                socket: Socket::Unix(bind_unix(path).map_err(refused)?, path.clone()),
                tls: None,
            },
        })
    }

    /// Where it listens, for logs and tests: with port 0 the port that was given.
    #[must_use]
    pub fn address(&self) -> String {
        match &self.socket {
            Socket::Tcp(listener) => listener
                .local_addr()
                .map_or_else(|_| "?".to_owned(), |a| a.to_string()),
            Socket::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }

    /// Serves connections until `stop`, then waits for the exchanges in flight.
    pub async fn run<H, F, B>(self, handle: H, stop: CancellationToken)
    where
        H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
        B: Body + Unpin + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let connections = TaskTracker::new();
        let http = Arc::new(protocol());
        info!(address = self.address(), tls = self.tls.is_some(), "listening");
        let mut said: Option<Instant> = None;
        while let Some(accepted) = stop.run_until_cancelled(self.accept()).await {
            let stream = match accepted {
                Ok(stream) => stream,
                Err(error) => {
                    if said.is_none_or(|said| said.elapsed() >= ACCEPT_SAID_AGAIN) {
                        warn!(%error, "could not accept a connection");
                        said = Some(Instant::now());
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (tls, http, handle) = (self.tls.clone(), http.clone(), handle.clone());
            let stop = stop.clone();
            connections.spawn(async move {
                let Some(Some(stream)) = stop.run_until_cancelled(opened(stream, tls)).await else {
                    return;
                };
                let exchanges = Exchanges::default();
                let counted = exchanges.clone();
                let stopping = stop.clone();
                let service = hyper::service::service_fn(move |request| {
                    let (exchange, version) = (counted.begin(), request.version());
                    let (answering, stopping) = (handle(request), stopping.clone());
                    async move {
                        answering.await.map(|mut response| {
                            if stopping.is_cancelled() && version < Version::HTTP_2 {
                                response
                                    .headers_mut()
                                    .insert(CONNECTION, HeaderValue::from_static("close"));
                            }
                            response.map(|body| Answer::new(exchange.of(body), version, WRITE_TIMEOUT))
                        })
                    }
                });
                let mut connection = pin!(http.serve_connection(
                    TokioIo::new(Stall::new(Opening::new(stream, OPENING_TIMEOUT), WRITE_TIMEOUT)),
                    service
                ));
                let ended = tokio::select! {
                    ended = connection.as_mut() => ended,
                    () = stop.cancelled() => tokio::select! {
                        ended = connection.as_mut() => ended,
                        () = exchanges.closable(DRAIN_PAUSE) => {
                            connection.as_mut().graceful_shutdown();
                            tokio::select! {
                                ended = connection => ended,
                                () = exchanges.rested(DRAIN_IDLE) => Ok(()),
                            }
                        }
                    },
                };
                if let Err(error) = ended {
                    debug!(%error, "a client connection ended");
                }
            });
        }
        drop(self);
        connections.close();
        connections.wait().await;
    }

    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Fails where the client has left already, which its own task finds out.
                let _left = stream.set_nodelay(true);
                Box::new(stream)
            }
            Socket::Unix(listener, _) => Box::new(listener.accept().await?.0),
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _already_gone = std::fs::remove_file(path);
        }
    }
}

async fn opened(stream: Box<dyn Stream>, tls: Option<TlsAcceptor>) -> Option<Box<dyn Stream>> {
    let Some(tls) = tls else { return Some(stream) };
    match timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => Some(Box::new(stream)),
        Ok(Err(error)) => {
            debug!(%error, "a TLS handshake failed");
            None
        }
        Err(_) => {
            debug!("a TLS handshake took too long");
            None
        }
    }
}

fn protocol() -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .half_close(false);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES as u32)
        .keep_alive_interval(Some(HEAD_TIMEOUT))
        .adaptive_window(true);
    http
}

/// A socket file that a killed process left behind is in the way of the next one; a living server's is not taken.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        other => other,
    }
}

/// Any connection of a client.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

//! Connections of one backend: the idle ones, newest first, and those that carry an exchange.
//!
//! The newest is reused first, so that the rest of them age and go. A peer that closed a connection while it
//! was idle is noticed by the connection's own task; one that closes it in the very moment of reuse is
//! noticed by [`crate::dispatch::send`].

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use continuum_config::BackendUrl;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    net::{TcpStream, UnixStream},
    task::AbortHandle,
    time::{Instant, timeout, timeout_at},
};

use super::{
    Backend,
    stream::{Answered, Socket, Stream},
};
use crate::dispatch::limits::{LOOKUP_PATIENCE, SETTLE};

/// Bodies are complete when they leave: retries need them.
pub(crate) type OutBody = Full<Bytes>;

/// How often an HTTP/2 connection asks whether its peer is alive, and how long the peer may think.
const H2_PING: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(10));

/// Receive window of an HTTP/2 stream, bytes: an answer of this size never waits for a window update.
const H2_STREAM_WINDOW: u32 = 1 << 20;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("connecting took longer than connect_timeout")]
    Late,
    #[error("cannot connect")]
    Io(#[from] io::Error),
    #[error("cannot begin HTTP")]
    Http(#[from] hyper::Error),
    #[error("another request has just failed to connect")]
    JustFailed,
}

/// The idle connections of one backend.
#[derive(Default)]
pub(crate) struct Pool {
    idle: Mutex<Vec<Idle>>,
    shared: tokio::sync::Mutex<Shared>,
}

/// The one HTTP/2 connection of a backend.
#[derive(Default)]
struct Shared {
    sender: Option<http2::SendRequest<OutBody>>,
    /// When connecting failed last.
    failed: Option<Instant>,
}

struct Idle {
    connection: H1,
    since: Instant,
}

struct H1 {
    sender: http1::SendRequest<OutBody>,
    answered: Answered,
    /// Last, so that the task ends after the sender is gone.
    _driver: Driver,
}

/// Ends the connection's task, and with it the socket, when the connection is dropped.
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A connection that carries one exchange. Dropping it closes an HTTP/1.1 connection at once.
pub(crate) struct Lease {
    connection: Connection,
    reused: bool,
}

enum Connection {
    H1(H1),
    H2(http2::SendRequest<OutBody>),
}

impl Lease {
    /// Whether a request that failed without an answer met a connection that its peer had closed while it was
    /// idle.
    pub(crate) fn was_lost_idle(&self) -> bool {
        self.reused
            && match &self.connection {
                Connection::H1(_) => true,
                // The connection lives: the peer refused this one request.
                Connection::H2(sender) => sender.is_closed(),
            }
    }

    /// Whether a byte has come back since the request was written. An HTTP/2 connection cannot tell.
    pub(crate) fn answered(&self) -> bool {
        match &self.connection {
            Connection::H1(connection) => connection.answered.is_set(),
            Connection::H2(_) => false,
        }
    }

    /// Whether requests name scheme and authority in their target.
    pub(crate) const fn is_h2(&self) -> bool {
        matches!(self.connection, Connection::H2(_))
    }

    pub(crate) async fn send(&mut self, request: Request<OutBody>) -> hyper::Result<Response<Incoming>> {
        match &mut self.connection {
            Connection::H1(connection) => {
                connection.answered.clear();
                connection.sender.send_request(request).await
            }
            Connection::H2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

impl Backend {
    /// An idle connection, or a new one.
    pub(crate) async fn lease(&self) -> Result<Lease, ConnectError> {
        if self.settings().http2 {
            return self.shared_connection().await;
        }
        while let Some(mut connection) = self.pop_idle() {
            // The last answer has been read, but its connection's task may not have seen the end of it yet.
            if connection.sender.is_ready()
                || matches!(timeout(SETTLE, connection.sender.ready()).await, Ok(Ok(())))
            {
                return Ok(Lease {
                    connection: Connection::H1(connection),
                    reused: true,
                });
            }
        }
        self.connect().await
    }

    /// A new connection.
    pub(crate) async fn connect(&self) -> Result<Lease, ConnectError> {
        if self.settings().http2 {
            return self.shared_connection().await;
        }
        let deadline = Instant::now() + self.settings().connect_timeout;
        let answered = Answered::default();
        let io = TokioIo::new(self.open(answered.clone(), deadline).await?);
        let (sender, connection) = http1::handshake(io).await?;
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::trace!(%error, "connection to backend ended");
            }
        });
        let connection = H1 {
            sender,
            answered,
            _driver: Driver(task.abort_handle()),
        };
        Ok(Lease {
            connection: Connection::H1(connection),
            reused: false,
        })
    }

    /// Takes a connection back whose answer has been read to its end.
    pub(crate) fn give_back(&self, lease: Lease) {
        let Connection::H1(connection) = lease.connection else {
            return;
        };
        if connection.sender.is_closed() {
            return;
        }
        let mut idle = self.idle();
        if idle.len() < usize::try_from(self.settings().pool.max_idle).unwrap_or(usize::MAX) {
            idle.push(Idle {
                connection,
                since: Instant::now(),
            });
        }
    }

    /// Closes idle connections that are too old, or that the peer has closed.
    pub(crate) fn prune_idle(&self) {
        let oldest = Instant::now().checked_sub(self.settings().pool.idle_timeout);
        self.idle().retain(|idle| {
            !idle.connection.sender.is_closed() && oldest.is_none_or(|oldest| idle.since > oldest)
        });
    }

    /// How many connections are idle.
    #[must_use]
    pub fn idle_connections(&self) -> usize {
        self.idle().len()
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Idle>> {
        self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pop_idle(&self) -> Option<H1> {
        let mut idle = self.idle();
        while let Some(newest) = idle.pop() {
            if newest.since.elapsed() >= self.settings().pool.idle_timeout {
                // All others are older.
                let old = std::mem::take(&mut *idle);
                drop(idle);
                drop((newest, old));
                return None;
            }
            if !newest.connection.sender.is_closed() {
                return Some(newest.connection);
            }
        }
        None
    }

    /// The one HTTP/2 connection, made anew when it is gone. Others who want it wait here, and learn from the same
    /// attempt that there is none: one after the other they would wait for as many deadlines.
    async fn shared_connection(&self) -> Result<Lease, ConnectError> {
        let asked = Instant::now();
        let mut shared = self.pool.shared.lock().await;
        if let Some(sender) = shared.sender.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(Lease {
                connection: Connection::H2(sender.clone()),
                reused: true,
            });
        }
        if shared.failed.is_some_and(|failed| failed >= asked) {
            return Err(ConnectError::JustFailed);
        }
        let connected = self.connect_h2().await;
        match &connected {
            Ok(sender) => shared.sender = Some(sender.clone()),
            Err(_) => shared.failed = Some(Instant::now()),
        }
        connected.map(|sender| Lease {
            connection: Connection::H2(sender),
            reused: false,
        })
    }

    async fn connect_h2(&self) -> Result<http2::SendRequest<OutBody>, ConnectError> {
        let deadline = Instant::now() + self.settings().connect_timeout;
        let io = TokioIo::new(self.open(Answered::default(), deadline).await?);
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(H2_PING.0)
            .keep_alive_timeout(H2_PING.1)
            .initial_stream_window_size(H2_STREAM_WINDOW)
            .initial_connection_window_size(H2_STREAM_WINDOW * 4)
            .handshake(io)
            .await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::trace!(%error, "connection to backend ended");
            }
        });
        Ok(sender)
    }

    async fn open(&self, answered: Answered, deadline: Instant) -> Result<Stream, ConnectError> {
        let open = async {
            let socket = match (&self.settings().url, self.place()) {
                (BackendUrl::Unix(path), _) => Socket::Unix(UnixStream::connect(path).await?),
                (BackendUrl::Tcp { .. }, None) => return Err(io::Error::from(io::ErrorKind::NotFound).into()),
                (BackendUrl::Tcp { .. }, Some(place)) => {
                    let patience = LOOKUP_PATIENCE.min(self.settings().connect_timeout / 4);
                    let found = place.addresses(patience).await?;
                    self.tell_of(&found);
                    let socket = TcpStream::connect(&*found.addresses).await?;
                    socket.set_nodelay(true)?;
                    match &self.tls {
                        None => Socket::Tcp(socket),
                        Some(tls) => {
                            let stream = tls.connector.connect(tls.name.clone(), socket).await?;
                            Socket::Tls(Box::new(stream))
                        }
                    }
                }
            };
            Ok(Stream::new(socket, answered))
        };
        let opened = timeout_at(deadline, open)
            .await
            .unwrap_or(Err(ConnectError::Late));
        if opened.is_err()
            && let Some(place) = self.place()
        {
            place.doubt();
        }
        opened
    }
}

/// What an exchange needs to give its connection back.
pub(crate) struct Borrowed {
    pub(crate) backend: Arc<Backend>,
    pub(crate) lease: Lease,
}

impl Borrowed {
    /// The answer has been read to its end.
    pub(crate) fn finish(self) {
        self.backend.give_back(self.lease);
    }
}

//! A connection that has passed its TLS handshake: a stranger's until a good token is shown on it, and closed when nobody
//! has a session on it for too long.

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep},
};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use super::{
    Key, Metrics, Refusal,
    limits::{HELLO, LINGER, MAX_UNUSED_SESSIONS},
    places::{Places, Taken},
    strangers::{Peer, Stranger},
};

/// One connection.
pub(super) struct Connection {
    stream: TlsStream<TcpStream>,
    usage: Usage,
    idle: Pin<Box<Sleep>>,
    lingers: bool,
    made_way: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Its place was given to another one.
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    metrics: Metrics,
}

/// Who uses a connection. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Usage(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    peer: Peer,
    sessions: AtomicUsize,
    refused: AtomicBool,
    /// Sessions that ended before they had begun.
    unused: AtomicUsize,
    end: CancellationToken,
    holds: Mutex<Holds>,
}

/// The place that a connection takes.
#[derive(Debug)]
enum Holds {
    Stranger { _place: Stranger },
    Router { place: Taken },
}

/// One session on a connection.
#[derive(Debug)]
pub(super) struct InUse {
    of: Usage,
    begun: bool,
}

impl Connection {
    pub(super) fn new(
        stream: TlsStream<TcpStream>,
        from: IpAddr,
        stranger: Stranger,
        metrics: Metrics,
    ) -> Self {
        let made_way = stranger.made_way.clone().cancelled_owned();
        let end = CancellationToken::new();
        let ended = end.clone().cancelled_owned();
        Self {
            stream,
            usage: Usage(Arc::new(Inner {
                peer: from.into(),
                sessions: AtomicUsize::new(0),
                refused: AtomicBool::new(false),
                unused: AtomicUsize::new(0),
                end,
                holds: Mutex::new(Holds::Stranger { _place: stranger }),
            })),
            idle: Box::pin(sleep(HELLO)),
            lingers: false,
            made_way: Box::pin(made_way),
            ended: Box::pin(ended),
            metrics,
        }
    }

    /// Whether it has to end.
    fn over(&mut self, cx: &mut Context<'_>) -> bool {
        if self.made_way.as_mut().poll(cx).is_ready() && self.usage.is_stranger() {
            return true;
        }
        if self.ended.as_mut().poll(cx).is_ready() {
            if !std::mem::replace(&mut self.lingers, true) {
                self.metrics.refused(Refusal::Full);
            }
            return true;
        }
        if self.usage.0.refused.load(Ordering::Relaxed) && !self.lingers {
            self.lingers = true;
            self.idle.as_mut().reset(Instant::now() + LINGER);
        }
        while self.idle.as_mut().poll(cx).is_ready() {
            if self.usage.0.sessions.load(Ordering::Relaxed) == 0 {
                if !self.lingers {
                    self.metrics.refused(Refusal::Idle);
                }
                return true;
            }
            self.idle.as_mut().reset(Instant::now() + HELLO);
        }
        false
    }
}

impl Usage {
    pub(super) fn peer(&self) -> Peer {
        self.0.peer
    }

    /// A good token of a `RouterConfig` was shown: it takes a place of that, if there is one.
    pub(super) fn known(&self, places: &Arc<Places>, key: &Key) -> bool {
        let mut holds = self.holds();
        if matches!(*holds, Holds::Stranger { .. }) {
            let Some(place) = places.take(key, self.0.end.clone()) else {
                return false;
            };
            *holds = Holds::Router { place };
        }
        true
    }

    /// A bad token was shown, or good ones for nothing: it ends when that was answered.
    pub(super) fn refuse(&self) {
        self.0.refused.store(true, Ordering::Relaxed);
    }

    pub(super) fn begin(&self) -> InUse {
        self.0.sessions.fetch_add(1, Ordering::Relaxed);
        InUse {
            of: self.clone(),
            begun: false,
        }
    }

    fn is_stranger(&self) -> bool {
        matches!(*self.holds(), Holds::Stranger { .. })
    }

    fn holds(&self) -> MutexGuard<'_, Holds> {
        self.0.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InUse {
    /// The router has said hello and was let in.
    pub(super) fn begun(&mut self) {
        if !std::mem::replace(&mut self.begun, true)
            && let Holds::Router { place } = &*self.of.holds()
        {
            place.begun();
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.of.0.sessions.fetch_sub(1, Ordering::Relaxed);
        if self.begun {
            if let Holds::Router { place } = &*self.of.holds() {
                place.ended();
            }
        } else if self.of.0.unused.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_UNUSED_SESSIONS {
            self.of.refuse();
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Usage;

    fn connect_info(&self) -> Usage {
        self.usage.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.over(cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

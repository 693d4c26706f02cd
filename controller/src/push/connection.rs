//! A connection that has passed its TLS handshake, and is closed when nobody opens a session on it.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::OwnedSemaphorePermit,
    time::{Instant, Sleep, sleep},
};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::{Metrics, Refusal, limits::HELLO};

/// One connection; holds its place among [`super::limits::MAX_CONNECTIONS`].
pub(super) struct Connection {
    stream: TlsStream<TcpStream>,
    usage: Usage,
    idle: Pin<Box<Sleep>>,
    metrics: Metrics,
    _place: OwnedSemaphorePermit,
}

/// The number of sessions on a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage(Arc<AtomicUsize>);

/// One session on a connection.
#[derive(Debug)]
pub(super) struct InUse(Usage);

impl Connection {
    pub(super) fn new(stream: TlsStream<TcpStream>, place: OwnedSemaphorePermit, metrics: Metrics) -> Self {
        Self {
            stream,
            usage: Usage::default(),
            idle: Box::pin(sleep(HELLO)),
            metrics,
            _place: place,
        }
    }
}

impl Usage {
    pub(super) fn begin(&self) -> InUse {
        self.0.fetch_add(1, Ordering::Relaxed);
        InUse(self.clone())
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
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
        while self.idle.as_mut().poll(cx).is_ready() {
            if self.usage.0.load(Ordering::Relaxed) == 0 {
                self.metrics.refused(Refusal::Idle);
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.idle.as_mut().reset(Instant::now() + HELLO);
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

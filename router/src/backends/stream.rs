//! One connection's bytes: TCP, TLS or a Unix socket, and whether any has been read.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::client::TlsStream;

/// Set when a byte arrives. A request that failed while this was unset got no byte of an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answered(Arc<AtomicBool>);

impl Answered {
    /// To be called before a request is written.
    pub(crate) fn clear(&self) {
        self.0.store(false, Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// A connection to a backend.
pub(crate) struct Stream {
    socket: Socket,
    answered: Answered,
}

/// The kinds of sockets.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl Stream {
    pub(crate) fn new(socket: Socket, answered: Answered) -> Self {
        Self { socket, answered }
    }
}

macro_rules! on_socket {
    ($self:ident, $socket:ident => $call:expr) => {
        match &mut $self.socket {
            Socket::Tcp($socket) => $call,
            Socket::Tls($socket) => $call,
            Socket::Unix($socket) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = on_socket!(self, socket => Pin::new(socket).poll_read(cx, buf));
        if buf.filled().len() > before {
            self.answered.0.store(true, Relaxed);
        }
        polled
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        on_socket!(self, socket => Pin::new(socket).poll_write(cx, buf))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_socket!(self, socket => Pin::new(socket).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_socket!(self, socket => Pin::new(socket).poll_shutdown(cx))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_socket!(self, socket => Pin::new(socket).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.socket {
            Socket::Tcp(socket) => socket.is_write_vectored(),
            Socket::Tls(socket) => socket.is_write_vectored(),
            Socket::Unix(socket) => socket.is_write_vectored(),
        }
    }
}

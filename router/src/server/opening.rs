//! A client's connection that must begin in time.
//!
//! Which protocol it speaks is told by its first bytes, and before that HTTP has no deadline: whoever says nothing,
//! or only the beginning of an HTTP/2 preface, would hold an open file for good.

use std::{
    future::Future as _,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// What an HTTP/2 connection begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Fails where its peer has not told its protocol within `patience`.
pub(super) struct Opening<S> {
    stream: S,
    /// Until the protocol is known; with the bytes of a preface that have come.
    open: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<S> Opening<S> {
    pub(super) fn new(stream: S, patience: Duration) -> Self {
        Self {
            stream,
            open: Some((Box::pin(sleep(patience)), 0)),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Opening<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let Some((timer, seen)) = &mut self.open else {
            return read;
        };
        if read.is_pending() {
            std::task::ready!(timer.as_mut().poll(cx));
            let late = io::Error::new(io::ErrorKind::TimedOut, "the client did not begin");
            return Poll::Ready(Err(late));
        }
        let bytes = buf.filled().get(before..).unwrap_or_default();
        let rest = PREFACE.get(*seen..).unwrap_or_default();
        *seen += bytes.len();
        if bytes.len() >= rest.len() || !rest.starts_with(bytes) {
            self.open = None;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Opening<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
        time::{Instant, timeout},
    };

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_is_cut_off_and_who_has_begun_is_not() {
        for said in [&b""[..], b"PRI * HT"] {
            let (client, mut other) = duplex(64);
            let mut client = Opening::new(client, PATIENCE);
            other.write_all(said).await.unwrap();
            let start = Instant::now();
            let ended = client.read_to_end(&mut Vec::new()).await.unwrap_err();
            assert_eq!(ended.kind(), io::ErrorKind::TimedOut, "{said:?}");
            assert_eq!(start.elapsed(), PATIENCE, "{said:?}");
        }
        // A method that begins as the preface does is told apart by what follows.
        for said in [&b"PUT /"[..], PREFACE, b"GET / HTTP/1.1\r\n"] {
            let (client, mut other) = duplex(64);
            let mut client = Opening::new(client, PATIENCE);
            let (first, rest) = said.split_at(1);
            for part in [first, rest] {
                other.write_all(part).await.unwrap();
                client.read_exact(&mut vec![0; part.len()]).await.unwrap();
            }
            assert!(
                timeout(10 * PATIENCE, client.read_u8()).await.is_err(),
                "{said:?}"
            );
        }
    }
}

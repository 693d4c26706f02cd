//! An answer that its client does not read.
//!
//! A connection that takes nothing is given up by its writes ([`super::stall`]). On HTTP/2 a client can keep the
//! connection alive and never open the window of one stream: nothing is written then, and nothing asks for the next
//! chunk. So somebody else watches: an answer whose next chunk nobody has asked for in a while is dropped, and with
//! it everything that it holds.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll},
    time::Duration,
};

use http::Version;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a watched answer ends early.
#[derive(Debug, thiserror::Error)]
#[error("the client did not read its answer")]
pub(super) struct Unread;

/// The body of an answer, watched where its protocol calls for it.
pub(super) enum Answer<B> {
    Plain(B),
    Watched(Arc<Mutex<Watched<B>>>),
}

/// A body that another task may drop.
pub(super) struct Watched<B> {
    body: Option<B>,
    /// Since when a chunk has been handed out and the next not been asked for.
    idle_since: Option<Instant>,
    /// The end of the answer ends its watch.
    _watch: DropGuard,
}

impl<B: Send + 'static> Answer<B> {
    /// The body of an answer to a request of that version. Nobody waits longer than `patience` for a client.
    pub(super) fn new(body: B, version: Version, patience: Duration) -> Self {
        if version != Version::HTTP_2 {
            return Self::Plain(body);
        }
        let over = CancellationToken::new();
        let watched = Arc::new(Mutex::new(Watched {
            body: Some(body),
            idle_since: Some(Instant::now()),
            _watch: over.clone().drop_guard(),
        }));
        let answer = Arc::downgrade(&watched);
        tokio::spawn(async move { over.run_until_cancelled(watch(answer, patience)).await });
        Self::Watched(watched)
    }
}

/// Ends with the answer, or ends the answer.
async fn watch<B>(answer: Weak<Mutex<Watched<B>>>, patience: Duration) {
    loop {
        let wait = {
            let Some(answer) = answer.upgrade() else { return };
            let mut answer = lock(&answer);
            match answer.idle_since.map(|since| since.elapsed()) {
                Some(idle) if idle >= patience => {
                    tracing::debug!(?patience, "a client does not read its answer");
                    answer.body = None;
                    return;
                }
                Some(idle) => patience.saturating_sub(idle),
                None => patience,
            }
        };
        sleep(wait).await;
    }
}

fn lock<B>(watched: &Mutex<Watched<B>>) -> MutexGuard<'_, Watched<B>> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<B> Body for Answer<B>
where
    B: Body + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        match self.get_mut() {
            Self::Plain(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(Into::into))),
            Self::Watched(watched) => {
                let mut watched = lock(watched);
                let Some(body) = &mut watched.body else {
                    return Poll::Ready(Some(Err(Unread.into())));
                };
                let polled = Pin::new(body).poll_frame(cx);
                watched.idle_since = polled.is_ready().then(Instant::now);
                polled.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Plain(body) => body.is_end_stream(),
            Self::Watched(watched) => lock(watched).body.as_ref().is_some_and(Body::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Plain(body) => body.size_hint(),
            Self::Watched(watched) => lock(watched)
                .body
                .as_ref()
                .map(Body::size_hint)
                .unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use bytes::Bytes;
    use http_body_util::BodyExt as _;
    use tokio::sync::mpsc;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A body whose chunks come from a channel; the channel closes when the body is dropped.
    struct Chunks(mpsc::Receiver<Bytes>);

    impl Body for Chunks {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            self.0
                .poll_recv(cx)
                .map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
        }
    }

    fn answer(version: Version) -> (mpsc::Sender<Bytes>, Answer<Chunks>) {
        let (chunks, body) = mpsc::channel(8);
        (chunks, Answer::new(Chunks(body), version, PATIENCE))
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_reads_is_dropped() {
        let (chunks, mut answer) = answer(Version::HTTP_2);
        chunks.send(Bytes::from_static(b"one")).await.unwrap();
        chunks.send(Bytes::from_static(b"two")).await.unwrap();
        assert!(answer.frame().await.unwrap().is_ok());
        let begun = Instant::now();
        chunks.closed().await;
        assert!(begun.elapsed() >= PATIENCE, "{:?}", begun.elapsed());
        assert!(begun.elapsed() < 2 * PATIENCE, "{:?}", begun.elapsed());
        assert!(answer.frame().await.unwrap().unwrap_err().is::<Unread>());
    }

    #[tokio::test(start_paused = true)]
    async fn one_whose_head_was_not_even_followed_by_a_question_is_dropped_too() {
        let (chunks, answer) = answer(Version::HTTP_2);
        chunks.closed().await;
        drop(answer);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_may_wait_for_a_slow_backend_as_long_as_it_takes() {
        let (chunks, mut answer) = answer(Version::HTTP_2);
        let reader = tokio::spawn(async move {
            let mut read = 0;
            while let Some(frame) = answer.frame().await {
                read += frame.unwrap().into_data().unwrap().len();
            }
            read
        });
        for _ in 0..3 {
            sleep(10 * PATIENCE).await;
            assert!(chunks.send(Bytes::from_static(b"late")).await.is_ok());
        }
        drop(chunks);
        assert_eq!(reader.await.unwrap(), 12);
    }

    #[tokio::test(start_paused = true)]
    async fn http_1_is_left_to_its_connection() {
        let (chunks, mut answer) = answer(Version::HTTP_11);
        sleep(10 * PATIENCE).await;
        assert!(!chunks.is_closed());
        drop(chunks);
        assert!(poll_fn(|cx| Pin::new(&mut answer).poll_frame(cx)).await.is_none());
    }
}

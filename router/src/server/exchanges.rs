//! Counts the exchanges of one connection, so that a drain can tell it from one that only stays open.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http_body::{Body, Frame, SizeHint};
use tokio::{sync::watch, time::timeout};

/// The exchanges of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchanges(watch::Sender<Count>);

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    open: usize,
    /// All that ever began.
    begun: u64,
}

/// An exchange, from the head of its request to the end of its answer.
pub(super) struct Exchange(watch::Sender<Count>);

/// The body of an answer, whose end is the end of the exchange.
pub(super) struct Counted<B> {
    body: B,
    _exchange: Exchange,
}

impl Exchanges {
    /// One more.
    pub(super) fn begin(&self) -> Exchange {
        self.0.send_modify(|count| {
            count.open += 1;
            count.begun += 1;
        });
        Exchange(self.0.clone())
    }

    /// Returns when another one begins, with which the connection can end; or when there has been none for so long.
    /// Closing it between two requests would meet the next one on its way.
    pub(super) async fn closable(&self, time: Duration) {
        let begun = self.0.borrow().begun;
        let mut counts = self.0.subscribe();
        let another = counts.wait_for(|count| count.begun > begun);
        tokio::select! {
            _ = another => {}
            () = self.rested(time) => {}
        }
    }

    /// Returns when there has been none for so long.
    pub(super) async fn rested(&self, time: Duration) {
        let mut open = self.0.subscribe();
        loop {
            if open.wait_for(|count| count.open == 0).await.is_err() {
                return;
            }
            if timeout(time, open.wait_for(|count| count.open > 0))
                .await
                .is_err()
            {
                return;
            }
        }
    }
}

impl Exchange {
    /// It goes on until this body ends.
    pub(super) const fn of<B>(self, body: B) -> Counted<B> {
        Counted {
            body,
            _exchange: self,
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0
            .send_modify(|count| count.open = count.open.saturating_sub(1));
    }
}

impl<B: Body + Unpin> Body for Counted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_may_close_with_its_next_exchange_or_after_a_pause() {
        let exchanges = Exchanges::default();
        let pause = Duration::from_secs(2);
        let begun = tokio::time::Instant::now();
        exchanges.closable(pause).await;
        assert_eq!(begun.elapsed(), pause);

        let open = exchanges.begin();
        let waiting = tokio::spawn({
            let exchanges = exchanges.clone();
            async move { exchanges.closable(pause).await }
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!waiting.is_finished());
        drop(open);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waiting.is_finished());
        let next = exchanges.begin();
        waiting.await.unwrap();
        drop(next);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_rests_when_its_last_exchange_is_over_for_a_while() {
        let exchanges = Exchanges::default();
        let begun = tokio::time::Instant::now();
        let rest = Duration::from_secs(2);
        exchanges.rested(rest).await;
        assert_eq!(begun.elapsed(), rest);

        let open = exchanges.begin();
        let another = exchanges.begin();
        drop(open);
        let waiting = tokio::spawn({
            let exchanges = exchanges.clone();
            async move { exchanges.rested(rest).await }
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!waiting.is_finished());
        drop(another);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let late = exchanges.begin();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!waiting.is_finished());
        drop(late);
        waiting.await.unwrap();
    }
}

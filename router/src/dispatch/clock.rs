//! The deadlines of one exchange, with one timer for all of them.
//!
//! A chunk of a stream moves the due time and touches no timer: the timer fires at a time that was due once,
//! looks at what is due now, and sleeps on.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use continuum_config::model::Timeouts;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::error::Deadline;

/// Longest time that is waited for anything: longer ones would overflow the timer.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Deadlines of one exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    /// To the head of the answer.
    pub(crate) head: Duration,
    /// To the first byte of its body.
    pub(crate) first_byte: Duration,
    /// From one chunk to the next.
    pub(crate) idle: Duration,
    /// When the request as a whole ends, retries included.
    pub(crate) request: Option<Instant>,
}

impl Deadlines {
    /// The deadlines that a configuration gives an exchange. Where the head comes with the first token (a buffered
    /// answer, and every answer of a Dynamo frontend), it may take as long as the first token.
    pub(crate) fn new(timeouts: &Timeouts, head_with_first_token: bool, started: Instant) -> Self {
        Self {
            head: if head_with_first_token {
                timeouts.first_token.max(timeouts.header)
            } else {
                timeouts.header
            },
            first_byte: timeouts.first_token,
            idle: timeouts.idle,
            request: timeouts.request.map(|request| started + request.min(FOREVER)),
        }
    }
}

/// One timer for one exchange.
pub(crate) struct Clock {
    timer: Pin<Box<Sleep>>,
    due: Instant,
    what: Deadline,
    deadlines: Deadlines,
    started: Instant,
}

impl Clock {
    /// Starts to wait for the head.
    pub(crate) fn start(deadlines: Deadlines) -> Self {
        let started = Instant::now();
        let (due, what) = earlier(
            started + deadlines.head.min(FOREVER),
            Deadline::Header,
            deadlines.request,
        );
        Self {
            timer: Box::pin(sleep_until(due)),
            due,
            what,
            deadlines,
            started,
        }
    }

    /// The head is here: waits for the first byte of the body.
    pub(crate) fn head_arrived(&mut self) {
        self.set(
            self.started + self.deadlines.first_byte.min(FOREVER),
            Deadline::FirstToken,
        );
    }

    /// A chunk is here: waits for the next.
    pub(crate) fn chunk_arrived(&mut self) {
        self.set(Instant::now() + self.deadlines.idle.min(FOREVER), Deadline::Idle);
    }

    /// Ready once the deadline has passed.
    pub(crate) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<Deadline> {
        if self.due < self.timer.deadline() {
            self.timer.as_mut().reset(self.due);
        }
        loop {
            std::task::ready!(self.timer.as_mut().poll(cx));
            if Instant::now() >= self.due {
                return Poll::Ready(self.what);
            }
            self.timer.as_mut().reset(self.due);
        }
    }

    /// The work's result, unless the deadline passes first.
    pub(crate) async fn bound<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Deadline> {
        let mut work = pin!(work);
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Ok(done)),
            Poll::Pending => self.poll_expired(cx).map(Err),
        })
        .await
    }

    fn set(&mut self, due: Instant, what: Deadline) {
        (self.due, self.what) = earlier(due, what, self.deadlines.request);
    }
}

fn earlier(due: Instant, what: Deadline, request: Option<Instant>) -> (Instant, Deadline) {
    match request {
        Some(request) if request < due => (request, Deadline::Request),
        _ => (due, what),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn clock(request: Option<Duration>) -> Clock {
        let request = request.map(|request| Instant::now() + request);
        Clock::start(Deadlines {
            head: secs(60),
            first_byte: secs(600),
            idle: secs(300),
            request,
        })
    }

    async fn expires(clock: &mut Clock) -> Option<Deadline> {
        clock.bound(pending::<()>()).await.err()
    }

    #[tokio::test(start_paused = true)]
    async fn each_part_of_an_answer_has_its_own_deadline() {
        let start = Instant::now();
        assert_eq!(expires(&mut clock(None)).await, Some(Deadline::Header));
        assert_eq!(start.elapsed(), secs(60));

        let start = Instant::now();
        let mut late = clock(None);
        assert_eq!(late.bound(tokio::time::sleep(secs(59))).await, Ok(()));
        late.head_arrived();
        assert_eq!(expires(&mut late).await, Some(Deadline::FirstToken));
        assert_eq!(start.elapsed(), secs(600), "from the start, not from the head");

        let start = Instant::now();
        let mut stream = clock(None);
        stream.head_arrived();
        for _ in 0..10 {
            assert_eq!(stream.bound(tokio::time::sleep(secs(299))).await, Ok(()));
            stream.chunk_arrived();
        }
        assert_eq!(expires(&mut stream).await, Some(Deadline::Idle));
        assert_eq!(start.elapsed(), secs(2990 + 300));
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_of_the_request_stands_above_all() {
        let start = Instant::now();
        let mut stream = clock(Some(secs(100)));
        for _ in 0..9 {
            stream.chunk_arrived();
            assert_eq!(stream.bound(tokio::time::sleep(secs(10))).await, Ok(()));
        }
        stream.chunk_arrived();
        assert_eq!(expires(&mut stream).await, Some(Deadline::Request));
        assert_eq!(start.elapsed(), secs(100));
    }

    #[test]
    fn a_head_that_comes_with_the_first_token_may_take_as_long() {
        let timeouts = Timeouts::default();
        let now = Instant::now();
        assert_eq!(Deadlines::new(&timeouts, true, now).head, timeouts.first_token);
        assert_eq!(Deadlines::new(&timeouts, false, now).head, timeouts.header);
    }
}

//! The body of an answer, from a backend to the client.
//!
//! Every chunk leaves when it arrives, as the bytes that arrived. The end is told exactly once, whatever it is: to
//! the [`Hooks`] (bookings, histograms), to the backend's counters, and to the connection, which goes back to its
//! pool after a complete answer and is closed otherwise. A client that leaves drops the body: that is an end, too.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::{clock::Clock, events::Events, metrics::Outcome};
use crate::{
    backends::{Exchange, pool::Borrowed},
    error::{Deadline, Error},
    ingress::answer,
};

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its last byte has been handed on.
    Complete,
    /// As [`End::Complete`], with an error event among its events.
    ErrorEvent,
    /// The client left first.
    ClientGone,
    /// The backend's connection broke.
    Broken,
    /// A deadline passed.
    TimedOut(Deadline),
}

/// Who wants to know how an answer goes. Both calls come at most once, `end` exactly once.
pub trait Hooks: Send + Unpin + 'static {
    /// The first byte of the body is about to leave.
    fn first_byte(&mut self) {}

    /// It is over.
    fn end(&mut self, _end: End) {}
}

impl Hooks for () {}

impl<A: Hooks, B: Hooks> Hooks for (A, B) {
    fn first_byte(&mut self) {
        self.0.first_byte();
        self.1.first_byte();
    }

    fn end(&mut self, end: End) {
        self.0.end(end);
        self.1.end(end);
    }
}

impl<A: Hooks> Hooks for Option<A> {
    fn first_byte(&mut self) {
        if let Some(hooks) = self {
            hooks.first_byte();
        }
    }

    fn end(&mut self, end: End) {
        if let Some(hooks) = self {
            hooks.end(end);
        }
    }
}

/// An answer's body on its way.
pub struct Relay<H: Hooks> {
    body: Incoming,
    ready: VecDeque<Bytes>,
    events: Option<Events>,
    clock: Clock,
    begun: bool,
    done: bool,
    outcome: Outcome,
    hooks: H,
    /// Both are gone once `done`.
    connection: Option<Borrowed>,
    exchange: Option<Exchange>,
}

/// What a relay is made of.
pub(crate) struct Parts {
    pub(crate) body: Incoming,
    /// What has been read of the body already.
    pub(crate) read: Bytes,
    pub(crate) clock: Clock,
    /// The outcome if the answer completes.
    pub(crate) outcome: Outcome,
    pub(crate) connection: Borrowed,
    pub(crate) exchange: Exchange,
}

impl<H: Hooks> Relay<H> {
    pub(crate) fn new(parts: Parts, headers: &HeaderMap, hooks: H) -> Self {
        let mut relay = Self {
            body: parts.body,
            ready: VecDeque::new(),
            events: is_readable_stream(headers).then(Events::default),
            clock: parts.clock,
            begun: false,
            done: false,
            outcome: parts.outcome,
            hooks,
            connection: Some(parts.connection),
            exchange: Some(parts.exchange),
        };
        if !parts.read.is_empty() {
            relay.begin();
            relay.ready.push_back(parts.read);
        }
        if relay.body.is_end_stream() {
            relay.complete();
        }
        relay
    }

    /// The hooks that it was made with.
    pub const fn hooks(&self) -> &H {
        &self.hooks
    }

    fn begin(&mut self) {
        if !self.begun {
            self.begun = true;
            self.hooks.first_byte();
        }
    }

    fn arrived(&mut self, chunk: Bytes) {
        self.begin();
        match &mut self.events {
            None => self.ready.push_back(chunk),
            Some(events) => events.pass(chunk, &mut self.ready),
        }
        if self.body.is_end_stream() {
            self.complete();
        } else {
            self.clock.chunk_arrived();
        }
    }

    fn complete(&mut self) {
        let mut end = End::Complete;
        if let Some(events) = &mut self.events {
            events.finish(&mut self.ready);
            if events.failed() {
                end = End::ErrorEvent;
                self.outcome = Outcome::ServerError;
            }
        }
        if let Some(connection) = self.connection.take() {
            connection.finish();
        }
        self.over(end, self.outcome);
    }

    /// Ends a stream of events with an error event; anything else can only be aborted.
    fn cut(&mut self, error: Error, end: End, outcome: Outcome) -> Option<Error> {
        self.connection = None;
        self.over(end, outcome);
        match &mut self.events {
            Some(events) => {
                events.cut(error.stream_end(), &mut self.ready);
                None
            }
            None => Some(error),
        }
    }

    fn over(&mut self, end: End, outcome: Outcome) {
        if self.done {
            return;
        }
        self.done = true;
        if let Some(mut exchange) = self.exchange.take() {
            exchange.ends(outcome);
        }
        self.hooks.end(end);
    }
}

impl<H: Hooks> Body for Relay<H> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let relay = self.get_mut();
        loop {
            if let Some(bytes) = relay.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            if relay.done {
                return Poll::Ready(None);
            }
            let failed = match Pin::new(&mut relay.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    match frame.into_data() {
                        Ok(chunk) if chunk.is_empty() => {}
                        Ok(chunk) => relay.arrived(chunk),
                        // No API has trailers, and behind them nothing of ours could follow.
                        Err(_trailers) => {}
                    }
                    continue;
                }
                Poll::Ready(None) => {
                    relay.complete();
                    continue;
                }
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(%error, "backend broke off its answer");
                    relay.cut(Error::StreamBroken, End::Broken, Outcome::ServerError)
                }
                Poll::Pending => {
                    let deadline = std::task::ready!(relay.clock.poll_expired(cx));
                    relay.cut(
                        Error::TimedOut(deadline),
                        End::TimedOut(deadline),
                        Outcome::Timeout,
                    )
                }
            };
            if let Some(error) = failed {
                return Poll::Ready(Some(Err(error)));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.done && self.ready.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let ready: u64 = self.ready.iter().map(|bytes| bytes.len() as u64).sum();
        if self.done {
            return SizeHint::with_exact(ready);
        }
        if self.events.is_some() {
            // It may end earlier, or with an event of ours.
            return SizeHint::default();
        }
        let body = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower().saturating_add(ready));
        if let Some(upper) = body.upper() {
            hint.set_upper(upper.saturating_add(ready));
        }
        hint
    }
}

impl<H: Hooks> Drop for Relay<H> {
    fn drop(&mut self) {
        self.over(End::ClientGone, Outcome::Canceled);
    }
}

/// A stream of events that is not compressed.
pub(crate) fn is_readable_stream(headers: &HeaderMap) -> bool {
    answer::is_event_stream(headers)
        && headers
            .get_all(http::header::CONTENT_ENCODING)
            .iter()
            .all(|value| value.as_bytes() == b"identity")
}

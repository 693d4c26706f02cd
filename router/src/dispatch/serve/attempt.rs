//! One attempt: the request goes to one backend, and the head of its answer comes back, or nothing does.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header::CONTENT_LENGTH};
use http_body_util::BodyExt as _;

use super::{Ask, Served};
use crate::{
    backends::{Backend, Exchange},
    dispatch::{
        clock::{Clock, Deadlines},
        limits::{COOL_DOWN, REFUSAL_BODY, TOO_MANY_REQUESTS_OVERLOADED},
        metrics::Outcome,
        relay::{Parts, is_readable_stream},
        send::{Answer, SendError, exchange},
    },
    error::Deadline,
};

/// Why an attempt has no answer.
pub(super) enum Unanswered {
    NoAnswer,
    HalfAnswer,
    Late(Deadline),
}

/// A refusal whose beginning has been read.
pub(super) struct Refusal<P> {
    pub(super) served: Served<P>,
    /// That is all of it.
    whole: bool,
}

impl<P> Refusal<P> {
    /// It is the client's answer, and came for `pin`.
    pub(super) fn with(self, pin: P) -> Served<P> {
        Served {
            pin: Some(pin),
            ..self.served
        }
    }

    /// Nobody gets to see it; its exchange ended so.
    pub(super) fn keep(self, outcome: Outcome) {
        let mut parts = self.served.parts;
        parts.exchange.ends(outcome);
        if self.whole {
            parts.connection.finish();
        }
    }
}

/// Sends the request to one backend and waits for the head of the answer. The exchange counts as in flight from
/// here to the end of the answer.
pub(super) async fn attempt<P>(
    ask: &Ask,
    backend: &Arc<Backend>,
    dress: impl Fn(&mut HeaderMap, &mut Bytes),
) -> Result<Served<P>, Unanswered> {
    let head_with_first_token = ask.buffered || backend.is_shim();
    let mut clock = Clock::start(Deadlines::new(
        backend.timeouts(),
        head_with_first_token,
        ask.started,
    ));
    let mut counted = backend.begin();
    let answer = match clock.bound(exchange(backend, &ask.outbound, dress)).await {
        // Nobody asked for another protocol: what follows is no answer.
        Ok(Ok(answer)) if answer.head.status.is_informational() => {
            counted.ends(Outcome::ServerError);
            return Err(Unanswered::HalfAnswer);
        }
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            tracing::debug!(backend = %backend.name(), error = &error as &dyn std::error::Error, "no answer");
            return Err(match error {
                SendError::HalfAnswer(_) | SendError::Switched => {
                    counted.ends(Outcome::ServerError);
                    Unanswered::HalfAnswer
                }
                SendError::Connect(_) | SendError::NoAnswer(_) => {
                    counted.ends(Outcome::Connect);
                    backend.cool_down(COOL_DOWN);
                    Unanswered::NoAnswer
                }
            });
        }
        Err(deadline) => {
            counted.ends(Outcome::Timeout);
            return Err(Unanswered::Late(deadline));
        }
    };
    clock.head_arrived();
    Ok(served(answer, clock, counted))
}

fn served<P>(answer: Answer, clock: Clock, exchange: Exchange) -> Served<P> {
    let Answer {
        mut head,
        body,
        connection,
    } = answer;
    if is_readable_stream(&head.headers) {
        // It may end with an event of ours.
        head.headers.remove(CONTENT_LENGTH);
    }
    let outcome = match head.status.as_u16() {
        429 | TOO_MANY_REQUESTS_OVERLOADED => Outcome::BackPressure,
        400..500 => Outcome::ClientError,
        500.. => Outcome::ServerError,
        _ => Outcome::Ok,
    };
    let backend = Arc::clone(exchange.backend());
    let parts = Parts {
        body,
        read: Bytes::new(),
        clock,
        outcome,
        connection,
        exchange,
    };
    Served {
        head,
        backend,
        pin: None,
        fallback: false,
        parts,
    }
}

/// Reads the beginning of a refusal.
pub(super) async fn read_refusal<P>(mut served: Served<P>) -> Result<Refusal<P>, Unanswered> {
    let mut read = BytesMut::new();
    let parts = &mut served.parts;
    let whole = loop {
        if read.len() >= REFUSAL_BODY {
            break false;
        }
        match parts.clock.bound(parts.body.frame()).await {
            Ok(None) => break true,
            Ok(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    read.extend_from_slice(data);
                }
            }
            Ok(Some(Err(error))) => {
                tracing::debug!(%error, "a refusal broke off");
                parts.exchange.ends(Outcome::ServerError);
                return Err(Unanswered::HalfAnswer);
            }
            Err(deadline) => {
                parts.exchange.ends(Outcome::Timeout);
                return Err(Unanswered::Late(deadline));
            }
        }
    };
    parts.read = read.freeze();
    Ok(Refusal { served, whole })
}

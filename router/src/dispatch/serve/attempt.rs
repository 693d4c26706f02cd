//! One attempt: the request goes to one backend, and the head of its answer comes back, or nothing does.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header::CONTENT_LENGTH};
use http_body_util::BodyExt as _;

use super::{Ask, Pins, Served};
use crate::{
    backends::{Backend, Exchange},
    dispatch::{
        clock::{Clock, Deadlines},
        limits::{COOL_DOWN, REFUSAL_BODY, TOO_MANY_REQUESTS_OVERLOADED},
        metrics::Outcome,
        refusal::{CameBack, Facts, Meaning, meaning},
        relay::{Parts, is_readable_stream},
        send::{Answer, SendError, exchange},
    },
    error::{Deadline, Error},
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

/// What one attempt of a pinned request came to.
pub(super) enum Came<P> {
    Good(Served<P>),
    Refused(Refused<P>),
}

pub(super) struct Refused<P> {
    pub(super) means: Meaning,
    /// `None` when there was no answer.
    pub(super) status: Option<StatusCode>,
    /// The answer, if it is the client's.
    pub(super) answer: Option<Refusal<P>>,
}

/// Sends a pinned request to one replica.
pub(super) async fn try_pin<P: Pins>(
    ask: &Ask,
    replica: &Arc<Backend>,
    pins: &P,
    pin: &P::Pin,
) -> Result<Came<P::Pin>, Error> {
    let answered = match attempt(ask, replica, |headers, body| {
        pins.dress(pin, replica, headers, body)
    })
    .await
    {
        Ok(served) if served.head.status.is_success() => return Ok(Came::Good(served)),
        Ok(served) => read_refusal(served).await,
        Err(unanswered) => Err(unanswered),
    };
    let came_back = match &answered {
        Ok(refusal) => CameBack::Answer {
            status: refusal.served.head.status,
            body: &refusal.served.parts.read,
        },
        Err(Unanswered::NoAnswer) => CameBack::NoAnswer,
        Err(Unanswered::HalfAnswer) => CameBack::HalfAnswer,
        Err(Unanswered::Late(deadline)) => return Err(Error::TimedOut(*deadline)),
    };
    let standing = pins.standing(pin);
    let facts = Facts {
        sent_prefill: standing.sent_prefill,
        prefill_pool_came: standing.prefill_pool_came,
        pins_live: standing.pins_live,
        sets_in_pool: standing.sets_in_pool,
        settling: standing.settling,
        confirmed: standing.confirmed,
        model_listed: pins.listed(replica),
    };
    let means = meaning(came_back, &facts);
    if means == Meaning::ModelNotReady {
        replica.refresh_listing();
    }
    let status = answered.as_ref().ok().map(|refusal| refusal.served.head.status);
    let answer = match (answered, means) {
        (Ok(refusal), Meaning::Client | Meaning::Settling | Meaning::Unconfirmed) => Some(refusal),
        (Ok(refusal), Meaning::BackPressure(_)) => {
            refusal.keep(Outcome::BackPressure);
            None
        }
        (
            Ok(refusal),
            Meaning::Replica
            | Meaning::ModelNotReady
            | Meaning::RePick(_)
            | Meaning::Lottery
            | Meaning::Failure,
        ) => {
            refusal.keep(Outcome::ServerError);
            None
        }
        (Err(_), _) => None,
    };
    Ok(Came::Refused(Refused {
        means,
        status,
        answer,
    }))
}

/// What might have been the client's answer is followed by another try.
pub(super) fn keep<P>(answer: Option<Refusal<P>>) {
    if let Some(refusal) = answer {
        refusal.keep(Outcome::ServerError);
    }
}

//! The loop of one request: choose a replica, send, understand the answer, try again or give up.
//!
//! Everything here happens before the first byte goes to the client; afterwards nothing is picked again. What an
//! answer means is decided in [`super::refusal`], how often to try in [`super::retry`].

mod attempt;
mod repick;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use continuum_fleet::ids::{Graph, ModelName};
use http::{HeaderMap, Response, StatusCode, response};
use tokio::time::{Instant, sleep};

use self::{
    attempt::{Came, Refusal, Unanswered, attempt, keep, try_pin},
    repick::Repick,
};
use super::{
    metrics::{Metrics, Retry},
    refusal::{Cause, Meaning},
    relay::{Hooks, Parts, Relay},
    retry::{Attempts, Step, Stop},
    send::Outbound,
};
use crate::{
    backends::{Backend, Set, Tried},
    error::{BackPressure, Error},
    ingress::strip::X_REQUEST_ID,
};

/// A request to be answered by somebody.
#[derive(Clone, Debug)]
pub struct Ask {
    /// What to send; without pins.
    pub outbound: Outbound,
    /// The client's name of the model.
    pub model: ModelName,
    /// The head of the answer comes only with its end: it may take as long as the first token of a stream.
    pub buffered: bool,
    /// When the request arrived.
    pub started: Instant,
}

impl Ask {
    /// The id of the request, for the log.
    fn request_id(&self) -> &str {
        let id = self.outbound.headers.get(X_REQUEST_ID);
        id.and_then(|id| id.to_str().ok()).unwrap_or_default()
    }
}

/// What the fleet view says of a pin, at the moment of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The pin names a prefill worker.
    pub sent_prefill: bool,
    /// The pool of the pinned workers has prefill workers now, and had none when they were picked.
    pub prefill_pool_came: bool,
    /// Every pinned worker is still in the view.
    pub pins_live: bool,
    /// Worker sets that serve the model in this pool.
    pub sets_in_pool: u32,
    /// Workers have joined or left the graph lately.
    pub settling: bool,
    /// Discovery stands behind the view.
    pub confirmed: bool,
}

/// Who picks workers for one request.
pub trait Pins: Send + Sync {
    /// Picked workers, booked until this is dropped.
    type Pin: Send + Sync;

    /// The graph whose shim pool executes the pin.
    fn graph<'a>(&self, pin: &'a Self::Pin) -> &'a Graph;

    /// Writes the pin into the outbound head, and edits the body where this replica needs it.
    fn dress(&self, pin: &Self::Pin, replica: &Backend, headers: &mut HeaderMap, body: &mut Bytes);

    /// Whether the replica's own list holds the model under a name that [`Self::dress`] leaves in the body for it;
    /// `None` when it has no list yet.
    fn listed(&self, replica: &Backend) -> Option<bool>;

    /// What the newest view says.
    fn standing(&self, pin: &Self::Pin) -> Standing;

    /// Picks again after a refusal, without the workers refused so far unless the view was behind. The refused
    /// pin comes back, so that its booking can end.
    fn repick(&mut self, refused: Self::Pin, cause: Cause) -> Option<Self::Pin>;

    /// The re-pick succeeded where these workers had failed: they are suspect.
    fn suspect_refused(&mut self);

    /// The workers of this pin have answered, and the head is here: whoever of them was suspect is not any more.
    fn answered(&mut self, pin: &Self::Pin);
}

/// An answer whose head is here.
pub struct Served<P> {
    /// Head of the answer, as the backend sent it but for a stream's length.
    pub head: response::Parts,
    /// Who answered.
    pub backend: Arc<Backend>,
    /// The workers that it was pinned to; `None` for ordinary routing, for the fallback, and for the refusal of a pin
    /// that no other could replace.
    pub pin: Option<P>,
    /// It came from another backend, because the pool of the pin failed.
    pub fallback: bool,
    parts: Parts,
}

impl<P> Served<P> {
    /// Hands the body on. The head is the caller's to change before.
    pub fn into_response<H: Hooks>(self, hooks: impl FnOnce(Option<P>) -> H) -> Response<Relay<H>> {
        let relay = Relay::new(self.parts, &self.head.headers, hooks(self.pin));
        Response::from_parts(self.head, relay)
    }
}

/// Serves a pinned request. `first` is the first pick; `fallback` allows another backend, without pins, when the
/// pool fails.
///
/// # Errors
/// What the client is to be told, when there is no answer to relay. Failures are counted by phase here.
pub async fn pinned<P: Pins>(
    ask: &Ask,
    set: &Set,
    pins: &mut P,
    first: P::Pin,
    fallback: bool,
    metrics: &Metrics,
) -> Result<Served<P::Pin>, Error> {
    match in_pool(ask, set, pins, first, metrics).await {
        Ok(served) => Ok(served),
        Err(failed) => instead(ask, set, failed, fallback, metrics).await,
    }
}

/// What becomes of a request that its pool did not answer, or that nobody could be picked for: the failure is
/// counted by phase, and where `fallback` allows it another backend that serves the model takes the request.
///
/// # Errors
/// The failure, when no other backend answers either.
pub async fn instead<P>(
    ask: &Ask,
    set: &Set,
    failed: Error,
    fallback: bool,
    metrics: &Metrics,
) -> Result<Served<P>, Error> {
    if let Some(phase) = failed.answer().phase {
        metrics.failed(phase);
    }
    let may_fall_back = fallback
        && matches!(
            failed,
            Error::DecodeFailed { .. } | Error::ModelNotReady { .. } | Error::NoCandidate { .. }
        );
    if !may_fall_back || set.choose(ask.model.as_str(), &[]).is_none() {
        return Err(failed);
    }
    metrics.retried(Retry::Fallback);
    match unpinned(ask, set).await {
        Ok(served) => Ok(Served {
            fallback: true,
            ..served
        }),
        Err(error) => {
            tracing::debug!(%error, request_id = ask.request_id(), "fallback failed");
            Err(failed)
        }
    }
}

/// Serves a request without pins: a backend that serves the model, another one if it does not answer. Whatever
/// status comes back is relayed.
///
/// # Errors
/// What the client is to be told, when there is no answer to relay.
pub async fn unpinned<P>(ask: &Ask, set: &Set) -> Result<Served<P>, Error> {
    let model = ask.model.as_str();
    let mut tried: Vec<Arc<str>> = Vec::new();
    let mut retries_left = None;
    set.budget().request(now_secs());
    loop {
        let Some(backend) = set.choose(model, &tried) else {
            return Err(match tried.is_empty() {
                false => Error::BackendFailed { first: None },
                true if set.serves(model) => Error::ModelNotReady {
                    model: ask.model.clone(),
                },
                true => Error::ModelNotFound {
                    model: ask.model.clone(),
                },
            });
        };
        if !tried.is_empty() {
            backend.metrics().retried(Retry::Replica);
        }
        let retries_left = retries_left.get_or_insert(backend.settings().retries);
        match attempt(ask, backend, |_, _| {}).await {
            Ok(served) => return Ok(served),
            Err(Unanswered::Late(deadline)) => return Err(Error::TimedOut(deadline)),
            Err(Unanswered::HalfAnswer) => return Err(Error::BackendFailed { first: None }),
            Err(Unanswered::NoAnswer) => {
                if *retries_left == 0 || !set.budget().take(now_secs()) {
                    return Err(Error::BackendFailed { first: None });
                }
                *retries_left -= 1;
                tried.push(Arc::clone(backend.name()));
            }
        }
    }
}

/// A refusal that may be the client's own answer, while others are asked, is that answer when they fail.
async fn in_pool<P: Pins>(
    ask: &Ask,
    set: &Set,
    pins: &mut P,
    first: P::Pin,
    metrics: &Metrics,
) -> Result<Served<P::Pin>, Error> {
    let mut doubted = None;
    let ended = try_pool(ask, set, pins, first, metrics, &mut doubted).await;
    match (ended, doubted) {
        (Err(Error::DecodeFailed { .. } | Error::ModelNotReady { .. }), Some(answer)) => Ok(answer.served),
        (ended, doubted) => {
            keep(doubted);
            ended
        }
    }
}

async fn try_pool<P: Pins>(
    ask: &Ask,
    set: &Set,
    pins: &mut P,
    first: P::Pin,
    metrics: &Metrics,
    doubted: &mut Option<Refusal<P::Pin>>,
) -> Result<Served<P::Pin>, Error> {
    let mut pin = first;
    let mut attempts: Option<Attempts> = None;
    let mut tried = Tried::default();
    let mut retry: Option<Retry> = None;
    let mut repick = Repick::new(metrics);
    let mut first_status: Option<StatusCode> = None;
    loop {
        let choice = set
            .pool(pins.graph(&pin))
            .and_then(|pool| Some((pool, pool.choose(tried, |replica| pins.listed(replica))?)));
        let Some((pool, (index, replica))) = choice else {
            return Err(Error::DecodeFailed { first: first_status });
        };
        let attempts = attempts.get_or_insert_with(|| {
            pool.budget().request(now_secs());
            Attempts::new(replica.settings().retries)
        });
        if let Some(kind) = retry.take() {
            metrics.retried(kind);
        }
        let refused = match try_pin(ask, replica, pins, &pin).await? {
            Came::Good(served) => {
                if pins.listed(replica) == Some(false) {
                    // It serves what its list lacks: the list is old.
                    replica.refresh_listing();
                }
                if repick.succeeded() {
                    pins.suspect_refused();
                }
                pins.answered(&pin);
                return Ok(Served {
                    pin: Some(pin),
                    ..served
                });
            }
            Came::Refused(refused) => refused,
        };
        tracing::debug!(
            request_id = ask.request_id(), backend = %replica.name(), meaning = ?refused.means, status = ?refused.status,
            "pinned request refused"
        );
        // Whether that one is a failure is what the others will show.
        if refused.means != Meaning::Unconfirmed {
            first_status = first_status.or(refused.status);
        }
        let with_this = tried.and(index);
        match attempts.next(
            refused.means,
            pool.has_other(with_this),
            pool.budget(),
            now_secs(),
        ) {
            Step::OtherReplica => {
                tried = with_this;
                retry = Some(Retry::Replica);
                if attempts.may_be_invalid() {
                    // This replica has refused all of them: if another one answers, it is the one to blame.
                    repick.accuses_nobody();
                    keep(std::mem::replace(doubted, refused.answer));
                } else {
                    keep(refused.answer);
                }
            }
            Step::SamePin => retry = Some(Retry::Lottery),
            Step::SamePinAfter(pause) => {
                keep(refused.answer);
                sleep(pause).await;
                retry = Some(Retry::Lottery);
            }
            Step::RePick(cause) => {
                repick.begin(refused.means, cause);
                pin = match (pins.repick(pin, cause), refused.answer) {
                    (Some(other), answer) => {
                        keep(answer);
                        other
                    }
                    (None, Some(answer)) => return Ok(answer.served),
                    (None, None) if cause == Cause::ViewBehind => {
                        return Err(Error::PrefillDecodeUnavailable);
                    }
                    (None, None) => return Err(Error::DecodeFailed { first: first_status }),
                };
                retry = Some(Retry::RePick);
                tried = Tried::default();
            }
            Step::Stop(stop) => {
                return match (stop, refused.answer) {
                    (Stop::Relay, Some(answer)) => Ok(answer.with(pin)),
                    (stop, answer) => {
                        keep(answer);
                        Err(stopped(stop, ask, first_status))
                    }
                };
            }
        }
    }
}

/// What the client is told where there is nothing to relay.
fn stopped(stop: Stop, ask: &Ask, first: Option<StatusCode>) -> Error {
    match stop {
        Stop::BackPressure(StatusCode::SERVICE_UNAVAILABLE) => Error::BackPressure(BackPressure::Overloaded),
        Stop::BackPressure(_) => Error::BackPressure(BackPressure::TooMany),
        Stop::ModelNotReady => Error::ModelNotReady {
            model: ask.model.clone(),
        },
        Stop::PrefillDecodeUnavailable => Error::PrefillDecodeUnavailable,
        Stop::Failed | Stop::Relay => Error::DecodeFailed { first },
    }
}

/// Seconds since this process first asked: the clock of the retry budgets.
fn now_secs() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed().as_secs()
}

#[cfg(test)]
mod tests;

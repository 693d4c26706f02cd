//! The one typed failure of a request.
//!
//! Every layer of the data plane that cannot go on returns an [`Error`]; what a client sees of it is decided
//! in one place, [`crate::ingress::rescue`]. Nothing here holds a worker address, a header value or a byte of
//! the client's body, so that an error can be logged and shown as it is.

use continuum_fleet::ids::ModelName;
use http::StatusCode;

use crate::ingress::body;

/// Why a request was not answered as it asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The body is not a JSON object that names a model.
    #[error("{0}")]
    InvalidBody(#[from] body::Error),
    /// The body is larger than `server.body_limit`.
    #[error("the request body is larger than the limit of {limit} bytes")]
    BodyTooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// The body ended early, or the connection broke while it was read.
    #[error("the request body ended before it was complete")]
    BodyIncomplete,
    /// `content-type` names something else than JSON.
    #[error("the request body must be sent with `content-type: application/json`")]
    UnsupportedMediaType,
    /// `content-encoding` names something else than `identity`.
    #[error("the request body must not be compressed: send it without `content-encoding`")]
    UnsupportedEncoding,
    /// No route has this path.
    #[error("there is no such path; see the documentation for the paths that this router serves")]
    UnknownPath,
    /// The path exists, the method does not.
    #[error("this path answers {allow} only")]
    MethodNotAllowed {
        /// The methods it has, as an `allow` header lists them.
        allow: &'static str,
    },
    /// Nothing that is configured or discovered serves the model.
    #[error("the model `{model}` does not exist or is not served here; GET /v1/models lists what is")]
    ModelNotFound {
        /// As the client wrote it.
        model: ModelName,
    },
    /// The model is known, but the fleet cannot serve it at the moment (a role is missing, or starting).
    #[error("the model `{model}` is not ready to serve requests yet; try again in a few seconds")]
    ModelNotReady {
        /// As the client wrote it.
        model: ModelName,
    },
    /// Workers serve the model, but none of them may be picked: no usable pool, or no possible pair.
    #[error("no worker can take a request for the model `{model}` at the moment; try again in a few seconds")]
    NoCandidate {
        /// As the client wrote it.
        model: ModelName,
    },
    /// The frontend refused a pin without a prefill worker although a prefill pool exists, again after a re-pick.
    #[error("the prefill and decode workers of this model are changing; try again in a few seconds")]
    PrefillDecodeUnavailable,
    /// The pinned dispatch failed and no fallback took it.
    #[error("{}", decode_failed(.first.is_some()))]
    DecodeFailed {
        /// Status of the first answer; `None` when there was none (connection refused, reset, closed).
        first: Option<StatusCode>,
    },
    /// A backend without pins failed and no other took the request.
    #[error("the backend of this model failed to answer; try again")]
    BackendFailed {
        /// Status of the first answer; `None` when there was none.
        first: Option<StatusCode>,
    },
    /// The fleet asks to slow down.
    #[error("the workers of this model are busy; try again in a moment")]
    BackPressure(BackPressure),
    /// A deadline passed.
    #[error("{0}")]
    TimedOut(Deadline),
    /// The upstream connection broke in the middle of an answer.
    #[error("the answer was cut off by the backend; what arrived before this is incomplete")]
    StreamBroken,
    /// `server.max_in_flight` requests are in flight.
    #[error("this router is busy; try again in a moment")]
    Overloaded,
    /// `server.body_budget` bytes of request bodies are held.
    #[error(
        "the requests that this router is serving hold as many bytes as it allows; try again in a moment, or send less"
    )]
    BodiesFull,
    /// The client left before there was an answer. It is counted, not seen.
    #[error("the client closed the request")]
    ClientClosed,
    /// A defect of this router. The reason is a fixed text for the log.
    #[error("internal error of the router")]
    Internal(&'static str),
}

/// How back-pressure of a frontend is passed on (529 and 429 become 429).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackPressure {
    /// 429: too many requests.
    TooMany,
    /// 503: overloaded.
    Overloaded,
}

/// Which deadline passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Deadline {
    /// `server.timeouts.header`: no answer head.
    #[error("the backend did not begin to answer in time")]
    Header,
    /// `server.timeouts.first_token`: an answer head, but no first byte of the body.
    #[error("the backend did not send the first token in time")]
    FirstToken,
    /// `server.timeouts.idle`: a gap inside the answer.
    #[error("the backend stopped sending in the middle of its answer")]
    Idle,
    /// `server.timeouts.request`: the whole request.
    #[error("the request took longer than the router allows")]
    Request,
    /// The client did not send its body in time.
    #[error("the request body did not arrive in time")]
    Body,
}

/// Label `phase` of `disaggregated_errors_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Choosing and pinning workers.
    Orchestration,
    /// The prefill hop. Never counted while hops run inside a frontend; the label exists for other engines.
    Prefill,
    /// Everything that a shim answered badly.
    Decode,
}

impl Phase {
    /// Every phase, in order.
    pub const ALL: [Self; 3] = [Self::Orchestration, Self::Prefill, Self::Decode];

    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Orchestration => "orchestration",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// Without a single answer it is the frontends that are not there; nothing is known of the workers.
const fn decode_failed(answered: bool) -> &'static str {
    if answered {
        "the workers chosen for this request failed to answer it; try again"
    } else {
        "no frontend of this model's pool could be reached or answered; try again"
    }
}

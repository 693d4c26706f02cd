//! The only place where a failure becomes HTTP.
//!
//! The body is OpenAI's error object, so that its clients raise their usual exceptions; the text is the error's
//! own `Display`, which names what to do and never an address or a source error.

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE, RETRY_AFTER},
};
use serde::Serialize;

use super::limits::{RETRY_AFTER_BUSY_SECONDS, RETRY_AFTER_TOPOLOGY_SECONDS};
use crate::error::{BackPressure, Deadline, Error, Phase};

/// What a client is told of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: StatusCode,
    /// `error.type`.
    pub kind: Kind,
    /// `error.code`.
    pub code: Code,
    /// `error.param`: the field of the body that is wrong.
    pub param: Option<&'static str>,
    /// `retry-after`, in seconds.
    pub retry_after: Option<u64>,
    /// Where `disaggregated_errors_total` counts it.
    pub phase: Option<Phase>,
}

/// `error.type`, as OpenAI names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The client has to change the request.
    InvalidRequest,
    /// The client has to slow down.
    RateLimit,
    /// The service failed, or is not ready.
    Server,
}

impl Kind {
    /// The text on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request_error",
            Self::RateLimit => "rate_limit_error",
            Self::Server => "server_error",
        }
    }
}

/// `error.code`: what a program may branch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// The body is not what this API takes.
    InvalidBody,
    /// The body is too large.
    BodyTooLarge,
    /// The body stopped before its end.
    BodyIncomplete,
    /// Not JSON.
    UnsupportedMediaType,
    /// Compressed.
    UnsupportedEncoding,
    /// No such path.
    UnknownPath,
    /// Not with this method.
    MethodNotAllowed,
    /// No such model.
    ModelNotFound,
    /// A role of the model is missing at the moment.
    ModelNotReady,
    /// No worker can take it at the moment.
    NoCandidate,
    /// The fleet and the view of it disagree.
    PrefillDecodeUnavailable,
    /// The pinned dispatch failed.
    DecodeFailed,
    /// A backend failed.
    BackendFailed,
    /// Slow down.
    RateLimitExceeded,
    /// The fleet, or this router, is full.
    Overloaded,
    /// A deadline passed.
    Timeout,
    /// The answer was cut off.
    StreamBroken,
    /// The client left.
    ClientClosed,
    /// A defect.
    Internal,
}

impl Code {
    /// The text on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidBody => "invalid_body",
            Self::BodyTooLarge => "body_too_large",
            Self::BodyIncomplete => "body_incomplete",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::UnsupportedEncoding => "unsupported_encoding",
            Self::UnknownPath => "unknown_path",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::ModelNotFound => "model_not_found",
            Self::ModelNotReady => "model_not_ready",
            Self::NoCandidate => "no_candidate",
            Self::PrefillDecodeUnavailable => "disaggregated_prefill_decode_unavailable",
            Self::DecodeFailed => "disaggregated_decode_failed",
            Self::BackendFailed => "backend_failed",
            Self::RateLimitExceeded => "rate_limit_exceeded",
            Self::Overloaded => "overloaded",
            Self::Timeout => "timeout",
            Self::StreamBroken => "stream_broken",
            Self::ClientClosed => "client_closed_request",
            Self::Internal => "internal_error",
        }
    }
}

/// nginx's word for a client that left: never seen by it, but counted and logged.
const CLIENT_CLOSED: u16 = 499;

impl Error {
    /// The whole mapping, one row per failure.
    #[must_use]
    pub fn answer(&self) -> Answer {
        use StatusCode as S;
        let busy = Some(RETRY_AFTER_BUSY_SECONDS);
        let topology = Some(RETRY_AFTER_TOPOLOGY_SECONDS);
        let row = |status, kind, code, retry_after, phase| Answer {
            status,
            kind,
            code,
            param: None,
            retry_after,
            phase,
        };
        let client = |status, code| row(status, Kind::InvalidRequest, code, None, None);
        let server = |status, code, retry_after, phase| row(status, Kind::Server, code, retry_after, phase);
        match self {
            Self::InvalidBody(why) => Answer {
                param: why.param(),
                ..client(S::BAD_REQUEST, Code::InvalidBody)
            },
            Self::BodyTooLarge { .. } => client(S::PAYLOAD_TOO_LARGE, Code::BodyTooLarge),
            Self::BodyIncomplete => client(S::BAD_REQUEST, Code::BodyIncomplete),
            Self::UnsupportedMediaType => client(S::UNSUPPORTED_MEDIA_TYPE, Code::UnsupportedMediaType),
            Self::UnsupportedEncoding => client(S::UNSUPPORTED_MEDIA_TYPE, Code::UnsupportedEncoding),
            Self::UnknownPath => client(S::NOT_FOUND, Code::UnknownPath),
            Self::MethodNotAllowed { .. } => client(S::METHOD_NOT_ALLOWED, Code::MethodNotAllowed),
            Self::ModelNotFound { .. } => Answer {
                param: Some("model"),
                ..client(S::NOT_FOUND, Code::ModelNotFound)
            },
            Self::ModelNotReady { .. } => server(
                S::SERVICE_UNAVAILABLE,
                Code::ModelNotReady,
                topology,
                Some(Phase::Orchestration),
            ),
            Self::NoCandidate { .. } => server(
                S::SERVICE_UNAVAILABLE,
                Code::NoCandidate,
                topology,
                Some(Phase::Orchestration),
            ),
            Self::PrefillDecodeUnavailable => server(
                S::SERVICE_UNAVAILABLE,
                Code::PrefillDecodeUnavailable,
                topology,
                Some(Phase::Orchestration),
            ),
            Self::DecodeFailed { first } => server(
                failed_status(*first),
                Code::DecodeFailed,
                None,
                Some(Phase::Decode),
            ),
            Self::BackendFailed { first } => server(failed_status(*first), Code::BackendFailed, None, None),
            Self::BackPressure(BackPressure::TooMany) => row(
                S::TOO_MANY_REQUESTS,
                Kind::RateLimit,
                Code::RateLimitExceeded,
                busy,
                None,
            ),
            Self::BackPressure(BackPressure::Overloaded) => {
                server(S::SERVICE_UNAVAILABLE, Code::Overloaded, busy, None)
            }
            Self::TimedOut(Deadline::Body) => client(S::REQUEST_TIMEOUT, Code::Timeout),
            Self::TimedOut(Deadline::Header | Deadline::FirstToken | Deadline::Idle | Deadline::Request) => {
                server(S::GATEWAY_TIMEOUT, Code::Timeout, None, Some(Phase::Decode))
            }
            Self::StreamBroken => server(S::BAD_GATEWAY, Code::StreamBroken, None, Some(Phase::Decode)),
            Self::Overloaded | Self::BodiesFull => {
                server(S::SERVICE_UNAVAILABLE, Code::Overloaded, busy, None)
            }
            Self::ClientClosed => client(
                S::from_u16(CLIENT_CLOSED).unwrap_or(S::BAD_REQUEST),
                Code::ClientClosed,
            ),
            Self::Internal(_) => server(S::INTERNAL_SERVER_ERROR, Code::Internal, None, None),
        }
    }

    /// The whole answer: status, `content-type`, `retry-after`, `allow`, body.
    #[must_use]
    pub fn response(&self) -> Response<Bytes> {
        let answer = self.answer();
        let mut response = Response::new(self.object(answer));
        *response.status_mut() = answer.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = answer.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Self::MethodNotAllowed { allow } = self {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        response
    }

    /// The error as the last two events of a stream that has begun: one error event and the end mark.
    ///
    /// It starts at the beginning of a line. When the stream broke inside an event, the caller first ends
    /// that event with an empty line.
    #[must_use]
    pub fn stream_end(&self) -> Bytes {
        let object = self.object(self.answer());
        let mut out = Vec::with_capacity(object.len() + 24);
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(&object);
        out.extend_from_slice(b"\n\ndata: [DONE]\n\n");
        out.into()
    }

    fn object(&self, answer: Answer) -> Bytes {
        let message = self.to_string();
        let body = Body {
            error: Object {
                message: &message,
                kind: answer.kind.as_str(),
                param: answer.param,
                code: answer.code.as_str(),
            },
        };
        // Text and nulls only: it cannot fail, and if it did a client would still read the status.
        serde_json::to_vec(&body).unwrap_or_default().into()
    }
}

/// Status of the first answer if it is an error, 502 where there was none.
fn failed_status(first: Option<StatusCode>) -> StatusCode {
    first
        .filter(|s| s.is_client_error() || s.is_server_error())
        .unwrap_or(StatusCode::BAD_GATEWAY)
}

#[derive(Serialize)]
struct Body<'a> {
    error: Object<'a>,
}

#[derive(Serialize)]
struct Object<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'static str>,
    code: &'static str,
}

#[cfg(test)]
mod tests;

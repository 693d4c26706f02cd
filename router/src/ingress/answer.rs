//! The head of an answer on its way to the client, and the model name put back where it was mapped.

mod rename;

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};

pub use self::rename::{Framing, Rename};
use super::{
    pin_headers::Pinned,
    strip::{Disclosure, X_REQUEST_ID, hop_by_hop, remove_where},
};

/// How a request was served; told in every answer of a relayed request.
pub const X_ROUTING_PATH: HeaderName = HeaderName::from_static("x-continuum-routing-path");
/// The backend that answered; told on request.
pub const X_BACKEND_NAME: HeaderName = HeaderName::from_static("x-continuum-backend");
/// The prefill worker; told on request.
pub const X_PREFILL_WORKER: HeaderName = HeaderName::from_static("x-continuum-prefill-worker");
/// The decode or aggregated worker; told on request.
pub const X_DECODE_WORKER: HeaderName = HeaderName::from_static("x-continuum-decode-worker");

/// Value of [`X_ROUTING_PATH`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutingPath {
    /// A prefill and a decode worker were pinned.
    Disaggregated,
    /// One worker, or one backend, did all of it.
    Unified,
}

impl RoutingPath {
    /// The text on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Disaggregated => "disaggregated",
            Self::Unified => "unified",
        }
    }
}

/// What the head of an answer says of its making.
#[derive(Clone, Copy, Debug)]
pub struct Made<'a> {
    /// How.
    pub path: RoutingPath,
    /// The configured name of the backend.
    pub backend: &'a str,
    /// The pinned decode or aggregated worker, with its namespace.
    pub decode: Option<(&'a str, Pinned)>,
    /// The pinned prefill worker, with its namespace.
    pub prefill: Option<(&'a str, Pinned)>,
}

/// Turns the head of a backend's answer into the client's.
///
/// Connection headers, `x-dynamo-*` and any `x-continuum-*` of the backend go; the request id replaces the
/// backend's echo. Pass `edited` when the body is run through [`Rename`]: its length is then unknown.
pub fn head(
    headers: &mut HeaderMap,
    made: &Made<'_>,
    disclosure: Disclosure,
    request_id: &HeaderValue,
    edited: bool,
) {
    hop_by_hop(headers);
    remove_where(headers, |name| is_internal(name.as_str()));
    if edited {
        headers.remove(CONTENT_LENGTH);
    }
    headers.insert(X_REQUEST_ID, request_id.clone());
    headers.insert(X_ROUTING_PATH, HeaderValue::from_static(made.path.as_str()));
    if disclosure == Disclosure::Hidden {
        return;
    }
    let told = [
        (X_BACKEND_NAME, HeaderValue::from_str(made.backend).ok()),
        (X_PREFILL_WORKER, made.prefill.and_then(worker)),
        (X_DECODE_WORKER, made.decode.and_then(worker)),
    ];
    for (name, value) in told {
        if let Some(value) = value {
            headers.insert(name, value);
        }
    }
}

/// Whether the answer is a stream of events.
#[must_use]
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    essence_is(headers, b"text/event-stream")
}

/// Whether the answer is one JSON document.
#[must_use]
pub fn is_json(headers: &HeaderMap) -> bool {
    essence_is(headers, b"application/json")
}

fn essence_is(headers: &HeaderMap, wanted: &[u8]) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| {
        let essence = value.as_bytes().split(|b| *b == b';').next().unwrap_or_default();
        essence.trim_ascii().eq_ignore_ascii_case(wanted)
    })
}

fn is_internal(name: &str) -> bool {
    name.starts_with("x-dynamo-") || name.starts_with("x-continuum-")
}

/// `<namespace>/<decimal id>`, and `@rank` where one was sent. A namespace that is no header text is left out.
fn worker((namespace, pinned): (&str, Pinned)) -> Option<HeaderValue> {
    let id = pinned.instance.decimal();
    let text = match pinned.rank {
        Some(rank) => format!("{namespace}/{id}@{}", rank.0),
        None => format!("{namespace}/{id}"),
    };
    HeaderValue::from_str(&text).ok()
}

#[cfg(test)]
mod tests;

//! What a client may not say in its head, and what a backend gets to see of it.
//!
//! [`accept`] runs first, on every request of every route, whatever the configuration says: a client that could
//! pin a worker could bypass the router, or aim at one machine. [`outbound`] then turns the client's head into
//! the head for one backend.

use bytes::{BufMut, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE,
        EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    },
};

use super::limits::MAX_REQUEST_ID_BYTES;
use crate::error::Error;

/// Asks to be told which backend and workers answered. Any value counts, also an empty one.
pub const X_BACKEND: HeaderName = HeaderName::from_static("x-backend");
/// Names one request in logs on both sides.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// W3C trace context.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// W3C trace context, of vendors.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const API_KEY: HeaderName = HeaderName::from_static("api-key");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Whether the client is told backend and workers, and may ask the frontend for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disclosure {
    /// It did not ask.
    Hidden,
    /// It sent `x-backend`.
    Asked,
}

/// What becomes of the client's own credentials (`authorization`, `x-api-key`, `api-key`, `cookie`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Credentials {
    /// They stay here: a key given to this router is none of a backend's business. A backend's own `api_key`
    /// is written when the request is sent to it.
    #[default]
    Drop,
    /// Passed on, for backends that check the clients' keys themselves.
    Pass,
}

/// What is read from the head of every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Whether the client is told backend and workers.
    pub disclosure: Disclosure,
    /// Names the request in the log, to the backend and in the answer.
    pub request_id: HeaderValue,
}

/// The first thing that happens to a request: connection headers, client pins and `x-backend` leave its head,
/// it gets its id, and a broken trace context goes. `random` is used when the client sent no usable id.
pub fn accept(headers: &mut HeaderMap, random: u128) -> Accepted {
    hop_by_hop(headers);
    client_pins(headers);
    trace_context(headers);
    Accepted {
        disclosure: disclosure(headers),
        request_id: request_id(headers, random),
    }
}

/// Removes every header that steers routing inside a Dynamo frontend or an inference gateway.
///
/// Allocates nothing, and touches nothing, when no such header is there.
pub fn client_pins(headers: &mut HeaderMap) {
    remove_where(headers, |name| is_pin(name.as_str()));
}

/// Reads and removes `x-backend`.
pub fn disclosure(headers: &mut HeaderMap) -> Disclosure {
    if headers.remove(X_BACKEND).is_some() {
        Disclosure::Asked
    } else {
        Disclosure::Hidden
    }
}

/// Whether a header of this (lower-case) name steers routing; see [`client_pins`].
#[must_use]
pub fn is_pin(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("x-") else {
        return false;
    };
    match rest {
        "worker-instance-id"
        | "prefill-instance-id"
        | "dp-rank"
        | "data-parallel-rank"
        | "prefill-dp-rank"
        | "prefiller-host-port"
        | "enable-local-updates"
        | "bypass-remote-prefill"
        | "gateway-model-name-rewrite" => true,
        other => {
            other.starts_with("dynamo-")
                || other.starts_with("gateway-destination-endpoint")
                || other.starts_with("gateway-inference-")
        }
    }
}

/// Checks that the body is JSON that can be looked at: no other media type, no compression.
///
/// A missing `content-type` counts as JSON, a missing or `identity` `content-encoding` as none.
///
/// # Errors
/// [`Error::UnsupportedMediaType`], [`Error::UnsupportedEncoding`].
pub fn json_body(headers: &HeaderMap) -> Result<(), Error> {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    if let Some(one) = types.next()
        && (types.next().is_some() || !is_json(one.as_bytes()))
    {
        return Err(Error::UnsupportedMediaType);
    }
    let plain = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity");
    if headers.get_all(CONTENT_ENCODING).iter().all(plain) {
        Ok(())
    } else {
        Err(Error::UnsupportedEncoding)
    }
}

/// Makes the head of an outbound request out of the client's.
///
/// Hop-by-hop headers go (those that `connection` lists, too), `content-length` and `host` are for the
/// connection to set, `expect` has been answered by reading the body, and `accept-encoding` goes because the
/// relay reads refusals and may edit model names: answers come uncompressed. A body without `content-type` was
/// looked at as JSON and says so. Everything else is passed on; what only a shim must not see goes when the pin is
/// written.
pub fn outbound(headers: &mut HeaderMap, credentials: Credentials) {
    connection_listed(headers);
    remove_where(headers, |name| {
        is_pin(name.as_str())
            || is_hop_by_hop(name)
            || matches!(
                *name,
                HOST | CONTENT_LENGTH | CONTENT_ENCODING | EXPECT | ACCEPT_ENCODING
            )
            || *name == X_BACKEND
            || (credentials == Credentials::Drop && is_credential(name))
    });
    if !headers.contains_key(CONTENT_TYPE) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
}

/// Removes headers that belong to one connection, and those that `connection` names.
pub fn hop_by_hop(headers: &mut HeaderMap) {
    connection_listed(headers);
    remove_where(headers, is_hop_by_hop);
}

/// Keeps a client's `x-request-id` of up to 128 visible ASCII characters, else makes one out of `random`.
///
/// The header is left in place for the backend, exactly once; the value returned belongs into the answer and
/// the log.
pub fn request_id(headers: &mut HeaderMap, random: u128) -> HeaderValue {
    let mut sent = headers.get_all(X_REQUEST_ID).iter();
    if let (Some(id), None) = (sent.next(), sent.next())
        && is_request_id(id.as_bytes())
    {
        return id.clone();
    }
    let id = uuid(random);
    headers.insert(X_REQUEST_ID, id.clone());
    id
}

/// Keeps a valid `traceparent` for the backend; an invalid one goes, with its `tracestate`.
///
/// None is made: the router records no span, and a made-up parent would decide for everybody behind it
/// whether the trace is sampled.
pub fn trace_context(headers: &mut HeaderMap) {
    let mut sent = headers.get_all(TRACEPARENT).iter();
    let valid = match (sent.next(), sent.next()) {
        (Some(one), None) => is_traceparent(one.as_bytes()),
        (None, _) => !headers.contains_key(TRACESTATE),
        (Some(_), Some(_)) => false,
    };
    if !valid {
        headers.remove(TRACEPARENT);
        headers.remove(TRACESTATE);
    }
}

/// What `connection` names goes; `close` and `keep-alive` name no header that stays anyway.
fn connection_listed(headers: &mut HeaderMap) {
    let words =
        |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"keep-alive") || value == "close";
    if headers.get_all(CONNECTION).iter().all(words) {
        return;
    }
    let listed: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        .filter_map(|token| HeaderName::from_bytes(token.trim_ascii()).ok())
        .collect();
    for name in listed {
        headers.remove(name);
    }
}

/// One look over the names, then the removals: names are cheap to compare and costly to look up.
pub(super) fn remove_where(headers: &mut HeaderMap, unwanted: impl Fn(&HeaderName) -> bool) {
    /// A usual head has this many such headers at most; one with more is looked at again.
    const AT_ONCE: usize = 8;
    loop {
        let mut found: [Option<HeaderName>; AT_ONCE] = [const { None }; AT_ONCE];
        let mut free = found.iter_mut();
        let mut more = false;
        for name in headers.keys().filter(|name| unwanted(name)) {
            match free.next() {
                Some(slot) => *slot = Some(name.clone()),
                None => {
                    more = true;
                    break;
                }
            }
        }
        for name in found.into_iter().flatten() {
            headers.remove(name);
        }
        if !more {
            return;
        }
    }
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        *name,
        CONNECTION | PROXY_AUTHENTICATE | PROXY_AUTHORIZATION | TE | TRAILER | TRANSFER_ENCODING | UPGRADE
    ) || *name == KEEP_ALIVE
        || *name == PROXY_CONNECTION
}

fn is_credential(name: &HeaderName) -> bool {
    matches!(*name, AUTHORIZATION | COOKIE) || *name == X_API_KEY || *name == API_KEY
}

fn is_json(value: &[u8]) -> bool {
    let essence = value
        .split(|b| *b == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii()
        .to_ascii_lowercase();
    essence == b"application/json" || (essence.starts_with(b"application/") && essence.ends_with(b"+json"))
}

fn is_request_id(id: &[u8]) -> bool {
    (1..=MAX_REQUEST_ID_BYTES).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

/// `00-<32 hex>-<16 hex>-<2 hex>`, ids not all zero; a later version may append more behind a dash.
fn is_traceparent(value: &[u8]) -> bool {
    let (head, more) = match value.split_at_checked(55) {
        Some(parts) => parts,
        None => return false,
    };
    let mut parts = head.split(|b| *b == b'-');
    let lower_hex = |part: &[u8]| part.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let id = |part: &[u8], len| part.len() == len && lower_hex(part) && part.iter().any(|b| *b != b'0');
    let (Some(version), Some(trace), Some(span), Some(flags), None) = (
        parts.next(),
        parts.next(),
        parts.next(),
        parts.next(),
        parts.next(),
    ) else {
        return false;
    };
    version.len() == 2
        && lower_hex(version)
        && version != b"ff"
        && id(trace, 32)
        && id(span, 16)
        && flags.len() == 2
        && lower_hex(flags)
        && (more.is_empty() || (version != b"00" && more.starts_with(b"-")))
}

/// Random bits as a UUID of version 4: the form that frontends and log pipelines know.
fn uuid(random: u128) -> HeaderValue {
    let bits = (random & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let mut text = BytesMut::with_capacity(36);
    for (i, shift) in (0..128).step_by(4).rev().enumerate() {
        if matches!(i, 8 | 12 | 16 | 20) {
            text.put_u8(b'-');
        }
        let digit = (bits >> shift) as u8 & 0xf;
        text.put_u8(if digit < 10 {
            b'0' + digit
        } else {
            b'a' + digit - 10
        });
    }
    HeaderValue::from_maybe_shared(text.freeze()).unwrap_or_else(|_| HeaderValue::from_static("invalid"))
}

#[cfg(test)]
mod tests;

//! One request to one backend.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use http::{
    HeaderMap, Method, Request, StatusCode, Uri,
    header::{AUTHORIZATION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING},
    response,
    uri::PathAndQuery,
};
use http_body_util::Full;
use hyper::body::Incoming;

use super::limits::CROSSED_CLOSE;
use crate::backends::{
    Backend,
    pool::{Borrowed, ConnectError, Lease, OutBody},
};

/// A request as it leaves, but for what a backend adds (host, its API key). Kept for retries.
#[derive(Clone, Debug)]
pub struct Outbound {
    /// Method.
    pub method: Method,
    /// Path and query.
    pub path: PathAndQuery,
    /// Headers, without hop-by-hop ones.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl Outbound {
    /// A request without headers and body.
    #[must_use]
    pub fn new(method: Method, path: PathAndQuery) -> Self {
        Self {
            method,
            path,
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
    }
}

/// The head of an answer, with its body on the way.
pub(crate) struct Answer {
    pub(crate) head: response::Parts,
    pub(crate) body: Incoming,
    pub(crate) connection: Borrowed,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// Not connected.
    #[error(transparent)]
    Connect(ConnectError),
    /// Connected, and not one byte came back.
    #[error("closed without an answer")]
    NoAnswer(#[source] hyper::Error),
    /// The connection ended inside the head, or what came is no HTTP.
    #[error("the answer broke off in its head")]
    HalfAnswer(#[source] hyper::Error),
    /// 101: it left HTTP, which nobody asked it to.
    #[error("switched to another protocol")]
    Switched,
}

/// Sends the request. An idle connection that the peer closed in this very moment costs nothing: the request goes
/// once more, on a fresh connection, which counts as no retry. Dropping the future ends the exchange at once.
///
/// `dress` adds what this one exchange needs to head and body.
pub(crate) async fn exchange(
    backend: &Arc<Backend>,
    outbound: &Outbound,
    dress: impl Fn(&mut HeaderMap, &mut Bytes),
) -> Result<Answer, SendError> {
    let mut lease = backend.lease().await.map_err(SendError::Connect)?;
    let mut again = true;
    loop {
        let sent = Instant::now();
        match lease.send(request(backend, outbound, &dress, &lease)).await {
            Ok(answer) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
                return Err(SendError::Switched);
            }
            Ok(answer) => {
                let (head, body) = answer.into_parts();
                return Ok(Answer {
                    head,
                    body,
                    connection: Borrowed {
                        backend: Arc::clone(backend),
                        lease,
                    },
                });
            }
            Err(error) if lease.answered() => return Err(SendError::HalfAnswer(error)),
            Err(_) if again && lease.was_lost_idle() && sent.elapsed() <= CROSSED_CLOSE => {
                again = false;
                backend.metrics().idle_connection_lost();
                lease = backend.connect().await.map_err(SendError::Connect)?;
            }
            Err(error) => return Err(SendError::NoAnswer(error)),
        }
    }
}

fn request(
    backend: &Backend,
    outbound: &Outbound,
    dress: &impl Fn(&mut HeaderMap, &mut Bytes),
    lease: &Lease,
) -> Request<OutBody> {
    let mut headers = outbound.headers.clone();
    let mut body = outbound.body.clone();
    dress(&mut headers, &mut body);
    // The body's length is known; hyper writes it.
    headers.remove(CONTENT_LENGTH);
    headers.remove(TRANSFER_ENCODING);
    if lease.is_h2() {
        headers.remove(HOST);
    } else {
        headers.insert(HOST, backend.host().clone());
    }
    if let Some(authorization) = backend.authorization() {
        headers.insert(AUTHORIZATION, authorization.clone());
    }
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = outbound.method.clone();
    *request.uri_mut() = target(backend, &outbound.path, lease);
    *request.headers_mut() = headers;
    request
}

fn target(backend: &Backend, path: &PathAndQuery, lease: &Lease) -> Uri {
    if !lease.is_h2() {
        return Uri::from(path.clone());
    }
    let (scheme, authority) = backend.target();
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(scheme.clone());
    parts.authority = Some(authority.clone());
    parts.path_and_query = Some(path.clone());
    // All three parts are there, so it cannot fail.
    Uri::from_parts(parts).unwrap_or_else(|_| Uri::from(path.clone()))
}

//! The way of a request's body into this process, and what happens to one that nobody will read.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header::EXPECT};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::time::{Instant, timeout_at};

use super::limits::{BODY_GAP, DISCARD_BYTES, DISCARD_TIME, FIRST_BODY_BYTES};
use crate::error::{Deadline, Error};

/// Reads a whole body of at most `limit` bytes; `until` is when the request as a whole is over.
///
/// # Errors
/// It is larger, it stopped coming, or it broke off. What is left of it can still be discarded.
pub(crate) async fn read_body(
    body: &mut Incoming,
    limit: usize,
    until: Option<Instant>,
) -> Result<Bytes, Error> {
    let too_large = || Error::BodyTooLarge {
        limit: u64::try_from(limit).unwrap_or(u64::MAX),
    };
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(too_large());
    }
    // Most bodies arrive in one piece, and are then taken as they are.
    let mut whole = Bytes::new();
    let mut pieces = BytesMut::new();
    loop {
        let gap = Instant::now() + BODY_GAP;
        let due = until.map_or(gap, |until| until.min(gap));
        let frame = match timeout_at(due, body.frame()).await {
            Err(_) => return Err(Error::TimedOut(Deadline::Body)),
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(Error::BodyIncomplete),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(piece) = frame.into_data() else { continue };
        if whole.len() + pieces.len() + piece.len() > limit {
            return Err(too_large());
        }
        if whole.is_empty() && pieces.is_empty() {
            whole = piece;
            continue;
        }
        if pieces.is_empty() {
            // What was announced is not yet here: memory follows what has come.
            pieces.reserve(announced.min(FIRST_BODY_BYTES).max(whole.len() + piece.len()));
            pieces.extend_from_slice(&std::mem::take(&mut whole));
        }
        pieces.extend_from_slice(&piece);
    }
    Ok(if pieces.is_empty() { whole } else { pieces.freeze() })
}

/// Reads the rest of a body away, beside the answer. A client that is still sending would otherwise see its
/// connection reset before it has read why.
///
/// `awaited` tells a client that sends its body only when asked to; nothing has been asked yet.
pub(super) fn discard(mut body: Incoming, awaited: bool) {
    if awaited || body.is_end_stream() {
        return;
    }
    tokio::spawn(async move {
        let until = Instant::now() + DISCARD_TIME;
        let mut left = DISCARD_BYTES;
        while let Ok(Some(Ok(frame))) = timeout_at(until, body.frame()).await {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(bytes) else {
                return;
            };
            left = rest;
        }
    });
}

/// Whether the client waits for a word before it sends its body.
pub(super) fn waits(headers: &HeaderMap) -> bool {
    headers.contains_key(EXPECT)
}

//! The way of a request's body into this process, and what happens to one that nobody will read.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, header::EXPECT};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Incoming};
use tokio::time::{Instant, timeout_at};

use super::{
    budget::Room,
    limits::{BODY_GAP, BODY_GRACE, BODY_RATE, DISCARD_BYTES, DISCARD_TIME},
};
use crate::error::{Deadline, Error};

/// Reads a whole body into `room`; `until` is when the request as a whole is over. What comes back holds its bytes of
/// the budget until its last handle is gone.
///
/// # Errors
/// It is larger than allowed, it came too slowly, it broke off, or the budget is used up. What is left of it can still
/// be discarded.
pub(crate) async fn read_body<B>(body: &mut B, room: &Room, until: Option<Instant>) -> Result<Bytes, Error>
where
    B: Body<Data = Bytes> + Unpin,
{
    let limit = room.limit();
    let too_large = || Error::BodyTooLarge {
        limit: u64::try_from(limit).unwrap_or(u64::MAX),
    };
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(too_large());
    }
    let begun = Instant::now();
    let mut share = room.share(0)?;
    // Most bodies arrive in one piece, and are then taken as they are.
    let mut whole = Bytes::new();
    let mut pieces: Vec<u8> = Vec::new();
    loop {
        let received = whole.len() + pieces.len();
        let due = (Instant::now() + BODY_GAP).min(begun + allowed(received));
        let due = until.map_or(due, |until| until.min(due));
        let frame = match timeout_at(due, body.frame()).await {
            Err(_) => return Err(Error::TimedOut(Deadline::Body)),
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(Error::BodyIncomplete),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(piece) = frame.into_data() else { continue };
        let received = received.saturating_add(piece.len());
        if received > limit {
            return Err(too_large());
        }
        if whole.is_empty() && pieces.is_empty() {
            share.resize(piece.len())?;
            whole = piece;
            continue;
        }
        if received > pieces.capacity() {
            // What was announced is not yet here: memory follows what has come. The old buffer and the new one lie side
            // by side for a moment, on one worker thread; that is not counted.
            let most = if announced < received { limit } else { announced };
            let capacity = received.saturating_mul(2).min(most);
            share.resize(capacity)?;
            pieces.reserve_exact(capacity - pieces.len());
        }
        if !whole.is_empty() {
            pieces.extend_from_slice(&std::mem::take(&mut whole));
        }
        pieces.extend_from_slice(&piece);
    }
    if pieces.is_empty() {
        return Ok(share.around(whole));
    }
    pieces.shrink_to_fit();
    share.resize(pieces.len())?;
    Ok(share.around(pieces))
}

/// How long after its beginning a body may be where it is. By what has come, not by what was announced: who has sent
/// little holds little, and for a short time.
fn allowed(received: usize) -> Duration {
    let millis = u64::try_from(received).unwrap_or(u64::MAX).saturating_mul(1000) / BODY_RATE;
    BODY_GRACE + Duration::from_millis(millis)
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

#[cfg(test)]
mod tests;

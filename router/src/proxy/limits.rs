//! Limits of the way in.

use std::time::Duration;

/// Longest time without a byte of a request's body: slow links pause, dead ones must not hold a place.
pub const BODY_GAP: Duration = Duration::from_secs(30);
/// Bytes that are reserved at once for a body in several pieces, whatever length it announces.
pub const FIRST_BODY_BYTES: usize = 256 * 1024;
/// Bytes of a refused request's body that are read away, so that its client gets to read the refusal.
pub const DISCARD_BYTES: usize = 64 * 1024 * 1024;
/// How long that may take.
pub const DISCARD_TIME: Duration = Duration::from_secs(5);

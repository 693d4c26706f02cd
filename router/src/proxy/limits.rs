//! Limits of the way in.

use std::time::Duration;

/// Longest time without a byte of a request's body: slow links pause, dead ones must not hold a place.
pub const BODY_GAP: Duration = Duration::from_secs(30);
/// Time that a request's body has beside what [`BODY_RATE`] gives it: one pause of a slow link at its beginning.
pub const BODY_GRACE: Duration = BODY_GAP;
/// Bytes a second that a body has to come with in the long run, once [`BODY_GRACE`] is over: a poor mobile link is
/// several times faster, and a body that trickles must not hold its place and its memory for hours.
pub const BODY_RATE: u64 = 16 * 1024;
/// Bytes of a body that counts as small, as most prompts without images are: such a body may use all of
/// `server.body_budget`.
pub const SMALL_BODY_BYTES: usize = 64 * 1024;
/// One part of so many of `server.body_budget` is for small bodies alone, so that large ones, which are slow and can be
/// sent again, never leave no room for them.
pub const SMALL_BODIES_PART: usize = 8;
/// Bytes of a refused request's body that are read away, so that its client gets to read the refusal.
pub const DISCARD_BYTES: usize = 64 * 1024 * 1024;
/// How long that may take.
pub const DISCARD_TIME: Duration = Duration::from_secs(5);

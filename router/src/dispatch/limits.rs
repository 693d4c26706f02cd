//! Every limit of the dispatch path, with its unit and its reason.

use std::time::Duration;

/// Bytes of a refusal that are read before its meaning is decided. Frontends answer a few hundred bytes;
/// a larger body is relayed unread beyond this.
pub const REFUSAL_BODY: usize = 8 * 1024;

/// The status that Dynamo frontends use for a full fleet unless told otherwise.
pub const TOO_MANY_REQUESTS_OVERLOADED: u16 = 529;

/// Re-picks of workers for one request: a second one would only walk through a broken fleet.
pub const REPICKS: u8 = 1;

/// How long after a worker has joined or left a graph its frontends may know others than the view does: they hear of it
/// from the same registry, and some only after a reconnection.
pub const SETTLING: Duration = Duration::from_secs(10);

/// Pause before the first repeat of a pin that a frontend may not know yet; each further pause is twice as long, 0.75 s
/// in all.
pub const SETTLING_PAUSE: Duration = Duration::from_millis(50);

/// Repeats of the same pin when a frontend draws one of several worker sets: with two equal sets all five
/// tries miss once in 32.
pub const LOTTERY_REPEATS: u8 = 4;

/// Window of the pool-wide retry budget, seconds.
pub const BUDGET_WINDOW_SECS: usize = 10;

/// Retries that a window always grants, so that a quiet pool can retry at all.
pub const BUDGET_FLOOR: u32 = 10;

/// Further retries as a share of the requests of the window: one in so many.
pub const BUDGET_ONE_IN: u32 = 5;

/// Bytes of an unfinished server-sent event that are held back until its end arrives. A client cannot use a
/// part of an event, and a cut one must not reach it; larger events pass through as they come.
pub const HELD_EVENT: usize = 64 * 1024;

/// How long a replica that did not answer at all is avoided while others can serve.
pub const COOL_DOWN: Duration = Duration::from_secs(1);

/// How long after it was sent a request that met the end of a reused connection is taken to have crossed it: the peer had
/// closed an idle connection, and the news was under way. Later it is the peer that died, with the request or of it.
pub const CROSSED_CLOSE: Duration = Duration::from_secs(1);

/// How long a connection that has just delivered an answer may take to become idle before a new one is opened.
pub const SETTLE: Duration = Duration::from_millis(2);

/// Look-ups of backends' names at a time. They have a thread each, and a name service that is away holds them for as long
/// as the system waits for it; a backend has one at most, so this many dead names hold up no other one.
pub const MAX_LOOKUPS: usize = 64;

/// How old a look-up may become before the last addresses of a backend are used instead; a quarter of its
/// `connect_timeout` where that is less. A name service that is there answers in a few milliseconds.
pub const LOOKUP_PATIENCE: Duration = Duration::from_millis(100);

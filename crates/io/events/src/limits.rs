//! Every limit and time of this crate, with its reason.

use std::time::Duration;

/// Resolving and connecting, together.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// From the open socket to the peer's READY.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A peer that has said nothing for this long is pinged. Idle workers are silent, so most are.
pub const PING_AFTER: Duration = Duration::from_secs(15);

/// A peer that knows PING and has been silent for this long is dropped: three pings went unanswered.
pub const SILENT_AFTER: Duration = Duration::from_secs(60);

/// From a message's first byte to its last. Who takes longer holds memory that others wait for: at the longest message,
/// 8 MiB, that is 2.2 Mbit/s.
pub const MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// A peer that does not take our few bytes for this long is dropped.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// First ceiling of the wait before a new connection.
pub const RECONNECT_INITIAL: Duration = Duration::from_millis(500);

/// Last ceiling; also how long a session must have lasted to forget earlier failures, and to count as one where nothing
/// was delivered.
pub const RECONNECT_MAX: Duration = Duration::from_secs(30);

/// What a task gets to end by itself.
pub const STOP_GRACE: Duration = Duration::from_secs(5);

/// Read buffer of one subscription, in bytes. Several samples fit; thousands of subscriptions stay cheap.
pub const READ_BUFFER_BYTES: usize = 2048;

/// The same while a long message arrives, in bytes: megabytes in pieces of two kilobytes are thousands of system calls.
/// It is beside what `event_bytes_budget` bounds, and goes with the message.
pub const MAX_READ_BUFFER_BYTES: usize = 64 * 1024;

/// A subscription to block events that has not been connected for this long: what it said of its ranks is forgotten.
pub const BLOCK_EVENTS_STALE_AFTER: Duration = Duration::from_secs(60);

/// Between two looks for what cleared ranks have left in the index. Events clean up along their way; a silent fleet
/// sends none.
pub const TIDY_EVERY: Duration = Duration::from_secs(1);

/// Connections that are being opened at a time. A fleet that appears all at once must not be met with thousands of
/// half-open ones; a dead address holds its place for [`CONNECT_TIMEOUT`].
pub const MAX_CONNECTS: usize = 512;

/// Look-ups at a time. They block a thread each, and an endpoint's host may hang in the resolver.
pub const MAX_LOOKUPS: usize = 16;

/// Addresses of one host that are tried.
pub const MAX_ADDRESSES: usize = 8;

/// TCP keep-alive: idle time and interval, for peers that know no PING.
pub const KEEPALIVE_EVERY: Duration = Duration::from_secs(15);

/// Unanswered keep-alive probes after which the kernel gives up.
pub const KEEPALIVE_PROBES: u32 = 3;

/// Publishers behind one set of brokers whose sequence is remembered. Brokers relay whom they like; beyond
/// this the longest silent ones are forgotten.
pub const MAX_BROKER_PUBLISHERS: usize = 16_384;

/// Subjects asked of one broker: three per component of each namespace.
pub const MAX_BROKER_SUBJECTS: usize = 1024;

/// Connections to brokers, all sets together. Records name the sets, so their number is not ours to decide.
pub const MAX_BROKER_ENDPOINTS: usize = 64;

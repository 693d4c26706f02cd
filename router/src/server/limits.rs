//! Limits of connections from clients.

use std::time::Duration;

/// How long a client may take for the head of a request, and how long a kept-alive connection may idle between
/// two: as long as common load balancers keep theirs, so that they close first.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// How long a TLS handshake may take.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take nothing of an answer that waits for it. Networks and sleeping machines come back within
/// it, and a client that does not must not hold a worker.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause after a failed accept: out of file descriptors, it fails again at once.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long the log is silent about further failed accepts: twenty a second would say nothing that one does not.
pub const ACCEPT_SAID_AGAIN: Duration = Duration::from_secs(60);
/// Bytes of a request head: as much as large cookies and tokens need.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;
/// HTTP/2 streams of one connection at a time.
pub const MAX_CONCURRENT_STREAMS: u32 = 1024;
/// How long a connection without an exchange is kept open when a drain begins: a busy client's next request is on its way,
/// and is answered with the word that the connection ends.
pub const DRAIN_PAUSE: Duration = Duration::from_secs(2);
/// How long a connection may stay open in a drain without an exchange: a part of a head, or the last bytes of an
/// answer to a slow reader.
pub const DRAIN_IDLE: Duration = Duration::from_secs(2);
/// How long a client may take to tell, by its first bytes, which protocol it speaks: the time of a connection that is
/// opened ahead of its first request, as browsers and pools do.
pub const OPENING_TIMEOUT: Duration = HEAD_TIMEOUT;

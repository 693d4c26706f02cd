//! Times and caps of the push server.

use std::time::Duration;

/// A session carries something from the controller at least this often (250 ms): a router that follows a lost
/// replica notices within three of them, and so moves in less than a second.
pub const HEARTBEAT: Duration = Duration::from_millis(250);

/// A session of a router that said nothing for this long has ended (3 s): twelve heartbeats, so that a busy router
/// is not given up, and far below the 10 s after which `RoutersReady` asks for news.
pub const SILENCE: Duration = Duration::from_secs(3);

/// A router that takes no byte for this long is given up (5 s); until then its session holds one part.
pub const SLOW: Duration = Duration::from_secs(5);

/// Time for the TLS handshake (5 s).
pub const HANDSHAKE: Duration = Duration::from_secs(5);

/// Time to open a session on a connection, and to say hello on a session (5 s).
pub const HELLO: Duration = Duration::from_secs(5);

/// A session's life (30 min, less up to a third by chance): then the router connects again, and its token is looked
/// at again. Resuming at an equal digest costs nothing.
pub const RENEW: Duration = Duration::from_secs(30 * 60);

/// Connections at once: four times the largest fleet of routers that is measured, with room for reconnects.
pub const MAX_CONNECTIONS: usize = 1_024;

/// Handshakes at once (64): a handshake costs the server a signature, and connected routers go first.
pub const MAX_HANDSHAKES: usize = 64;

/// Sessions of one `RouterConfig`: one namespace cannot take every place.
pub const MAX_SESSIONS_PER_KEY: usize = 512;

/// Least time between two messages that are read from one router (5 ms): a report for each view of a busy fleet,
/// no more.
pub const MESSAGE_SPACING: Duration = Duration::from_millis(5);

/// Views kept, so that a router that resumes gets a difference (16): they share what is equal.
pub const RECENT_VIEWS: usize = 16;

/// Differences kept beside a view, one for each older view that routers have (4).
pub const KEPT_DIFFERENCES: usize = 4;

/// Longest bearer token, in bytes (8 KiB): ServiceAccount tokens have about 1 KiB.
pub const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// All headers of a request, in bytes (16 KiB).
pub const MAX_HEADER_BYTES: u32 = 16 * 1024;

/// A token that was found good is not asked about again for this long (60 s).
pub const TOKEN_CACHE: Duration = Duration::from_secs(60);

/// Good tokens remembered. The oldest is forgotten first.
pub const MAX_CACHED_TOKENS: usize = 2_048;

/// Token reviews at once (8): bad tokens cannot flood the API server.
pub const MAX_REVIEWS: usize = 8;

/// Longest wait for a token review, its place in the queue included (10 s).
pub const REVIEW: Duration = Duration::from_secs(10);

/// HTTP/2 pings on a connection that is quiet (5 s), and the time for the answer.
pub const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Sessions' time to end when the replica stops (2 s).
pub const GRACE: Duration = Duration::from_secs(2);

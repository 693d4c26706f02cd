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

/// Connections of routers at once, each with a good token of a `RouterConfig` that is served here: four times the largest
/// fleet of routers that is measured, with room for reconnects. While all are taken, the oldest one without a session of
/// the `RouterConfig` that has most of those makes way; where there is none, the newest one of the namespace that has most,
/// for one that has less than its share, which is all of them divided by the namespaces that have any. The `RouterConfig`s
/// of a namespace share its part alike.
pub const MAX_CONNECTIONS: usize = 1_024;

/// Connections at once on which no good token was shown yet, handshakes included. The oldest one of the address that
/// has most makes way for a new one.
pub const MAX_STRANGERS: usize = 512;

/// The same from one address: more than the largest fleet of routers that is measured, which may come back all at once
/// and from behind one address.
pub const MAX_STRANGERS_PER_PEER: usize = 256;

/// Connections of the routers of one `RouterConfig`: its sessions, and some beside them for routers that come back before
/// their connection of before is given up. The oldest one without a session makes way for one more.
pub const MAX_CONNECTIONS_PER_KEY: usize = 512;

/// Sessions on one connection that end before the router said hello and was let in, after which the connection ends
/// (2): a router's first one begins, and whoever has none cannot keep a connection by trying again.
pub const MAX_UNUSED_SESSIONS: usize = 2;

/// Sessions of one `RouterConfig`: as many routers as it may have, as many that drain when all are replaced, and the one
/// more of a rollout. A pod has one, so that these alone keep no place from others: see [`MAX_CONNECTIONS_PER_KEY`].
pub const MAX_SESSIONS_PER_KEY: usize = 501;

const _: () = assert!(
    MAX_SESSIONS_PER_KEY == 2 * continuum_crds::spec::MAX_REPLICAS.unsigned_abs() as usize + 1,
    "all the routers that a RouterConfig may have, twice, and one of a rollout"
);
const _: () = assert!(
    MAX_SESSIONS_PER_KEY < MAX_CONNECTIONS_PER_KEY && 2 * MAX_CONNECTIONS_PER_KEY <= MAX_CONNECTIONS,
    "two RouterConfigs have room"
);

/// Least time between two messages that are read from one router (5 ms): a report for each view of a busy fleet,
/// no more.
pub const MESSAGE_SPACING: Duration = Duration::from_millis(5);

/// Views kept, so that a router that resumes gets a difference (16): they share what is equal.
pub const RECENT_VIEWS: usize = 16;

/// Views before the newest one whose digests are kept with the time at which another one took their place (1,024): the
/// status tells from it how far behind a router is.
pub const SUPERSEDED_VIEWS: usize = 1_024;

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

/// The same for tokens from one address (4): who has many bad ones does not keep others waiting.
pub const MAX_REVIEWS_PER_PEER: usize = 4;

/// Longest wait for a token review, its place in the queue included (5 s): no longer than a connection may be without a
/// session.
pub const REVIEW: Duration = HELLO;

/// Bad tokens from one address after which the API server is asked about no more of them for a while (16). Tokens that
/// are remembered as good get in all the same.
pub const MAX_REFUSALS: u32 = 16;

/// After this long one bad token is forgiven (2 s): as often as that an address in a pause may try one more.
pub const FORGIVE: Duration = Duration::from_secs(2);

/// Addresses whose bad tokens are counted. The one with the fewest is forgotten first.
pub const MAX_PEERS: usize = 4_096;

/// After a refusal the connection stays open for this long, so that the answer gets there (250 ms).
pub const LINGER: Duration = Duration::from_millis(250);

/// HTTP/2 pings on a connection that is quiet (5 s), and the time for the answer.
pub const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Sessions' time to end when the replica stops (2 s).
pub const GRACE: Duration = Duration::from_secs(2);

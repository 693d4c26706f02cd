//! Sizes and times of the sessions.

use std::time::Duration;

/// Sessions at a time, one for each controller replica. An operator has two or three.
pub const MAX_SESSIONS: usize = 16;

/// Silence after which another controller is followed, where there is one. Less than the second that a lost
/// controller may cost, and three of its heartbeats.
pub const HEARTBEAT_TIMEOUT: Duration = Duration::from_millis(800);

/// Silence after which a session is given up: longer than a controller or a node may be short of processor time.
pub const SESSION_SILENCE: Duration = Duration::from_secs(10);

/// How long connecting may take, TLS and the first message included.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// From one look for the controllers' addresses to the next, while a session is up.
pub const RESOLVE_INTERVAL: Duration = Duration::from_secs(5);

/// The same while none is: a new controller must be found soon.
pub const RESOLVE_INTERVAL_ALONE: Duration = Duration::from_secs(1);

/// How long the name service may take.
pub const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);

/// The first wait before connecting again.
pub const BACKOFF_INITIAL: Duration = Duration::from_millis(200);

/// The longest wait before connecting again: a controller that comes back is used within seconds, and hundreds of
/// routers do not hammer one that does not.
pub const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Before a whole view that could not be used is asked for again, doubled with each: it may be large, and it may be the
/// controller's word that this version does not know.
pub const VIEW_PAUSE: Duration = Duration::from_millis(200);

/// The longest such wait (30 s): hundreds of routers must not keep a controller busy with what they cannot use.
pub const VIEW_PAUSE_MOST: Duration = Duration::from_secs(30);

/// Between two reports to one controller: changes that come together make one report.
pub const REPORT_SPACING: Duration = Duration::from_millis(25);

/// Shortest and longest interval of heartbeats that a controller may ask for.
pub const HEARTBEAT_INTERVALS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// For how long a controller may announce a newer view than this router has before the router asks for it, or an older
/// configuration than another controller before that one is followed.
pub const CATCH_UP: Duration = Duration::from_secs(2);

/// For how long no controller is followed before the log says so: sessions are renewed now and then, and an operator is
/// upgraded.
pub const ALONE: Duration = Duration::from_secs(5);

/// Messages between a session and the one task that acts on them. Beyond it the session stops reading, and the
/// controller feels it.
pub const QUEUED_MESSAGES: usize = 8;

/// Messages to a controller that wait for the connection.
pub const QUEUED_REPORTS: usize = 2;

/// Largest file of certificates, in bytes: a bundle during a change of certificate authority has two.
pub const MAX_CA_BYTES: u64 = 1 << 20;

/// Largest token, in bytes. Tokens of service accounts have one or two kilobytes.
pub const MAX_TOKEN_BYTES: u64 = 64 << 10;

/// Between two writes of the kept view.
pub const KEEP_INTERVAL: Duration = Duration::from_secs(2);

/// Largest kept view that is read, in bytes: what an update may hold, and its framing.
pub const MAX_KEPT_BYTES: u64 = 257 << 20;

/// Different causes that are logged once each until a session is up again.
pub const SAID: usize = 32;

/// Longest text of an error that is shown or reported, in bytes.
pub const MAX_ERROR_BYTES: usize = 512;

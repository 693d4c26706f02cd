//! Every limit of the sources: a number, its unit, and why.

use std::time::Duration;

/// Connecting, authenticating, listing and opening the watches of one pass. A watch itself has no deadline.
pub const SEED_TIMEOUT: Duration = Duration::from_secs(30);

/// First contact with one etcd member; then the next one is tried. Sixteen members still fit in a seed, because
/// the share of a member is never more than an equal part of [`SEED_TIMEOUT`].
pub const CONTACT_TIMEOUT: Duration = Duration::from_secs(5);

/// Keys of one page of a range read. Cards of a few KiB make that a message of a few MiB.
pub const PAGE_KEYS: i64 = 500;

/// The largest gRPC message that is read. A page beyond it is asked for again in halves, a single record beyond
/// it is skipped; etcd itself refuses values above 1.5 MiB by default.
pub const MAX_MESSAGE_BYTES: usize = 32 * 1024 * 1024;

/// Values that one list may hold in memory before the reducer has seen them. Later values are dropped and counted:
/// instances come first, cards next, so what is lost is the least that can be.
pub const MAX_SEED_BYTES: usize = 512 * 1024 * 1024;

/// HTTP/2 pings, so that a half-open connection ends. etcd servers refuse pings below 5 s.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// How long a ping may stay unanswered.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// A watch that has said nothing for this long is asked for its progress.
pub const PROGRESS_INTERVAL: Duration = Duration::from_secs(30);

/// A watch that has not answered that for this long is dead, whatever TCP says.
pub const PROGRESS_TIMEOUT: Duration = Duration::from_secs(60);

/// Metadata resources of one page: cards make them large.
pub const METADATA_PAGE: u32 = 32;

/// EndpointSlices, and Pods, of one page.
pub const OBJECT_PAGE: u32 = 500;

/// The largest page of Kubernetes objects that is read. A page beyond it is asked for again in halves; etcd behind
/// the API server refuses single objects above 1.5 MiB by default.
pub const MAX_PAGE_BYTES: usize = 64 * 1024 * 1024;

/// What a list keeps of one EndpointSlice or Pod, on average: `max_resources` times this are kept of each kind, and
/// one of [`MAX_EVENT_BYTES`] at least. A slice of a hundred workers has 16 KiB and stands for as many.
pub const OBJECT_BYTES: usize = 4 * 1024;

/// What a list keeps of one metadata resource when `max_resource_bytes` are taken: names and uids, which Kubernetes bounds.
pub const LEAN_BYTES: usize = 1024;

/// The largest event of a Kubernetes watch, which is one object.
pub const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

/// The largest error answer of the API server that is read for its message.
pub const MAX_STATUS_BYTES: usize = 64 * 1024;

/// After this long the API server is asked to end a watch, so that every list is renewed now and then.
pub const WATCH_LENGTH: Duration = Duration::from_secs(290);

/// How much earlier the API server may end a watch without it being a failure: its clock starts when the request
/// reaches it, and proxies round.
pub const WATCH_LENGTH_SLACK: Duration = Duration::from_secs(2);

/// A Kubernetes watch that has said nothing for this long is dead, whatever TCP says: [`WATCH_LENGTH`] and a share
/// for a slow end.
pub const WATCH_IDLE: Duration = Duration::from_secs(320);

/// For how long more Dynamo namespaces are waited for before a source lists them (500 ms): who adds them one by one, or
/// over and over, makes one list of many, and the others go on seeing changes meanwhile.
pub const NAMES_PAUSE: Duration = Duration::from_millis(500);

/// Changes applied before a view is published although more are queued: bounds how late a view can be, and how long
/// a thread that also carries streams is busy with it.
pub const COALESCED_CHANGES: usize = 512;

/// How long a watcher may take to stop before it is dropped.
pub const STOP_GRACE: Duration = Duration::from_secs(5);

/// How often the file store is read. Writers touch their records every 3 s and expire after 10 s.
pub const FILE_POLL: Duration = Duration::from_millis(500);

/// A record of the file store is live while it was touched less than this long ago (Dynamo's own rule).
pub const FILE_TTL: Duration = Duration::from_secs(10);

/// Directory entries read per bucket of the file store. A worker registers about a dozen; beyond it entries are
/// counted as over capacity.
pub const FILE_MAX_ENTRIES: usize = 262_144;

/// The largest certificate or key file that is read.
pub const TLS_FILE_BYTES: u64 = 1024 * 1024;

/// Text of a peer that goes into an error or a log line.
pub const PEER_TEXT_BYTES: usize = 256;

/// The largest kept state that is written or read: about 16,384 workers with cards of 4 KiB.
pub const STATE_BYTES: usize = 128 * 1024 * 1024;

/// Kept state is written at most this often.
pub const STATE_INTERVAL: Duration = Duration::from_secs(5);

/// Conditions remembered so that each is logged once.
pub const SAID: usize = 4_096;

//! How much of a RouterConfig is taken, and what router pods get.

use std::time::Duration;

/// Characters of a condition's message: beyond that nobody reads, and the API server takes at most 32 Ki.
pub(crate) const MAX_MESSAGE_CHARS: usize = 4096;

/// Seconds between the end of a pod's membership in the Service and SIGTERM: until every node has heard of it.
pub(crate) const PRE_STOP_SECONDS: i64 = 5;

/// Seconds beyond the graceful period until the kubelet kills: for closing what is left.
pub(crate) const TERMINATION_MARGIN_SECONDS: i64 = 10;

/// Lifetime of a router's token in seconds; the kubelet renews it at 80 %.
pub(crate) const TOKEN_SECONDS: i64 = 3600;

/// Size of the volume that keeps the last view: the largest view fits several times.
pub(crate) const STATE_VOLUME: &str = "1Gi";

/// Changes that come together are looked at once.
pub(crate) const DEBOUNCE: Duration = Duration::from_millis(100);

/// Between two looks at a RouterConfig of which nothing was heard: what no watch tells, such as Roles beside a fleet.
pub(crate) const RESYNC: Duration = Duration::from_secs(300);

/// The first wait after a failure, doubled with each.
pub(crate) const RETRY_FIRST: Duration = Duration::from_secs(1);

/// The longest wait after a failure: permissions come back without a word.
pub(crate) const RETRY_MOST: Duration = Duration::from_secs(30);

/// The wait after a failure to leave the namespace of another fleet: somebody is waiting for a deletion.
pub(crate) const RETRY_LEAVE: Duration = Duration::from_secs(5);

/// Reconciles at once.
pub(crate) const CONCURRENCY: u16 = 8;

/// How long it is believed that the PodMonitor API exists, or does not.
pub(crate) const API_CHECKED_EVERY: Duration = Duration::from_secs(60);

/// After a watch has failed, doubled with each failure: long enough to be no load, short enough to be no outage of its own.
pub(crate) const WATCH_PAUSE: Duration = Duration::from_millis(300);

/// The longest pause of a watch while the API server is away (5 s): it is heard soon after it has come back.
pub(crate) const WATCH_PAUSE_MOST: Duration = Duration::from_secs(5);

/// A failure this long after another one (2 min) is a new one: watches of quiet namespaces are well without a word.
pub(crate) const WATCH_WELL: Duration = Duration::from_secs(120);

/// A namespace whose RouterConfigs may not be listed for this long (5 s) has none for now: permissions that were given
/// just before a start are heard of by then.
pub(crate) const REFUSED: Duration = Duration::from_secs(5);

/// Routers of other namespaces wait at most this long (30 s) for the first list of one that does not answer.
pub(crate) const FIRST_LIST: Duration = Duration::from_secs(30);

/// Locks that keep two looks at one RouterConfig apart: more than reconciles at once.
pub(crate) const TURNS: usize = 64;

/// Namespaces with something of one RouterConfig that are read out of its annotation: each that the operator was moved
/// away from without a right to look there any more. Users can write there, and each name is two requests.
pub(crate) const MAX_ELSEWHERE: usize = 64;

/// Bytes of a configuration and of the spec that it was made from, together in one ConfigMap: the API server takes 1 MiB,
/// and the certificates need some of it. Beyond that the spec is not kept.
pub(crate) const MAX_KEPT_BYTES: usize = 900 << 10;

/// The first wait between two looks whether routers have taken over a configuration that a starting pod is not given
/// before (1 s); the next ones are as long as it has lasted, so that they double.
pub(crate) const PROOF_LOOK: Duration = Duration::from_secs(1);

/// The longest such wait (30 s): what routers refuse stays so until somebody mends it.
pub(crate) const PROOF_LOOK_MOST: Duration = Duration::from_secs(30);

/// Between two looks whether a router has run what starting pods are given already (5 s): it matters at the next change.
pub(crate) const PROVEN_LOOK: Duration = Duration::from_secs(5);

/// Without any session for this long, nobody can tell whether a configuration works, and the ConfigMap is the only way to
/// routers: longer than they take to come back to a new leader.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);

/// Objects in one answer to a list. Each may be of several MiB as JSON text, and a tenant may fill a page of each kind:
/// with [`LISTS`] that are read at once, a fifth of the memory that the chart gives.
pub(crate) const PAGE: u32 = 8;

/// Lists of children that are read at once, of all kinds and namespaces.
pub(crate) const LISTS: usize = 2;

/// Longest text that is kept of an owner reference (253), which the API server does not bound: no name of an object is
/// longer.
pub(crate) const MAX_NAME_BYTES: usize = 253;

/// Longest text that is kept of an annotation that the operator wrote (63): its own are hashes.
pub(crate) const MAX_LABEL_BYTES: usize = 63;

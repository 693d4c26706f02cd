//! How much of a RouterConfig is taken, and what router pods get.

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

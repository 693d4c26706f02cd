//! How long the API server may be silent.

use std::time::Duration;

/// From a request to its answer, and from one piece of the answer to the next (15 s): far longer than a busy API server
/// takes, far shorter than the quarter of an hour after which the kernel gives up a peer that vanished without a word.
pub(crate) const SILENCE: Duration = Duration::from_secs(15);

/// The same to the beginning of a watch (60 s): it may wait for a cache of the API server that has just started.
pub(crate) const WATCH_BEGINS: Duration = Duration::from_secs(60);

/// Between two words of a watch (10 min): nothing may happen for long, and the watcher itself starts it anew after five
/// minutes.
pub(crate) const WATCH_SILENCE: Duration = Duration::from_secs(600);

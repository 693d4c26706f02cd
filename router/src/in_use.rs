//! The blocks of one request on one rank: in use while the request is open, and remembered after it where the rank's
//! events do not tell that it caches them.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use continuum_events::Filled;
use continuum_kv_index::RankKey;
use continuum_routing::picker::kv::Entry;

use crate::fleet::Clock;

/// In use until this is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) entry: Option<Entry>,
    pub(crate) rank: RankKey,
    /// Tells whether the index knows what the rank holds.
    pub(crate) filled: Filled,
    pub(crate) clock: Clock,
    pub(crate) read: AtomicBool,
}

impl Hold {
    /// The rank has read the prompt: it holds these blocks.
    pub(crate) fn read(&self) {
        self.read.store(true, Relaxed);
    }

    /// Blocks that others held open on the rank when the request came.
    pub(crate) fn shared(&self) -> u32 {
        self.entry.as_ref().map_or(0, Entry::shared)
    }

    /// Ends the request there. Blocks of it that others hold open.
    pub(crate) fn end(&mut self) -> u32 {
        let Some(entry) = self.entry.take() else { return 0 };
        if self.read.load(Relaxed) && self.filled.misses(&self.rank) {
            entry.remember(self.clock.now())
        } else {
            entry.leave()
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.end();
    }
}

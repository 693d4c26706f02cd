//! When a whole view is asked for after one that could not be used: at once after a difference, and ever later after whole
//! ones, which are likely to be the same again.

use continuum_runtime::backoff::Backoff;
use tokio::time::Instant;

use crate::limits::{VIEW_PAUSE, VIEW_PAUSE_MOST};

/// What became of the whole views of late.
#[derive(Default)]
pub(super) struct Asking {
    /// The last whole view could not be used, and none has been since.
    failing: Option<Failing>,
}

struct Failing {
    pauses: Backoff,
    /// Not asked for again yet.
    due: Option<Instant>,
}

impl Asking {
    /// An update could not be used. Whether a whole view is to be asked for now.
    pub(super) fn failed(&mut self, whole: bool, now: Instant) -> bool {
        if !whole && self.failing.is_none() {
            return true;
        }
        let failing = self.failing.get_or_insert_with(|| Failing {
            pauses: Backoff::new(VIEW_PAUSE, VIEW_PAUSE_MOST),
            due: None,
        });
        if failing.due.is_none() {
            failing.due = Some(now + failing.pauses.delay());
        }
        false
    }

    /// An update was used.
    pub(super) fn used(&mut self) {
        self.failing = None;
    }

    /// When to ask.
    pub(super) fn due(&self) -> Option<Instant> {
        self.failing.as_ref()?.due
    }

    /// It was asked for, or somebody else is followed, who was asked.
    pub(super) fn asked(&mut self) {
        if let Some(failing) = &mut self.failing {
            failing.due = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_pause_grows_while_whole_views_fail_and_ends_with_one_that_does_not() {
        let mut asking = Asking::default();
        let begun = Instant::now();
        assert!(
            asking.failed(false, begun) && asking.due().is_none(),
            "a difference"
        );
        let mut now = begun;
        let mut times = 0;
        while now - begun < Duration::from_secs(600) {
            assert!(!asking.failed(true, now));
            let due = asking.due().unwrap();
            assert!(due > now && due - now <= VIEW_PAUSE_MOST);
            assert!(!asking.failed(false, now), "it will be asked for anyway");
            assert_eq!(asking.due(), Some(due));
            now = due;
            asking.asked();
            assert!(asking.due().is_none());
            times += 1;
        }
        // 600 s at 30 s with jitter, and the first eight.
        assert!((20..120).contains(&times), "{times}");
        asking.used();
        assert!(asking.failed(false, now));
        asking.failed(true, now);
        assert!(asking.due().unwrap() - now <= VIEW_PAUSE, "from the start");
    }
}

//! How long to wait before trying again: exponential, full jitter, and no way to spin.
//!
//! The ceiling doubles with each failure up to `max`. It goes back to `initial` only after a session that lasted
//! at least `max`, so that a peer which accepts and drops at once is not hammered.

use std::{fmt, time::Duration};

use rand::Rng as _;

/// A wait is never shorter than this share of its ceiling: full jitter alone may draw 0.
const FLOOR: f64 = 0.1;

/// The state of one retry loop.
pub struct Backoff {
    initial: Duration,
    max: Duration,
    ceiling: Duration,
    jitter: Box<dyn FnMut() -> f64 + Send>,
}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backoff")
            .field("initial", &self.initial)
            .field("max", &self.max)
            .field("ceiling", &self.ceiling)
            .finish_non_exhaustive()
    }
}

impl Backoff {
    /// Waits between a tenth of the ceiling and the ceiling, drawn anew each time.
    #[must_use]
    pub fn new(initial: Duration, max: Duration) -> Self {
        Self::with_jitter(initial, max, || rand::rng().random::<f64>())
    }

    /// As [`Self::new`] with the caller's chance: `jitter` returns numbers from 0 to 1; 1 is the whole ceiling.
    #[must_use]
    pub fn with_jitter(
        initial: Duration,
        max: Duration,
        jitter: impl FnMut() -> f64 + Send + 'static,
    ) -> Self {
        let max = max.max(initial);
        Self {
            initial,
            max,
            ceiling: initial,
            jitter: Box::new(jitter),
        }
    }

    /// The longest ceiling: how long a session must last to count as sound.
    #[must_use]
    pub const fn max(&self) -> Duration {
        self.max
    }

    /// The next wait; the one after it has twice the ceiling.
    pub fn delay(&mut self) -> Duration {
        let share = (self.jitter)().clamp(FLOOR, 1.0);
        let wait = self.ceiling.mul_f64(share);
        self.ceiling = self.ceiling.saturating_mul(2).min(self.max);
        wait
    }

    /// A session that was up for `lasted` has ended. Long ones forget earlier failures.
    pub fn session_ended(&mut self, lasted: Duration) {
        self.session_ended_after(lasted, self.max);
    }

    /// As [`Self::session_ended`] with a caller's threshold, where sessions end by plan before `max`.
    pub fn session_ended_after(&mut self, lasted: Duration, threshold: Duration) {
        if lasted >= threshold {
            self.ceiling = self.initial;
        }
    }
}

#[cfg(test)]
mod tests;

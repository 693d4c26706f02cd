//! Turns: who goes first among equals.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Ties;

/// The cursors of one model, one per phase. They live as long as the model is served, across views.
#[derive(Debug)]
pub(super) struct Cursors {
    pub(super) decode: Cursor,
    pub(super) prefill: Cursor,
}

/// One rotating cursor.
#[derive(Debug)]
pub(super) struct Cursor(AtomicU64);

/// Whether a pick is real.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The cursor moves on.
    Take,
    /// A dry run looks where it stands.
    Peek,
}

impl Cursors {
    /// Cursors that start at a place that `seed` and the model's name decide.
    pub(super) fn new(seed: u64, model: &str) -> Self {
        let start = model
            .bytes()
            .fold(mix(seed), |state, byte| mix(state ^ u64::from(byte)));
        Self {
            decode: Cursor::at(start),
            prefill: Cursor::at(mix(start)),
        }
    }
}

impl Cursor {
    /// The upper half is left free, so that no process lives to see it wrap.
    const fn at(start: u64) -> Self {
        Self(AtomicU64::new(start >> 32))
    }

    /// Which of `count` equals it is now. `count` is at least 1.
    pub(super) fn among(&self, count: u64, ties: Ties, turn: Turn) -> u64 {
        let position = match turn {
            Turn::Take => self.0.fetch_add(1, Ordering::Relaxed),
            Turn::Peek => self.0.load(Ordering::Relaxed),
        };
        match ties {
            Ties::Rotate => position % count.max(1),
            Ties::Random => mix(position) % count.max(1),
        }
    }
}

/// The finaliser of SplitMix64: neighbouring inputs give unrelated outputs.
const fn mix(input: u64) -> u64 {
    let mut z = input.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

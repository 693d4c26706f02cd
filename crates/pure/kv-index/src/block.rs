//! One block of the index.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::{
    sets::{EMPTY, SetId},
    table::Slot,
};

/// A block, by its place in prompts, with its owners. Sixteen bytes, so that a lookup reads one cache line.
#[derive(Debug, Default)]
pub(crate) struct Block {
    key: u64,
    /// Seats that hold it in memory of the accelerator.
    pub(crate) device: SetId,
    /// The set of its owners in lower tiers, and in the highest bits how lately it was used and whether it is named.
    rest: AtomicU32,
}

/// Bits of `rest` that are the set.
const LOWER: u32 = (1 << 28) - 1;
/// The lowest bit of the mark.
const MARK: u32 = 1 << 28;
/// Both bits of the mark.
const MARKS: u32 = 3 * MARK;
/// An engine's name leads to this block.
const NAMED: u32 = 1 << 30;

impl Slot for Block {
    #[inline]
    fn key(&self) -> u64 {
        self.key
    }
}

impl Block {
    /// A block that nobody owns yet, used once.
    pub(crate) const fn new(key: u64) -> Self {
        Self {
            key,
            device: EMPTY,
            rest: AtomicU32::new(MARK),
        }
    }

    /// Owners in lower tiers.
    #[inline]
    pub(crate) fn lower(&self) -> SetId {
        self.rest.load(Ordering::Relaxed) & LOWER
    }

    pub(crate) fn set_lower(&mut self, set: SetId) {
        let rest = self.rest.get_mut();
        *rest = (*rest & !LOWER) | (set & LOWER);
    }

    /// The block was of use. Readers may say so at the same time: all write the same bits.
    #[inline]
    pub(crate) fn touch(&self) {
        let rest = self.rest.load(Ordering::Relaxed);
        if rest & MARKS != MARKS {
            self.rest.store(rest | MARKS, Ordering::Relaxed);
        }
    }

    /// 0 for a block that was not used for long, up to 3.
    pub(crate) fn mark(&self) -> u32 {
        (self.rest.load(Ordering::Relaxed) & MARKS) / MARK
    }

    /// Time has passed for this block.
    pub(crate) fn age(&mut self) {
        let rest = self.rest.get_mut();
        if *rest & MARKS != 0 {
            *rest -= MARK;
        }
    }

    #[inline]
    pub(crate) fn named(&self) -> bool {
        self.rest.load(Ordering::Relaxed) & NAMED != 0
    }

    pub(crate) fn set_named(&mut self) {
        *self.rest.get_mut() |= NAMED;
    }

    /// Nobody owns it.
    pub(crate) fn is_unowned(&self) -> bool {
        self.device == EMPTY && self.lower() == EMPTY
    }
}

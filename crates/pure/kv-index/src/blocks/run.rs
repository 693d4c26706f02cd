//! Up to eight blocks that follow each other.

use std::sync::atomic::{AtomicU32, Ordering};

use prefetch_index::prefetch_index;

use crate::sets::{EMPTY, SetId};

/// Blocks of a run.
pub(crate) const RUN: usize = 8;

/// The blocks of a prompt at the places from a multiple of eight on. Where prompts part ways inside of a run, the other
/// way has a run of its own, which begins behind the keys of the way up to there. Two cache lines beside each other.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Run {
    /// The first one stands for all blocks before it as well, the others are the hashes of their blocks alone.
    pub(super) keys: [u64; RUN],
    /// Seats that hold the block in memory of the accelerator.
    pub(crate) device: [SetId; RUN],
    /// The set of the block's owners in lower tiers; how lately it was used, and more, in the highest bits.
    rest: [AtomicU32; RUN],
}

/// Bits of `rest` that are the set.
const LOWER: u32 = (1 << 27) - 1;
/// The lowest bit of the mark.
const MARK: u32 = 1 << 27;
/// Both bits of the mark.
const MARKS: u32 = 3 * MARK;
/// An engine's name leads to this block.
const NAMED: u32 = 1 << 29;
/// The block is there. Its key alone may be, when blocks behind it are.
const PRESENT: u32 = 1 << 30;
/// The run begins here, and the table of runs leads here.
const FIRST: u32 = 1 << 31;

impl Run {
    #[inline]
    fn rest(&self, at: usize) -> u32 {
        self.rest[at].load(Ordering::Relaxed)
    }

    /// The key of a block; 0 behind the last one.
    #[inline]
    pub(crate) fn key(&self, at: usize) -> u64 {
        self.keys[at]
    }

    /// Owners of a block in lower tiers.
    #[inline]
    pub(crate) fn lower(&self, at: usize) -> SetId {
        self.rest(at) & LOWER
    }

    #[inline]
    pub(crate) fn set_lower(&mut self, at: usize, set: SetId) {
        let rest = self.rest[at].get_mut();
        *rest = (*rest & !LOWER) | (set & LOWER);
    }

    /// The block was of use. Readers may say so at the same time: all write the same bits.
    #[inline]
    pub(crate) fn touch(&self, at: usize) {
        let rest = self.rest(at);
        if rest & MARKS != MARKS {
            self.rest[at].store(rest | MARKS, Ordering::Relaxed);
        }
    }

    /// Asks for the memory of both of its lines.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_index(self.keys.as_slice(), 0);
        prefetch_index(self.device.as_slice(), 0);
    }

    /// All blocks have these keys and owners, and were of use lately.
    #[inline]
    pub(crate) fn is_all(&self, keys: &[u64; RUN], device: SetId, lower: SetId) -> bool {
        let mut other = 0;
        for (at, key) in keys.iter().enumerate() {
            other |= self.keys[at] ^ key;
            other |= u64::from(self.device[at] ^ device);
            other |= u64::from(self.rest(at) & (LOWER | MARKS) ^ (lower | MARKS));
        }
        other == 0
    }

    /// 0 for a block that was not used for long, up to 3.
    pub(crate) fn mark(&self, at: usize) -> u32 {
        (self.rest(at) & MARKS) / MARK
    }

    /// Time has passed for this block.
    pub(crate) fn age(&mut self, at: usize) {
        let rest = self.rest[at].get_mut();
        if *rest & MARKS != 0 {
            *rest -= MARK;
        }
    }

    #[inline]
    pub(super) fn is_named(&self, at: usize) -> bool {
        self.rest(at) & NAMED != 0
    }

    pub(super) fn set_named(&mut self, at: usize) {
        *self.rest[at].get_mut() |= NAMED;
    }

    #[inline]
    pub(crate) fn is_present(&self, at: usize) -> bool {
        self.rest(at) & PRESENT != 0
    }

    /// Nobody owns the block.
    pub(crate) fn is_unowned(&self, at: usize) -> bool {
        self.device[at] == EMPTY && self.lower(at) == EMPTY
    }

    /// The run begins with this block, the last one of a way that begins where runs do.
    #[inline]
    pub(crate) fn begins(&self, way: &[u64]) -> bool {
        let Some(last) = way.len().checked_sub(1) else {
            return false;
        };
        let rest = self.rest.get(last);
        rest.is_some_and(|rest| rest.load(Ordering::Relaxed) & FIRST != 0) && self.leads(way)
    }

    /// The last block of a way belongs to this run, not to one that this run parts from.
    #[inline]
    pub(super) fn holds(&self, way: &[u64]) -> bool {
        let first = |rest: &AtomicU32| rest.load(Ordering::Relaxed) & FIRST != 0;
        self.leads(way) && self.rest.iter().take(way.len()).any(first)
    }

    /// The keys of the run begin with these.
    #[inline]
    fn leads(&self, way: &[u64]) -> bool {
        // Few and near: quicker than a call that compares memory.
        self.keys
            .iter()
            .zip(way)
            .fold(0, |other, (key, own)| other | (key ^ own))
            == 0
    }

    /// A run that begins with the last block of a way; it is not there yet.
    pub(super) fn new(way: &[u64]) -> Self {
        let mut run = Self::default();
        for (at, key) in run.keys.iter_mut().zip(way) {
            *at = *key;
        }
        if let Some(first) = run.rest.get_mut(way.len().wrapping_sub(1)) {
            *first.get_mut() = FIRST;
        }
        run
    }

    /// A block that nobody owns yet is there from now on, used once.
    pub(super) fn put(&mut self, at: usize, key: u64) {
        self.keys[at] = key;
        let rest = self.rest[at].get_mut();
        *rest = (*rest & FIRST) | PRESENT | MARK;
    }

    /// A block without owners is there no more. Keys that no block follows go as well. False when none is left.
    pub(super) fn take(&mut self, at: usize) -> bool {
        *self.rest[at].get_mut() &= FIRST;
        self.device[at] = EMPTY;
        for at in (0..RUN).rev() {
            if self.is_present(at) {
                return true;
            }
            self.keys[at] = 0;
        }
        false
    }

    /// The keys up to the block that the run begins with.
    pub(super) fn way(&self) -> &[u64] {
        let first = (0..RUN).find(|at| self.rest(*at) & FIRST != 0);
        &self.keys[..first.map_or(0, |at| at + 1)]
    }
}

//! Where blocks are, and how a chain of them goes on.

use super::RUN;
use crate::hash::Seeds;

/// Where a block lies while it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockId(u32);

impl BlockId {
    pub(super) const fn new(run: u32, at: usize) -> Self {
        Self(run * RUN as u32 + at as u32)
    }

    pub(super) const fn of(number: u32) -> Self {
        Self(number)
    }

    #[inline]
    pub(crate) const fn number(self) -> u32 {
        self.0
    }

    #[inline]
    pub(super) const fn run(self) -> u32 {
        self.0 / RUN as u32
    }

    /// Its place in its run.
    #[inline]
    pub(crate) const fn at(self) -> usize {
        self.0 as usize % RUN
    }
}

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It is there.
    There(BlockId),
    /// It is not, and its place is vacant: in the run of the block before it, or kept since blocks behind it are there.
    Vacant(BlockId),
    /// It is not, and would begin a run.
    Nowhere,
}

impl Place {
    /// The place for it, where it is not there and there is one.
    #[inline]
    pub(crate) const fn vacant(self) -> Option<BlockId> {
        match self {
            Self::Vacant(id) => Some(id),
            Self::There(_) | Self::Nowhere => None,
        }
    }
}

/// The end of a chain of blocks: the keys from the beginning of a run on. It stays true whatever becomes of the blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tip {
    pub(super) keys: [u64; RUN],
    pub(super) len: usize,
    /// The run of the last block, when that is still there.
    pub(super) run: u32,
}

impl Tip {
    /// The key of a block that follows.
    #[inline]
    pub(crate) fn next(&self, seeds: &Seeds, local: u64) -> u64 {
        if self.len.is_multiple_of(RUN) {
            seeds.first(&self.keys, local)
        } else {
            seeds.other(local)
        }
    }

    /// Goes on to the next block, which is there.
    #[inline]
    pub(crate) fn go(&mut self, key: u64, id: BlockId) {
        *self = Self {
            run: id.run(),
            ..self.and(key)
        };
    }

    /// The chain with one block more.
    #[inline]
    pub(crate) fn and(&self, key: u64) -> Self {
        let mut next = if self.len == RUN { Self::default() } else { *self };
        next.run = self.run;
        next.keys[next.len % RUN] = key;
        next.len += 1;
        next
    }

    /// The keys from the beginning of a run on.
    #[inline]
    pub(crate) fn way(&self) -> &[u64] {
        self.keys.get(..self.len).unwrap_or(&self.keys)
    }
}

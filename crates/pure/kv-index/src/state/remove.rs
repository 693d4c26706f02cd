//! Removing blocks.

use std::hint::black_box;

use super::{Owner, State};

impl State {
    /// Takes names away from an owner, and says how many blocks it owns no more. Names that it does not know mean nothing.
    pub(crate) fn remove(&mut self, owner: Owner, names: &[u64]) -> u32 {
        let mut removed = 0;
        for name in names {
            if let Some(block) = self.named(owner, *name, self.blocks.named(*name))
                && self.unname(owner, block, *name)
            {
                removed += 1;
            }
        }
        removed
    }

    /// Asks for all memory first, so that the misses overlap.
    pub(crate) fn warm_for_remove(&self, owner: Owner, names: &[u64]) {
        let mut seen = 0;
        for name in names {
            seen ^= self.blocks.touch_name(*name);
        }
        let aliases = &self.seats.get(owner.seat).aliases;
        if !aliases.is_empty() {
            for name in names {
                seen ^= aliases.touch(owner.level, *name);
            }
        }
        for name in names {
            seen ^= self.blocks.touch_named(*name);
        }
        black_box(seen);
    }
}

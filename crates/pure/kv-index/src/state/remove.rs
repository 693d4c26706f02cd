//! Removing blocks.

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

    /// Asks for all memory first, so that the waits overlap.
    pub(crate) fn prefetch_removed(&self, owner: Owner, names: &[u64]) {
        let aliases = &self.seats.get(owner.seat).aliases;
        for name in names {
            self.blocks.prefetch_name(*name);
            aliases.prefetch(owner.level, *name);
        }
        for name in names {
            self.blocks.prefetch_named(*name);
        }
    }
}

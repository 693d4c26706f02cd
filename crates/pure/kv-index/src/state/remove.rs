//! Removing blocks.

use super::{Owner, State, WARM};

impl State {
    /// Takes names away from an owner, and says how many blocks it owns no more. Names that it does not know mean nothing.
    pub(crate) fn remove(&mut self, owner: Owner, names: &[u64]) -> u32 {
        let mut removed = 0;
        for part in names.chunks(WARM) {
            self.warm_for_remove(part);
            for name in part {
                if let Some(block) = self.named(owner, *name)
                    && self.unname(owner, block, *name)
                {
                    removed += 1;
                }
            }
        }
        removed
    }

    /// Asks for all memory first, so that the misses overlap.
    fn warm_for_remove(&self, names: &[u64]) {
        let mut keys = [0; WARM];
        for (key, name) in keys.iter_mut().zip(names) {
            *key = self.seeds.name(*name);
        }
        let keys = &mut keys[..names.len().min(WARM)];
        self.names.warm(keys);
        for key in keys.iter_mut() {
            *key = self
                .names
                .find(*key)
                .map_or(0, |found| self.names.hot(found).block);
        }
        self.blocks.warm(keys);
    }
}

//! Names that engines give to blocks.
//!
//! Most often all engines give a block the same name. So a block has one name that counts for all of its owners, and it
//! is found by that name in one table. An owner that calls it otherwise, or that calls something else by that name, has
//! the difference in its own [`Aliases`].

use std::collections::BTreeMap;

use crate::{limits::MAX_NAMES_PER_OWNERSHIP, seats::Level, table::Slot};

/// The name of a block that counts unless its owner has another.
#[derive(Debug, Default)]
pub(crate) struct Name {
    /// The key of the name.
    pub(crate) key: u64,
    /// The key of the block.
    pub(crate) block: u64,
}

impl Slot for Name {
    #[inline]
    fn key(&self) -> u64 {
        self.key
    }
}

/// What one seat calls otherwise.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    blocks: BTreeMap<(Level, u64), u64>,
    names: BTreeMap<(Level, u64), Names>,
    more: usize,
}

/// The names by which a seat knows a block.
#[derive(Debug)]
struct Names {
    /// The name of the block itself is one of them.
    common: bool,
    first: u64,
    more: Vec<u64>,
}

/// What is left of an ownership after one of its names went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// At least one other name.
    Named,
    /// No name, so that it ends.
    Nothing,
}

/// Memory of one alias in both maps, about: entries are at least half of a node, two thirds in the mean.
const ALIAS_BYTES: usize = (24 + 16 + size_of::<Names>()) * 3 / 2;

impl Aliases {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.names.len() * ALIAS_BYTES + self.more * 4 * size_of::<u64>()
    }

    /// The block with this alias.
    pub(crate) fn block(&self, level: Level, name: u64) -> Option<u64> {
        self.blocks.get(&(level, name)).copied()
    }

    /// The seat, which owns the block, also knows it by the block's own name.
    pub(crate) fn by_common_name(&self, level: Level, block: u64) -> bool {
        self.names.get(&(level, block)).is_none_or(|names| names.common)
    }

    /// The seat, which owns the block by aliases, learns the block's own name.
    pub(crate) fn learn_common(&mut self, level: Level, block: u64) {
        if let Some(names) = self.names.get_mut(&(level, block)) {
            names.common = true;
        }
    }

    /// Adds an alias that is not there yet. `owned`: the seat owned the block before. False when it has too many.
    pub(crate) fn add(&mut self, level: Level, name: u64, block: u64, owned: bool) -> bool {
        match self.names.get_mut(&(level, block)) {
            Some(names) if names.more.len() + 1 >= MAX_NAMES_PER_OWNERSHIP => return false,
            Some(names) => {
                names.more.push(name);
                self.more += 1;
            }
            None => {
                let names = Names {
                    common: owned,
                    first: name,
                    more: Vec::new(),
                };
                self.names.insert((level, block), names);
            }
        }
        self.blocks.insert((level, name), block);
        true
    }

    /// Takes an alias away.
    pub(crate) fn remove(&mut self, level: Level, name: u64) -> Left {
        let Some(block) = self.blocks.remove(&(level, name)) else {
            return Left::Named;
        };
        let Some(names) = self.names.get_mut(&(level, block)) else {
            return Left::Nothing;
        };
        if let Some(at) = names.more.iter().position(|one| *one == name) {
            names.more.swap_remove(at);
            self.more -= 1;
        } else if let Some(next) = names.more.pop() {
            names.first = next;
            self.more -= 1;
        } else if let Some(names) = self.names.remove(&(level, block))
            && !names.common
        {
            return Left::Nothing;
        }
        Left::Named
    }

    /// Takes the block's own name away from a seat that owns it.
    pub(crate) fn remove_common(&mut self, level: Level, block: u64) -> Left {
        match self.names.get_mut(&(level, block)) {
            Some(names) => {
                names.common = false;
                Left::Named
            }
            None => Left::Nothing,
        }
    }

    /// The seat owns the block no more, whatever its names.
    pub(crate) fn forget(&mut self, level: Level, block: u64) {
        if let Some(names) = self.names.remove(&(level, block)) {
            self.more -= names.more.len();
            for name in names.more.into_iter().chain([names.first]) {
                self.blocks.remove(&(level, name));
            }
        }
    }
}

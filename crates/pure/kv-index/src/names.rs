//! Names that one rank gives to blocks otherwise than others do.
//!
//! Most often all engines give a block the same name. So a block has one name that counts for all of its owners. An
//! owner that calls it otherwise, or that calls something else by that name, has the difference in its own [`Aliases`].

use crate::{
    blocks::BlockId,
    directory::{Directory, Fill},
    hash::Seeds,
    limits::MAX_NAMES_PER_OWNERSHIP,
    seats::Level,
};

/// What one seat calls otherwise.
#[derive(Debug, Default)]
pub(crate) struct Aliases(Option<Box<Tables>>);

#[derive(Debug)]
struct Tables {
    seeds: Seeds,
    chunks: Vec<Box<[Alias]>>,
    /// Entries that were ever in use.
    used: u32,
    /// The first one that is free again.
    free: u32,
    counts: [usize; 3],
    by_name: Directory,
    /// Leads to the first alias of a block.
    by_block: Directory,
}

#[derive(Clone, Copy, Debug)]
struct Alias {
    name: u64,
    block: BlockId,
    /// The next alias of the same block, or the next free entry.
    next: u32,
    level: Level,
    /// Of the first alias of a block: the block's own name is one of its names as well.
    common: bool,
}

/// What is left of an ownership after one of its names went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// At least one other name.
    Named,
    /// No name, so that it ends.
    Nothing,
}

/// Entries that are allocated together: growing copies none.
const CHUNK: usize = 256;
/// No entry.
const NONE: u32 = u32::MAX;

impl Aliases {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Aliases in all levels.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |tables| tables.counts.iter().sum())
    }

    /// Aliases in one level.
    pub(crate) fn count(&self, level: Level) -> usize {
        self.0.as_ref().map_or(0, |tables| tables.counts[level as usize])
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |tables| tables.bytes())
    }

    /// The block with this alias.
    pub(crate) fn block(&self, level: Level, name: u64) -> Option<BlockId> {
        let tables = self.0.as_ref()?;
        Some(tables.entry(tables.of_name(level, name)?).block)
    }

    /// Asks for the memory where the search for an alias begins.
    pub(crate) fn prefetch(&self, level: Level, name: u64) {
        if let Some(tables) = &self.0 {
            tables.by_name.prefetch(tables.name_hash(level, name));
        }
    }

    /// The seat, which owns the block, also knows it by the block's own name.
    pub(crate) fn by_common_name(&self, level: Level, block: BlockId) -> bool {
        let Some(tables) = &self.0 else { return true };
        let first = tables.of_block(level, block);
        first.is_none_or(|first| tables.entry(first).common)
    }

    /// The seat, which owns the block by aliases, learns the block's own name.
    pub(crate) fn learn_common(&mut self, level: Level, block: BlockId) {
        self.set_common(level, block, true);
    }

    /// Adds an alias that is not there yet. `owned`: the seat owned the block before. False when the block has too many.
    /// `expected`: about so many there may be.
    pub(crate) fn add(
        &mut self,
        seeds: Seeds,
        expected: usize,
        alias: (Level, u64, BlockId),
        owned: bool,
    ) -> bool {
        let (level, name, block) = alias;
        let tables = self
            .0
            .get_or_insert_with(|| Box::new(Tables::new(seeds, expected)));
        let first = tables.of_block(level, block);
        if let Some(first) = first {
            let names = tables.chain(first).take(MAX_NAMES_PER_OWNERSHIP).count();
            if names >= MAX_NAMES_PER_OWNERSHIP {
                return false;
            }
        }
        let next = first.map_or(NONE, |first| tables.entry(first).next);
        let id = tables.allocate(Alias {
            name,
            block,
            next,
            level,
            common: owned,
        });
        match first {
            Some(first) => tables.entry_mut(first).next = id,
            None => tables.by_block.insert(tables.block_hash(level, block), id),
        }
        tables.by_name.insert(tables.name_hash(level, name), id);
        tables.counts[level as usize] += 1;
        true
    }

    /// Takes an alias away.
    pub(crate) fn remove(&mut self, level: Level, name: u64) -> Left {
        let Some(tables) = &mut self.0 else {
            return Left::Nothing;
        };
        let Some(id) = tables.of_name(level, name) else {
            return Left::Named;
        };
        let block = tables.entry(id).block;
        let Some(first) = tables.of_block(level, block) else {
            return Left::Nothing;
        };
        let next = tables.entry(id).next;
        let left = if id != first {
            let before = tables.chain(first).find(|one| tables.entry(*one).next == id);
            if let Some(before) = before {
                tables.entry_mut(before).next = next;
            }
            Left::Named
        } else {
            let hash = tables.block_hash(level, block);
            tables.by_block.remove(hash, first);
            let common = tables.entry(first).common;
            if next != NONE {
                tables.entry_mut(next).common = common;
                tables.by_block.insert(hash, next);
            }
            if common || next != NONE {
                Left::Named
            } else {
                Left::Nothing
            }
        };
        tables.release(id);
        left
    }

    /// Takes the block's own name away from a seat that owns it.
    pub(crate) fn remove_common(&mut self, level: Level, block: BlockId) -> Left {
        if self.set_common(level, block, false) {
            Left::Named
        } else {
            Left::Nothing
        }
    }

    /// The seat owns the block no more, whatever its names.
    pub(crate) fn forget(&mut self, level: Level, block: BlockId) {
        let Some(tables) = &mut self.0 else { return };
        let Some(first) = tables.of_block(level, block) else {
            return;
        };
        let hash = tables.block_hash(level, block);
        tables.by_block.remove(hash, first);
        let mut id = first;
        while id != NONE {
            let next = tables.entry(id).next;
            tables.release(id);
            id = next;
        }
    }

    /// False when the block has no alias.
    fn set_common(&mut self, level: Level, block: BlockId, common: bool) -> bool {
        let Some(tables) = &mut self.0 else {
            return false;
        };
        let first = tables.of_block(level, block);
        if let Some(first) = first {
            tables.entry_mut(first).common = common;
        }
        first.is_some()
    }
}

impl Tables {
    fn new(seeds: Seeds, expected: usize) -> Self {
        Self {
            seeds,
            chunks: Vec::new(),
            used: 0,
            free: NONE,
            counts: [0; 3],
            by_name: Directory::new(expected, Fill::Dense),
            by_block: Directory::new(expected, Fill::Dense),
        }
    }

    fn bytes(&self) -> usize {
        let entries = self.chunks.len() * (CHUNK * size_of::<Alias>() + size_of::<Box<[Alias]>>());
        size_of::<Self>() + entries + self.by_name.bytes() + self.by_block.bytes()
    }

    fn name_hash(&self, level: Level, name: u64) -> u64 {
        self.seeds.alias(level as u64, name)
    }

    fn block_hash(&self, level: Level, block: BlockId) -> u64 {
        self.seeds.alias(level as u64, block.number().into())
    }

    fn of_name(&self, level: Level, name: u64) -> Option<u32> {
        self.by_name.find(self.name_hash(level, name), |id| {
            let alias = self.entry(id);
            alias.name == name && alias.level == level
        })
    }

    fn of_block(&self, level: Level, block: BlockId) -> Option<u32> {
        self.by_block.find(self.block_hash(level, block), |id| {
            let alias = self.entry(id);
            alias.block == block && alias.level == level
        })
    }

    /// An alias and those behind it, of one block.
    fn chain(&self, first: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(first), |id| {
            let next = self.entry(*id).next;
            (next != NONE).then_some(next)
        })
    }

    fn allocate(&mut self, alias: Alias) -> u32 {
        let id = if self.free == NONE {
            if self.used as usize == self.chunks.len() * CHUNK {
                self.chunks.push(vec![alias; CHUNK].into());
            }
            self.used += 1;
            self.used - 1
        } else {
            let id = self.free;
            self.free = self.entry(id).next;
            id
        };
        *self.entry_mut(id) = alias;
        id
    }

    /// An alias that no block leads to any more.
    fn release(&mut self, id: u32) {
        let alias = *self.entry(id);
        self.by_name.remove(self.name_hash(alias.level, alias.name), id);
        self.counts[alias.level as usize] -= 1;
        self.entry_mut(id).next = self.free;
        self.free = id;
    }

    fn entry(&self, id: u32) -> &Alias {
        &self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }

    fn entry_mut(&mut self, id: u32) -> &mut Alias {
        &mut self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }
}

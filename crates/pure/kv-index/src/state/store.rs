//! Storing blocks.

use continuum_wire::router_event::Block as Stored;

use super::{Owner, State, WARM};
use crate::{
    block::Block,
    names::{Left, Name},
    seats::Level,
    table::Place,
};

/// How far a store has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// Key of the last block; 0 before the first one of a prompt.
    pub(crate) key: u64,
    /// Blocks that were taken.
    pub(crate) taken: u32,
    /// Those that their owner did not own before.
    pub(crate) new: u32,
}

/// Why a store ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// No room.
    OverCapacity,
}

impl State {
    /// The key of the block that an owner calls by this name, in its own tier or in another.
    pub(crate) fn parent(&self, owner: Owner, name: u64) -> Option<u64> {
        self.named(owner, name).or_else(|| {
            let levels = Level::ALL.into_iter().filter(|level| *level != owner.level);
            let mut others = levels.map(|level| Owner { level, ..owner });
            others.find_map(|other| self.named(other, name))
        })
    }

    /// Stores blocks behind the one with key `done.key`.
    ///
    /// # Errors
    /// [`Stop`] when a block finds no room. What was stored before stays, and is in `done`.
    pub(crate) fn store(&mut self, owner: Owner, blocks: &[Stored], done: &mut Done) -> Result<(), Stop> {
        for part in blocks.chunks(WARM) {
            self.warm_for_store(done.key, part);
            for block in part {
                let key = self.seeds.chain(done.key, block.tokens);
                if self.store_one(owner, key, block.hash)? {
                    done.new += 1;
                }
                done.taken += 1;
                done.key = key;
            }
        }
        Ok(())
    }

    /// Asks for all memory first, so that the misses overlap.
    fn warm_for_store(&self, parent: u64, blocks: &[Stored]) {
        let mut keys = [0; WARM];
        let mut names = [0; WARM];
        let mut key = parent;
        let count = blocks.len().min(WARM);
        for (block, (at, name)) in blocks.iter().zip(keys.iter_mut().zip(&mut names)) {
            key = self.seeds.chain(key, block.tokens);
            *at = key;
            *name = self.seeds.name(block.hash);
        }
        self.blocks.warm(&keys[..count]);
        self.names.warm(&names[..count]);
    }

    /// True when the owner did not own the block before.
    fn store_one(&mut self, owner: Owner, key: u64, name: u64) -> Result<bool, Stop> {
        let plain = self.seats.get(owner.seat).aliases.is_empty();
        let found = self.blocks.find(key);
        if let Some(at) = found
            && plain
            && self.blocks.hot(at).named()
            && self.blocks.cold(at) == name
        {
            // The name means this block to everybody, and this owner calls nothing otherwise.
            if self.owns(at, owner) {
                self.blocks.hot(at).touch();
                return Ok(false);
            }
            let at = self.own_with_room(key, at, owner)?;
            self.blocks.hot(at).touch();
            return Ok(true);
        }
        match self.named(owner, name) {
            Some(before) if before == key => return Ok(false),
            Some(before) => {
                self.unname(owner, before, name);
            }
            None => {}
        }
        self.store_otherwise(owner, key, name)
    }

    /// A block that is new, or whose name is.
    fn store_otherwise(&mut self, owner: Owner, key: u64, name: u64) -> Result<bool, Stop> {
        let (at, owned) = match self.blocks.find(key) {
            Some(at) if self.owns(at, owner) => (at, true),
            Some(at) => {
                self.blocks.hot(at).touch();
                (self.own_with_room(key, at, owner)?, false)
            }
            None => (self.put_in(key, owner)?, false),
        };
        let name_key = self.seeds.name(name);
        if !self.blocks.hot(at).named() && self.names.find(name_key).is_none() {
            self.blocks.hot_mut(at).set_named();
            self.blocks.set_cold(at, name);
            let entry = Name {
                key: name_key,
                block: key,
            };
            self.names.insert(entry, ());
        }
        let common = self.blocks.hot(at).named() && self.blocks.cold(at) == name;
        let aliases = &mut self.seats.get_mut(owner.seat).aliases;
        if common {
            aliases.learn_common(owner.level, key);
        } else if !aliases.add(owner.level, name, key, owned) {
            return Err(Stop::OverCapacity);
        }
        Ok(!owned)
    }

    /// Puts in a block that is not there.
    fn put_in(&mut self, key: u64, owner: Owner) -> Result<Place, Stop> {
        while self.blocks.len() >= self.caps.blocks {
            self.evict(key)?;
        }
        self.make_room(key, owner)?;
        let at = self.blocks.insert(Block::new(key), 0);
        self.own(at, owner);
        Ok(at)
    }

    /// Owns a block that is there; making room may move it, or take it out.
    fn own_with_room(&mut self, key: u64, at: Place, owner: Owner) -> Result<Place, Stop> {
        if !self.make_room(key, owner)? {
            self.own(at, owner);
            return Ok(at);
        }
        let at = self.blocks.find(key).ok_or(Stop::OverCapacity)?;
        self.own(at, owner);
        Ok(at)
    }

    /// Room for one ownership. True when something had to go for it.
    fn make_room(&mut self, key: u64, owner: Owner) -> Result<bool, Stop> {
        let mut made = false;
        while self.seats.get(owner.seat).counts[owner.level as usize] >= self.caps.blocks_per_rank {
            self.evict_own(key, owner)?;
            made = true;
        }
        while self.ownerships >= self.caps.ownerships {
            self.evict(key)?;
            made = true;
        }
        Ok(made)
    }

    /// An owner's name means this block no more.
    pub(super) fn unname(&mut self, owner: Owner, key: u64, name: u64) -> bool {
        let aliases = &mut self.seats.get_mut(owner.seat).aliases;
        let left = if aliases.block(owner.level, name) == Some(key) {
            aliases.remove(owner.level, name)
        } else {
            aliases.remove_common(owner.level, key)
        };
        match left {
            Left::Named => false,
            Left::Nothing => {
                if let Some(at) = self.blocks.find(key) {
                    self.disown(at, owner);
                }
                true
            }
        }
    }
}

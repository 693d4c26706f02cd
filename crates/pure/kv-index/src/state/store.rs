//! Storing blocks.

use continuum_wire::router_event::Block as Stored;

use super::{Owner, State};
use crate::{
    blocks::{BlockId, Place, Tip},
    limits::OWN_SHRINK,
    names::Left,
    seats::Level,
};

/// How far a store has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// The last block, and those before it.
    pub(crate) tip: Tip,
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
    /// The chain that ends with the block that an owner calls by this name, in its own tier or in another.
    pub(crate) fn parent(&self, owner: Owner, name: u64) -> Option<Tip> {
        let common = self.blocks.named(name);
        let found = self.named(owner, name, common).or_else(|| {
            let levels = Level::ALL.into_iter().filter(|level| *level != owner.level);
            let mut others = levels.map(|level| Owner { level, ..owner });
            others.find_map(|other| self.named(other, name, common))
        });
        found.map(|id| self.blocks.tip(id))
    }

    /// The last block is where it was, so that the next one can follow it.
    pub(crate) fn continues(&self, done: &Done) -> bool {
        self.blocks.ends_here(&done.tip)
    }

    /// Stores blocks behind the last one of `done.tip`.
    ///
    /// # Errors
    /// [`Stop`] when a block finds no room. What was stored before stays, and is in `done`.
    pub(crate) fn store(&mut self, owner: Owner, blocks: &[Stored], done: &mut Done) -> Result<(), Stop> {
        for block in blocks {
            let key = done.tip.next(&self.seeds, block.tokens);
            let new = self.store_one(owner, &mut done.tip, key, block.hash)?;
            done.new += u32::from(new);
            done.taken += 1;
        }
        Ok(())
    }

    /// Asks for the memory of the first blocks of an event, so that the waits overlap.
    pub(crate) fn prefetch_first(&self, owner: Owner, parent: Option<u64>, blocks: &[Stored]) {
        self.prefetch_names(blocks);
        let tip = match parent {
            None => Some(Tip::default()),
            Some(name) => self.parent(owner, name),
        };
        if let Some(tip) = tip {
            self.prefetch_ways(tip, blocks);
        }
    }

    /// Asks for the memory of what these blocks are called.
    pub(crate) fn prefetch_names(&self, blocks: &[Stored]) {
        for block in blocks {
            self.blocks.prefetch_name(block.hash);
        }
    }

    /// Asks for the memory of where blocks behind `tip` are looked for.
    pub(crate) fn prefetch_ways(&self, mut tip: Tip, blocks: &[Stored]) {
        for (number, block) in blocks.iter().enumerate() {
            tip = tip.and(tip.next(&self.seeds, block.tokens));
            // A run begins here, or the way parts from what is there.
            if tip.way().len() == 1 || number == 0 {
                self.blocks.prefetch_way(tip.way());
            }
        }
    }

    /// Stores the block with this key behind `tip`, which goes on to it. True when the owner did not own it before.
    fn store_one(&mut self, owner: Owner, tip: &mut Tip, key: u64, name: u64) -> Result<bool, Stop> {
        let mut place = self.blocks.after(tip, key);
        if let Place::There(id) = place
            && self.blocks.name(id) == Some(name)
            && self.seats.get(owner.seat).aliases.is_empty()
        {
            // The name means this block to everybody, and this owner calls nothing otherwise.
            let new = !self.owns(id, owner);
            if new {
                self.own_with_room(id, owner)?;
            }
            self.blocks.run(id).touch(id.at());
            tip.go(key, id);
            return Ok(new);
        }
        let mut common = self.blocks.named(name);
        match self.named(owner, name, common) {
            Some(before) if place == Place::There(before) => {
                tip.go(key, before);
                return Ok(false);
            }
            Some(before) if self.unname(owner, before, name) => {
                // The block went, perhaps.
                place = self.blocks.after(tip, key);
                common = self.blocks.named(name);
            }
            Some(_) | None => {}
        }
        self.store_otherwise(owner, tip, key, (name, common), place)
    }

    /// A block that is new, or whose name is.
    fn store_otherwise(
        &mut self,
        owner: Owner,
        tip: &mut Tip,
        key: u64,
        (name, common): (u64, Option<BlockId>),
        place: Place,
    ) -> Result<bool, Stop> {
        let before = self.evicted;
        let (id, owned) = match place {
            Place::There(id) if self.owns(id, owner) => (id, true),
            Place::There(id) => {
                self.blocks.run(id).touch(id.at());
                self.own_with_room(id, owner)?;
                (id, false)
            }
            Place::Vacant(_) | Place::Nowhere => (self.put_in(tip, key, place, owner)?, false),
        };
        tip.go(key, id);
        let free = if self.evicted == before {
            common.is_none()
        } else {
            self.blocks.named(name).is_none()
        };
        if free && self.blocks.name(id).is_none() {
            self.blocks.give_name(id, name);
        }
        if self.blocks.name(id) == Some(name) {
            let aliases = &mut self.seats.get_mut(owner.seat).aliases;
            aliases.learn_common(owner.level, id);
        } else if !self.add_alias(owner, name, id, owned) {
            if !owned {
                self.disown(id, owner);
            }
            return Err(Stop::OverCapacity);
        }
        Ok(!owned)
    }

    /// False when the block or the rank has too many names, or all ranks together.
    fn add_alias(&mut self, owner: Owner, name: u64, id: BlockId, owned: bool) -> bool {
        let aliases = &mut self.seats.get_mut(owner.seat).aliases;
        if aliases.count(owner.level) >= self.caps.blocks_per_rank || self.aliases >= self.caps.ownerships {
            return false;
        }
        let expected = self.caps.blocks_per_rank.min(self.caps.blocks);
        let added = aliases.add(self.seeds, expected, (owner.level, name, id), owned);
        self.aliases += usize::from(added);
        added
    }

    /// Puts in a block that is not there.
    fn put_in(&mut self, tip: &Tip, key: u64, mut place: Place, owner: Owner) -> Result<BlockId, Stop> {
        let before = self.evicted;
        // One for one, as long as caps stay what they are; see [`State::shrink`].
        if self.blocks.len() >= self.caps.blocks {
            self.evict(None)?;
        }
        self.make_room(None, owner)?;
        if self.evicted != before {
            place = self.blocks.after(tip, key);
        }
        let id = self.blocks.put(tip, key, place.vacant());
        self.own(id, owner);
        Ok(id)
    }

    /// Owns a block that is there; others may have to go for it.
    fn own_with_room(&mut self, id: BlockId, owner: Owner) -> Result<(), Stop> {
        self.make_room(Some(id), owner)?;
        self.own(id, owner);
        Ok(())
    }

    /// Room for one ownership.
    fn make_room(&mut self, keep: Option<BlockId>, owner: Owner) -> Result<(), Stop> {
        for _ in 0..OWN_SHRINK {
            if self.seats.get(owner.seat).counts[owner.level as usize] < self.caps.blocks_per_rank {
                break;
            }
            self.evict_own(keep, owner)?;
        }
        if self.ownerships >= self.caps.ownerships {
            self.evict(keep)?;
        }
        Ok(())
    }

    /// An owner's name means this block no more.
    pub(super) fn unname(&mut self, owner: Owner, id: BlockId, name: u64) -> bool {
        let aliases = &mut self.seats.get_mut(owner.seat).aliases;
        let left = if aliases.block(owner.level, name) == Some(id) {
            self.aliases -= 1;
            aliases.remove(owner.level, name)
        } else {
            aliases.remove_common(owner.level, id)
        };
        match left {
            Left::Named => false,
            Left::Nothing => {
                self.disown(id, owner);
                true
            }
        }
    }
}

//! All that the index knows: blocks, names and owners, and what keeps them consistent.
//!
//! A block is there while somebody owns it. An ownership is there while it has a name. Nothing points at a block by its
//! place, so blocks may move.

use std::sync::Arc;

use crate::{
    Caps,
    block::Block,
    hash::Seeds,
    names::{Aliases, Name},
    seats::{Level, Roster, Seats, nobody},
    sets::{EMPTY, Sets},
    table::{BATCH as WARM, Fill, Place, Slot as _, Table},
};

mod clock;
mod find;
mod remove;
mod store;
mod sweep;

pub(crate) use store::{Done, Stop};

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) caps: Caps,
    pub(crate) roster: Arc<Roster>,
    seeds: Seeds,
    /// By chain key; each block's own name lies apart.
    blocks: Table<Block, u64>,
    names: Table<Name>,
    sets: Sets,
    seats: Seats,
    ownerships: usize,
    /// Those of them in lower tiers.
    lower: usize,
    /// Where the search for the oldest block goes on.
    hand: u64,
    sweep: Option<sweep::Sweep>,
    evicted: u64,
}

/// An owner: one seat in one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) seat: u16,
    pub(crate) level: Level,
}

impl Owner {
    /// The member of sets of lower tiers that stands for it.
    const fn below(self) -> u16 {
        self.seat * 2 + (self.level as u16 - 1)
    }

    const fn of_below(member: u16) -> Self {
        let level = if member.is_multiple_of(2) {
            Level::Host
        } else {
            Level::Disk
        };
        Self {
            seat: member / 2,
            level,
        }
    }
}

impl State {
    pub(crate) fn new(caps: Caps, seeds: Seeds) -> Self {
        Self {
            caps,
            roster: nobody(),
            seeds,
            blocks: Table::new(caps.blocks, Fill::Fast),
            names: Table::new(caps.blocks, Fill::Dense),
            sets: Sets::new(seeds, caps.blocks),
            seats: Seats::new(&caps),
            ownerships: 0,
            lower: 0,
            hand: 0,
            sweep: None,
            evicted: 0,
        }
    }

    pub(crate) const fn blocks(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) const fn ownerships(&self) -> usize {
        self.ownerships
    }

    pub(crate) const fn evicted(&self) -> u64 {
        self.evicted
    }

    pub(crate) fn bytes(&self) -> usize {
        self.blocks.bytes() + self.names.bytes() + self.sets.bytes() + self.seats.bytes()
    }

    /// The seat of a rank, if it can have one now.
    pub(crate) fn seat(&mut self, rank: u16) -> Option<u16> {
        self.seats.of(rank)
    }

    /// Blocks that a rank owns, in all tiers.
    pub(crate) fn owned(&self, rank: u16) -> usize {
        let seat = self.seats.held(rank);
        seat.map_or(0, |seat| self.seats.get(seat).counts.iter().sum())
    }

    /// Forgets all that a rank owns. What is returned is to be dropped without the lock.
    pub(crate) fn vacate(&mut self, rank: u16) -> Option<Aliases> {
        let seat = self.seats.get(self.seats.held(rank)?);
        if seat.counts == [0; 3] {
            return None;
        }
        self.seats.vacate(rank)
    }

    /// A rank left: its seat goes even if it owns nothing.
    pub(crate) fn depart(&mut self, rank: u16) -> Option<Aliases> {
        self.seats.vacate(rank)
    }

    /// What an owner calls by this name.
    fn named(&self, owner: Owner, name: u64) -> Option<u64> {
        let aliases = &self.seats.get(owner.seat).aliases;
        if !aliases.is_empty()
            && let Some(block) = aliases.block(owner.level, name)
        {
            return Some(block);
        }
        let found = self.names.find(self.seeds.name(name))?;
        let block = self.names.hot(found).block;
        let at = self.blocks.find(block)?;
        let common = aliases.is_empty() || aliases.by_common_name(owner.level, block);
        (common && self.owns(at, owner)).then_some(block)
    }

    #[inline]
    fn owns(&self, at: Place, owner: Owner) -> bool {
        let block = self.blocks.hot(at);
        match owner.level {
            Level::Device => self.sets.contains(block.device, owner.seat),
            Level::Host | Level::Disk => self.sets.contains(block.lower(), owner.below()),
        }
    }

    /// Makes a block one owner's who does not own it.
    #[inline]
    fn own(&mut self, at: Place, owner: Owner) {
        let block = self.blocks.hot_mut(at);
        match owner.level {
            Level::Device => block.device = self.sets.add(block.device, owner.seat),
            Level::Host | Level::Disk => {
                block.set_lower(self.sets.add(block.lower(), owner.below()));
                self.lower += 1;
            }
        }
        self.ownerships += 1;
        self.seats.get_mut(owner.seat).counts[owner.level as usize] += 1;
    }

    /// Takes a block away from an owner whose names for it are gone already. The block itself goes with its last owner.
    #[inline]
    fn disown(&mut self, at: Place, owner: Owner) {
        let block = self.blocks.hot_mut(at);
        match owner.level {
            Level::Device => block.device = self.sets.take(block.device, owner.seat),
            Level::Host | Level::Disk => block.set_lower(self.sets.take(block.lower(), owner.below())),
        }
        self.uncount(owner);
        if self.blocks.hot(at).is_unowned() {
            self.take_out(at);
        }
    }

    fn uncount(&mut self, owner: Owner) {
        self.ownerships -= 1;
        if owner.level != Level::Device {
            self.lower -= 1;
        }
        self.seats.get_mut(owner.seat).counts[owner.level as usize] -= 1;
    }

    /// Takes a block without owners out, and its name.
    fn take_out(&mut self, at: Place) {
        let name = self.blocks.cold(at);
        let block = self.blocks.remove(at);
        if block.named()
            && let Some(found) = self.names.find(self.seeds.name(name))
        {
            self.names.remove(found);
        }
    }

    /// Takes a block out with all of its owners.
    fn drop_block(&mut self, at: Place) {
        let key = self.blocks.hot(at).key();
        let (device, lower) = {
            let block = self.blocks.hot(at);
            (block.device, block.lower())
        };
        let mut owners = Vec::new();
        let level = Level::Device;
        self.sets
            .view(device)
            .each(|seat| owners.push(Owner { seat, level }));
        self.sets
            .view(lower)
            .each(|member| owners.push(Owner::of_below(member)));
        for owner in owners {
            self.uncount(owner);
            let aliases = &mut self.seats.get_mut(owner.seat).aliases;
            if !aliases.is_empty() {
                aliases.forget(owner.level, key);
            }
            self.evicted += 1;
        }
        self.sets.release(device);
        self.sets.release(lower);
        let block = self.blocks.hot_mut(at);
        block.device = EMPTY;
        block.set_lower(EMPTY);
        self.take_out(at);
    }
}

/// A 64-bit key is a place in the order of a table; behind the last one it begins anew.
const fn behind(key: u64) -> u64 {
    key.wrapping_add(1)
}

//! All that the index knows: blocks, names and owners, and what keeps them consistent.
//!
//! A block is there while somebody owns it. An ownership is there while it has a name.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    Caps,
    blocks::{BlockId, Blocks},
    hash::Seeds,
    names::Aliases,
    seats::{Level, Roster, Seats},
    sets::{EMPTY, Sets},
};

mod clock;
mod find;
mod remove;
mod store;
mod sweep;

pub(crate) use find::Part;
pub(crate) use store::{Done, Stop};

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) caps: Caps,
    pub(crate) roster: Arc<Roster>,
    seeds: Seeds,
    blocks: Blocks,
    sets: Sets,
    seats: Seats,
    ownerships: usize,
    /// Those of them in lower tiers.
    lower: usize,
    /// Aliases of all seats.
    aliases: usize,
    /// The number of the block where the search for the oldest one goes on.
    hand: u32,
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
    pub(crate) fn new(caps: Caps, seeds: Seeds, roster: Arc<Roster>) -> Self {
        Self {
            caps,
            roster,
            seeds,
            blocks: Blocks::new(seeds, caps.blocks),
            sets: Sets::new(seeds, caps.blocks),
            seats: Seats::new(&caps),
            ownerships: 0,
            lower: 0,
            aliases: 0,
            hand: 0,
            sweep: None,
            evicted: 0,
        }
    }

    /// Blocks beyond smaller caps make way later: see [`State::sweep`].
    pub(crate) const fn set_caps(&mut self, caps: Caps) {
        self.caps = caps;
        self.seats.set_caps(&caps);
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
        self.blocks.bytes() + self.sets.bytes() + self.seats.bytes()
    }

    /// The seat of a rank, if it can have one now.
    pub(crate) fn seat(&mut self, rank: u16) -> Option<u16> {
        self.seats.of(rank)
    }

    /// The seat of a rank, if it has one.
    pub(crate) fn held(&self, rank: u16) -> Option<u16> {
        self.seats.held(rank)
    }

    /// Numbers of ranks whose former seats are not swept yet.
    pub(crate) fn unswept(&self) -> BTreeSet<u16> {
        self.seats.unswept()
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
        self.depart(rank)
    }

    /// A rank left: its seat goes even if it owns nothing.
    pub(crate) fn depart(&mut self, rank: u16) -> Option<Aliases> {
        let aliases = self.seats.vacate(rank)?;
        self.aliases -= aliases.len();
        Some(aliases)
    }

    /// What an owner calls by this name, which leads to `common`.
    fn named(&self, owner: Owner, name: u64, common: Option<BlockId>) -> Option<BlockId> {
        let aliases = &self.seats.get(owner.seat).aliases;
        let plain = aliases.is_empty();
        if !plain && let Some(block) = aliases.block(owner.level, name) {
            return Some(block);
        }
        let block = common?;
        let own = self.owns(block, owner) && (plain || aliases.by_common_name(owner.level, block));
        own.then_some(block)
    }

    #[inline]
    fn owns(&self, id: BlockId, owner: Owner) -> bool {
        let (run, at) = (self.blocks.run(id), id.at());
        match owner.level {
            Level::Device => self.sets.contains(run.device[at], owner.seat),
            Level::Host | Level::Disk => self.sets.contains(run.lower(at), owner.below()),
        }
    }

    /// Makes a block one owner's who does not own it.
    #[inline]
    fn own(&mut self, id: BlockId, owner: Owner) {
        let (run, at) = (self.blocks.run_mut(id), id.at());
        match owner.level {
            Level::Device => run.device[at] = self.sets.add(run.device[at], owner.seat),
            Level::Host | Level::Disk => {
                run.set_lower(at, self.sets.add(run.lower(at), owner.below()));
                self.lower += 1;
            }
        }
        self.ownerships += 1;
        let most = self.caps.blocks_per_rank;
        self.seats.get_mut(owner.seat).gets(owner.level, id, most);
    }

    /// Takes a block away from an owner whose names for it are gone already. The block itself goes with its last owner.
    #[inline]
    fn disown(&mut self, id: BlockId, owner: Owner) {
        let (run, at) = (self.blocks.run_mut(id), id.at());
        match owner.level {
            Level::Device => run.device[at] = self.sets.take(run.device[at], owner.seat),
            Level::Host | Level::Disk => run.set_lower(at, self.sets.take(run.lower(at), owner.below())),
        }
        let unowned = run.is_unowned(at);
        self.uncount(owner);
        if unowned {
            self.blocks.take_out(id);
        }
    }

    fn uncount(&mut self, owner: Owner) {
        self.ownerships -= 1;
        if owner.level != Level::Device {
            self.lower -= 1;
        }
        self.seats.get_mut(owner.seat).counts[owner.level as usize] -= 1;
    }

    /// An owner's names for a block count no more.
    fn forget_names(&mut self, id: BlockId, owner: Owner) {
        let aliases = &mut self.seats.get_mut(owner.seat).aliases;
        if !aliases.is_empty() {
            let before = aliases.len();
            aliases.forget(owner.level, id);
            self.aliases -= before - aliases.len();
        }
    }

    /// Takes a block out with all of its owners.
    fn drop_block(&mut self, id: BlockId) {
        let at = id.at();
        let run = self.blocks.run(id);
        let (device, lower) = (run.device[at], run.lower(at));
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
            self.forget_names(id, owner);
            self.evicted += 1;
        }
        self.sets.release(device);
        self.sets.release(lower);
        let run = self.blocks.run_mut(id);
        run.device[at] = EMPTY;
        run.set_lower(at, EMPTY);
        self.blocks.take_out(id);
    }
}

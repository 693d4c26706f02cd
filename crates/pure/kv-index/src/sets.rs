//! Sets of small numbers, each kept once.
//!
//! Blocks next to each other in a prompt almost always have the same owners. So a block holds the id of a set, four
//! bytes however many members it has, and two blocks have the same owners if they have the same id. The empty set and
//! sets of one member, which most blocks have, are ids alone. Any other set has one entry, counted by its uses; one
//! that nothing uses is kept for a while, since fleets make the same sets again and again.

use std::collections::VecDeque;

use crate::{
    directory::{Directory, Fill},
    hash::Seeds,
    limits::MAX_IDLE_SETS,
};

mod members;

use members::Members;
pub(crate) use members::{View, each_bit};

/// A set: 0 is the empty one, then those of one member, then entries.
pub(crate) type SetId = u32;

/// The empty set.
pub(crate) const EMPTY: SetId = 0;

/// Ids from here on are entries.
const FIRST: SetId = 1 << 16;
/// Entries that are allocated together: growing copies none.
const CHUNK: usize = 1024;
/// Places to remember what became of a set when a member came or went.
const STEPS: usize = 4096;

#[derive(Debug)]
pub(crate) struct Sets {
    seeds: Seeds,
    chunks: Vec<Box<[Entry]>>,
    used: u32,
    free: Option<u32>,
    by_hash: Directory,
    idle: VecDeque<u32>,
    steps: Box<[Step]>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Entry {
    hash: u64,
    uses: u32,
    idle: bool,
    /// The next free entry behind this one, when it is free itself.
    next: Option<u32>,
    members: Members,
}

#[derive(Clone, Copy, Debug, Default)]
struct Step {
    from: SetId,
    member: u32,
    to: SetId,
}

impl Sets {
    /// For about so many blocks.
    pub(crate) fn new(seeds: Seeds, blocks: usize) -> Self {
        Self {
            seeds,
            chunks: Vec::new(),
            used: 0,
            free: None,
            by_hash: Directory::new(blocks / 4, Fill::Dense),
            idle: VecDeque::new(),
            steps: vec![Step::default(); STEPS].into(),
            bytes: STEPS * size_of::<Step>(),
        }
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes + self.by_hash.bytes()
    }

    #[inline]
    pub(crate) fn contains(&self, set: SetId, member: u16) -> bool {
        if set < FIRST {
            return set == single(member);
        }
        self.entry(set - FIRST).members.contains(member)
    }

    /// How a set's members are kept.
    #[inline]
    pub(crate) fn view(&self, set: SetId) -> View<'_> {
        match set {
            EMPTY => View::List(&[]),
            1..FIRST => View::One(only(set)),
            FIRST.. => self.entry(set - FIRST).members.view(),
        }
    }

    /// The set with one member more, in whose place it comes.
    #[inline]
    pub(crate) fn add(&mut self, set: SetId, member: u16) -> SetId {
        if set == EMPTY {
            return single(member);
        }
        self.change(set, member, true)
    }

    /// The set without one of its members, in whose place it comes.
    #[inline]
    pub(crate) fn take(&mut self, set: SetId, member: u16) -> SetId {
        if set < FIRST {
            return EMPTY;
        }
        self.change(set, member, false)
    }

    /// The set without the members that `gone` names, in whose place it comes.
    pub(crate) fn take_all(&mut self, set: SetId, gone: impl Fn(u16) -> bool) -> SetId {
        let (mut left, mut hash) = (Vec::new(), 0);
        self.view(set).each(|member| {
            if !gone(member) {
                left.push(member);
                hash ^= self.seeds.member(member);
            }
        });
        let to = self.kept_once(Members::of(left), hash);
        if to >= FIRST {
            self.entry_mut(to - FIRST).uses += 1;
        }
        self.release(set);
        to
    }

    /// Nothing holds this set any more.
    pub(crate) fn release(&mut self, set: SetId) {
        if set < FIRST {
            return;
        }
        let number = set - FIRST;
        let entry = self.entry_mut(number);
        entry.uses = entry.uses.saturating_sub(1);
        if entry.uses == 0 && !entry.idle {
            entry.idle = true;
            self.idle.push_back(number);
            self.forget_idle();
        }
    }

    fn change(&mut self, set: SetId, member: u16, add: bool) -> SetId {
        let hash = self.hash(set) ^ self.seeds.member(member);
        let change = u32::from(member) | (u32::from(add) << 31);
        let place = set.wrapping_mul(0x9e37_79b1) ^ change.wrapping_mul(0x85eb_ca6b);
        let place = (place >> 8) as usize % STEPS;
        let step = self.steps[place];
        // What is remembered may have been freed and used again since: then its hash is another one.
        let to = if step.from == set && step.member == change && self.hash(step.to) == hash {
            step.to
        } else {
            self.made(set, member, add, hash)
        };
        self.steps[place] = Step {
            from: set,
            member: change,
            to,
        };
        if to >= FIRST {
            self.entry_mut(to - FIRST).uses += 1;
        }
        self.release(set);
        to
    }

    #[inline]
    fn hash(&self, set: SetId) -> u64 {
        match set {
            EMPTY => 0,
            1..FIRST => self.seeds.member(only(set)),
            FIRST.. => self.entry(set - FIRST).hash,
        }
    }

    /// Finds or makes the set that `set` becomes.
    fn made(&mut self, set: SetId, member: u16, add: bool, hash: u64) -> SetId {
        let members = if add {
            Members::with(self.view(set), member)
        } else {
            Members::without(self.view(set), member)
        };
        self.kept_once(members, hash)
    }

    /// The one set with these members.
    fn kept_once(&mut self, members: Members, hash: u64) -> SetId {
        match members.view() {
            View::List([]) => return EMPTY,
            View::List([one]) => return single(*one),
            View::One(_) | View::List(_) | View::Bits(_) => {}
        }
        let same = |number| self.entry(number).members == members;
        if let Some(number) = self.by_hash.find(hash, same) {
            return FIRST + number;
        }
        let number = match self.free {
            Some(number) => {
                self.free = self.entry(number).next;
                number
            }
            None => self.grown(),
        };
        self.bytes += members.bytes();
        let entry = self.entry_mut(number);
        *entry = Entry {
            hash,
            uses: 0,
            idle: false,
            next: None,
            members,
        };
        self.by_hash.insert(hash, number);
        FIRST + number
    }

    fn grown(&mut self) -> u32 {
        let number = self.used;
        if number as usize == self.chunks.len() * CHUNK {
            self.chunks.push((0..CHUNK).map(|_| Entry::default()).collect());
            self.bytes += CHUNK * size_of::<Entry>();
        }
        self.used += 1;
        number
    }

    /// Frees the sets that were idle for longest, beyond what is kept.
    fn forget_idle(&mut self) {
        while self.idle.len() > MAX_IDLE_SETS
            && let Some(number) = self.idle.pop_front()
        {
            let entry = self.entry_mut(number);
            entry.idle = false;
            if entry.uses > 0 {
                continue;
            }
            let gone = std::mem::take(entry);
            self.bytes -= gone.members.bytes();
            self.by_hash.remove(gone.hash, number);
            self.entry_mut(number).next = self.free.replace(number);
        }
    }

    #[inline]
    fn entry(&self, number: u32) -> &Entry {
        &self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }

    #[inline]
    fn entry_mut(&mut self, number: u32) -> &mut Entry {
        &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }
}

#[inline]
const fn single(member: u16) -> SetId {
    member as SetId + 1
}

#[inline]
const fn only(set: SetId) -> u16 {
    (set - 1) as u16
}

#[cfg(test)]
mod tests;

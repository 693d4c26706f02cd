//! Cleaning up after seats that nobody holds any more, and after larger caps, a few blocks at a time.

use super::{Owner, State, clock::behind};
use crate::{
    blocks::BlockId,
    limits::SWEEP_BUDGET,
    seats::Level,
    sets::{SetId, View},
};

/// What changing a set costs, in blocks that are looked at.
const CHANGE: usize = 16;

/// One pass over all blocks.
#[derive(Debug)]
pub(super) struct Sweep {
    /// The seats that it is for.
    seats: Vec<u16>,
    /// The same as bits, and those of the members of lower tiers that stand for them.
    dead: Vec<u64>,
    below: Vec<u64>,
    /// Blocks from this number on are left.
    next: u32,
}

impl State {
    /// Does a bounded part of the work. True while some is left.
    pub(crate) fn sweep(&mut self) -> bool {
        let is_too_large = self.shrink();
        self.sweep_seats() || is_too_large
    }

    fn sweep_seats(&mut self) -> bool {
        if self.sweep.is_none() && self.seats.dead().is_empty() {
            return false;
        }
        let mut pass = self.sweep.take().unwrap_or_else(|| self.new_pass());
        let mut budget = SWEEP_BUDGET;
        while let Some(id) = self.blocks.from(pass.next) {
            pass.next = behind(id);
            let cost = 1 + self.clean(id, &pass);
            if self.blocks.run(id).is_unowned(id.at()) {
                self.blocks.take_out(id);
            }
            if budget <= cost {
                self.sweep = Some(pass);
                return true;
            }
            budget -= cost;
        }
        for seat in pass.seats {
            self.seats.free(seat);
        }
        !self.seats.dead().is_empty()
    }

    fn new_pass(&self) -> Sweep {
        let mut pass = Sweep {
            seats: self.seats.dead().iter().copied().collect(),
            dead: Vec::new(),
            below: Vec::new(),
            next: 0,
        };
        for seat in &pass.seats {
            set(&mut pass.dead, *seat);
            for level in [Level::Host, Level::Disk] {
                let owner = Owner { seat: *seat, level };
                set(&mut pass.below, owner.below());
            }
        }
        pass
    }

    /// Takes the dead out of a block's owners, and says what it cost.
    fn clean(&mut self, id: BlockId, pass: &Sweep) -> usize {
        let mut cost = 0;
        let (run, at) = (self.blocks.run(id), id.at());
        let (device, lower) = (run.device[at], run.lower(at));
        if self.any(device, &pass.dead) {
            cost += CHANGE
                + self.uncount_all(device, &pass.dead, |seat| Owner {
                    seat,
                    level: Level::Device,
                });
            let left = self.sets.take_all(device, |member| has(&pass.dead, member));
            self.blocks.run_mut(id).device[at] = left;
        }
        if self.any(lower, &pass.below) {
            cost += CHANGE + self.uncount_all(lower, &pass.below, Owner::of_below);
            let left = self.sets.take_all(lower, |member| has(&pass.below, member));
            self.blocks.run_mut(id).set_lower(at, left);
        }
        cost
    }

    /// A set has a member among these.
    fn any(&self, set: SetId, of: &[u64]) -> bool {
        match self.sets.view(set) {
            View::One(one) => has(of, one),
            View::List(list) => list.iter().any(|one| has(of, *one)),
            View::Bits(bits) => bits.iter().zip(of).any(|(bits, of)| bits & of != 0),
        }
    }

    fn uncount_all(&mut self, set: SetId, dead: &[u64], owner: impl Fn(u16) -> Owner) -> usize {
        let mut gone = Vec::new();
        self.sets.view(set).each(|member| {
            if has(dead, member) {
                gone.push(owner(member));
            }
        });
        for owner in &gone {
            self.uncount(*owner);
        }
        gone.len()
    }
}

fn set(bits: &mut Vec<u64>, member: u16) {
    let word = usize::from(member) / 64;
    if bits.len() <= word {
        bits.resize(word + 1, 0);
    }
    bits[word] |= 1 << (member % 64);
}

fn has(bits: &[u64], member: u16) -> bool {
    let word = bits.get(usize::from(member) / 64);
    word.is_some_and(|word| word >> (member % 64) & 1 == 1)
}

//! Cleaning up after seats that nobody holds any more, a few blocks at a time.

use super::{Owner, State, behind};
use crate::{
    limits::SWEEP_BUDGET,
    seats::Level,
    sets::{SetId, View},
    table::{Place, Slot as _},
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
    /// Blocks from this key on are left.
    key: u64,
}

impl State {
    /// Does a bounded part of the work. True while some is left.
    pub(crate) fn sweep(&mut self) -> bool {
        if self.sweep.is_none() && self.seats.dead().is_empty() {
            return false;
        }
        let mut pass = self.sweep.take().unwrap_or_else(|| self.new_pass());
        let mut budget = SWEEP_BUDGET;
        let mut place = self.blocks.from(pass.key);
        while let Some(at) = place {
            let key = self.blocks.hot(at).key();
            pass.key = behind(key);
            let cost = 1 + self.clean(at, &pass);
            let gone = self.blocks.hot(at).is_unowned();
            if gone {
                self.take_out(at);
            }
            if budget <= cost && key != u64::MAX {
                self.sweep = Some(pass);
                return true;
            }
            budget = budget.saturating_sub(cost);
            place = match (gone, key) {
                (_, u64::MAX) => None,
                (true, _) => self.blocks.from(pass.key),
                (false, _) => self.blocks.next(at),
            };
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
            key: 0,
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
    fn clean(&mut self, at: Place, pass: &Sweep) -> usize {
        let mut cost = 0;
        let block = self.blocks.hot(at);
        let (device, lower) = (block.device, block.lower());
        if self.any(device, &pass.dead) {
            cost += CHANGE
                + self.uncount_all(device, &pass.dead, |seat| Owner {
                    seat,
                    level: Level::Device,
                });
            let left = self.sets.take_all(device, |member| has(&pass.dead, member));
            self.blocks.hot_mut(at).device = left;
        }
        if self.any(lower, &pass.below) {
            cost += CHANGE + self.uncount_all(lower, &pass.below, Owner::of_below);
            let left = self.sets.take_all(lower, |member| has(&pass.below, member));
            self.blocks.hot_mut(at).set_lower(left);
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

//! What makes way when a cap is reached: a clock's hand goes over the blocks in the order of their keys, which is none,
//! and takes what was not used since it last came by.

use super::{Owner, State, Stop, behind};
use crate::{
    limits::{MAX_HAND_STEPS, MAX_OWN_HAND_STEPS},
    table::{Place, Slot as _},
};

/// Own blocks that are compared when a rank's cap is reached.
const OWN_CHOICE: usize = 4;
/// The mark of a block that was used since the hand came by.
const USED: u32 = 3;

impl State {
    /// Drops the block that was not used for longest, about, but not `keep`.
    pub(super) fn evict(&mut self, keep: u64) -> Result<(), Stop> {
        let mut place = self.at_hand(self.hand);
        let mut oldest: Option<(u32, Place)> = None;
        for _ in 0..MAX_HAND_STEPS {
            let Some(at) = place else { break };
            let block = self.blocks.hot_mut(at);
            self.hand = behind(block.key());
            if block.key() != keep {
                let mark = block.mark();
                block.age();
                if oldest.is_none_or(|(least, _)| mark < least) {
                    oldest = Some((mark, at));
                }
                if mark == 0 {
                    break;
                }
            }
            place = self.blocks.next(at).or_else(|| self.blocks.from(0));
        }
        let (_, at) = oldest.ok_or(Stop::OverCapacity)?;
        self.drop_block(at);
        Ok(())
    }

    /// Takes from an owner a block that was not used for long, but not `keep`.
    pub(super) fn evict_own(&mut self, keep: u64, owner: Owner) -> Result<(), Stop> {
        let level = owner.level as usize;
        let mut place = self.at_hand(self.seats.get(owner.seat).hands[level]);
        let mut oldest: Option<(u32, Place)> = None;
        let mut left = OWN_CHOICE;
        for _ in 0..MAX_OWN_HAND_STEPS {
            let Some(at) = place else { break };
            let block = self.blocks.hot(at);
            let (key, mark) = (block.key(), block.mark());
            self.seats.get_mut(owner.seat).hands[level] = behind(key);
            if key != keep && self.owns(at, owner) {
                if oldest.is_none_or(|(least, _)| mark < least) {
                    oldest = Some((mark, at));
                }
                left -= 1;
                if mark < USED || left == 0 {
                    break;
                }
            }
            place = self.blocks.next(at).or_else(|| self.blocks.from(0));
        }
        let (_, at) = oldest.ok_or(Stop::OverCapacity)?;
        let key = self.blocks.hot(at).key();
        self.seats.get_mut(owner.seat).aliases.forget(owner.level, key);
        self.disown(at, owner);
        self.evicted += 1;
        Ok(())
    }

    fn at_hand(&self, hand: u64) -> Option<Place> {
        self.blocks.from(hand).or_else(|| self.blocks.from(0))
    }
}

//! What makes way when a cap is reached: a clock's hand goes over the blocks in the order of their places, and
//! takes what was not used since it last came by.

use super::{Owner, State, Stop};
use crate::{
    blocks::BlockId,
    limits::{MAX_HAND_STEPS, MAX_OWN_HAND_STEPS, SHRINK_BUDGET},
};

/// Own blocks that are compared when a rank's cap is reached.
const OWN_CHOICE: usize = 4;
/// The mark of a block that was used since the hand came by.
const USED: u32 = 3;

impl State {
    /// Drops some blocks of an index that is larger than its caps, which were larger before. True while it still is.
    pub(super) fn shrink(&mut self) -> bool {
        for _ in 0..SHRINK_BUDGET {
            if !self.is_too_large() || self.evict(None).is_err() {
                return false;
            }
        }
        self.is_too_large()
    }

    const fn is_too_large(&self) -> bool {
        self.blocks.len() > self.caps.blocks || self.ownerships > self.caps.ownerships
    }

    /// Drops the block that was not used for longest, about, but not `keep`.
    pub(super) fn evict(&mut self, keep: Option<BlockId>) -> Result<(), Stop> {
        let mut oldest: Option<(u32, BlockId)> = None;
        for _ in 0..MAX_HAND_STEPS {
            let Some(id) = self.at_hand(self.hand) else { break };
            self.hand = behind(id);
            if Some(id) == keep {
                continue;
            }
            let run = self.blocks.run_mut(id);
            let mark = run.mark(id.at());
            run.age(id.at());
            if oldest.is_none_or(|(least, _)| mark < least) {
                oldest = Some((mark, id));
            }
            if mark == 0 {
                break;
            }
        }
        let (_, id) = oldest.ok_or(Stop::OverCapacity)?;
        self.drop_block(id);
        Ok(())
    }

    /// Takes from an owner a block that was not used for long, but not `keep`.
    pub(super) fn evict_own(&mut self, keep: Option<BlockId>, owner: Owner) -> Result<(), Stop> {
        let level = owner.level as usize;
        let mut hand = self.seats.get(owner.seat).hands[level];
        let mut oldest: Option<(u32, BlockId)> = None;
        let mut left = OWN_CHOICE;
        for _ in 0..MAX_OWN_HAND_STEPS {
            let Some(id) = self.at_hand(hand) else { break };
            hand = behind(id);
            if Some(id) == keep || !self.owns(id, owner) {
                continue;
            }
            let mark = self.blocks.run(id).mark(id.at());
            if oldest.is_none_or(|(least, _)| mark < least) {
                oldest = Some((mark, id));
            }
            left -= 1;
            if mark < USED || left == 0 {
                break;
            }
        }
        self.seats.get_mut(owner.seat).hands[level] = hand;
        let (_, id) = oldest.ok_or(Stop::OverCapacity)?;
        self.forget_names(id, owner);
        self.disown(id, owner);
        self.evicted += 1;
        Ok(())
    }

    fn at_hand(&self, hand: u32) -> Option<BlockId> {
        self.blocks.from(hand).or_else(|| self.blocks.from(0))
    }
}

/// Where a walk goes on behind a block.
pub(super) const fn behind(id: BlockId) -> u32 {
    id.number() + 1
}

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
        let seat = self.seats.get(owner.seat);
        let level = owner.level as usize;
        let found = if 2 * seat.recent[level].len() > seat.counts[level] {
            // In their order, and without a search.
            self.own_recent(owner).or_else(|| self.own_at_hand(keep, owner))
        } else {
            self.own_at_hand(keep, owner).or_else(|| self.own_recent(owner))
        };
        let id = found.ok_or(Stop::OverCapacity)?;
        self.forget_names(id, owner);
        self.disown(id, owner);
        self.evicted += 1;
        Ok(())
    }

    fn own_at_hand(&mut self, keep: Option<BlockId>, owner: Owner) -> Option<BlockId> {
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
        oldest.map(|(_, id)| id)
    }

    /// The first of the blocks that an owner got lately; one that was not used if it is among the first few. The others
    /// get another turn.
    fn own_recent(&mut self, owner: Owner) -> Option<BlockId> {
        let level = owner.level as usize;
        let mut oldest: Option<(u32, BlockId)> = None;
        let mut left = OWN_CHOICE;
        for _ in 0..MAX_OWN_HAND_STEPS {
            let Some(id) = self.seats.get_mut(owner.seat).recent[level].pop_front() else {
                break;
            };
            // It went, perhaps, and what is there now may be anybody's.
            if !self.blocks.is_there(id) || !self.owns(id, owner) {
                continue;
            }
            let mark = self.blocks.run(id).mark(id.at());
            let later = match oldest {
                Some((least, _)) if mark >= least => Some(id),
                Some(_) | None => oldest.replace((mark, id)).map(|(_, id)| id),
            };
            self.seats.get_mut(owner.seat).recent[level].extend(later);
            left -= 1;
            if mark < USED || left == 0 {
                break;
            }
        }
        oldest.map(|(_, id)| id)
    }

    fn at_hand(&self, hand: u32) -> Option<BlockId> {
        self.blocks.from(hand).or_else(|| self.blocks.from(0))
    }
}

/// Where a walk goes on behind a block.
pub(super) const fn behind(id: BlockId) -> u32 {
    id.number() + 1
}

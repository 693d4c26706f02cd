//! The index: one state behind one lock that is only ever held for microseconds.

use std::sync::{Arc, Mutex, PoisonError};

use continuum_wire::router_event::{Data, Stored, Tier};

use crate::{
    Caps, Matches, RankKey,
    gate::Gate,
    hash::Seeds,
    limits::{BLOCKS_PER_LOCK, BLOCKS_PER_QUIET_LOCK, MAX_LOOKUP_BLOCKS},
    seats::{Level, Roster},
    state::{Done, Owner, Part, State, Stop},
};

/// Which rank holds which blocks.
#[derive(Debug)]
pub struct Index {
    seeds: Seeds,
    /// The present roster; held while the next one takes its place.
    roster: Mutex<Arc<Roster>>,
    state: Gate<State>,
}

/// What became of one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Blocks that the rank holds now and did not hold before.
    pub stored: u32,
    /// Blocks that the rank held before and holds no more, because the event says so.
    pub removed: u32,
    /// Why some or all of the event was not applied.
    pub refused: Option<Refusal>,
    /// Blocks of the event that were not applied for that reason.
    pub refused_blocks: u32,
}

/// Why an event, or the rest of one, was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// The rank does not hold the block that the event continues.
    UnknownParent,
    /// The event continues one of its own blocks.
    InvalidSequence,
    /// A cap leaves no room, and nothing older could make way.
    OverCapacity,
    /// The rank is not live.
    IdentityMismatch,
    /// The tier is not indexed.
    OtherTier,
}

impl Refusal {
    /// Every refusal.
    pub const ALL: [Self; 5] = [
        Self::UnknownParent,
        Self::InvalidSequence,
        Self::OverCapacity,
        Self::IdentityMismatch,
        Self::OtherTier,
    ];

    /// The word in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownParent => "unknown_parent",
            Self::InvalidSequence => "invalid_sequence",
            Self::OverCapacity => "over_capacity",
            Self::IdentityMismatch => "identity_mismatch",
            Self::OtherTier => "other_tier",
        }
    }
}

/// How much the index holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Different blocks.
    pub blocks: usize,
    /// Ownerships: one rank holds one block in one tier.
    pub ownerships: usize,
    /// Live ranks.
    pub ranks: usize,
    /// Memory, in bytes.
    pub bytes: usize,
    /// Ownerships that made way for newer ones because a cap was reached, since the start.
    pub evicted: u64,
}

impl Index {
    /// An empty index whose hashes are not secret: for tests and benches.
    #[must_use]
    pub fn new(caps: Caps) -> Self {
        Self::seeded(caps, 0)
    }

    /// An empty index. Who does not know `seed`, a random number, cannot make blocks collide.
    #[must_use]
    pub fn seeded(caps: Caps, seed: u64) -> Self {
        Self::with(caps, Seeds::new(seed))
    }

    fn with(caps: Caps, seeds: Seeds) -> Self {
        let caps = caps.bounded();
        let roster = Arc::new(Roster::seeded(seeds.rank()));
        Self {
            seeds,
            roster: Mutex::new(Arc::clone(&roster)),
            state: Gate::new(State::new(caps, seeds, roster)),
        }
    }

    /// The caps.
    #[must_use]
    pub fn caps(&self) -> Caps {
        self.state.read().caps
    }

    /// Changes the caps. What is known stays: larger ones count at once; for smaller ones blocks make way a few at a time,
    /// with events and with [`Index::tidy`]. The cap of ranks counts from the next [`Index::set_live`] on.
    pub fn set_caps(&self, caps: Caps) {
        self.state.write().set_caps(caps.bounded());
    }

    /// Names the ranks that exist. Others lose all that they own, and their events are refused. What they owned counts
    /// no more at once; it is in [`Index::stats`] until [`Index::tidy`] and events have cleaned up behind them.
    ///
    /// Beyond the cap of ranks the first ones count.
    pub fn set_live(&self, live: &[RankKey]) {
        let mut roster = self.roster.lock().unwrap_or_else(PoisonError::into_inner);
        let (most, unswept) = {
            let state = self.state.read();
            (state.caps.ranks, state.unswept())
        };
        let (next, departed) = roster.next(live, most, unswept);
        *roster = Arc::new(next);
        let mut state = self.state.write();
        let dropped: Vec<_> = departed.into_iter().map(|rank| state.depart(rank)).collect();
        let before = std::mem::replace(&mut state.roster, Arc::clone(&roster));
        state.sweep();
        drop(state);
        drop(roster);
        drop((before, dropped));
    }

    /// Applies one event of a rank.
    pub fn apply(&self, rank: &RankKey, tier: Tier, data: &Data) -> Applied {
        let blocks = match data {
            Data::Stored(stored) => stored.blocks.len(),
            Data::Removed(names) => names.len(),
            Data::Cleared => 0,
        };
        let level = match tier {
            Tier::Device => Level::Device,
            Tier::HostPinned => Level::Host,
            Tier::Disk => Level::Disk,
            Tier::External => return Applied::refused(Refusal::OtherTier, blocks),
        };
        match data {
            Data::Stored(stored) => self.store(rank, level, stored),
            Data::Removed(names) => self.remove(rank, level, names),
            Data::Cleared => self.forget(rank),
        }
    }

    /// Forgets all that a rank owns, in all tiers: what is known of it may be wrong.
    pub fn clear(&self, rank: &RankKey) {
        self.forget(rank);
    }

    /// Does a bounded part of the cleaning that clears, departed ranks and smaller caps leave behind. True while some is
    /// left.
    ///
    /// Events do it along their way; this is for a fleet that is silent.
    pub fn tidy(&self) -> bool {
        self.state.write().sweep()
    }

    /// For each rank, how many blocks from the beginning of a prompt it holds; all of one state of the index.
    pub fn find(&self, local_hashes: &[u64], out: &mut Matches) {
        let hashes = local_hashes.get(..MAX_LOOKUP_BLOCKS).unwrap_or(local_hashes);
        let first = Part::first(&self.seeds, hashes);
        let state = self.state.read();
        out.reset(&state.roster);
        state.find(hashes, first, out);
    }

    /// How much the index holds.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let state = self.state.read();
        Stats {
            blocks: state.blocks(),
            ownerships: state.ownerships(),
            ranks: state.roster.live(),
            bytes: size_of::<Self>() + state.bytes(),
            evicted: state.evicted(),
        }
    }

    fn store(&self, rank: &RankKey, level: Level, stored: &Stored) -> Applied {
        let Stored { parent, blocks } = stored;
        if let Some(parent) = parent
            && blocks.iter().any(|block| block.hash == *parent)
        {
            return Applied::refused(Refusal::InvalidSequence, blocks.len());
        }
        let mut done = Done::default();
        let mut owner = None;
        let mut rest = blocks.as_slice();
        let refused = loop {
            let busy = self.state.is_busy();
            let (part, behind) = rest.split_at(rest.len().min(most(busy)));
            if busy {
                self.prefetch(rank, level, |state, now| match owner {
                    None => state.prefetch_first(now, *parent, part),
                    Some(_) => {
                        state.prefetch_names(part);
                        state.prefetch_ways(done.tip, part);
                    }
                });
            }
            let mut state = self.state.write();
            let now = match (state.owner(rank, level), owner) {
                (Err(refusal), None) => break Some(refusal),
                (Ok(now), None) => now,
                (Ok(now), Some(before)) if now == before => now,
                (_, Some(_)) => break Some(Refusal::IdentityMismatch),
            };
            if !busy {
                state.prefetch_names(part);
            }
            match parent {
                Some(parent) if owner.is_none() => match state.parent(now, *parent) {
                    Some(tip) => done.tip = tip,
                    None => break Some(Refusal::UnknownParent),
                },
                // Others may have made way for something while nobody held the lock.
                Some(_) | None if !state.continues(&done) => break Some(Refusal::UnknownParent),
                Some(_) | None => {}
            }
            owner = Some(now);
            if !busy {
                state.prefetch_ways(done.tip, part);
            }
            if state.store(now, part, &mut done) == Err(Stop::OverCapacity) {
                break Some(Refusal::OverCapacity);
            }
            state.sweep();
            rest = behind;
            if rest.is_empty() {
                break None;
            }
        };
        let taken = usize::try_from(done.taken).unwrap_or(usize::MAX);
        Applied {
            stored: done.new,
            removed: 0,
            refused,
            refused_blocks: count(blocks.len().saturating_sub(taken)),
        }
    }

    fn remove(&self, rank: &RankKey, level: Level, names: &[u64]) -> Applied {
        let mut applied = Applied::default();
        let mut rest = names;
        loop {
            let busy = self.state.is_busy();
            let (part, behind) = rest.split_at(rest.len().min(most(busy)));
            if busy {
                self.prefetch(rank, level, |state, owner| state.prefetch_removed(owner, part));
            }
            let mut state = self.state.write();
            match state.owner(rank, level) {
                Ok(owner) => {
                    if !busy {
                        state.prefetch_removed(owner, part);
                    }
                    applied.removed += state.remove(owner, part);
                }
                // Without a seat it owns nothing that could go.
                Err(Refusal::OverCapacity) => {}
                Err(refusal) => {
                    applied.refused = Some(refusal);
                    applied.refused_blocks = count(rest.len());
                    break;
                }
            }
            state.sweep();
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        applied
    }

    /// Waits for memory beside other readers, not while they have to wait.
    fn prefetch(&self, rank: &RankKey, level: Level, read: impl FnOnce(&State, Owner)) {
        let state = self.state.read();
        let seat = state.roster.number(rank).and_then(|number| state.held(number));
        if let Some(seat) = seat {
            read(&state, Owner { seat, level });
        }
    }

    fn forget(&self, rank: &RankKey) -> Applied {
        let mut state = self.state.write();
        let Some(number) = state.roster.number(rank) else {
            return Applied::refused(Refusal::IdentityMismatch, 0);
        };
        let removed = state.owned(number);
        let dropped = state.vacate(number);
        state.sweep();
        drop(state);
        drop(dropped);
        Applied {
            removed: count(removed),
            ..Applied::default()
        }
    }
}

impl State {
    fn owner(&mut self, rank: &RankKey, level: Level) -> Result<Owner, Refusal> {
        let number = self.roster.number(rank).ok_or(Refusal::IdentityMismatch)?;
        let seat = self.seat(number).ok_or(Refusal::OverCapacity)?;
        Ok(Owner { seat, level })
    }
}

impl Applied {
    fn refused(refusal: Refusal, blocks: usize) -> Self {
        Self {
            refused: Some(refusal),
            refused_blocks: count(blocks),
            ..Self::default()
        }
    }
}

/// Blocks that are stored or removed while the index is locked.
const fn most(busy: bool) -> usize {
    if busy {
        BLOCKS_PER_LOCK
    } else {
        BLOCKS_PER_QUIET_LOCK
    }
}

fn count(blocks: usize) -> u32 {
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

#[cfg(test)]
pub(crate) mod tests;

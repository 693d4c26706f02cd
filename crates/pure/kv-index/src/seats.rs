//! Who owns blocks: ranks, and the seats that they hold.
//!
//! Blocks name their owners by seats. A rank whose content is forgotten gets another seat, at once and at no cost; what
//! still names the old one is swept away later, and until then means nobody.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::{
    Caps, RankKey, RankRef,
    blocks::BlockId,
    limits::{MAX_OLD_SEATS, MAX_RECENT},
    names::Aliases,
};

/// Where blocks lie, from the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Device,
    Host,
    Disk,
}

impl Level {
    pub(crate) const ALL: [Self; 3] = [Self::Device, Self::Host, Self::Disk];
}

/// No rank.
pub(crate) const NOBODY: u16 = u16::MAX;

/// Live ranks and their numbers. A rank keeps its number while it is live.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    numbers: HashMap<RankKey, u16, FixedState>,
    keys: Vec<Option<RankKey>>,
}

impl Roster {
    /// Nobody yet. Who does not know `seed` cannot make keys collide.
    pub(crate) fn seeded(seed: u64) -> Self {
        Self {
            numbers: HashMap::with_hasher(FixedState::with_seed(seed)),
            keys: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn number<'k>(&self, rank: impl Into<RankRef<'k>>) -> Option<u16> {
        self.numbers.get(&rank.into()).copied()
    }

    pub(crate) fn key(&self, number: usize) -> Option<&RankKey> {
        self.keys.get(number)?.as_ref()
    }

    /// Numbers are smaller than this.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn live(&self) -> usize {
        self.numbers.len()
    }

    /// The roster of these ranks, at most so many, and the numbers of those that left.
    ///
    /// Whoever comes gets a number whose last holder is swept away, while there is one: an `unswept` one is another's
    /// burden (see [`MAX_OLD_SEATS`]).
    pub(crate) fn next(&self, live: &[RankKey], most: usize, mut unswept: BTreeSet<u16>) -> (Self, Vec<u16>) {
        let mut wanted = BTreeSet::new();
        for key in live {
            if wanted.len() < most {
                wanted.insert(key);
            }
        }
        let mut keys = self.keys.clone();
        let mut gone = Vec::new();
        for (number, key) in (0_u16..).zip(&mut keys) {
            if key.as_ref().is_some_and(|key| !wanted.remove(key)) {
                *key = None;
                gone.push(number);
            }
        }
        unswept.extend(&gone);
        let numbers = 0..u16::try_from(most.max(keys.len())).unwrap_or(NOBODY);
        let is_free = |number: &u16| keys.get(usize::from(*number)).is_none_or(Option::is_none);
        let (burdened, swept): (Vec<_>, Vec<_>) = numbers
            .filter(is_free)
            .partition(|number| unswept.contains(number));
        for (number, key) in swept.into_iter().chain(burdened).zip(wanted) {
            let number = usize::from(number);
            if number >= keys.len() {
                keys.resize(number + 1, None);
            }
            keys[number] = Some(key.clone());
        }
        while keys.last().is_some_and(Option::is_none) {
            keys.pop();
        }
        let named = (0_u16..)
            .zip(&keys)
            .filter_map(|(number, key)| Some((key.clone()?, number)));
        let mut numbers = HashMap::with_hasher(self.numbers.hasher().clone());
        numbers.extend(named);
        (Self { numbers, keys }, gone)
    }
}

/// One seat.
#[derive(Debug)]
pub(crate) struct Seat {
    /// Number of the rank that holds or held it.
    rank: u16,
    /// Blocks that it owns, by level.
    pub(crate) counts: [usize; 3],
    /// Where the search for its oldest block goes on, by level.
    pub(crate) hands: [u32; 3],
    /// Blocks that it got last, by level, from half its cap on. Some are gone, and places are used again.
    pub(crate) recent: [VecDeque<BlockId>; 3],
    /// What it calls otherwise than others.
    pub(crate) aliases: Aliases,
}

impl Seat {
    /// It owns one more block, of at most so many.
    #[inline]
    pub(crate) fn gets(&mut self, level: Level, block: BlockId, most: usize) {
        let count = &mut self.counts[level as usize];
        *count += 1;
        if *count > most / 2 {
            let recent = &mut self.recent[level as usize];
            while recent.len() >= most.min(MAX_RECENT) {
                recent.pop_front();
            }
            recent.push_back(block);
        }
    }

    fn bytes(&self) -> usize {
        let recent: usize = self.recent.iter().map(VecDeque::capacity).sum();
        self.aliases.bytes() + recent * size_of::<BlockId>()
    }
}

/// All seats.
#[derive(Debug)]
pub(crate) struct Seats {
    seats: Vec<Seat>,
    /// Number of the rank that holds a seat now.
    ranks: Vec<u16>,
    live: Vec<u64>,
    free: BTreeSet<u16>,
    dead: BTreeSet<u16>,
    holders: Vec<Holder>,
    most: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Holder {
    seat: Option<u16>,
    /// Former seats that are not swept yet.
    old: usize,
}

impl Seats {
    pub(crate) fn new(caps: &Caps) -> Self {
        Self {
            seats: Vec::new(),
            ranks: Vec::new(),
            live: Vec::new(),
            free: BTreeSet::new(),
            dead: BTreeSet::new(),
            holders: Vec::new(),
            most: most(caps),
        }
    }

    /// Seats beyond a smaller cap go with those who hold them.
    pub(crate) const fn set_caps(&mut self, caps: &Caps) {
        self.most = most(caps);
    }

    #[inline]
    pub(crate) fn get(&self, seat: u16) -> &Seat {
        &self.seats[usize::from(seat)]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, seat: u16) -> &mut Seat {
        &mut self.seats[usize::from(seat)]
    }

    /// The rank that holds a seat now, or [`NOBODY`].
    #[inline]
    pub(crate) fn rank(&self, seat: u16) -> u16 {
        self.ranks.get(usize::from(seat)).copied().unwrap_or(NOBODY)
    }

    /// A bit for each seat that a rank holds.
    #[inline]
    pub(crate) fn live(&self) -> &[u64] {
        &self.live
    }

    /// Seats that nobody holds and that blocks may still name.
    pub(crate) const fn dead(&self) -> &BTreeSet<u16> {
        &self.dead
    }

    /// Numbers of the ranks that held those.
    pub(crate) fn unswept(&self) -> BTreeSet<u16> {
        self.dead.iter().map(|seat| self.get(*seat).rank).collect()
    }

    pub(crate) fn bytes(&self) -> usize {
        let held: usize = self.seats.iter().map(Seat::bytes).sum();
        self.seats.capacity() * size_of::<Seat>() + held
    }

    /// The seat of a rank. One that has none gets one if there is one.
    #[inline]
    pub(crate) fn of(&mut self, rank: u16) -> Option<u16> {
        match self.holders.get(usize::from(rank)) {
            Some(Holder { seat: Some(seat), .. }) => Some(*seat),
            Some(_) | None => self.assign(rank),
        }
    }

    /// The seat of a rank, if it has one.
    #[inline]
    pub(crate) fn held(&self, rank: u16) -> Option<u16> {
        self.holders.get(usize::from(rank))?.seat
    }

    /// Takes a rank's seat away from it, with all that it owns. The aliases are left to the caller to drop: there can be
    /// many.
    pub(crate) fn vacate(&mut self, rank: u16) -> Option<Aliases> {
        let holder = self.holders.get_mut(usize::from(rank))?;
        let seat = holder.seat.take()?;
        holder.old += 1;
        self.ranks[usize::from(seat)] = NOBODY;
        self.live[usize::from(seat) / 64] &= !(1 << (seat % 64));
        self.dead.insert(seat);
        let seat = self.get_mut(seat);
        seat.recent = Default::default();
        Some(std::mem::take(&mut seat.aliases))
    }

    /// No block names this seat any more.
    pub(crate) fn free(&mut self, seat: u16) {
        if self.dead.remove(&seat) {
            let rank = usize::from(self.get(seat).rank);
            self.holders[rank].old -= 1;
            self.free.insert(seat);
        }
    }

    fn assign(&mut self, rank: u16) -> Option<u16> {
        let number = usize::from(rank);
        if number >= self.holders.len() {
            self.holders.resize(number + 1, Holder::default());
        }
        if self.holders[number].old >= MAX_OLD_SEATS {
            return None;
        }
        let next = u16::try_from(self.seats.len()).ok();
        let next = next.filter(|next| usize::from(*next) < self.most);
        let seat = self.free.pop_first().or(next)?;
        let fresh = Seat {
            rank,
            counts: [0; 3],
            hands: [0; 3],
            recent: Default::default(),
            aliases: Aliases::default(),
        };
        if usize::from(seat) == self.seats.len() {
            self.seats.push(fresh);
            self.ranks.push(rank);
            self.live.resize(usize::from(seat) / 64 + 1, 0);
        } else {
            *self.get_mut(seat) = fresh;
            self.ranks[usize::from(seat)] = rank;
        }
        self.live[usize::from(seat) / 64] |= 1 << (seat % 64);
        self.holders[number].seat = Some(seat);
        Some(seat)
    }
}

/// Seats, with those that wait to be swept.
const fn most(caps: &Caps) -> usize {
    caps.ranks * (1 + MAX_OLD_SEATS)
}

/// A roster that nobody is on.
pub(crate) fn nobody() -> Arc<Roster> {
    Arc::new(Roster::default())
}

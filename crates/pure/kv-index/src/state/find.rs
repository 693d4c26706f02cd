//! Lookups.

use prefetch_index::prefetch_index;

use super::{Owner, State};
use crate::{
    answer::{Matches, Stretch},
    blocks::{RUN, Run},
    hash::Seeds,
    seats::Level,
    sets::{EMPTY, SetId, each_bit},
};

/// Blocks whose memory is asked for together, so that the waits overlap.
const AHEAD: usize = 128;
/// Hashes of a prompt in a cache line.
const HASHES: usize = 8;

/// How far a lookup has come.
struct Walk {
    depth: u32,
    /// Owners of the block before.
    device: SetId,
    lower: SetId,
    /// Some rank holds all blocks so far.
    holders: bool,
}

/// The keys of a part of a prompt, which do not depend on what is in the index.
pub(crate) struct Part {
    ways: [[u64; RUN]; AHEAD / RUN],
    blocks: usize,
}

impl Part {
    /// The first part of a prompt.
    pub(crate) fn first(seeds: &Seeds, hashes: &[u64]) -> Self {
        let some = hashes.get(..AHEAD).unwrap_or(hashes);
        for at in (0..some.len()).step_by(HASHES) {
            prefetch_index(some, at);
        }
        Self::behind(seeds, &[0; RUN], some)
    }

    fn behind(seeds: &Seeds, before: &[u64; RUN], some: &[u64]) -> Self {
        let mut ways = [[0; RUN]; AHEAD / RUN];
        let mut before = *before;
        for (way, locals) in ways.iter_mut().zip(some.chunks(RUN)) {
            for (key, local) in way.iter_mut().zip(locals) {
                *key = seeds.other(*local);
            }
            way[0] = seeds.first(&before, locals[0]);
            before = *way;
        }
        Self {
            ways,
            blocks: some.len(),
        }
    }
}

impl State {
    /// How many blocks from the beginning each rank holds. `first` is the first part of the prompt; `out` is empty and
    /// has room for all numbers.
    pub(crate) fn find(&self, hashes: &[u64], first: Part, out: &mut Matches) {
        // Before the first block, everybody holds all of none.
        out.active.extend_from_slice(self.seats.live());
        let mut walk = Walk {
            depth: 0,
            device: EMPTY,
            lower: EMPTY,
            holders: true,
        };
        let mut part = first;
        let mut rest = hashes.get(AHEAD..).unwrap_or_default();
        while self.find_part(&part, &mut walk, out) && !rest.is_empty() {
            let (some, behind) = rest.split_at(rest.len().min(AHEAD));
            part = Part::behind(&self.seeds, &part.ways[AHEAD / RUN - 1], some);
            rest = behind;
        }
        let depth = walk.depth;
        for (number, word) in out.active.iter().enumerate() {
            each_bit(number, *word, &mut |seat| {
                self.reached(&mut out.device, seat, depth)
            });
        }
        if !out.stretches.is_empty() {
            self.find_lower(depth, out);
        }
    }

    /// Goes on over the blocks with these keys. False when it came to an end among them.
    fn find_part(&self, part: &Part, walk: &mut Walk, out: &mut Matches) -> bool {
        let count = part.blocks;
        let ways = part.ways.get(..count.div_ceil(RUN)).unwrap_or(&part.ways);
        let mut runs = [None; AHEAD / RUN];
        for way in ways {
            self.blocks.prefetch_way(&way[..1]);
        }
        for (way, run) in ways.iter().zip(&mut runs) {
            *run = self.blocks.guess(way[0]);
            if let Some(run) = run {
                run.prefetch();
            }
        }
        let mut left = count;
        for (way, run) in ways.iter().zip(runs) {
            let first = &way[..1];
            let Some(mut run) = run
                .filter(|run| run.begins(first))
                .or_else(|| self.blocks.begun_by(first))
            else {
                return false;
            };
            if left >= RUN && walk.depth > 0 && run.is_all(way, walk.device, walk.lower) {
                walk.depth += RUN as u32;
                left -= RUN;
                continue;
            }
            for at in 0..left.min(RUN) {
                if run.key(at) != way[at] {
                    match self.blocks.begun_by(&way[..=at]) {
                        Some(other) => run = other,
                        None => return false,
                    }
                }
                if !self.find_one(run, at, walk, out) {
                    return false;
                }
            }
            left = left.saturating_sub(RUN);
        }
        true
    }

    /// Goes on over one block. False when nobody holds it of whom it counts.
    #[inline]
    fn find_one(&self, run: &Run, at: usize, walk: &mut Walk, out: &mut Matches) -> bool {
        let (device, lower) = (run.device[at], run.lower(at));
        if device != walk.device || walk.depth == 0 {
            walk.device = device;
            if walk.holders {
                let owners = self.sets.view(device);
                if walk.depth == 0 {
                    // What nobody has reached is 0 already.
                    owners.narrow(&mut out.active, |_| ());
                } else {
                    let (active, depths) = (&mut out.active, &mut out.device);
                    owners.narrow(active, |seat| self.reached(depths, seat, walk.depth));
                }
                walk.holders = out.active.iter().any(|word| *word != 0);
            }
        }
        if lower != walk.lower {
            walk.lower = lower;
            out.stretches.push(Stretch {
                from: walk.depth,
                owners: lower,
            });
        }
        if !walk.holders && lower == EMPTY {
            return false;
        }
        run.touch(at);
        walk.depth += 1;
        true
    }

    #[inline]
    fn reached(&self, depths: &mut [u32], seat: u16, depth: u32) {
        if let Some(place) = depths.get_mut(usize::from(self.seats.rank(seat))) {
            *place = depth;
        }
    }

    /// Blocks of the host and on disk, where those of the device end.
    ///
    /// As in the walk before, what is held on to is one bit for each rank and tier, and work is done only where a rank
    /// begins, drops out or goes on in the next tier, however many blocks and owners there are.
    fn find_lower(&self, end: u32, out: &mut Matches) {
        let Matches {
            device,
            lower,
            active,
            stretches,
            begins,
            dropped,
            ..
        } = out;
        lower.resize(device.len(), (0, 0));
        let mut below = Below {
            state: self,
            device,
            lower,
            #[cfg(test)]
            looked_at: 0,
        };
        self.begin(end, below.device, begins);
        // Two members of the sets in lower tiers stand for each seat.
        let words = active.len() * 2;
        active.clear();
        active.resize(words, 0);
        let mut waiting = begins.iter().copied().peekable();
        let ends = stretches.iter().skip(1).map(|stretch| stretch.from).chain([end]);
        for (stretch, end) in stretches.iter().zip(ends) {
            let owners = stretch.owners;
            dropped.clear();
            self.sets
                .view(owners)
                .narrow(active, |member| dropped.push(member));
            for member in dropped.iter().copied() {
                let owner = Owner::of_below(member);
                below.ends(owner, stretch.from);
                if owner.level == Level::Host {
                    below.goes_on(owner.seat, &[Level::Disk], owners, active);
                }
            }
            while let Some((depth, seat)) = waiting.next_if(|(depth, _)| *depth < end) {
                // Whose blocks end before the first stretch has a hole behind them.
                if depth >= stretch.from {
                    below.goes_on(seat, &[Level::Host, Level::Disk], owners, active);
                }
            }
        }
        for (number, word) in active.iter().enumerate() {
            each_bit(number, *word, &mut |member| {
                below.ends(Owner::of_below(member), end)
            });
        }
        #[cfg(test)]
        {
            out.looked_at = below.looked_at;
        }
    }

    /// Seats whose blocks of the device end before this depth, in the order in which they do.
    fn begin(&self, end: u32, device: &[u32], begins: &mut Vec<(u32, u16)>) {
        begins.clear();
        for (number, word) in self.seats.live().iter().enumerate() {
            each_bit(number, *word, &mut |seat| {
                let depth = device.get(usize::from(self.seats.rank(seat)));
                begins.extend(depth.filter(|depth| **depth < end).map(|depth| (*depth, seat)));
            });
        }
        begins.sort_unstable();
    }
}

/// Counts what ranks hold in lower tiers.
struct Below<'a> {
    state: &'a State,
    device: &'a [u32],
    lower: &'a mut [(u32, u32)],
    /// Members that were looked at one by one.
    #[cfg(test)]
    looked_at: usize,
}

impl Below<'_> {
    /// A seat goes on in the first of these tiers in which it is an owner.
    fn goes_on(&mut self, seat: u16, levels: &[Level], owners: SetId, active: &mut [u64]) {
        #[cfg(test)]
        {
            self.looked_at += 1;
        }
        let members = levels.iter().map(|level| Owner { seat, level: *level }.below());
        let mut owned = members.filter(|member| self.state.sets.contains(owners, *member));
        if let Some(member) = owned.next()
            && let Some(word) = active.get_mut(usize::from(member) / 64)
        {
            *word |= 1 << (member % 64);
        }
    }

    /// An owner's blocks end at this depth.
    fn ends(&mut self, owner: Owner, depth: u32) {
        #[cfg(test)]
        {
            self.looked_at += 1;
        }
        let number = usize::from(self.state.seats.rank(owner.seat));
        if let (Some(device), Some((host, disk))) = (self.device.get(number), self.lower.get_mut(number)) {
            let blocks = depth.saturating_sub(device + *host + *disk);
            match owner.level {
                Level::Host => *host += blocks,
                Level::Disk => *disk += blocks,
                Level::Device => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;

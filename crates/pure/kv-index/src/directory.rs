//! A hash table from well mixed 64-bit hashes to numbers that grows a small part at a time.
//!
//! It keeps 32 bits of each hash beside the number, eight bytes in all; whether it is the right one, the caller knows.
//! Hashes are spread over segments by their highest bits and over the lines of a segment by the next ones, so that the
//! whole table lies in the order of its hashes. A search reads one cache line of eight slots, and seldom the next; it
//! ends at the first larger hash. Growing one segment copies a few thousand slots in order, and no other.

use prefetch_index::prefetch_index;

/// Slots of a line.
const LINE: usize = 8;
/// Lines behind the last one that is anybody's home, for what is pushed on from there.
const SPILL: usize = 2;
/// Entries of a segment when the table holds as many as it was made for.
const SEGMENT: usize = 2048;
/// Most segments, as a power of two.
const MAX_SEGMENT_BITS: u32 = 13;

/// How full a segment may get, in eighths.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fill {
    /// One line holds nearly every search.
    Fast = 5,
    /// Now and then a search reads a second one.
    Dense = 6,
}

#[derive(Debug)]
pub(crate) struct Directory {
    segments: Box<[Segment]>,
    bits: u32,
    fill: Fill,
    bytes: usize,
}

/// A slot is 0 when empty, else the upper half of a hash and a number.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Line([u64; LINE]);

#[derive(Debug, Default)]
struct Segment {
    lines: Box<[Line]>,
    /// Lines that hashes are spread over.
    homes: u32,
    len: u32,
}

impl Directory {
    /// An empty table for about `expected` entries; more only make its parts larger.
    pub(crate) fn new(expected: usize, fill: Fill) -> Self {
        let bits = (expected / SEGMENT).max(1).next_power_of_two().ilog2();
        let bits = bits.min(MAX_SEGMENT_BITS);
        let segments: Box<[_]> = (0..1_usize << bits).map(|_| Segment::default()).collect();
        Self {
            bytes: size_of_val(&*segments),
            segments,
            bits,
            fill,
        }
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number with this hash that `is` the right one.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = tag(hash);
        let segment = &self.segments[self.segment(tag)];
        let rest = segment.lines.get(segment.home(self.bits, tag)..)?;
        for line in rest {
            let mut hits = line.hits(tag);
            while hits != 0 {
                let id = id(line.0[hits.trailing_zeros() as usize % LINE]);
                if is(id) {
                    return Some(id);
                }
                hits &= hits - 1;
            }
            if line.ends(tag) {
                return None;
            }
        }
        None
    }

    /// A number with this hash that may be the right one, if there is any where the search begins.
    #[inline]
    pub(crate) fn guess(&self, hash: u64) -> Option<u32> {
        let tag = tag(hash);
        let segment = &self.segments[self.segment(tag)];
        let line = segment.lines.get(segment.home(self.bits, tag))?;
        let hits = line.hits(tag);
        (hits != 0).then(|| id(line.0[hits.trailing_zeros() as usize % LINE]))
    }

    /// Asks for the memory where the search for a hash begins, so that the search itself need not wait for it.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let tag = tag(hash);
        let segment = &self.segments[self.segment(tag)];
        prefetch_index(&segment.lines, segment.home(self.bits, tag));
    }

    /// Puts in a number that is not there with this hash yet.
    pub(crate) fn insert(&mut self, hash: u64, id: u32) {
        let tag = tag(hash);
        let number = self.segment(tag);
        let segment = &self.segments[number];
        let homes = segment.homes as usize;
        if (segment.len as usize + 1) * 8 > homes * LINE * self.fill as usize {
            self.resize(number, homes + homes / 4 + 1);
        }
        while !self.segments[number].insert(self.bits, tag, id) {
            let homes = self.segments[number].homes as usize;
            self.resize(number, homes);
        }
    }

    /// Takes out a number with its hash. False if it is not there.
    pub(crate) fn remove(&mut self, hash: u64, id: u32) -> bool {
        let tag = tag(hash);
        let number = self.segment(tag);
        let segment = &mut self.segments[number];
        if !segment.remove(self.bits, tag, id) {
            return false;
        }
        // Half of what it may hold: shrinks to where it may lose or gain a third.
        let (homes, len) = (segment.homes as usize, segment.len as usize);
        let most = homes * LINE * self.fill as usize / 8;
        if homes > 8 && len < most / 2 {
            self.resize(number, homes * 3 / 4);
        }
        true
    }

    #[inline]
    fn segment(&self, tag: u32) -> usize {
        (u64::from(tag) << self.bits >> 32) as usize
    }

    /// Lays a segment out anew, in order, with so many homes and room behind the last entry.
    fn resize(&mut self, number: usize, homes: usize) {
        let bits = self.bits;
        let segment = &mut self.segments[number];
        let old = std::mem::take(&mut segment.lines);
        segment.homes = u32::try_from(homes.max(1)).unwrap_or(u32::MAX);
        let entries = || old.iter().flat_map(|line| line.0).filter(|slot| *slot != 0);
        let mut end = 0;
        for slot in entries() {
            end = end.max(segment.home(bits, tag_of(slot)) * LINE) + 1;
        }
        let count = end.div_ceil(LINE).max(segment.homes as usize) + SPILL;
        let mut lines: Box<[Line]> = vec![Line::default(); count].into();
        let mut end = 0;
        for slot in entries() {
            let at = end.max(segment.home(bits, tag_of(slot)) * LINE);
            lines[at / LINE].0[at % LINE] = slot;
            end = at + 1;
        }
        self.bytes = self.bytes + size_of_val(&*lines) - size_of_val(&*old);
        segment.lines = lines;
    }
}

impl Segment {
    /// The line where the search for a hash begins.
    #[inline]
    fn home(&self, bits: u32, tag: u32) -> usize {
        let fraction = tag.wrapping_shl(bits);
        ((u64::from(fraction) * u64::from(self.homes)) >> 32) as usize
    }

    #[inline]
    fn slot(&self, at: usize) -> Option<u64> {
        Some(self.lines.get(at / LINE)?.0[at % LINE])
    }

    #[inline]
    fn set(&mut self, at: usize, slot: u64) {
        self.lines[at / LINE].0[at % LINE] = slot;
    }

    /// False when there is no room.
    fn insert(&mut self, bits: u32, tag: u32, id: u32) -> bool {
        let mut place = self.home(bits, tag) * LINE;
        while let Some(slot) = self.slot(place)
            && slot != 0
            && tag_of(slot) <= tag
        {
            place += 1;
        }
        let mut hole = place;
        loop {
            match self.slot(hole) {
                None => return false,
                Some(0) => break,
                Some(_) => hole += 1,
            }
        }
        while hole > place {
            let before = self.slot(hole - 1).unwrap_or(0);
            self.set(hole, before);
            hole -= 1;
        }
        self.set(place, u64::from(tag) << 32 | u64::from(id));
        self.len += 1;
        true
    }

    fn remove(&mut self, bits: u32, tag: u32, id: u32) -> bool {
        let gone = u64::from(tag) << 32 | u64::from(id);
        let mut at = self.home(bits, tag) * LINE;
        loop {
            match self.slot(at) {
                Some(slot) if slot == gone => break,
                Some(slot) if slot != 0 && tag_of(slot) <= tag => at += 1,
                Some(_) | None => return false,
            }
        }
        // What was pushed on moves back.
        while let Some(next) = self.slot(at + 1)
            && next != 0
            && self.home(bits, tag_of(next)) * LINE <= at
        {
            self.set(at, next);
            at += 1;
        }
        self.set(at, 0);
        self.len -= 1;
        true
    }
}

impl Line {
    /// A bit for each slot with this hash. Compares all at once: which one it is cannot be guessed.
    #[inline]
    fn hits(&self, tag: u32) -> u32 {
        let mut hits = 0;
        for (n, slot) in self.0.iter().enumerate() {
            hits |= u32::from(tag_of(*slot) == tag) << n;
        }
        hits
    }

    /// A hash that is not in this line is not behind it either.
    #[inline]
    fn ends(&self, tag: u32) -> bool {
        let last = self.0[LINE - 1];
        last == 0 || tag_of(last) > tag
    }
}

/// The part of a hash that is kept; never 0.
#[inline]
fn tag(hash: u64) -> u32 {
    ((hash >> 32) as u32).max(1)
}

#[inline]
const fn tag_of(slot: u64) -> u32 {
    (slot >> 32) as u32
}

#[inline]
const fn id(slot: u64) -> u32 {
    slot as u32
}

#[cfg(test)]
mod tests;

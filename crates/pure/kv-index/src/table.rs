//! An ordered hash table that grows a small part at a time.
//!
//! Keys are well mixed 64-bit numbers and never 0. They are spread over segments by their highest bits and over the
//! slots of a segment by the next ones, so that the whole table lies in the order of its keys. A search ends at the
//! first larger key; growing one segment copies a few thousand slots in order, and no other; a place in a walk over
//! the table is a key, which stays true whatever is put in or taken out meanwhile.

/// One entry. The default is an empty slot, with key 0.
pub(crate) trait Slot: Default {
    /// The key; 0 when empty.
    fn key(&self) -> u64;
}

/// Slots behind the last home of a segment, for what is pushed on from there.
const SPILL: usize = 16;
/// Least number of homes of a segment that holds anything.
const LEAST: usize = 8;
/// Entries of a segment when the table holds as many as it was made for.
const SEGMENT: usize = 2048;
/// Most segments, as a power of two.
const MAX_SEGMENT_BITS: u32 = 13;

/// Where an entry lies until the table changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    segment: usize,
    slot: usize,
}

/// `H` is what a search reads, `C` lies apart.
#[derive(Debug)]
pub(crate) struct Table<H, C = ()> {
    segments: Box<[Segment<H, C>]>,
    bits: u32,
    len: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Segment<H, C> {
    hot: Box<[H]>,
    cold: Box<[C]>,
    homes: usize,
    len: usize,
}

impl<H: Slot, C: Default + Copy> Table<H, C> {
    /// An empty table for about `expected` entries; more only make its parts larger.
    pub(crate) fn new(expected: usize) -> Self {
        let bits = (expected / SEGMENT).max(1).next_power_of_two().ilog2();
        let bits = bits.min(MAX_SEGMENT_BITS);
        let empty = |_| Segment {
            hot: Box::default(),
            cold: Box::default(),
            homes: 0,
            len: 0,
        };
        let segments: Box<[_]> = (0..1_usize << bits).map(empty).collect();
        Self {
            bytes: size_of_val(&*segments),
            segments,
            bits,
            len: 0,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The entry with this key.
    #[inline]
    pub(crate) fn find(&self, key: u64) -> Option<Place> {
        let segment = self.segment(key);
        let slots = &self.segments[segment].hot;
        let mut slot = self.home(segment, key);
        loop {
            let found = slots.get(slot)?.key();
            if found == key {
                return Some(Place { segment, slot });
            }
            if found == 0 || found > key {
                return None;
            }
            slot += 1;
        }
    }

    /// Reads where the search for each key begins, so that the searches themselves need not wait for memory.
    #[inline]
    pub(crate) fn warm(&self, keys: &[u64]) {
        let mut seen = 0;
        for key in keys {
            let segment = self.segment(*key);
            if let Some(slot) = self.segments[segment].hot.get(self.home(segment, *key)) {
                seen ^= slot.key();
            }
        }
        std::hint::black_box(seen);
    }

    #[inline]
    pub(crate) fn hot(&self, at: Place) -> &H {
        &self.segments[at.segment].hot[at.slot]
    }

    #[inline]
    pub(crate) fn hot_mut(&mut self, at: Place) -> &mut H {
        &mut self.segments[at.segment].hot[at.slot]
    }

    #[inline]
    pub(crate) fn cold(&self, at: Place) -> C {
        self.segments[at.segment].cold[at.slot]
    }

    #[inline]
    pub(crate) fn set_cold(&mut self, at: Place, value: C) {
        self.segments[at.segment].cold[at.slot] = value;
    }

    /// Puts in an entry whose key is not there yet.
    pub(crate) fn insert(&mut self, entry: H, value: C) -> Place {
        let key = entry.key();
        let number = self.segment(key);
        let segment = &self.segments[number];
        if (segment.len + 1) * 8 > segment.homes * 7 {
            self.resize(number, segment.homes + segment.homes / 4);
        }
        loop {
            let home = self.home(number, key);
            let segment = &mut self.segments[number];
            let after = |slot: &H| slot.key() == 0 || slot.key() > key;
            let rest = segment.hot.get(home..).unwrap_or_default();
            let place = rest.iter().position(after).map(|n| home + n);
            let hole = place.and_then(|place| {
                let rest = segment.hot.get(place..).unwrap_or_default();
                rest.iter()
                    .position(|slot| slot.key() == 0)
                    .map(|n| (place, place + n))
            });
            let Some((slot, hole)) = hole else {
                self.resize(number, self.segments[number].homes);
                continue;
            };
            segment.hot[slot..=hole].rotate_right(1);
            segment.cold[slot..=hole].rotate_right(1);
            segment.hot[slot] = entry;
            segment.cold[slot] = value;
            segment.len += 1;
            self.len += 1;
            return Place {
                segment: number,
                slot,
            };
        }
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, at: Place) -> H {
        let Place {
            segment: number,
            slot,
        } = at;
        let mut last = slot;
        let segment = &self.segments[number];
        while let Some(next) = segment.hot.get(last + 1)
            && next.key() != 0
            && self.home(number, next.key()) <= last
        {
            last += 1;
        }
        let segment = &mut self.segments[number];
        segment.hot[slot..=last].rotate_left(1);
        segment.cold[slot..=last].rotate_left(1);
        segment.cold[last] = C::default();
        let gone = std::mem::take(&mut segment.hot[last]);
        segment.len -= 1;
        self.len -= 1;
        let (len, homes) = (segment.len, segment.homes);
        if homes > 64 && len < homes / 2 {
            self.resize(number, len + len / 2);
        }
        gone
    }

    /// The first entry whose key is not smaller, and `None` behind the last one.
    pub(crate) fn from(&self, key: u64) -> Option<Place> {
        let mut number = self.segment(key);
        let mut slot = self.home(number, key);
        loop {
            let slots = &self.segments.get(number)?.hot;
            let rest = slots.get(slot..).unwrap_or_default();
            if let Some(n) = rest
                .iter()
                .position(|entry| entry.key() >= key && entry.key() != 0)
            {
                return Some(Place {
                    segment: number,
                    slot: slot + n,
                });
            }
            number += 1;
            slot = 0;
        }
    }

    /// The entry behind this one.
    pub(crate) fn next(&self, at: Place) -> Option<Place> {
        let mut number = at.segment;
        let mut slot = at.slot + 1;
        loop {
            let slots = &self.segments.get(number)?.hot;
            let rest = slots.get(slot..).unwrap_or_default();
            if let Some(n) = rest.iter().position(|entry| entry.key() != 0) {
                return Some(Place {
                    segment: number,
                    slot: slot + n,
                });
            }
            number += 1;
            slot = 0;
        }
    }

    #[inline]
    fn segment(&self, key: u64) -> usize {
        // In two steps, because a shift by 64 is none.
        ((key >> 1) >> (63 - self.bits)) as usize
    }

    #[inline]
    fn home(&self, segment: usize, key: u64) -> usize {
        let fraction = (key << self.bits) >> 32;
        ((fraction * self.segments[segment].homes as u64) >> 32) as usize
    }

    /// Lays a segment out anew, in order, with at least this many homes and room behind the last entry.
    fn resize(&mut self, number: usize, homes: usize) {
        self.segments[number].homes = homes.max(LEAST);
        let old = std::mem::take(&mut self.segments[number].hot);
        let values = std::mem::take(&mut self.segments[number].cold);
        let mut end = 0;
        for entry in old.iter().filter(|entry| entry.key() != 0) {
            end = self.home(number, entry.key()).max(end) + 1;
        }
        let slots = end.max(self.segments[number].homes) + SPILL;
        let mut hot: Box<[H]> = (0..slots).map(|_| H::default()).collect();
        let mut cold: Box<[C]> = vec![C::default(); slots].into();
        let slot_bytes = size_of::<H>() + size_of::<C>();
        self.bytes = self.bytes + slots * slot_bytes - old.len() * slot_bytes;
        let mut end = 0;
        for (entry, value) in old.into_iter().zip(values) {
            if entry.key() != 0 {
                let slot = self.home(number, entry.key()).max(end);
                hot[slot] = entry;
                cold[slot] = value;
                end = slot + 1;
            }
        }
        self.segments[number].hot = hot;
        self.segments[number].cold = cold;
    }
}

#[cfg(test)]
mod tests;

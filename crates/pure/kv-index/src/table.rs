//! An ordered hash table that grows a small part at a time.
//!
//! Keys are well mixed 64-bit numbers and never 0. They are spread over segments by their highest bits and over the
//! buckets of a segment by the next ones, so that the whole table lies in the order of its keys. A search reads the
//! four slots of one bucket, a cache line where slots have 16 bytes, and seldom the next; it ends at the first larger
//! key. Growing one segment copies a few thousand slots in order, and no other. A place in a walk over the table is a
//! key, which stays true whatever is put in or taken out meanwhile.

/// One entry. The default is an empty slot, with key 0.
pub(crate) trait Slot: Default {
    /// The key; 0 when empty.
    fn key(&self) -> u64;
}

/// Slots of a bucket.
const BUCKET: usize = 4;
/// Where buckets begin in memory.
const CACHE_LINE: usize = 64;
/// Slots behind the last bucket of a segment, for what is pushed on from there.
const SPILL: usize = 16;
/// Entries of a segment when the table holds as many as it was made for.
const SEGMENT: usize = 2048;
/// Most segments, as a power of two.
const MAX_SEGMENT_BITS: u32 = 13;
/// Keys that are looked for together, so that the waits for memory overlap.
pub(crate) const BATCH: usize = 32;

/// How full a segment may get.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fill {
    /// Half: one bucket holds nearly every search.
    Fast = 4,
    /// Seven eighths.
    Dense = 7,
}

/// Where an entry lies until the table changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    segment: usize,
    slot: usize,
}

/// `H` is what a search reads, `C` lies apart.
#[derive(Debug)]
pub(crate) struct Table<H, C = ()> {
    segments: Box<[Segment<H>]>,
    cold: Box<[Box<[C]>]>,
    bits: u32,
    fill: Fill,
    len: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Segment<H> {
    slots: Box<[H]>,
    /// The first slot of the first bucket.
    first: u32,
    buckets: u32,
    len: u32,
}

impl<H: Slot, C: Default + Copy> Table<H, C> {
    /// An empty table for about `expected` entries; more only make its parts larger.
    pub(crate) fn new(expected: usize, fill: Fill) -> Self {
        let bits = (expected / SEGMENT).max(1).next_power_of_two().ilog2();
        let bits = bits.min(MAX_SEGMENT_BITS);
        let empty = |_| Segment {
            slots: Box::default(),
            first: 0,
            buckets: 0,
            len: 0,
        };
        let segments: Box<[_]> = (0..1_usize << bits).map(empty).collect();
        let cold: Box<[_]> = segments.iter().map(|_| Box::default()).collect();
        Self {
            bytes: size_of_val(&*segments) + size_of_val(&*cold),
            segments,
            cold,
            bits,
            fill,
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
        let number = self.segment(key);
        let segment = &self.segments[number];
        let slot = segment.search(segment.home(self.bits, key), key)?;
        Some(Place {
            segment: number,
            slot,
        })
    }

    /// Calls for the entry of each of the first [`BATCH`] keys in turn, until one is not there or the call says no.
    /// True when it came to the end.
    #[inline]
    pub(crate) fn visit(&self, keys: &[u64], mut call: impl FnMut(&H) -> bool) -> bool {
        let mut buckets = [None; BATCH];
        for (key, bucket) in keys.iter().zip(&mut buckets) {
            *bucket = self.segments[self.segment(*key)].bucket(self.bits, *key);
        }
        // Nothing but loads, which depend on nothing: as many as the processor can have under way are.
        let mut seen = 0;
        for bucket in buckets.iter().take(keys.len()).flatten() {
            seen ^= bucket[0].key();
        }
        std::hint::black_box(seen);
        for (key, bucket) in keys.iter().zip(&buckets) {
            let Some(bucket) = bucket else { return false };
            let found = match among(bucket, *key) {
                Some(slot) => slot,
                None if ends(bucket, *key) => return false,
                None => match self.find(*key) {
                    Some(at) => self.hot(at),
                    None => return false,
                },
            };
            if !call(found) {
                return false;
            }
        }
        true
    }

    /// Reads where the search for each key begins, so that the searches themselves need not wait for memory.
    #[inline]
    pub(crate) fn warm(&self, keys: &[u64]) {
        let mut seen = 0;
        for key in keys {
            let segment = &self.segments[self.segment(*key)];
            let home = segment.home(self.bits, *key);
            seen ^= segment.slots.get(home).map_or(0, Slot::key);
        }
        std::hint::black_box(seen);
    }

    #[inline]
    pub(crate) fn hot(&self, at: Place) -> &H {
        &self.segments[at.segment].slots[at.slot]
    }

    #[inline]
    pub(crate) fn hot_mut(&mut self, at: Place) -> &mut H {
        &mut self.segments[at.segment].slots[at.slot]
    }

    #[inline]
    pub(crate) fn cold(&self, at: Place) -> C {
        self.cold[at.segment][at.slot]
    }

    #[inline]
    pub(crate) fn set_cold(&mut self, at: Place, value: C) {
        self.cold[at.segment][at.slot] = value;
    }

    /// Puts in an entry whose key is not there yet.
    pub(crate) fn insert(&mut self, entry: H, value: C) -> Place {
        let key = entry.key();
        let number = self.segment(key);
        let segment = &self.segments[number];
        let (buckets, len) = (segment.buckets as usize, segment.len as usize);
        if (len + 1) * 8 > buckets * BUCKET * self.fill as usize {
            self.resize(number, buckets + buckets / 4 + 1);
        }
        loop {
            let segment = &mut self.segments[number];
            let Some((slot, hole)) = segment.room(segment.home(self.bits, key), key) else {
                let buckets = segment.buckets as usize;
                self.resize(number, buckets);
                continue;
            };
            segment.slots[slot..=hole].rotate_right(1);
            segment.slots[slot] = entry;
            segment.len += 1;
            let cold = &mut self.cold[number];
            cold[slot..=hole].rotate_right(1);
            cold[slot] = value;
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
        let segment = &mut self.segments[number];
        let mut last = slot;
        while let Some(next) = segment.slots.get(last + 1)
            && next.key() != 0
            && segment.home(self.bits, next.key()) <= last
        {
            last += 1;
        }
        segment.slots[slot..=last].rotate_left(1);
        let gone = std::mem::take(&mut segment.slots[last]);
        segment.len -= 1;
        let (buckets, len) = (segment.buckets as usize, segment.len as usize);
        let cold = &mut self.cold[number];
        cold[slot..=last].rotate_left(1);
        cold[last] = C::default();
        self.len -= 1;
        // Half of what it may hold: shrinks to where it may lose or gain a third.
        let most = buckets * BUCKET * self.fill as usize / 8;
        if buckets > 16 && len < most / 2 {
            self.resize(number, buckets * 3 / 4);
        }
        gone
    }

    /// The first entry whose key is not smaller, and `None` behind the last one.
    pub(crate) fn from(&self, key: u64) -> Option<Place> {
        let number = self.segment(key);
        let home = self.segments[number].home(self.bits, key);
        self.first(number, home, key.max(1))
    }

    /// The entry behind this one.
    pub(crate) fn next(&self, at: Place) -> Option<Place> {
        self.first(at.segment, at.slot + 1, 1)
    }

    /// The first entry from this slot on whose key is not smaller.
    fn first(&self, mut number: usize, mut slot: usize, key: u64) -> Option<Place> {
        loop {
            let slots = &self.segments.get(number)?.slots;
            let rest = slots.get(slot..).unwrap_or_default();
            if let Some(n) = rest.iter().position(|entry| entry.key() >= key) {
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

    /// Lays a segment out anew, in order, with at least this many buckets and room behind the last entry.
    fn resize(&mut self, number: usize, buckets: usize) {
        let bits = self.bits;
        let segment = &mut self.segments[number];
        let old = std::mem::take(&mut segment.slots);
        let values = std::mem::take(&mut self.cold[number]);
        segment.buckets = u32::try_from(buckets.max(1)).unwrap_or(u32::MAX);
        segment.first = 0;
        let mut end = 0;
        for entry in old.iter().filter(|entry| entry.key() != 0) {
            end = segment.home(bits, entry.key()).max(end) + 1;
        }
        let count = end.max(segment.buckets as usize * BUCKET) + SPILL;
        let mut slots: Box<[H]> = (0..count).map(|_| H::default()).collect();
        let mut cold: Box<[C]> = vec![C::default(); count].into();
        // The slots before the first cache line are left empty. They come out of the spill.
        let before = slots.as_ptr().addr().wrapping_neg() % CACHE_LINE / size_of::<H>();
        segment.first = u32::try_from(before.min(BUCKET - 1)).unwrap_or(0);
        let slot_bytes = size_of::<H>() + size_of::<C>();
        self.bytes = self.bytes + count * slot_bytes - old.len() * slot_bytes;
        let mut end = 0;
        for (entry, value) in old.into_iter().zip(values) {
            if entry.key() != 0 {
                let slot = segment.home(bits, entry.key()).max(end);
                slots[slot] = entry;
                cold[slot] = value;
                end = slot + 1;
            }
        }
        segment.slots = slots;
        self.cold[number] = cold;
    }
}

impl<H: Slot> Segment<H> {
    /// The first slot of the bucket of a key.
    #[inline]
    fn home(&self, bits: u32, key: u64) -> usize {
        let fraction = (key << bits) >> 32;
        let bucket = (fraction * u64::from(self.buckets)) >> 32;
        self.first as usize + bucket as usize * BUCKET
    }

    #[inline]
    fn bucket(&self, bits: u32, key: u64) -> Option<&[H; BUCKET]> {
        self.slots.get(self.home(bits, key)..)?.first_chunk()
    }

    /// The slot of a key, whose bucket begins at `home`.
    #[inline]
    fn search(&self, home: usize, key: u64) -> Option<usize> {
        let bucket = self.slots.get(home..)?.first_chunk()?;
        match place_among(bucket, key) {
            Some(n) => Some(home + n),
            None if ends(bucket, key) => None,
            None => self.search_behind(home + BUCKET, key),
        }
    }

    /// Goes on behind the bucket of a key.
    fn search_behind(&self, from: usize, key: u64) -> Option<usize> {
        let rest = self.slots.get(from..)?;
        let n = rest
            .iter()
            .position(|slot| slot.key() == 0 || slot.key() >= key)?;
        (rest[n].key() == key).then_some(from + n)
    }

    /// Where a key belongs that is not there, and the first empty slot from there on.
    fn room(&self, home: usize, key: u64) -> Option<(usize, usize)> {
        let empty = |slot: &H| slot.key() == 0;
        let rest = self.slots.get(home..)?;
        let place = rest.iter().position(|slot| empty(slot) || slot.key() > key)?;
        let hole = rest[place..].iter().position(empty)?;
        Some((home + place, home + place + hole))
    }
}

/// Compares all four at once: which one it is cannot be guessed.
#[inline]
fn place_among<H: Slot>(bucket: &[H; BUCKET], key: u64) -> Option<usize> {
    let mut found = 0_u32;
    for (n, slot) in bucket.iter().enumerate() {
        found |= u32::from(slot.key() == key) << n;
    }
    (found != 0).then(|| found.trailing_zeros() as usize)
}

#[inline]
fn among<H: Slot>(bucket: &[H; BUCKET], key: u64) -> Option<&H> {
    bucket.get(place_among(bucket, key)?)
}

/// A key that is not in its bucket is not behind it either.
#[inline]
fn ends<H: Slot>(bucket: &[H; BUCKET], key: u64) -> bool {
    let last = bucket[BUCKET - 1].key();
    last == 0 || last > key
}

#[cfg(test)]
mod tests;

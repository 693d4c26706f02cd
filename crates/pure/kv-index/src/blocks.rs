//! All blocks, where they lie, and the names that lead to them.
//!
//! Blocks lie in runs of up to eight, so that a lookup goes to one place for eight blocks of a prompt. One table leads
//! from the way to a run's first block to the run, another from names to blocks. A block stays where it is as long as it
//! is there.

use prefetch_index::prefetch_index;

use crate::{
    directory::{Directory, Fill},
    hash::Seeds,
};

mod run;
mod tip;

pub(crate) use run::{RUN, Run};
pub(crate) use tip::{BlockId, Place, Tip};

/// Runs that are allocated together: growing copies none.
const CHUNK: usize = 256;
/// Words of a bit for each run of a chunk.
const WORDS: usize = CHUNK / 64;

#[derive(Debug)]
pub(crate) struct Blocks {
    seeds: Seeds,
    chunks: Vec<Box<[Run]>>,
    /// The name of each block, apart from what lookups read.
    names: Vec<Box<[[u64; RUN]]>>,
    /// A bit for each run that is in use.
    used: Vec<[u64; WORDS]>,
    /// Chunks before this one are full.
    roomy: usize,
    /// A chunk without runs whose memory is kept.
    spare: Option<usize>,
    by_key: Directory,
    by_name: Directory,
    len: usize,
    bytes: usize,
}

impl Blocks {
    /// None, with tables for about so many.
    pub(crate) fn new(seeds: Seeds, expected: usize) -> Self {
        Self {
            seeds,
            chunks: Vec::new(),
            names: Vec::new(),
            used: Vec::new(),
            roomy: 0,
            spare: None,
            by_key: Directory::new(expected / RUN, Fill::Fast),
            by_name: Directory::new(expected, Fill::Dense),
            len: 0,
            bytes: 0,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes + self.by_key.bytes() + self.by_name.bytes()
    }

    #[inline]
    pub(crate) fn run(&self, id: BlockId) -> &Run {
        self.numbered(id.run())
    }

    #[inline]
    pub(crate) fn run_mut(&mut self, id: BlockId) -> &mut Run {
        let run = id.run() as usize;
        &mut self.chunks[run / CHUNK][run % CHUNK]
    }

    /// Where the block that follows `tip` and has this key is.
    #[inline]
    pub(crate) fn after(&self, tip: &Tip, key: u64) -> Place {
        let mut place = Place::Nowhere;
        if !tip.len.is_multiple_of(RUN)
            && let Some(run) = self.leads_to(tip)
        {
            let id = BlockId::new(tip.run, tip.len);
            match run.keys[tip.len] {
                there if there == key => return self.kept(id),
                0 => place = Place::Vacant(id),
                _ => {}
            }
        }
        let next = tip.and(key);
        match self.number_of(next.way()) {
            Some(number) => self.kept(BlockId::new(number, next.len - 1)),
            None => place,
        }
    }

    /// The place of a block whose key is there.
    #[inline]
    fn kept(&self, id: BlockId) -> Place {
        if self.run(id).is_present(id.at()) {
            Place::There(id)
        } else {
            Place::Vacant(id)
        }
    }

    /// The chain that ends with this block.
    pub(crate) fn tip(&self, id: BlockId) -> Tip {
        let run = self.run(id);
        let mut tip = Tip {
            len: id.at() + 1,
            run: id.run(),
            ..Tip::default()
        };
        for (to, key) in tip.keys.iter_mut().zip(&run.keys[..=id.at()]) {
            *to = *key;
        }
        tip
    }

    /// The last block of a chain is where it was.
    pub(crate) fn ends_here(&self, tip: &Tip) -> bool {
        tip.len == 0 || self.leads_to(tip).is_some()
    }

    /// Puts in the block that follows `tip` and has this key, and is not there: `vacant` is the place for it, if there is
    /// one.
    pub(crate) fn put(&mut self, tip: &Tip, key: u64, vacant: Option<BlockId>) -> BlockId {
        let id = vacant.unwrap_or_else(|| self.begin(tip.and(key)));
        self.run_mut(id).put(id.at(), key);
        self.len += 1;
        id
    }

    /// Takes out a block without owners, and its name.
    pub(crate) fn take_out(&mut self, id: BlockId) {
        if let Some(name) = self.name(id) {
            self.by_name.remove(self.seeds.name(name), id.number());
        }
        let first = self.seeds.way(self.run(id).way());
        let left = self.run_mut(id).take(id.at());
        self.len -= 1;
        if !left {
            self.by_key.remove(first, id.run());
            *self.run_mut(id) = Run::default();
            self.free(id.run() as usize);
        }
    }

    /// Whether there is a block at this place, whichever it is.
    pub(crate) fn is_there(&self, id: BlockId) -> bool {
        let run = id.run() as usize;
        let run = self
            .chunks
            .get(run / CHUNK)
            .and_then(|chunk| chunk.get(run % CHUNK));
        run.is_some_and(|run| run.is_present(id.at()))
    }

    /// The name that leads to a block.
    #[inline]
    pub(crate) fn name(&self, id: BlockId) -> Option<u64> {
        let run = id.run() as usize;
        let named = self.run(id).is_named(id.at());
        named.then(|| self.names[run / CHUNK][run % CHUNK][id.at()])
    }

    /// The block that a name leads to.
    #[inline]
    pub(crate) fn named(&self, name: u64) -> Option<BlockId> {
        let is = |number| self.name(BlockId::of(number)) == Some(name);
        self.by_name.find(self.seeds.name(name), is).map(BlockId::of)
    }

    /// Lets a name lead to a block. Neither has another.
    pub(crate) fn give_name(&mut self, id: BlockId, name: u64) {
        let run = id.run() as usize;
        self.run_mut(id).set_named(id.at());
        self.names[run / CHUNK][run % CHUNK][id.at()] = name;
        self.by_name.insert(self.seeds.name(name), id.number());
    }

    /// The first block from this number on.
    pub(crate) fn from(&self, number: u32) -> Option<BlockId> {
        let at = BlockId::of(number).at();
        let first = BlockId::of(number).run();
        let mut run = self.used_from(first as usize)?;
        loop {
            let from = if run == first { at } else { 0 };
            let blocks = self.numbered(run);
            if let Some(at) = (from..RUN).find(|at| blocks.is_present(*at)) {
                return Some(BlockId::new(run, at));
            }
            run = self.used_from(run as usize + 1)?;
        }
    }

    /// The run that begins with the last block of a way from the beginning of a run on.
    #[inline]
    pub(crate) fn begun_by(&self, way: &[u64]) -> Option<&Run> {
        let number = self.number_of(way)?;
        Some(self.numbered(number))
    }

    /// A run that may begin with the block of this key, the first one of a run.
    #[inline]
    pub(crate) fn guess(&self, key: u64) -> Option<&Run> {
        let number = self.by_key.guess(key)?;
        Some(self.numbered(number))
    }

    /// Asks for the memory where the search for the run that begins with the last of these blocks begins.
    #[inline]
    pub(crate) fn prefetch_way(&self, way: &[u64]) {
        self.by_key.prefetch(self.seeds.way(way));
    }

    /// Asks for the memory where the search for a name begins.
    #[inline]
    pub(crate) fn prefetch_name(&self, name: u64) {
        self.by_name.prefetch(self.seeds.name(name));
    }

    /// Asks for the block that a name probably leads to, and for its name.
    #[inline]
    pub(crate) fn prefetch_named(&self, name: u64) {
        if let Some(number) = self.by_name.guess(self.seeds.name(name)) {
            let run = BlockId::of(number).run() as usize;
            self.numbered(run as u32).prefetch();
            prefetch_index(&self.names[run / CHUNK], run % CHUNK);
        }
    }

    #[inline]
    fn numbered(&self, run: u32) -> &Run {
        &self.chunks[run as usize / CHUNK][run as usize % CHUNK]
    }

    /// The run of the last block of a chain, when the block or its key is there.
    #[inline]
    fn leads_to(&self, tip: &Tip) -> Option<&Run> {
        let run = tip.run as usize;
        let run = self.chunks.get(run / CHUNK)?.get(run % CHUNK)?;
        run.holds(tip.way()).then_some(run)
    }

    #[inline]
    fn number_of(&self, way: &[u64]) -> Option<u32> {
        let begins = |number| self.numbered(number).begins(way);
        self.by_key.find(self.seeds.way(way), begins)
    }

    /// A run of its own for the last block of a chain.
    fn begin(&mut self, chain: Tip) -> BlockId {
        let number = self.allocate();
        let id = BlockId::new(number, chain.len - 1);
        *self.run_mut(id) = Run::new(chain.way());
        self.by_key.insert(self.seeds.way(chain.way()), number);
        id
    }

    /// A run that is not in use.
    fn allocate(&mut self) -> u32 {
        while self
            .used
            .get(self.roomy)
            .is_some_and(|used| *used == [u64::MAX; WORDS])
        {
            self.roomy += 1;
        }
        let chunk = self.roomy;
        if chunk == self.chunks.len() {
            self.chunks.push(Box::default());
            self.names.push(Box::default());
            self.used.push([0; WORDS]);
            self.bytes += 2 * size_of::<Box<[Run]>>() + size_of::<[u64; WORDS]>();
        }
        if self.chunks[chunk].is_empty() {
            self.chunks[chunk] = (0..CHUNK).map(|_| Run::default()).collect();
            self.names[chunk] = vec![[0; RUN]; CHUNK].into();
            self.bytes += CHUNK * (size_of::<Run>() + size_of::<[u64; RUN]>());
        }
        if self.spare == Some(chunk) {
            self.spare = None;
        }
        let used = &mut self.used[chunk];
        let word = used.iter().position(|word| *word != u64::MAX).unwrap_or(0);
        let bit = used[word].trailing_ones() % 64;
        used[word] |= 1 << bit;
        (chunk * CHUNK + word * 64) as u32 + bit
    }

    fn free(&mut self, run: usize) {
        let chunk = run / CHUNK;
        let used = &mut self.used[chunk];
        used[run % CHUNK / 64] &= !(1 << (run % 64));
        self.roomy = self.roomy.min(chunk);
        if *used != [0; WORDS] {
            return;
        }
        // One is kept, the first, so that a run that comes and goes does not cost a chunk each time.
        let gone = match self.spare {
            Some(other) if other != chunk => {
                self.spare = Some(other.min(chunk));
                other.max(chunk)
            }
            Some(_) | None => {
                self.spare = Some(chunk);
                return;
            }
        };
        self.chunks[gone] = Box::default();
        self.names[gone] = Box::default();
        self.bytes -= CHUNK * (size_of::<Run>() + size_of::<[u64; RUN]>());
    }

    /// The first run in use from this number on.
    fn used_from(&self, run: usize) -> Option<u32> {
        let (mut chunk, mut word) = (run / CHUNK, run % CHUNK / 64);
        let mut mask = u64::MAX << (run % 64);
        while let Some(used) = self.used.get(chunk) {
            while let Some(bits) = used.get(word) {
                let bits = bits & mask;
                if bits != 0 {
                    return Some((chunk * CHUNK + word * 64) as u32 + bits.trailing_zeros());
                }
                mask = u64::MAX;
                word += 1;
            }
            chunk += 1;
            word = 0;
        }
        None
    }
}

#[cfg(test)]
mod tests;

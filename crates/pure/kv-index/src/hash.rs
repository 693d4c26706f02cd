//! The numbers that name blocks, engine names and members of sets.
//!
//! Peers choose what goes in. The seed is secret, so they cannot choose what comes out, and tables stay balanced.

use crate::blocks::RUN;

/// What all hashes of one index start from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seeds {
    run: [u64; RUN + 2],
    local: u64,
    name: u64,
    factor: u64,
    member: u64,
    alias: u64,
    rank: u64,
}

impl Seeds {
    pub(crate) fn new(seed: u64) -> Self {
        let at = |n: u64| spread(seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        Self {
            run: std::array::from_fn(|n| at(100 + n as u64)),
            local: at(12) | 1,
            name: at(3),
            factor: at(4) | 1,
            member: at(5),
            alias: at(6),
            rank: at(7),
        }
    }

    /// Hashes that anybody can make collide: all blocks whose own hash is 0 are one.
    #[cfg(test)]
    pub(crate) const fn weak() -> Self {
        Self {
            run: [0; RUN + 2],
            local: 1,
            name: 0,
            factor: 1,
            member: 0,
            alias: 0,
            rank: 0,
        }
    }

    /// The key of the first block of a run: from all keys of the run before it, zeros before the first one of a prompt,
    /// and the block's own hash; never 0. Only one product waits for the run before that.
    #[inline]
    pub(crate) fn first(&self, before: &[u64; RUN], local: u64) -> u64 {
        let mut halves = [self.run[RUN], self.run[RUN + 1]];
        for pair in (1..RUN).step_by(2) {
            let next = before.get(pair + 1).copied().unwrap_or(local);
            let half = &mut halves[pair / 2 * 4 / RUN];
            *half ^= fold(before[pair] ^ self.run[pair - 1], next ^ self.run[pair]);
        }
        let [front, back] = halves;
        nonzero(fold(before[0] ^ front, back), 1)
    }

    /// The key of any other block of a run: its own hash, but never 0.
    #[inline]
    pub(crate) const fn other(&self, local: u64) -> u64 {
        nonzero(local, self.local)
    }

    /// The hash of a run that begins with the last of these blocks.
    #[inline]
    pub(crate) fn way(&self, keys: &[u64]) -> u64 {
        let step = |hash: u64, key: &u64| fold(hash ^ self.run[0], key ^ self.run[1]);
        match keys {
            [] => 0,
            [first, others @ ..] => others.iter().fold(*first, step),
        }
    }

    /// The hash of an engine's name for a block. Different names have different ones.
    #[inline]
    pub(crate) fn name(&self, hash: u64) -> u64 {
        spread((hash ^ self.name).wrapping_mul(self.factor))
    }

    /// The hash of what one rank says of a level: a name, or the number of a block.
    #[inline]
    pub(crate) fn alias(&self, level: u64, what: u64) -> u64 {
        spread((what ^ self.alias).wrapping_mul(self.factor).wrapping_add(level))
    }

    /// What the hashes of ranks start from.
    pub(crate) const fn rank(&self) -> u64 {
        self.rank
    }

    /// The share of a member in the hash of a set.
    #[inline]
    pub(crate) fn member(&self, member: u16) -> u64 {
        spread(
            self.member
                .wrapping_add(u64::from(member).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        )
    }
}

/// Mixes all bits; no two inputs give the same output.
#[inline]
fn spread(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Both halves of a product in one.
#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let wide = a as u128 * b as u128;
    wide as u64 ^ (wide >> 64) as u64
}

#[inline]
const fn nonzero(key: u64, instead: u64) -> u64 {
    if key == 0 { instead } else { key }
}

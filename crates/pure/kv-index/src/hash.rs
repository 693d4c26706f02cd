//! The numbers that name blocks, engine names and members of sets.
//!
//! Peers choose what goes in. The seed is secret, so they cannot choose what comes out, and tables stay balanced.

/// What all hashes of one index start from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seeds {
    chain: u64,
    block: u64,
    name: u64,
    factor: u64,
    member: u64,
}

impl Seeds {
    pub(crate) fn new(seed: u64) -> Self {
        let at = |n: u64| spread(seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        Self {
            chain: at(1),
            block: at(2),
            name: at(3),
            factor: at(4) | 1,
            member: at(5),
        }
    }

    /// Hashes that anybody can make collide: all blocks whose own hash is 0 are one.
    #[cfg(test)]
    pub(crate) const fn weak() -> Self {
        Self {
            chain: 0,
            block: 0,
            name: 0,
            factor: 1,
            member: 0,
        }
    }

    /// The key of a block from that of the block before it and its own hash; never 0. Before the first block: 0.
    #[inline]
    pub(crate) fn chain(&self, parent: u64, local: u64) -> u64 {
        let wide = u128::from(parent ^ self.chain) * u128::from(local ^ self.block);
        // The product of a small factor is small: the local hash itself fills the bits that it leaves empty.
        nonzero(low(wide) ^ high(wide) ^ local.rotate_left(29))
    }

    /// The key of an engine's name for a block. Different names have different keys, but for the one that would be 0.
    #[inline]
    pub(crate) fn name(&self, hash: u64) -> u64 {
        nonzero(spread((hash ^ self.name).wrapping_mul(self.factor)))
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

#[inline]
const fn nonzero(key: u64) -> u64 {
    if key == 0 { 1 } else { key }
}

#[inline]
const fn low(wide: u128) -> u64 {
    wide as u64
}

#[inline]
const fn high(wide: u128) -> u64 {
    low(wide >> 64)
}

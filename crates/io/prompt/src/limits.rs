//! Every limit and time of this crate, with its reason.

/// Block sizes that one request is hashed for. A model has one; two during a change of it.
pub const MAX_BLOCK_SIZES: usize = 2;

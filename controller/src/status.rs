//! The truth in `status`: merged from facts without a client, written only when it differs.

pub mod facts;
mod failing;
pub mod limits;
mod merge;
pub(crate) mod write;
mod writes;

pub use merge::{Merged, Transition, merge};

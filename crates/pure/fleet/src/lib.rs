//! Who is there: the pure model of a Dynamo fleet.
//!
//! Records of a registry come in, an ordered immutable [`view::FleetView`] goes out. No IO, no clock, no
//! randomness: the same changes always give the same view.

mod cards;
mod census;
mod claims;
pub mod graphs;
pub mod ids;
mod join;
pub mod keys;
pub mod kubernetes;
pub mod limits;
pub mod notes;
pub mod pod_hash;
mod records;
pub mod reducer;
mod role;
mod said;
mod sets;
pub mod view;

pub use census::Census;
pub use graphs::{Generation, Graphs, NamespaceMatch};
pub use notes::{EventKind, Note, Notes, Refused};
pub use reducer::{Change, Reducer, Settings};
pub use sets::{Lottery, lotteries};

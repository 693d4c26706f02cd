//! Who is there: the pure model of a Dynamo fleet.
//!
//! Records of a registry come in, an ordered immutable [`view::FleetView`] goes out. No IO, no clock, no
//! randomness: the same changes always give the same view.

pub mod graphs;
pub mod ids;
pub mod keys;
pub mod limits;
pub mod notes;
pub mod pod_hash;
pub mod reducer;
pub mod view;

pub use graphs::{Generation, Graphs, NamespaceMatch};
pub use notes::{EventKind, Note, Notes};
pub use reducer::{Change, Reducer, Settings};

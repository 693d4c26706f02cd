//! Who is there: the pure model of a Dynamo fleet.
//!
//! Records of a registry come in, an ordered immutable [`view::FleetView`] goes out. No IO, no clock, no
//! randomness: the same changes always give the same view.

pub mod ids;
pub mod view;

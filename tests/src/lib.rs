//! What belongs to no single crate: tests of several together, and pages written from all of them.

pub mod limits;
pub mod metrics;

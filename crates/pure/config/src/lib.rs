//! The configuration of a router: one schema, from text to checked values to what a reload must do.
//!
//! - [`model`]: what a configuration is. Plain values with the defaults filled in; the doc comments of the
//!   fields are the reference that users read.
//! - [`value`]: the scalars (durations, sizes, addresses, secrets) and how they are written.
//!
//! Nothing here reads a file, an environment or a clock: text and environment are arguments.

pub mod model;
pub mod value;

pub use model::Config;
pub use value::{BackendUrl, BindAddress, Secret};

//! The configuration of a router: one schema, from text to checked values to what a reload must do.
//!
//! - [`model`]: what a configuration is. Plain values with the defaults filled in; the doc comments of the
//!   fields are the reference that users read.
//! - [`value`]: the scalars (durations, sizes, addresses, secrets) and how they are written.
//! - [`parse()`]: YAML text to a checked [`Config`], with every error and its place, and advice.
//! - [`check_unexpanded()`]: the same without an environment, for who only judges another's text.
//! - [`plan()`]: two configurations to what a reload must do.
//! - [`schema`], [`reference`]: the JSON Schema and the users' reference, both made from the model.
//!
//! Nothing here reads a file, an environment or a clock: text and environment are arguments.

mod advice;
mod check;
mod env;
pub mod limits;
pub mod model;
mod parse;
pub mod plan;
mod problem;
pub mod reference;
mod rules;
pub mod schema;
mod tree;
pub mod value;

pub use advice::Build;
pub use env::Environment;
pub use model::Config;
pub use parse::{Loaded, Unexpanded, check_unexpanded, fuzz, parse, show};
pub use plan::{Reload, plan};
pub use problem::{Error, Problem};
pub use value::{BackendUrl, BindAddress, Secret};

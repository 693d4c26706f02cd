//! A `RouterConfig`, from what a user wrote to what runs: dereference, validate, build, apply, status.

pub mod names;

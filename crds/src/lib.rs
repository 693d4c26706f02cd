//! The custom resource of the operator.

pub mod conditions;
pub mod status;

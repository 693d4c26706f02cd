//! What users write in Kubernetes: the `RouterConfig` resource.
//!
//! - [`spec`]: what users write; `spec.config` is the document that a bare-metal router reads.
//! - [`status`], [`conditions`]: what the operator answers.
//! - [`crd()`]: the definition, with the schema of `spec.config` made from the configuration's own and CEL rules for
//!   what a schema cannot say.
//! - [`reference`]: the users' pages, made from the same types.

pub mod conditions;
mod definition;
pub mod reference;
pub mod spec;
pub mod status;

pub use definition::{crd, yaml};
pub use spec::{ConfigDocument, FleetView, RouterConfig, RouterConfigSpec, RouterSpec};
pub use status::RouterConfigStatus;

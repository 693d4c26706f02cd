//! Where a fleet is found: sources that list and watch, and the supervisor that keeps one of them running.
//!
//! Everything here reads. No source has a call that writes to a registry: the etcd client behind [`etcd`] exposes
//! range gets and watches alone, the Kubernetes client behind [`k8s`] lists and watches, and the file store is opened
//! for reading. Which record becomes a worker is decided
//! in `continuum_fleet`; this crate carries records there and views from there to the readers' cell.

pub mod error;
pub mod etcd;
mod feed;
pub mod file;
pub mod k8s;
pub mod limits;
pub mod metrics;
pub mod pushed;
mod session;
mod settings;
pub mod source;
mod state;
pub mod status;
mod supervisor;
#[cfg(test)]
mod testing;

pub use error::Error;
pub use pushed::Pushed;
pub use source::{Signals, SourceKind};
pub use status::Status;
pub use supervisor::Discovery;

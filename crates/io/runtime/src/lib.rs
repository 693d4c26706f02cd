//! Leaf of the workspace: what every process of ours needs from its runtime.
//!
//! [`cell::Cell`] hands the newest value to any number of readers, [`tasks::Tasks`] names, supervises and drains
//! background work, [`backoff::Backoff`] spaces retries, [`said::Said`] keeps a lasting condition from flooding
//! the log, [`telemetry`] sets the log up, [`files`] replaces a file whole, [`lookup`] finds addresses of names and keeps
//! them. No rule of the product lives here.

pub mod backoff;
pub mod cell;
pub mod files;
pub mod limits;
pub mod lookup;
pub mod said;
pub mod tasks;
pub mod telemetry;

//! Subscriptions to the event plane of a fleet: what workers publish of their load, brought to the store, and of their
//! caches, brought to the index.
//!
//! ```text
//! FleetView ─▶ Supervisor<Family> ─ one task per publisher ─▶ Connector ─▶ client (ZMTP) ┬ LoadSamples ─▶ LoadSink
//!                     └──── one task per broker endpoint ────────────────────────────────┴ Blocks ─▶ Intake ─▶ Index
//! ```
//!
//! Endpoints come from records that the fleet wrote and are not trusted: they are resolved once per
//! connection, judged against the allowed networks, and everything a peer says is bounded by
//! `continuum-wire`. This crate holds no routing rule: what a sample is worth is the store's business.

pub mod apart;
pub mod client;
pub mod connector;
pub mod limits;
pub mod metrics;
pub mod sink;
pub mod status;
pub mod supervisor;

mod beyond;
mod blocks;
mod broker;
mod family;
mod outages;
mod sequence;
mod settings;
mod subscription;
#[cfg(test)]
mod testing;

pub use blocks::Filled;
pub use connector::Connector;
pub use metrics::{BlockMetrics, Metrics, Outcome};
pub use settings::{BlockSettings, Settings};
pub use sink::{LoadSink, StoreSink};
pub use status::{Row, State, Via};
pub use supervisor::{Handle, spawn, spawn_blocks};

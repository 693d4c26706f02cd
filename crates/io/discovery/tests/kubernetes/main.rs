//! The Kubernetes sources against a real API server: what a router finds, keeps, and survives.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on should say why and stop"
)]

mod fleet;
mod permissions;
mod pods;
#[path = "../support/router.rs"]
mod router;
mod scripted;
mod support;
mod trouble;

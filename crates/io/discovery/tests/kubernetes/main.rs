//! The Kubernetes sources against a real API server: what a router finds, keeps, and survives.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say why and stop"
)]

mod fleet;
mod permissions;
mod pods;
mod scripted;
mod support;
mod trouble;

//! The etcd source against real etcd: what a router finds, keeps, and survives.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should say why and stop"
)]

mod auth;
mod cluster;
mod fleet;
mod reload;
#[path = "../support/router.rs"]
mod router;
mod scale;
mod support;
mod tls;

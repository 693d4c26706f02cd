//! The push server, with gRPC clients over real TLS.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod sessions;
mod support;
mod views;

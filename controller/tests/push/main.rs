//! The push server, with gRPC clients over real TLS.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod sessions;
mod support;
mod views;

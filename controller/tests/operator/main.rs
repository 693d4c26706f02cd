//! The operator against a real API server and the real controllers of Kubernetes.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod authority;
mod children;
mod degraded;
mod deletion;
mod files;
mod moves;
mod outage;
mod quiet;
mod replicas;
mod restored;
mod router;
mod serving;
mod starts;
mod support;
mod unreadable;

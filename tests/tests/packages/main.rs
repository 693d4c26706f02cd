//! The Helm chart and the Kustomize overlays: what they render, what they refuse, and what a real API server says to the rights that
//! they give.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail this way")]

mod chart;
mod cluster;
mod render;
mod rights;

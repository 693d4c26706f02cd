//! The whole router in this process, before a simulated fleet and before scripted servers.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail this way")]

mod blocks;
mod bodies;
mod controllers;
mod listeners;
mod operating;
mod serving;
mod support;

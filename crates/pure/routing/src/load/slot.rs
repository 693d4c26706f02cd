//! One rank.

/// The state of one (worker, rank).
#[derive(Debug, Default)]
pub(crate) struct Slot {}

//! The load of every rank: samples that workers publish, freshness, and this router's own bookings.
//!
//! Samples merge field by field: a missing field keeps the previous value. Several publishers may speak for one
//! rank; their fields are kept apart and the most recent one counts. Real workers are silent when idle and while
//! they prefill, so silence is judged (see [`Freshness`]) and what we dispatched ourselves is counted.
//!
//! All methods take `&self`. Writers of one rank share a lock that picks never take: picks read published atomics.

use continuum_fleet::{
    ids::{Rank, WorkerKey},
    view::Role,
};

pub use self::{
    booking::{Booking, Dispatch},
    store::Store,
};

mod booking;
pub(crate) mod index;
pub(crate) mod slot;
pub(crate) mod store;

/// One load report of one rank, as a publisher sent it. `None` fields say nothing.
pub use continuum_wire::ActiveLoad as Sample;

/// What became of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Applied {
    /// Merged.
    Applied,
    /// Its sequence number is not above the last one of this publisher for this rank.
    Duplicate,
    /// No such worker or rank in the view.
    IdentityMismatch,
    /// The worker has no key because the store is full.
    OverCapacity,
}

/// What following a view changed. Series of departed ranks are gone from [`Store::rows`] in the same call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Keys that were added.
    pub added: usize,
    /// Keys that left, in order.
    pub departed: Vec<(WorkerKey, Rank)>,
    /// Ranks of the view that have no key because of a cap.
    pub over_capacity: usize,
}

/// How much the load of a rank is known. The words of the admin view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Freshness {
    /// A sample with the field of this phase is younger than `max_staleness`.
    Fresh,
    /// Subscribed, and it never spoke or last said zero: an idle worker.
    Quiet,
    /// It last said that it has work, and has been silent since: its cost is undefined.
    Stale,
    /// It was given at least two blocks five seconds ago and has not spoken since.
    Stalled,
    /// Nothing is subscribed that could speak for it: only bookings tell.
    Unknown,
}

impl Freshness {
    /// The word for logs and the admin view.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Quiet => "quiet",
            Self::Stale => "stale",
            Self::Stalled => "stalled",
            Self::Unknown => "unknown",
        }
    }
}

/// One rank, for gauges and the admin view.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The worker.
    pub worker: WorkerKey,
    /// The rank; 0 for a worker that declares none.
    pub rank: Rank,
    /// What the worker does.
    pub role: Role,
    /// Merged field; `None` when no live publisher has told it: then there is no series.
    pub active_decode_blocks: Option<u64>,
    /// Merged field.
    pub active_prefill_tokens: Option<u64>,
    /// Merged field.
    pub kv_used_blocks: Option<u64>,
    /// Age of the newest field in milliseconds.
    pub sample_age_ms: Option<u64>,
    /// Freshness in the phase of the worker's role.
    pub freshness: Freshness,
    /// Requests of this router that are booked on the rank now.
    pub booked_requests: u64,
    /// Their decode blocks.
    pub booked_blocks: u64,
    /// Their prompt tokens whose prefill has not ended.
    pub booked_tokens: u64,
    /// Suspected to be dead (until a sample arrives, or for 30 seconds).
    pub suspect: bool,
}

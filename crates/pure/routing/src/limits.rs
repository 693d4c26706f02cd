//! Every limit of the load store and the picker, with its unit and its reason.

/// (worker, rank) keys that the store holds. Records of the fleet must not exhaust our memory; a fleet of
/// 16,384 workers with four ranks each fits.
pub const RANKS: usize = 65_536;

/// Publishers whose fields are kept apart for one rank: the worker, and KV frontends that publish beside it.
/// At the cap the one heard from least recently gives way.
pub const PUBLISHERS_PER_RANK: usize = 8;

/// Publishers of one worker that are remembered as its voices. Brokers relay publishers without a record, and each
/// restart of one brings a new id: at the cap the oldest of those gives way.
pub const PUBLISHERS_PER_WORKER: usize = 64;

/// Publishers that the store remembers at once, heard or subscribed to.
pub const PUBLISHERS: usize = 65_536;

/// Blocks or tokens that one booking may count, so that no sum of bookings can overflow.
pub const BOOKED_PER_REQUEST: u64 = 1 << 32;

/// Silence after a dispatch that makes a rank look stalled, milliseconds.
pub const STALLED_AFTER_MS: u64 = 5_000;

/// A dispatch older than this says nothing about a stall any more, milliseconds.
pub const UNANSWERED_MS: u64 = 30_000;

/// Blocks below which a dispatch may legitimately change nothing that a worker publishes.
pub const STALL_BLOCKS: u64 = 2;

/// How long a worker stays suspect without a sample, milliseconds: the longest registry lease seen.
pub const SUSPECT_MS: u64 = 30_000;

/// Prompt tokens below which the time to a first byte says nothing about the prefill rate: what is cached is not read.
pub const MIN_RATED_TOKENS: u64 = 256;

/// Weight of the newest observation in the prefill rate of a rank.
pub const RATE_WEIGHT: f64 = 0.25;

/// Buffered requests whose prefill end is awaited at once; beyond it a prefill booking ends with its request.
pub const AWAITED_PREFILLS: usize = 65_536;

/// Stretches of candidates by which a pick counts equals: a stretch is what it looks at again to find the one
/// whose turn it is.
pub const STRETCHES: usize = 64;

/// Blocks of one open request that others may share: the beginning of very long prompts is what they have in common.
pub const IN_FLIGHT_BLOCKS: usize = 8192;

/// How long a prompt that a rank has read counts as cached where the rank's events do not tell, milliseconds: as long as
/// what a lost subscription said counts.
pub const READ_FOR_MS: u64 = 60_000;

/// Different blocks of such prompts that are remembered, 8 bytes each, however many prompts and ranks share them; beyond it
/// the oldest prompts are forgotten.
pub const READ_BLOCKS: usize = 1_048_576;

/// Such prompts, and runs of their blocks by ranks that have read them, that are remembered together, about 128 bytes each;
/// beyond it the oldest prompts are forgotten. Two or three for each prompt: 60 seconds of 3,000 prompts a second.
pub const READ_PLACES: usize = 524_288;

/// Such prompts that one request forgets, so that it does not pay for all of a burst a minute ago: well under a
/// millisecond. Each request adds one.
pub const FORGOTTEN_AT_ONCE: usize = 1_024;

/// Workers of a model of which at least one must have a kind of blocks, for prompts to be hashed for it: every prompt
/// costs as much again for each kind, and one card alone must not make all of a large fleet's dearer. One prefill
/// worker for 31 decode workers still counts.
pub const WORKERS_PER_KIND: usize = 32;

/// Candidate entries of all models together (32 bytes each). Adapter names multiply ranks; at the cap further
/// names of the fleet are not served, and counted.
pub const CANDIDATES: usize = 2_097_152;

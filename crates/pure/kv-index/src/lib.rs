//! Which rank holds which prefix of a prompt.
//!
//! Workers say which KV blocks they stored and dropped; a prompt is a list of block hashes. [`Index`] answers, for each
//! rank, how many blocks from the beginning of a prompt it holds, in memory of the accelerator, of the host, or on disk.
//! What workers say is not trusted: it can be wrong, hostile or endless, and costs no more than the score of the rank
//! that it came from.

mod answer;
mod blocks;
mod directory;
mod gate;
mod hash;
mod index;
pub mod intake;
pub mod limits;
mod names;
pub mod reference;
mod seats;
mod sets;
mod state;

pub use answer::{Matches, Overlap};
pub use index::{Applied, Index, Refusal, Stats};
pub use intake::{Cursors, Intake, Origin, Outcome, Tally, Unscored, unscored};
pub use limits::Caps;

use continuum_fleet::ids::WorkerKey;
use hashbrown::Equivalent;

/// A data-parallel rank of a worker: what holds blocks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RankKey {
    /// The worker.
    pub worker: WorkerKey,
    /// Its global data-parallel rank.
    pub rank: u32,
}

/// The same, borrowed: to look a rank up costs no count of who shares its namespace.
#[derive(Clone, Copy, Debug, Hash)]
pub struct RankRef<'a> {
    /// The worker.
    pub worker: &'a WorkerKey,
    /// Its global data-parallel rank.
    pub rank: u32,
}

impl<'a> From<&'a RankKey> for RankRef<'a> {
    fn from(key: &'a RankKey) -> Self {
        Self {
            worker: &key.worker,
            rank: key.rank,
        }
    }
}

/// Both have the same hash, since it is that of the same fields in the same order.
impl Equivalent<RankKey> for RankRef<'_> {
    fn equivalent(&self, key: &RankKey) -> bool {
        self.rank == key.rank && *self.worker == key.worker
    }
}

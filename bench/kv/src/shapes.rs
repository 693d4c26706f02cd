//! The fleets that are measured.

use crate::workload::Shape;

/// Workers, and the blocks that each has room for.
pub const FLEETS: [(usize, usize); 3] = [(8, 65_536), (64, 8_192), (512, 4_096)];

/// A fleet of [`FLEETS`].
pub const fn fleet((workers, room): (usize, usize)) -> Shape {
    Shape {
        workers,
        room,
        churn_events: 300_000,
        prompts: 20_000,
    }
}

/// Fills an index of 1,048,576 blocks with 256 ranks, and more.
pub const FULL: Shape = Shape {
    workers: 256,
    room: 8_192,
    churn_events: 600_000,
    prompts: 20_000,
};

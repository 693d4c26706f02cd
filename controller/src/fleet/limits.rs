//! Limits of the fleets that the operator reads.

/// Keys and values of all records of one fleet, in bytes (64 MiB): 16,384 workers of 4 KiB, which is four times the largest
/// fleet that is measured. A list holds them a few times for a moment, and many fleets share the memory of one process.
pub const MAX_FLEET_BYTES: u64 = 64 * 1024 * 1024;

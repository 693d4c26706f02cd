//! Limits of the fleets that the operator reads.

/// Keys and values of all records of one fleet, in bytes (64 MiB): 16,384 workers of 4 KiB, which is four times the largest
/// fleet that is measured. A list holds them a few times for a moment, and many fleets share the memory of one process.
pub const MAX_FLEET_BYTES: u64 = 64 * 1024 * 1024;

/// Different fleets that are read for the RouterConfigs of one namespace (8): each is watches of its own, and may take
/// [`MAX_FLEET_BYTES`]. Whoever can write RouterConfigs can name one fleet in many ways.
pub const MAX_SOURCES_PER_NAMESPACE: usize = 8;

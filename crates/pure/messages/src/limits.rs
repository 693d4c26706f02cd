//! Caps of the session. What arrives is trusted by nobody, though both ends are ours and authenticated.

use continuum_fleet::limits::{
    MAX_ARTIFACT_BYTES, MAX_MODEL_NAME_BYTES, MAX_NAMES_PER_WORKER, MAX_RECORDS_PER_KEYSPACE,
};

/// The version of the session that Hello names.
pub const PROTOCOL: u32 = 1;

/// Bytes at which a part of a view is closed (128 KiB): a session holds one part in memory, and another message
/// waits no longer than one part takes.
pub const PART_BYTES: usize = 128 * 1024;

/// Largest message from a controller, in bytes (1 MiB): a part and the largest entry that may follow its last
/// byte, or a config. What a gRPC client sets as its decoding limit.
pub const MAX_FROM_CONTROLLER_BYTES: usize = 1024 * 1024;

/// Largest message from a router, in bytes (64 KiB): a report with every pool and the text of a refused config.
pub const MAX_FROM_ROUTER_BYTES: usize = 64 * 1024;

/// Largest config text, in bytes (512 KiB): half of what a Kubernetes object may hold, and of what one message may be. A
/// `RouterConfig` that makes a longer one is rejected.
pub const MAX_CONFIG_BYTES: usize = 512 * 1024;

/// Largest encoded worker, in bytes: every name at its longest, and its own.
pub const MAX_WORKER_BYTES: usize = MAX_NAMES_PER_WORKER * (MAX_MODEL_NAME_BYTES + 16) + 4 * 1024;

/// Largest encoded card, in bytes: every alias at its longest, three artifact slots, and the rest.
pub const MAX_CARD_BYTES: usize = 64 * (MAX_MODEL_NAME_BYTES + 16) + 3 * MAX_ARTIFACT_BYTES + 32 * 1024;

/// Largest encoded publisher, in bytes: eight broker endpoints and its names.
pub const MAX_PUBLISHER_BYTES: usize = 16 * 1024;

/// Workers in a view: four times the default cap of the sources.
pub const MAX_WORKERS: usize = 4 * MAX_RECORDS_PER_KEYSPACE;

/// Publishers in a view: five for each worker, as the sources keep them.
pub const MAX_PUBLISHERS: usize = 5 * MAX_WORKERS;

/// Bytes of the parts of one update (256 MiB): the largest view above has a tenth of that with real names.
pub const MAX_UPDATE_BYTES: usize = 256 * 1024 * 1024;

/// Pools named in a report; a config has at most as many namespaces.
pub const MAX_POOLS: usize = 256;

/// Longest text in a report (error, field, model), in bytes. Longer ones are cut by the sender.
pub const MAX_REPORT_TEXT_BYTES: usize = 2 * 1024;

/// Fields named as pending, and models named as unpaired, in a report.
pub const MAX_REPORT_TEXTS: usize = 16;

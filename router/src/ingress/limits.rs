//! Limits of the ingress, each with its unit and its reason.

/// Nesting levels of a request body. A frontend's own JSON reader stops at the same depth, and 127 levels fit
/// one machine word pair, so a hostile body costs no memory.
pub const MAX_BODY_DEPTH: u32 = 127;

/// Bytes of a model name after unescaping. Longer than any repository path with an adapter; keeps logs and
/// error texts short.
pub const MAX_MODEL_NAME_BYTES: usize = 512;

/// Members `model` of one body. No client sends a second one on purpose; each is a place to edit in every attempt where
/// `model_map` renames the model, and a body of the largest size has room for millions.
pub const MAX_MODEL_MEMBERS: usize = 8;

/// Places of a body that something has to leave. Neighbours are one place, and a client that sets every field that it may
/// not needs a dozen; more is a body that is made to cost more memory than its bytes.
pub const MAX_REMOVALS: usize = 256;

/// Bytes of a client's `x-request-id` that is kept: it is copied into logs and into the answer.
pub const MAX_REQUEST_ID_BYTES: usize = 128;

/// Seconds that a client is asked to wait after back-pressure: queues of a fleet move within a second.
pub const RETRY_AFTER_BUSY_SECONDS: u64 = 1;

/// Seconds that a client is asked to wait while workers come and go: registering takes a few seconds.
pub const RETRY_AFTER_TOPOLOGY_SECONDS: u64 = 5;

/// Bytes of a quoted model name in an answer that are held back at a chunk boundary while it is compared.
/// Every byte of a name can be spelled with a six-byte escape.
pub const MAX_HELD_NAME_BYTES: usize = 6 * MAX_MODEL_NAME_BYTES + 2;

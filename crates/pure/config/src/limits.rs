//! How much of a configuration is read. A file is written by an operator, but a mistake (or an alias bomb in
//! a template) must not cost the process its memory or its time.

/// Bytes of a configuration's text. 1,024 backends of a kilobyte each.
pub const MAX_TEXT_BYTES: usize = 1 << 20;

/// Bytes that environment variables may add in all, for the same reason.
pub const MAX_EXPANDED_BYTES: usize = 1 << 20;

/// Lists and mappings inside one another. The schema has seven levels.
pub const MAX_DEPTH: usize = 32;

/// Nodes of the tree, those that aliases repeat included.
pub const MAX_NODES: usize = 200_000;

/// Problems that are reported; behind them stands how many more there are. Nobody reads a thousand.
pub const MAX_PROBLEMS: usize = 100;

/// Characters of a value that a message repeats.
pub const MAX_SHOWN_CHARS: usize = 60;

/// Dynamo namespaces that one router follows.
pub const MAX_DYNAMO_NAMESPACES: usize = 16;

/// Memory that one stream of an event bus session needs at least.
pub const MIN_STREAM_BUFFER_BYTES: u64 = 64 << 10;

/// Bytes of a DNS-1123 label and of a Kubernetes label value.
pub const MAX_LABEL_BYTES: usize = 63;

/// A token shorter than this can be guessed; it is warned of.
pub const SHORT_TOKEN_BYTES: usize = 16;

//! Every limit and time of this crate, with its reason.

use std::time::Duration;

/// Kinds of blocks that one request is hashed for. A model has one; two during a change of it, or where its prefill
/// workers have no speculative head and its decode workers have one.
pub const MAX_KINDS_OF_BLOCKS: usize = 2;

/// Longest body whose prompt is rendered, in bytes (4 MiB). A rendered prompt has at most 1 MiB, and JSON seldom takes
/// four bytes for one; a parsed body takes ten times its size in the worst case, once per permit.
pub const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;

/// Values in a body whose prompt is rendered, roughly: each but the first follows a comma or a bracket. A parsed value
/// takes up to 72 bytes, so that they take 19 MB at most, once per permit; no chat comes near it, and a prompt that is
/// a longer list of token ids is chosen by load.
pub const MAX_BODY_VALUES: usize = 262_144;

/// Instructions and data of one rendering, in the template engine's unit: one for an instruction, one for 64 bytes. A
/// long conversation takes a tenth of it; it bounds a rendering to tens of milliseconds.
pub const TEMPLATE_FUEL: u64 = 5_000_000;

/// Depth of a value that is written as JSON by a template. JSON is read to a depth of 128; templates add little.
pub const MAX_NESTING: usize = 256;

/// Depth of calls between macros of a template. No real template goes beyond ten, and each level takes some kilobytes
/// of the thread's stack.
pub const MAX_TEMPLATE_DEPTH: usize = 64;

/// Longest template source, in bytes (256 KiB). Real ones have a few kilobytes, the longest 40.
pub const MAX_TEMPLATE_BYTES: usize = 256 * 1024;

/// Stack of the thread that compiles a template and reads a tokenizer, in bytes (64 MiB, touched only where needed):
/// a compiler recurses into what is nested or chained, and a file within the limits must not overflow it.
pub const LOAD_STACK_BYTES: usize = 64 * 1024 * 1024;

/// Prompts that are worked on at a time: one for each core, within these bounds. Waiting ones would only be late. Where
/// several models are loaded, one of them has at most half.
pub const PERMITS: (usize, usize) = (4, 32);

/// How long a request waits for a permit. Beyond it a choice by load is better than a late one by cache.
pub const PERMIT_WAIT: Duration = Duration::from_millis(20);

/// All of a prompt's work: permit, template, tokens, hashes.
pub const PREPARE_TIMEOUT: Duration = Duration::from_secs(2);

/// Blocks that are hashed between two looks at the clock: some tens of microseconds.
pub const BLOCKS_BETWEEN_LOOKS: usize = 1024;

/// Tokenizers that are loaded at a time. Loading takes half a second of one core and ten times the file in memory.
pub const MAX_LOADS: usize = 2;

/// Wait before files that could not be fetched or loaded are tried again.
pub const RETRY_AFTER: Duration = Duration::from_secs(5 * 60);

/// Fetching one file, from the first byte out to the last byte in.
pub const FETCH_TIMEOUT: Duration = Duration::from_secs(60);

/// Connecting to the server of a file, with its TLS handshake.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Redirects that are followed from the Hugging Face Hub to its storage. Workers are followed nowhere.
pub const MAX_REDIRECTS: usize = 5;

/// Workers that are asked for one file before it counts as failed. All of them offer the same content; the next try asks
/// others.
pub const MAX_ORIGINS: usize = 4;

/// Longest URI of a file, in bytes.
pub const MAX_URI_BYTES: usize = 2048;

/// Models whose files are followed. More are served by load alone.
pub const MAX_MODELS: usize = 4096;

/// Conditions of models that are remembered as told.
pub const MAX_SAID: usize = 4096;

/// Token ids kept of parts of earlier prompts, with the text that they belong to, in bytes (64 MiB): the histories of
/// some thousand conversations.
pub const TOKEN_CACHE_BYTES: usize = 64 * 1024 * 1024;

/// Shortest part of a prompt that is kept by itself, in bytes. Shorter ones cost more to keep than to encode.
pub const MIN_CACHED_PART_BYTES: usize = 1024;

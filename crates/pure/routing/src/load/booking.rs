//! What this router has dispatched and not yet seen the end of.

use crate::Millis;

/// What is known of a request when it is dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// Prompt length, see [`prompt_tokens`](crate::picker::prompt_tokens).
    pub prompt_tokens: u64,
    /// The answer is a stream: its first byte tells when the prefill has ended.
    pub streamed: bool,
}

/// One dispatch on its ranks. Dropping it releases everything that it still counts, exactly once.
#[derive(Debug)]
#[must_use = "dropping a booking ends it"]
pub struct Booking {}

impl Booking {
    /// The first byte of the answer's body has arrived: the prefill is done.
    pub fn first_byte(&self, _now: Millis) {}
}

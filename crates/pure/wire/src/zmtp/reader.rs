//! Cuts a byte stream into the greeting, commands and messages.

use super::{
    Error,
    frame::{self, Head, MAX_HEAD_BYTES},
    greeting,
};
use crate::limits::{
    FIRST_BUFFER_BYTES, GREETING_BYTES, KEPT_BUDGETED_BUFFER_BYTES, KEPT_BUFFER_BYTES, Limits,
    MAX_COMMAND_BYTES, MAX_FRAMES_PER_MESSAGE,
};
use crate::{Budget, budget::Share};

/// One complete message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    bytes: &'a [u8],
    ends: [usize; MAX_FRAMES_PER_MESSAGE],
    frames: usize,
}

impl<'a> Message<'a> {
    /// Number of frames, 1 to 4.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a message has at least one frame")]
    pub const fn len(&self) -> usize {
        self.frames
    }

    /// One frame.
    #[must_use]
    pub fn frame(&self, at: usize) -> Option<&'a [u8]> {
        if at >= self.frames {
            return None;
        }
        let start = match at.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        self.bytes.get(start..*self.ends.get(at)?)
    }

    /// All frames of a message of exactly four.
    #[must_use]
    pub fn four(&self) -> Option<[&'a [u8]; 4]> {
        if self.frames != 4 {
            return None;
        }
        Some([self.frame(0)?, self.frame(1)?, self.frame(2)?, self.frame(3)?])
    }
}

/// What the reader has just completed; its bytes stay readable until the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Greeting { minor: u8 },
    Command,
    Message,
}

#[derive(Debug)]
enum State {
    Greeting,
    Head { bytes: [u8; MAX_HEAD_BYTES], len: usize },
    Body { head: Head, missing: usize },
}

const NEXT_HEAD: State = State::Head {
    bytes: [0; MAX_HEAD_BYTES],
    len: 0,
};

/// Incremental reader. The buffer holds the frames of the message under way and, behind them, a command
/// that may come between two frames of a message (libzmq pings by timer).
#[derive(Debug)]
pub(super) struct Reader {
    limits: Limits,
    state: State,
    buffer: Vec<u8>,
    /// What the buffer takes of a budget, if there is one.
    share: Option<Share>,
    ends: [usize; MAX_FRAMES_PER_MESSAGE],
    frames: usize,
    /// The item returned last, whose bytes are still in the buffer.
    returned: Option<Item>,
}

impl Reader {
    pub(super) const fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: State::Greeting,
            buffer: Vec::new(),
            share: None,
            ends: [0; MAX_FRAMES_PER_MESSAGE],
            frames: 0,
            returned: None,
        }
    }

    /// Takes a share of this budget for the buffer.
    pub(super) fn within(&mut self, budget: Option<Budget>) {
        self.share = budget.map(Share::new);
    }

    /// Takes bytes from the front of `input` until something is complete or the input is used up.
    pub(super) fn advance(&mut self, input: &mut &[u8]) -> Result<Option<Item>, Error> {
        self.release();
        while !input.is_empty() || self.body_is_complete() {
            if let Some(item) = self.step(input)? {
                self.returned = Some(item);
                return Ok(Some(item));
            }
        }
        Ok(None)
    }

    /// Body of the command returned last.
    pub(super) fn command(&self) -> &[u8] {
        self.buffer.get(self.message_end()..).unwrap_or_default()
    }

    /// The message returned last.
    pub(super) fn message(&self) -> Message<'_> {
        Message {
            bytes: &self.buffer,
            ends: self.ends,
            frames: self.frames,
        }
    }

    /// Whether a message has begun and is not complete.
    pub(super) const fn is_within_message(&self) -> bool {
        match (self.returned, &self.state) {
            (Some(Item::Message), _) => false,
            (_, State::Body { head, .. }) if !head.command => true,
            (_, State::Greeting | State::Head { .. } | State::Body { .. }) => self.frames > 0,
        }
    }

    /// Bytes of memory held.
    pub(super) const fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    fn release(&mut self) {
        match self.returned.take() {
            None => {}
            Some(Item::Greeting { .. }) => self.buffer.clear(),
            Some(Item::Command) => self.buffer.truncate(self.message_end()),
            Some(Item::Message) => {
                self.frames = 0;
                self.buffer.clear();
                let kept = match self.share {
                    None => KEPT_BUFFER_BYTES,
                    Some(_) => KEPT_BUDGETED_BUFFER_BYTES,
                };
                if self.buffer.capacity() > kept {
                    self.buffer = Vec::new();
                    if let Some(share) = &mut self.share {
                        share.give_back();
                    }
                }
            }
        }
    }

    /// A body without bytes is complete when its head is.
    const fn body_is_complete(&self) -> bool {
        matches!(self.state, State::Body { missing: 0, .. })
    }

    fn step(&mut self, input: &mut &[u8]) -> Result<Option<Item>, Error> {
        match &mut self.state {
            State::Greeting => {
                let missing = GREETING_BYTES.saturating_sub(self.buffer.len());
                self.append(input, missing)?;
                greeting::check(&self.buffer)?;
                if self.buffer.len() < GREETING_BYTES {
                    return Ok(None);
                }
                self.state = NEXT_HEAD;
                Ok(Some(Item::Greeting {
                    minor: greeting::minor(&self.buffer),
                }))
            }
            State::Head { bytes, len } => {
                if let (Some(slot), Some((byte, rest))) = (bytes.get_mut(*len), input.split_first()) {
                    *slot = *byte;
                    *len += 1;
                    *input = rest;
                }
                if let Some(head) = frame::head(bytes.get(..*len).unwrap_or_default())? {
                    let missing = self.admitted(head)?;
                    self.state = State::Body { head, missing };
                }
                Ok(None)
            }
            State::Body { head, missing } => {
                let (head, wanted) = (*head, *missing);
                let missing = wanted - self.append(input, wanted)?;
                if missing > 0 {
                    self.state = State::Body { head, missing };
                    return Ok(None);
                }
                self.state = NEXT_HEAD;
                if head.command {
                    return Ok(Some(Item::Command));
                }
                if let Some(end) = self.ends.get_mut(self.frames) {
                    *end = self.buffer.len();
                    self.frames += 1;
                }
                Ok((!head.more).then_some(Item::Message))
            }
        }
    }

    /// Judges the declared length of a frame before any memory is taken for it.
    fn admitted(&self, head: Head) -> Result<usize, Error> {
        if head.command {
            return within(head.len, MAX_COMMAND_BYTES).ok_or(Error::CommandTooLong);
        }
        if self.frames >= MAX_FRAMES_PER_MESSAGE || (head.more && self.frames + 1 >= MAX_FRAMES_PER_MESSAGE) {
            return Err(Error::TooManyFrames);
        }
        let own = if self.frames == 0 {
            self.limits.topic
        } else {
            self.limits.frame
        };
        let left = self.limits.message.saturating_sub(self.message_end());
        within(head.len, own.min(left)).ok_or(Error::FrameTooLong)
    }

    fn message_end(&self) -> usize {
        self.frames
            .checked_sub(1)
            .and_then(|last| self.ends.get(last))
            .copied()
            .unwrap_or(0)
    }

    /// Moves up to `most` bytes, which were announced, into the buffer. Memory follows the bytes that came, by powers of
    /// two, and goes beyond what was announced by no more than a command that may come behind it.
    fn append(&mut self, input: &mut &[u8], most: usize) -> Result<usize, Error> {
        let (taken, rest) = input.split_at_checked(most).unwrap_or((input, &[]));
        let needed = self.buffer.len() + taken.len();
        if needed > self.buffer.capacity() {
            let announced = self.buffer.len().saturating_add(most);
            let capacity = needed
                .next_power_of_two()
                .min(announced.saturating_add(MAX_COMMAND_BYTES))
                .max(FIRST_BUFFER_BYTES);
            if let Some(share) = &mut self.share
                && !share.move_to(capacity)
            {
                return Err(Error::OverBudget);
            }
            self.buffer.reserve_exact(capacity - self.buffer.len());
        }
        self.buffer.extend_from_slice(taken);
        *input = rest;
        Ok(taken.len())
    }
}

fn within(declared: u64, most: usize) -> Option<usize> {
    usize::try_from(declared).ok().filter(|len| *len <= most)
}

//! What the slot's lock guards: the voices of publishers and the sums of bookings.

use std::collections::VecDeque;

use continuum_fleet::ids::PublisherId;

use crate::{
    Millis,
    limits::{PUBLISHERS_PER_RANK, UNANSWERED_MS},
};

/// Everything of one rank that picks do not read directly.
#[derive(Debug, Default)]
pub(super) struct Cold {
    pub(super) voices: Vec<Voice>,
    pub(super) decode: Booked,
    pub(super) prefill: Booked,
    pub(super) requests: u64,
    /// Tickets and times of open dispatches that a stall is judged by, oldest first.
    pub(super) waiting: VecDeque<(u64, Millis)>,
    pub(super) next_ticket: u64,
    /// Order of samples that arrived in one millisecond.
    pub(super) heard: u64,
    /// Tokens per millisecond of recent streams.
    pub(super) rate: Option<f64>,
    pub(super) covered: bool,
    pub(super) suspect_until: Option<Millis>,
}

/// What one publisher told of this rank.
#[derive(Debug)]
pub(super) struct Voice {
    pub(super) publisher: PublisherId,
    pub(super) sequence: u64,
    pub(super) heard: u64,
    pub(super) decode: Option<Told>,
    pub(super) prefill: Option<Told>,
    pub(super) used: Option<Told>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) value: u64,
    pub(super) at: Millis,
    pub(super) heard: u64,
}

/// Sums of open bookings of one phase.
#[derive(Debug, Default)]
pub(super) struct Booked {
    pub(super) open: u64,
    /// Dispatched after the last sample, `early` included.
    pub(super) after: u64,
    /// Ended after the last sample, which holds them still.
    pub(super) ended: u64,
    /// Booked, but still with the prefill worker of their pair: no sample can contain them.
    pub(super) early: u64,
    /// Counts samples, so that an ending booking knows whether `after` still holds it.
    pub(super) epoch: u64,
}

/// The part of a booking that one rank carries.
#[derive(Debug)]
pub(crate) struct Part {
    pub(super) amount: u64,
    /// Blocks of it that others had booked.
    pub(super) shared: u64,
    /// Requests that it stands for.
    pub(super) requests: u64,
    pub(super) epoch: u64,
    pub(super) early: bool,
    pub(super) ticket: Option<u64>,
}

impl Cold {
    /// The voice of a publisher, if `sequence` is news. A full set drops the voice heard least recently.
    pub(super) fn voice(&mut self, publisher: PublisherId, sequence: u64, heard: u64) -> Option<&mut Voice> {
        if let Some(place) = self.voices.iter().position(|voice| voice.publisher == publisher) {
            let voice = self.voices.get_mut(place)?;
            if sequence <= voice.sequence {
                return None;
            }
            voice.sequence = sequence;
            voice.heard = heard;
            return Some(voice);
        }
        if self.voices.len() >= PUBLISHERS_PER_RANK
            && let Some((place, _)) = self
                .voices
                .iter()
                .enumerate()
                .min_by_key(|(_, voice)| voice.heard)
        {
            self.voices.swap_remove(place);
        }
        self.voices.push(Voice {
            publisher,
            sequence,
            heard,
            decode: None,
            prefill: None,
            used: None,
        });
        self.voices.last_mut()
    }

    /// Decode blocks, prefill tokens, used blocks: each field of whoever told it last.
    pub(super) fn merged(&self) -> (Option<Told>, Option<Told>, Option<Told>) {
        let newest = |field: fn(&Voice) -> Option<Told>| {
            self.voices
                .iter()
                .filter_map(field)
                .max_by_key(|told| (told.at, told.heard))
        };
        (
            newest(|voice| voice.decode),
            newest(|voice| voice.prefill),
            newest(|voice| voice.used),
        )
    }

    pub(super) fn expire(&mut self, now: Millis) {
        while self
            .waiting
            .front()
            .is_some_and(|(_, since)| now.since(*since) >= UNANSWERED_MS)
        {
            self.waiting.pop_front();
        }
    }
}

impl Booked {
    pub(super) fn book(&mut self, amount: u64, early: bool) -> Part {
        self.open += amount;
        self.after += amount;
        if early {
            self.early += amount;
        }
        Part {
            amount,
            shared: 0,
            requests: 1,
            epoch: self.epoch,
            early,
            ticket: None,
        }
    }

    pub(super) fn arrive(&mut self, part: &mut Part) {
        if part.early {
            self.early = self.early.saturating_sub(part.amount);
            part.early = false;
            part.epoch = self.epoch;
        }
    }

    pub(super) fn sampled(&mut self) {
        self.after = self.early;
        self.ended = 0;
        self.epoch += 1;
    }

    /// Ends a part. What others hold of it stays, so that what is open is what all of them hold, each block once.
    pub(super) fn end(&mut self, part: &Part, kept: u64) {
        let freed = (part.amount + part.shared).saturating_sub(kept);
        self.open = self.open.saturating_sub(freed);
        if part.early {
            self.early = self.early.saturating_sub(part.amount);
        }
        // Of what it frees, the last sample has what was not booked since.
        let since = if part.early || part.epoch == self.epoch {
            part.amount.min(freed)
        } else {
            0
        };
        self.after = self.after.saturating_sub(since);
        self.ended = self.ended.saturating_add(freed - since);
    }
}

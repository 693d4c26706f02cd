//! One rank: what its publishers told, what we booked, and the picture of both that picks read.
//!
//! Writers (samples, bookings) work on [`Cold`] under the slot's own lock and then publish to [`Phase`] atomics.
//! Picks read those alone: one cache line per candidate. A pick that runs between two stores of a writer may
//! see a new value with an old time; it then judges that one rank as it stood a moment ago.

use std::sync::{
    Mutex, MutexGuard, PoisonError, TryLockError,
    atomic::{AtomicU64, Ordering},
};

use continuum_fleet::ids::PublisherId;

pub(crate) use self::cold::Part;
use self::cold::{Booked, Cold, Told};
use super::{Freshness, Sample};
use crate::{
    Millis,
    limits::{RATE_WEIGHT, STALLED_AFTER_MS, UNANSWERED_MS},
};

mod cold;

/// The state of one (worker, rank). Outlives its place in the store while a booking or a table holds it.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    decode: Phase,
    prefill: Phase,
    cold: Mutex<Cold>,
}

/// What picks read of one phase. Times are milliseconds plus one; 0 is never.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Phase {
    /// `active_decode_blocks` or `active_prefill_tokens`.
    value: AtomicU64,
    value_at: AtomicU64,
    /// `kv_used_blocks`, decode alone.
    stand_in: AtomicU64,
    stand_in_at: AtomicU64,
    /// Open bookings.
    open: AtomicU64,
    /// What no sample can tell yet: open bookings that came since the last one, and those that ended since, in its lower
    /// half.
    since: AtomicU64,
    /// Oldest dispatch by which a stall is judged.
    waiting_since: AtomicU64,
    /// Suspect until, shifted by one; the lowest bit says that a live subscription covers the rank.
    standing: AtomicU64,
}

/// When a phase is read, and how old a fresh sample may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AsOf {
    pub(crate) now: Millis,
    /// Oldest time stamp that is fresh.
    oldest: u64,
}

impl AsOf {
    /// `max_staleness` in milliseconds, inclusive.
    pub(crate) fn new(now: Millis, max_staleness: u64) -> Self {
        Self {
            now,
            oldest: stamp(now).saturating_sub(max_staleness).max(1),
        }
    }
}

/// A phase of one rank at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// What the samples say. Never `Stalled`: that is a word about dispatches.
    pub(crate) sample: Freshness,
    /// Given work, and silent since.
    pub(crate) stalled: bool,
    /// Suspected to be dead.
    pub(crate) suspect: bool,
    /// Blocks or tokens in front of a new request: fresh sample and bookings after it, else open bookings.
    pub(crate) backlog: u64,
    /// Open bookings alone.
    pub(crate) open: u64,
    /// Bookings that have ended since the sample, which holds them still.
    pub(crate) ended: u64,
}

impl Reading {
    /// The word for the admin view.
    pub(crate) const fn freshness(&self) -> Freshness {
        match self.sample {
            Freshness::Stale => Freshness::Stale,
            Freshness::Fresh | Freshness::Quiet | Freshness::Stalled | Freshness::Unknown if self.stalled => {
                Freshness::Stalled
            }
            word @ (Freshness::Fresh | Freshness::Quiet | Freshness::Stalled | Freshness::Unknown) => word,
        }
    }
}

/// The merged fields and sums of one rank, for gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) active_decode_blocks: Option<u64>,
    pub(crate) active_prefill_tokens: Option<u64>,
    pub(crate) kv_used_blocks: Option<u64>,
    pub(crate) newest: Option<Millis>,
    pub(crate) requests: u64,
    pub(crate) blocks: u64,
    pub(crate) tokens: u64,
}

impl Slot {
    /// The decode phase.
    #[inline]
    pub(crate) fn decode(&self, at: AsOf) -> Reading {
        let mut reading = self.decode.read(at);
        let waiting = self.decode.waiting_since.load(Ordering::Relaxed);
        if waiting != 0 {
            let mut waited = stamp(at.now).saturating_sub(waiting);
            if waited >= UNANSWERED_MS {
                waited = self.next_waiting(at.now);
            }
            reading.stalled = self.decode.covered() && waited >= STALLED_AFTER_MS;
        }
        reading
    }

    /// The prefill phase. Prefill ranks never stall: real workers are silent while they read a prompt.
    #[inline]
    pub(crate) fn prefill(&self, at: AsOf) -> Reading {
        self.prefill.read(at)
    }

    /// Merges a sample of `publisher`; false when its sequence number is no news.
    pub(crate) fn apply(&self, publisher: PublisherId, sequence: u64, sample: &Sample, now: Millis) -> bool {
        let mut guard = self.lock();
        let cold = &mut *guard;
        let heard = cold.heard + 1;
        let Some(voice) = cold.voice(publisher, sequence, heard) else {
            return false;
        };
        let told = |value: Option<u64>| {
            value.map(|value| Told {
                value,
                at: now,
                heard,
            })
        };
        voice.decode = told(sample.active_decode_blocks).or(voice.decode);
        voice.prefill = told(sample.active_prefill_tokens).or(voice.prefill);
        voice.used = told(sample.kv_used_blocks).or(voice.used);
        cold.heard = heard;
        cold.waiting.clear();
        cold.suspect_until = None;
        if sample.active_decode_blocks.or(sample.kv_used_blocks).is_some() {
            cold.decode.sampled();
        }
        if sample.active_prefill_tokens.is_some() {
            cold.prefill.sampled();
        }
        self.publish(cold);
        true
    }

    /// Drops what `publisher` told. What waits for an answer is dropped too: the answer may have been missed.
    pub(crate) fn forget(&self, publisher: PublisherId) {
        let mut cold = self.lock();
        let before = cold.voices.len();
        cold.voices.retain(|voice| voice.publisher != publisher);
        if cold.voices.len() != before {
            cold.waiting.clear();
            self.publish(&cold);
        }
    }

    /// Says whether a live subscription can speak for the rank.
    pub(crate) fn cover(&self, covered: bool) {
        let mut cold = self.lock();
        if cold.covered != covered {
            cold.covered = covered;
            self.publish(&cold);
        }
    }

    /// Marks the rank as suspect, or clears the mark.
    pub(crate) fn suspect(&self, until: Option<Millis>) {
        let mut cold = self.lock();
        cold.suspect_until = until;
        self.publish(&cold);
    }

    /// Clears the mark of a suspect, if there is one.
    pub(crate) fn trust(&self) {
        let mut cold = self.lock();
        if cold.suspect_until.take().is_some() {
            self.publish(&cold);
        }
    }

    /// A live subscription speaks for the rank.
    pub(crate) fn is_covered(&self) -> bool {
        self.decode.covered()
    }

    pub(crate) fn is_suspect(&self, now: Millis) -> bool {
        self.decode.suspect(now)
    }

    /// Books `blocks` of decode work, beside others that it shares. `early`: the prefill worker of the pair has it first.
    /// `judged`: silence after it is a stall.
    pub(crate) fn book_decode(
        &self,
        (blocks, shared): (u64, u64),
        early: bool,
        judged: bool,
        now: Millis,
    ) -> Part {
        let mut guard = self.lock();
        let cold = &mut *guard;
        let mut part = cold.decode.book(blocks, early);
        part.shared = shared;
        cold.requests += part.requests;
        if judged {
            cold.expire(now);
            cold.next_ticket += 1;
            part.ticket = Some(cold.next_ticket);
            cold.waiting.push_back((cold.next_ticket, now));
        }
        self.publish(cold);
        part
    }

    /// The prefill of a pair has ended: from now on a sample of the decode rank may contain it.
    pub(crate) fn arrive(&self, part: &mut Part) {
        let mut cold = self.lock();
        cold.decode.arrive(part);
        self.publish(&cold);
    }

    /// Ends a decode part. Others hold `kept` of its blocks, shared ones included.
    pub(crate) fn end_decode(&self, part: &Part, kept: u64) {
        let mut guard = self.lock();
        let cold = &mut *guard;
        cold.requests = cold.requests.saturating_sub(part.requests);
        cold.decode.end(part, kept);
        if let Some(ticket) = part.ticket
            && let Ok(place) = cold.waiting.binary_search_by_key(&ticket, |(ticket, _)| *ticket)
        {
            cold.waiting.remove(place);
        }
        self.publish(cold);
    }

    /// Books `tokens` of prefill work; `alone`: the rank decodes too, and counts the request already. Also answers the
    /// rate lately seen, tokens per millisecond.
    pub(crate) fn book_prefill(&self, tokens: u64, alone: bool) -> (Part, Option<f64>) {
        let mut guard = self.lock();
        let cold = &mut *guard;
        let mut part = cold.prefill.book(tokens, false);
        part.requests = u64::from(!alone);
        cold.requests += part.requests;
        self.publish(cold);
        (part, cold.rate)
    }

    /// Ends a prefill part; `took` is known when a stream's first byte ended it.
    pub(crate) fn end_prefill(&self, part: &Part, took: Option<u64>) {
        let mut guard = self.lock();
        let cold = &mut *guard;
        cold.requests = cold.requests.saturating_sub(part.requests);
        cold.prefill.end(part, 0);
        if let Some(took) = took {
            #[expect(clippy::cast_precision_loss, reason = "a rate needs no exact integers")]
            let seen = part.amount as f64 / took.max(1) as f64;
            cold.rate = Some(cold.rate.map_or(seen, |rate| rate + RATE_WEIGHT * (seen - rate)));
        }
        self.publish(cold);
    }

    /// Merged fields and sums.
    pub(crate) fn sums(&self) -> Sums {
        let cold = self.lock();
        let (decode, prefill, used) = cold.merged();
        Sums {
            active_decode_blocks: decode.map(|told| told.value),
            active_prefill_tokens: prefill.map(|told| told.value),
            kv_used_blocks: used.map(|told| told.value),
            newest: [decode, prefill, used]
                .into_iter()
                .flatten()
                .map(|told| told.at)
                .max(),
            requests: cold.requests,
            blocks: cold.decode.open,
            tokens: cold.prefill.open,
        }
    }

    /// How long the oldest dispatch has waited that has not expired. Never waits for a writer.
    fn next_waiting(&self, now: Millis) -> u64 {
        let mut cold = match self.cold.try_lock() {
            Ok(cold) => cold,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return 0,
        };
        cold.expire(now);
        self.publish(&cold);
        cold.waiting.front().map_or(0, |(_, since)| now.since(*since))
    }

    fn lock(&self) -> MutexGuard<'_, Cold> {
        self.cold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, cold: &Cold) {
        let (decode, prefill, used) = cold.merged();
        let standing = cold.suspect_until.map_or(0, |until| until.0 << 1) | u64::from(cold.covered);
        self.decode.publish(decode, used, &cold.decode, standing);
        self.prefill.publish(prefill, None, &cold.prefill, standing);
        let waiting = cold.waiting.front().map_or(0, |(_, since)| stamp(*since));
        self.decode.waiting_since.store(waiting, Ordering::Relaxed);
    }
}

impl Phase {
    #[inline]
    fn read(&self, at: AsOf) -> Reading {
        let value_at = self.value_at.load(Ordering::Acquire);
        let open = self.open.load(Ordering::Relaxed);
        let (sample, backlog) = if value_at >= at.oldest {
            (Freshness::Fresh, self.sampled(&self.value))
        } else {
            let stand_in_at = self.stand_in_at.load(Ordering::Acquire);
            if stand_in_at >= at.oldest {
                (Freshness::Fresh, self.sampled(&self.stand_in))
            } else {
                let last = if value_at >= stand_in_at {
                    &self.value
                } else {
                    &self.stand_in
                };
                (self.silent(last.load(Ordering::Relaxed)), open)
            }
        };
        Reading {
            sample,
            stalled: false,
            suspect: self.suspect(at.now),
            backlog,
            open,
            ended: self.since.load(Ordering::Relaxed) & u64::from(u32::MAX),
        }
    }

    /// What silence after a last word means. A rank that never spoke, or that nothing is left of, last said zero.
    fn silent(&self, last: u64) -> Freshness {
        if !self.covered() {
            Freshness::Unknown
        } else if last > 0 {
            Freshness::Stale
        } else {
            Freshness::Quiet
        }
    }

    #[inline]
    fn sampled(&self, value: &AtomicU64) -> u64 {
        value
            .load(Ordering::Relaxed)
            .saturating_add(self.since.load(Ordering::Relaxed) >> 32)
    }

    #[inline]
    fn covered(&self) -> bool {
        self.standing.load(Ordering::Relaxed) & 1 == 1
    }

    #[inline]
    fn suspect(&self, now: Millis) -> bool {
        self.standing.load(Ordering::Relaxed) >> 1 > now.0
    }

    fn publish(&self, value: Option<Told>, stand_in: Option<Told>, booked: &Booked, standing: u64) {
        let at = |told: Option<Told>| told.map_or(0, |told| stamp(told.at));
        self.value
            .store(value.map_or(0, |told| told.value), Ordering::Relaxed);
        self.value_at.store(at(value), Ordering::Release);
        self.stand_in
            .store(stand_in.map_or(0, |told| told.value), Ordering::Relaxed);
        self.stand_in_at.store(at(stand_in), Ordering::Release);
        self.open.store(booked.open, Ordering::Relaxed);
        let half = |amount: u64| amount.min(u64::from(u32::MAX));
        self.since
            .store(half(booked.after) << 32 | half(booked.ended), Ordering::Relaxed);
        self.standing.store(standing, Ordering::Relaxed);
    }
}

const fn stamp(at: Millis) -> u64 {
    at.0.saturating_add(1)
}

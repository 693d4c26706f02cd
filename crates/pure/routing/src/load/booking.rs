//! What this router has dispatched and not yet seen the end of.
//!
//! A prefill part ends with the head of a streamed answer, where that tells it, else with its first byte. A buffered
//! answer has no such sign: there the part ends when the rate lately seen on streams of that rank says so, or with the
//! request, whichever comes first.
//! While the prefill of a pair runs, no sample of the decode rank can contain the request, so its decode part
//! counts on top of every sample until then.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::slot::{Part, Slot};
use crate::{
    Millis,
    limits::{AWAITED_PREFILLS, BOOKED_PER_REQUEST, MIN_RATED_TOKENS, STALL_BLOCKS},
    picker::Pick,
};

/// What is known of a request when it is dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// Prompt length, see [`prompt_tokens`](crate::picker::prompt_tokens).
    pub prompt_tokens: u64,
    /// The answer is a stream: its beginning tells when the prefill has ended.
    pub streamed: bool,
    /// Whole blocks of the prompt that open requests hold on the decode rank already: they are in memory once.
    pub shared: u32,
}

/// One dispatch on its ranks. Dropping it releases everything that it still counts, exactly once.
#[derive(Debug)]
#[must_use = "dropping a booking ends it"]
pub struct Booking {
    request: Arc<InFlight>,
    agenda: Arc<Agenda>,
}

impl Booking {
    /// Books a pick on its ranks.
    pub(super) fn open(agenda: &Arc<Agenda>, pick: &Pick, dispatch: Dispatch, now: Millis) -> Self {
        let tokens = dispatch.prompt_tokens.min(BOOKED_PER_REQUEST);
        let block_size = pick.decode.worker.card.as_ref().and_then(|card| card.block_size);
        let blocks = block_size.map_or(0, |size| tokens.div_ceil(u64::from(size.max(1))));
        let shared = u64::from(dispatch.shared).min(blocks);
        let blocks = blocks - shared;
        let pair = pick.prefill.is_some();
        let decode =
            pick.decode
                .slot
                .book_decode((blocks, shared), pair, !pair && blocks >= STALL_BLOCKS, now);
        let mut ends_at = None;
        // Where the prompt is known, whoever reads it has work in front, also a worker that serves alone.
        let alone = || pick.credit.is_some().then_some(&pick.decode);
        let prefill = pick.prefill.as_ref().or_else(alone).map(|chosen| {
            // What the rank holds of the prompt is no work for it.
            let work = pick
                .credit
                .map_or(tokens, |credit| credit.uncached_tokens.min(tokens));
            let (part, rate) = chosen.slot.book_prefill(work, !pair);
            if !dispatch.streamed {
                ends_at = rate.and_then(|rate| end_by_rate(work, rate, now));
            }
            (Arc::clone(&chosen.slot), part)
        });
        let parts = Parts {
            decode: Some((Arc::clone(&pick.decode.slot), decode)),
            prefill,
            kept: 0,
        };
        let mut request = InFlight {
            parts: Mutex::new(parts),
            at: now,
            // What is cached is not read: the time of the rest says nothing about a rate.
            rated: dispatch.streamed
                && pick
                    .credit
                    .is_none_or(|credit| credit.uncached_tokens >= MIN_RATED_TOKENS),
            due: None,
        };
        request.due = ends_at.map(|at| agenda.reserve(at));
        let request = Arc::new(request);
        if let Some(due) = request.due {
            agenda.await_end(due, &request);
        }
        Self {
            request,
            agenda: Arc::clone(agenda),
        }
    }

    /// So many of its blocks on the decode rank others hold, who stay when it ends.
    pub fn keep(&self, blocks: u32) {
        self.request.parts().kept = blocks;
    }

    /// The answer shows that the prefill is done, and that the decode worker has the request. Only the first call counts.
    pub fn prefill_ended(&self, now: Millis) {
        self.request.prefill_ended(self.request.took(now));
    }
}

impl Drop for Booking {
    fn drop(&mut self) {
        if let Some(due) = self.request.due {
            self.agenda.strike(due);
        }
        self.request.ended();
    }
}

/// Buffered requests whose prefill ends at a foreseen time.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    awaited: Mutex<BTreeMap<Due, Arc<InFlight>>>,
    tickets: AtomicU64,
    /// Time of the first entry plus one; 0 when there is none.
    first: AtomicU64,
}

/// When, and a number that makes it unique.
type Due = (Millis, u64);

impl Agenda {
    /// Ends the prefill of everything that is due. Never waits for another writer: the next call catches up.
    pub(super) fn advance(&self, now: Millis) {
        let first = self.first.load(Ordering::Relaxed);
        if first == 0 || first > now.0.saturating_add(1) {
            return;
        }
        let Ok(mut awaited) = self.awaited.try_lock() else {
            return;
        };
        let later = awaited.split_off(&(now.plus(1), 0));
        let due = std::mem::replace(&mut *awaited, later);
        self.note_first(&awaited);
        drop(awaited);
        for request in due.into_values() {
            request.prefill_ended(None);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.first.load(Ordering::Relaxed) == 0 && self.awaited.lock().is_ok_and(|awaited| awaited.is_empty())
    }

    fn reserve(&self, at: Millis) -> Due {
        (at, self.tickets.fetch_add(1, Ordering::Relaxed))
    }

    fn await_end(&self, due: Due, request: &Arc<InFlight>) {
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        if awaited.len() < AWAITED_PREFILLS {
            awaited.insert(due, Arc::clone(request));
            self.note_first(&awaited);
        }
    }

    fn strike(&self, due: Due) {
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        awaited.remove(&due);
        self.note_first(&awaited);
    }

    fn note_first(&self, awaited: &BTreeMap<Due, Arc<InFlight>>) {
        let first = awaited
            .first_key_value()
            .map_or(0, |((at, _), _)| at.0.saturating_add(1));
        self.first.store(first, Ordering::Relaxed);
    }
}

/// A request that has been dispatched.
#[derive(Debug)]
struct InFlight {
    parts: Mutex<Parts>,
    at: Millis,
    /// The time to the end of its prefill tells the rate of its rank.
    rated: bool,
    due: Option<Due>,
}

/// What still counts, and where.
#[derive(Debug)]
struct Parts {
    decode: Option<(Arc<Slot>, Part)>,
    prefill: Option<(Arc<Slot>, Part)>,
    /// Decode blocks that stay, for others.
    kept: u32,
}

impl InFlight {
    /// Milliseconds since the dispatch, where they tell the rate of its rank.
    fn took(&self, now: Millis) -> Option<u64> {
        self.rated.then(|| now.since(self.at))
    }

    fn prefill_ended(&self, took: Option<u64>) {
        let mut parts = self.parts();
        if let Some((slot, part)) = parts.prefill.take() {
            slot.end_prefill(&part, took);
            if let Some((slot, part)) = &mut parts.decode {
                slot.arrive(part);
            }
        }
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) {
        let mut parts = self.parts();
        if let Some((slot, part)) = parts.prefill.take() {
            slot.end_prefill(&part, None);
        }
        if let Some((slot, part)) = parts.decode.take() {
            slot.end_decode(&part, parts.kept.into());
        }
    }
}

/// When `tokens` will have been read at `rate` tokens per millisecond.
fn end_by_rate(tokens: u64, rate: f64, now: Millis) -> Option<Millis> {
    #[expect(clippy::cast_precision_loss, reason = "an estimate needs no exact integers")]
    let wait = tokens as f64 / rate;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "finite, not negative, saturating"
    )]
    wait.is_finite().then(|| now.plus(wait.ceil() as u64))
}

//! How often a request may be tried: a pure state machine per request and a budget per pool.
//!
//! The budget keeps a broken pool from being asked twice for everything: of all requests in ten seconds
//! one in five may cause a retry, and at least ten may. Time is an argument.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use super::{
    limits::{BUDGET_FLOOR, BUDGET_ONE_IN, BUDGET_WINDOW_SECS, LOTTERY_REPEATS, REPICKS, SETTLING_PAUSE},
    refusal::{Cause, Meaning},
};

/// What one request may still do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    replicas_left: u8,
    repicks_left: u8,
    lottery_left: u8,
    /// A frontend took it for a good request, and could not reach the workers.
    accepted: bool,
}

/// What to do after a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send the same pin to another replica.
    OtherReplica,
    /// Send the same pin again, to any replica.
    SamePin,
    /// Send the same pin again after a pause.
    SamePinAfter(Duration),
    /// Pick other workers, then send.
    RePick(Cause),
    /// Stop.
    Stop(Stop),
}

/// How a request ends that got no good answer from its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Tell the client to come back, with this status.
    BackPressure(http::StatusCode),
    /// The graph is not complete; other backends if fallback is on.
    ModelNotReady,
    /// There is a prefill pool and no prefill worker was named.
    PrefillDecodeUnavailable,
    /// Relay the answer as it is.
    Relay,
    /// The fallback rules.
    Failed,
}

impl Attempts {
    /// A fresh request that may change replicas `retries` times.
    #[must_use]
    pub const fn new(retries: u8) -> Self {
        Self {
            replicas_left: retries,
            repicks_left: REPICKS,
            lottery_left: LOTTERY_REPEATS,
            accepted: false,
        }
    }

    /// No frontend has taken it for a good request: what refuses it may be right.
    #[must_use]
    pub const fn may_be_invalid(&self) -> bool {
        !self.accepted
    }

    /// The next step after a refusal; `others`: there are replicas that it has not been sent to. Takes from the budget
    /// only what it uses.
    pub fn next(&mut self, meaning: Meaning, others: bool, budget: &Budget, now_secs: u64) -> Step {
        self.accepted |= meaning == Meaning::RePick(Cause::Suspect);
        match meaning {
            Meaning::Replica if others && take(&mut self.replicas_left, budget, now_secs) => {
                Step::OtherReplica
            }
            Meaning::Lottery if take(&mut self.lottery_left, budget, now_secs) => Step::SamePin,
            // The draws are spent: other workers may be in the set that the frontend prefers. Nobody is suspected.
            Meaning::Lottery if take(&mut self.repicks_left, budget, now_secs) => Step::RePick(Cause::Stale),
            Meaning::RePick(cause) if take(&mut self.repicks_left, budget, now_secs) => Step::RePick(cause),
            Meaning::Unconfirmed if take(&mut self.repicks_left, budget, now_secs) => {
                Step::RePick(Cause::Suspect)
            }
            // Without their registry frontends remember different workers.
            Meaning::Unconfirmed if others && take(&mut self.replicas_left, budget, now_secs) => {
                Step::OtherReplica
            }
            Meaning::Unconfirmed if self.accepted => Step::Stop(Stop::Failed),
            Meaning::RePick(Cause::ViewBehind) => Step::Stop(Stop::PrefillDecodeUnavailable),
            Meaning::BackPressure(status) => Step::Stop(Stop::BackPressure(status)),
            Meaning::ModelNotReady => Step::Stop(Stop::ModelNotReady),
            Meaning::Settling if take(&mut self.lottery_left, budget, now_secs) => {
                let before = LOTTERY_REPEATS
                    .saturating_sub(self.lottery_left)
                    .saturating_sub(1);
                Step::SamePinAfter(SETTLING_PAUSE * 2_u32.pow(u32::from(before)))
            }
            Meaning::Client | Meaning::Settling | Meaning::Unconfirmed => Step::Stop(Stop::Relay),
            Meaning::Replica
            | Meaning::Lottery
            | Meaning::RePick(Cause::Stale | Cause::Suspect)
            | Meaning::Failure => Step::Stop(Stop::Failed),
        }
    }
}

fn take(left: &mut u8, budget: &Budget, now_secs: u64) -> bool {
    if *left == 0 || !budget.take(now_secs) {
        return false;
    }
    *left -= 1;
    true
}

/// The retry budget of one pool, shared by all of its requests. Seconds since any fixed moment are the clock.
///
/// Counts are kept per second; two threads that enter a new second together may lose a few counts, which only
/// makes the budget a little larger or smaller for that window.
#[derive(Debug, Default)]
pub struct Budget {
    seconds: [Second; BUDGET_WINDOW_SECS],
}

#[derive(Debug, Default)]
struct Second {
    at: AtomicU64,
    requests: AtomicU32,
    retries: AtomicU32,
}

impl Budget {
    /// Counts one request (not its retries).
    pub fn request(&self, now_secs: u64) {
        if let Some(second) = self.second(now_secs) {
            second.requests.fetch_add(1, Relaxed);
        }
    }

    /// Asks for one retry.
    pub fn take(&self, now_secs: u64) -> bool {
        let (requests, retries) = self.totals(now_secs);
        if retries >= BUDGET_FLOOR.max(requests / BUDGET_ONE_IN) {
            return false;
        }
        if let Some(second) = self.second(now_secs) {
            second.retries.fetch_add(1, Relaxed);
        }
        true
    }

    /// Requests and retries of the last window.
    #[must_use]
    pub fn totals(&self, now_secs: u64) -> (u32, u32) {
        let oldest = stamp(now_secs).saturating_sub(BUDGET_WINDOW_SECS as u64 - 1);
        self.seconds
            .iter()
            .filter(|second| second.at.load(Relaxed) >= oldest)
            .fold((0, 0), |(requests, retries), second| {
                (
                    second.requests.load(Relaxed).saturating_add(requests),
                    second.retries.load(Relaxed).saturating_add(retries),
                )
            })
    }

    fn second(&self, now_secs: u64) -> Option<&Second> {
        let second = self
            .seconds
            .get(usize::try_from(now_secs % BUDGET_WINDOW_SECS as u64).ok()?)?;
        let now = stamp(now_secs);
        let seen = second.at.load(Relaxed);
        if seen != now && second.at.compare_exchange(seen, now, Relaxed, Relaxed).is_ok() {
            second.requests.store(0, Relaxed);
            second.retries.store(0, Relaxed);
        }
        Some(second)
    }
}

/// Stamps start at 1, so that a bucket never used is older than every window.
const fn stamp(now_secs: u64) -> u64 {
    now_secs.saturating_add(BUDGET_WINDOW_SECS as u64)
}

#[cfg(test)]
mod tests;

//! What the message buffers of many connections may hold together.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use crate::limits::{BUDGET_PARTS_FOR_LITTLE, BUDGET_PARTS_OF_LITTLE, KEPT_BUDGETED_BUFFER_BYTES};

/// A number of bytes that connections share. The last part of it is for those that hold little. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: AtomicUsize,
    held: AtomicUsize,
}

impl Budget {
    /// So many bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Shared {
            limit: AtomicUsize::new(limit),
            held: AtomicUsize::new(0),
        }))
    }

    /// Changes the number. Who holds more keeps it until it is given back.
    pub fn set_limit(&self, limit: usize) {
        self.0.limit.store(limit, Relaxed);
    }

    /// Bytes that are held now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.0.held.load(Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let all = self.0.limit.load(Relaxed);
        let little = (all / BUDGET_PARTS_OF_LITTLE).max(KEPT_BUDGETED_BUFFER_BYTES);
        let limit = if bytes <= little {
            all
        } else {
            all - all / BUDGET_PARTS_FOR_LITTLE
        };
        let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= limit);
        self.0.held.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    fn give(&self, bytes: usize) {
        let less = |held: usize| Some(held.saturating_sub(bytes));
        let _always = self.0.held.fetch_update(Relaxed, Relaxed, less);
    }
}

/// What one connection holds of a budget; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Budget,
    bytes: usize,
}

impl Share {
    pub(crate) const fn new(budget: Budget) -> Self {
        Self { budget, bytes: 0 }
    }

    /// Holds `bytes` in place of what it held. Both fit at the same time, as they do while a buffer moves into a
    /// larger one; otherwise nothing changes.
    pub(crate) fn move_to(&mut self, bytes: usize) -> bool {
        let fits = self.budget.take(bytes);
        if fits {
            self.budget.give(std::mem::replace(&mut self.bytes, bytes));
        }
        fits
    }

    pub(crate) fn give_back(&mut self) {
        self.budget.give(std::mem::take(&mut self.bytes));
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_moves_only_where_both_fit_and_ends_with_its_holder() {
        let budget = Budget::new(100);
        let (mut one, mut other) = (Share::new(budget.clone()), Share::new(budget.clone()));
        assert!(one.move_to(40) && other.move_to(40));
        assert!(!one.move_to(60), "40 + 40 + 60");
        assert_eq!(budget.held(), 80);
        drop(other);
        assert!(one.move_to(60));
        assert_eq!(budget.held(), 60);
        budget.set_limit(10);
        assert!(!one.move_to(5));
        one.give_back();
        assert!(one.move_to(5));
        drop(one);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn who_holds_much_leaves_a_part_to_those_who_hold_little() {
        let budget = Budget::new(256 << 20);
        let take = |bytes| {
            let mut share = Share::new(budget.clone());
            share.move_to(bytes).then_some(share)
        };
        let long: Vec<_> = std::iter::from_fn(|| take(8 << 20)).collect();
        assert_eq!(long.len(), 24, "three quarters");
        assert!(take((256 << 10) + 1).is_none());
        let short: Vec<_> = std::iter::from_fn(|| take(64 << 10)).collect();
        assert_eq!(short.len(), 1024, "the last quarter");
        drop(long);
        assert!(take(8 << 20).is_some());
    }
}

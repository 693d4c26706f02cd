//! Remembers what has been said, so that a condition that lasts is logged once.

use std::{borrow::Borrow, collections::BTreeSet};

/// A bounded memory of conditions. At the cap it stays silent about new ones rather than grow.
#[derive(Debug)]
pub struct Said<K> {
    seen: BTreeSet<K>,
    cap: usize,
}

impl<K: Ord> Said<K> {
    /// Remembers up to `cap` conditions.
    #[must_use]
    pub const fn new(cap: usize) -> Self {
        Self {
            seen: BTreeSet::new(),
            cap,
        }
    }

    /// Whether the condition is new: the caller speaks, once, until it is forgotten.
    pub fn first_time(&mut self, key: K) -> bool {
        self.seen.len() < self.cap && self.seen.insert(key)
    }

    /// The condition has ended. Says whether it had been spoken of, so that its end may be told too.
    pub fn forget<Q: Ord + ?Sized>(&mut self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.seen.remove(key)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.seen.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speaks_once_until_forgotten_and_never_grows() {
        let mut said = Said::new(2);
        assert!(said.first_time("a") && !said.first_time("a"));
        assert!(said.first_time("b") && !said.first_time("c"));
        assert!(said.forget("a") && !said.forget("a"));
        assert!(said.first_time("c") && !said.first_time("d"));
        said.clear();
        assert!(said.first_time("d"));
    }
}

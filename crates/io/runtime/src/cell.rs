//! The newest value of something, read without a lock, and a number that says when it changed.
//!
//! Readers of the number pin no old value: a slow one wakes, reads the number, loads the newest value. The value
//! is stored before its number is sent, so whoever saw the number finds that value or a newer one.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch;

/// One value with many readers. Meant to have one writer; several writers are safe, the last one wins.
#[derive(Debug)]
pub struct Cell<T> {
    value: ArcSwap<T>,
    generation: watch::Sender<u64>,
}

impl<T> Cell<T> {
    /// A cell that holds `value`, generation 0.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self {
            value: ArcSwap::from_pointee(value),
            generation: watch::Sender::new(0),
        }
    }

    /// The newest value, kept alive for as long as the caller wants.
    #[must_use]
    pub fn load(&self) -> Arc<T> {
        self.value.load_full()
    }

    /// The newest value for a moment: cheaper than [`Self::load`], not to be held across an await.
    #[must_use]
    pub fn read(&self) -> Guard<Arc<T>> {
        self.value.load()
    }

    /// How often a different value has been published.
    #[must_use]
    pub fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    /// Follows the generation. The receiver has seen the current one.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Waits until the value meets `condition` and returns that value, at once if it does already.
    pub async fn wait_for(&self, mut condition: impl FnMut(&T) -> bool) -> Arc<T> {
        let mut generations = self.subscribe();
        loop {
            generations.mark_unchanged();
            let value = self.load();
            if condition(&value) {
                return value;
            }
            // The sender lives in `self`, so this cannot fail while we are borrowed.
            if generations.changed().await.is_err() {
                return value;
            }
        }
    }
}

impl<T: PartialEq> Cell<T> {
    /// Stores `next` and, when it differs from the value before, moves the generation on. Says whether it did.
    ///
    /// An equal value is stored too: equality may leave things out (time stamps) that a reader still shows.
    pub fn publish(&self, next: T) -> bool {
        let next = Arc::new(next);
        self.generation.send_if_modified(|generation| {
            let differs = **self.value.load() != *next;
            self.value.store(next);
            if differs {
                *generation += 1;
            }
            differs
        })
    }

    /// Publishes what `change` makes of the newest value.
    pub fn update(&self, change: impl FnOnce(&mut T)) -> bool
    where
        T: Clone,
    {
        self.generation.send_if_modified(|generation| {
            let before = self.value.load_full();
            let mut next = T::clone(&before);
            change(&mut next);
            let differs = *before != next;
            self.value.store(Arc::new(next));
            if differs {
                *generation += 1;
            }
            differs
        })
    }
}

impl<T: Default> Default for Cell<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

#[cfg(test)]
mod tests;

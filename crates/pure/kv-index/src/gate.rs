//! A lock that readers hardly wait for.
//!
//! Both sides hold it for microseconds. So who finds it taken looks again before it sleeps, and a writer that has just
//! had it lets readers go first: one that applies event after event cannot keep them out.

use std::{
    hint::spin_loop,
    sync::{
        PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
        atomic::{AtomicUsize, Ordering},
    },
    thread::yield_now,
};

/// Looks at the lock before the processor is given to somebody else.
const SPINS: usize = 100;
/// Times that the processor is given away before the thread sleeps.
const YIELDS: usize = 20;

#[derive(Debug)]
pub(crate) struct Gate<T> {
    lock: RwLock<T>,
    /// Readers that found it taken.
    waiting: AtomicUsize,
}

impl<T> Gate<T> {
    pub(crate) const fn new(state: T) -> Self {
        Self {
            lock: RwLock::new(state),
            waiting: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.try_read().unwrap_or_else(|| self.wait_to_read())
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        let mut looks = 0;
        while self.waiting.load(Ordering::Relaxed) > 0 && looks < SPINS + YIELDS {
            if looks < SPINS {
                spin_loop()
            } else {
                yield_now()
            }
            looks += 1;
        }
        self.lock.write().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn wait_to_read(&self) -> RwLockReadGuard<'_, T> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let guard = self.look_again();
        let guard = guard.unwrap_or_else(|| self.lock.read().unwrap_or_else(PoisonError::into_inner));
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    fn look_again(&self) -> Option<RwLockReadGuard<'_, T>> {
        for _ in 0..YIELDS {
            for _ in 0..SPINS {
                if let Some(guard) = self.try_read() {
                    return Some(guard);
                }
                spin_loop();
            }
            yield_now();
        }
        None
    }

    #[inline]
    fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        match self.lock.try_read() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

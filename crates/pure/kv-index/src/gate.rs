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

/// Writes after one that a reader had to wait for, in which the next reader is expected.
const LATELY: usize = 256;

#[derive(Debug)]
pub(crate) struct Gate<T> {
    lock: RwLock<T>,
    /// Readers that found it taken.
    waiting: AtomicUsize,
    /// Writes until it counts as quiet.
    busy: AtomicUsize,
}

impl<T> Gate<T> {
    pub(crate) const fn new(state: T) -> Self {
        Self {
            lock: RwLock::new(state),
            waiting: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.try_read().unwrap_or_else(|| self.wait_to_read())
    }

    /// Who asks in the ordinary way makes the last reader wake him up, which costs that reader more than the lookup. So
    /// that is done only if there are readers all the time.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        for look in 0..SPINS * YIELDS {
            if self.waiting.load(Ordering::Relaxed) == 0
                && let Some(guard) = self.try_write()
            {
                return guard;
            }
            pause(look);
        }
        self.lock.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Some reader had to wait lately. To be asked once for each write.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        let busy = self.busy.load(Ordering::Relaxed);
        if busy > 0 {
            self.busy.store(busy - 1, Ordering::Relaxed);
        }
        busy > 0
    }

    #[cold]
    fn wait_to_read(&self) -> RwLockReadGuard<'_, T> {
        self.busy.store(LATELY, Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let guard = self.look_again();
        let guard = guard.unwrap_or_else(|| self.lock.read().unwrap_or_else(PoisonError::into_inner));
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    fn look_again(&self) -> Option<RwLockReadGuard<'_, T>> {
        for look in 0..SPINS * YIELDS {
            if let Some(guard) = self.try_read() {
                return Some(guard);
            }
            pause(look);
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

    #[inline]
    fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        match self.lock.try_write() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Waits a little between two looks; gives the processor away after some.
fn pause(look: usize) {
    if look % SPINS == SPINS - 1 {
        yield_now();
    } else {
        spin_loop();
    }
}

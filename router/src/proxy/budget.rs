//! The bytes of all request bodies that this process holds, counted against one budget (`server.body_budget`).
//!
//! Bytes are counted while a body arrives, by what is reserved for it, and are given back when its last reader lets
//! go of them: a body is kept for retries until the head of the answer is here, and a connection to a backend may
//! still be writing it then. Requests without a place are refused, never queued: a queue of bodies is what the budget
//! is there to prevent.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;
use prometheus::{IntGauge, Registry};

use super::limits::{SMALL_BODIES_PART, SMALL_BODY_BYTES};
use crate::{error::Error, live::Live};

/// What is held.
#[derive(Debug)]
pub struct Bodies {
    held: AtomicUsize,
    shown: IntGauge,
}

impl Bodies {
    /// Registers the gauge.
    ///
    /// # Errors
    /// When it is registered already.
    pub fn register(registry: &Registry) -> prometheus::Result<Arc<Self>> {
        let shown = IntGauge::new(
            "continuum_request_body_bytes",
            "Bytes of request bodies that are held, of server.body_budget.",
        )?;
        registry.register(Box::new(shown.clone()))?;
        Ok(Arc::new(Self {
            held: AtomicUsize::new(0),
            shown,
        }))
    }

    /// Bytes that are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// What one request may take, by the configuration that it was let in with.
    pub(crate) fn room(self: &Arc<Self>, live: &Live) -> Room {
        Room {
            bodies: Arc::clone(self),
            limit: live.body_limit,
            budget: live.body_budget,
        }
    }

    fn take(&self, bytes: usize, most: usize) -> Result<(), Error> {
        let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= most);
        match self.held.fetch_update(Relaxed, Relaxed, more) {
            Ok(_) => {
                self.shown.add(gauge(bytes));
                Ok(())
            }
            Err(_) => Err(Error::BodiesFull),
        }
    }

    fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Relaxed);
        self.shown.sub(gauge(bytes));
    }
}

fn gauge(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// What one request may take.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    bodies: Arc<Bodies>,
    limit: usize,
    budget: usize,
}

impl Room {
    /// Bytes of the largest body.
    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    /// A share of so many bytes.
    ///
    /// # Errors
    /// The budget is used up.
    pub(crate) fn share(&self, bytes: usize) -> Result<Share, Error> {
        let mut share = Share {
            room: self.clone(),
            bytes: 0,
        };
        share.resize(bytes)?;
        Ok(share)
    }
}

/// Bytes that one buffer takes of the budget, until this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    room: Room,
    bytes: usize,
}

impl Share {
    /// Makes it so many bytes in all. Small buffers may take the whole budget, others leave a part of it to them.
    ///
    /// # Errors
    /// The budget is used up; then the share stays as it was.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), Error> {
        let Room { bodies, budget, .. } = &self.room;
        match bytes.checked_sub(self.bytes) {
            None => bodies.give_back(self.bytes - bytes),
            Some(0) => {}
            Some(more) => {
                let reserved = if bytes <= SMALL_BODY_BYTES {
                    0
                } else {
                    *budget / SMALL_BODIES_PART
                };
                bodies.take(more, budget.saturating_sub(reserved))?;
            }
        }
        self.bytes = bytes;
        Ok(())
    }

    /// The same bytes, which hold the share until the last handle of them is gone.
    pub(crate) fn around(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(Held { bytes, _share: self })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.room.bodies.give_back(self.bytes);
    }
}

/// The buffer is freed before its share: fields are dropped in order.
struct Held<T> {
    bytes: T,
    _share: Share,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Held<T> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn room(limit: usize, budget: usize) -> (Arc<Bodies>, Room) {
        let bodies = Bodies::register(&Registry::new()).unwrap();
        let room = Room {
            bodies: Arc::clone(&bodies),
            limit,
            budget,
        };
        (bodies, room)
    }

    #[test]
    fn bytes_come_back_with_the_last_handle() {
        let (bodies, room) = room(1000, 4000);
        let share = room.share(100).unwrap();
        let body = share.around(vec![7; 100]);
        let (part, copy) = (body.slice(10..20), body.clone());
        drop(body);
        drop(copy);
        assert_eq!((bodies.held(), bodies.shown.get()), (100, 100));
        assert_eq!(part, [7; 10].as_slice());
        drop(part);
        assert_eq!((bodies.held(), bodies.shown.get()), (0, 0));
    }

    #[test]
    fn large_bodies_leave_a_part_to_small_ones() {
        let budget = 16 * SMALL_BODY_BYTES;
        let (bodies, room) = room(budget, budget);
        let most = budget - budget / SMALL_BODIES_PART;
        let large = room.share(most).unwrap();
        assert_eq!(room.share(SMALL_BODY_BYTES + 1).unwrap_err(), Error::BodiesFull);
        let mut small = room.share(SMALL_BODY_BYTES).unwrap();
        // It is no small one any more.
        assert_eq!(small.resize(SMALL_BODY_BYTES + 1).unwrap_err(), Error::BodiesFull);
        let other = room.share(SMALL_BODY_BYTES).unwrap();
        assert_eq!(room.share(1).unwrap_err(), Error::BodiesFull);
        assert_eq!(bodies.held(), budget);
        drop(large);
        small.resize(SMALL_BODY_BYTES + 1).unwrap();
        drop((small, other));
        assert_eq!(bodies.held(), 0);
    }

    proptest! {
        /// Whatever is taken and given back, the sum is that of the shares, and within the budget.
        #[test]
        fn the_sum_is_that_of_the_shares(steps in proptest::collection::vec((0..6_usize, 0..300_000_usize), 0..60)) {
            let budget = 1 << 20;
            let (bodies, room) = room(budget, budget);
            let mut shares: Vec<Share> = (0..6).map(|_| room.share(0).unwrap()).collect();
            for (at, bytes) in steps {
                let share = &mut shares[at];
                let before = share.bytes;
                let fits = share.resize(bytes).is_ok();
                prop_assert_eq!(share.bytes, if fits { bytes } else { before });
                prop_assert!(fits || bytes > before);
                let sum: usize = shares.iter().map(|share| share.bytes).sum();
                prop_assert_eq!(bodies.held(), sum);
                prop_assert!(sum <= budget);
            }
            drop(shares);
            prop_assert_eq!((bodies.held(), bodies.shown.get()), (0, 0));
        }
    }
}

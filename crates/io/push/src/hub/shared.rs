//! What a router has, as its sessions tell it to controllers.

use std::sync::{Mutex, MutexGuard, PoisonError};

use continuum_messages::{ConfigId, ViewId, push};
use tokio::time::Instant;

use crate::session::Orders;

/// What sessions read when they say what this router has.
#[derive(Debug, Default)]
pub(crate) struct Shared(Mutex<Have>);

#[derive(Debug, Default)]
pub(crate) struct Have {
    pub(super) view: Option<ViewId>,
    pub(super) config: Option<ConfigId>,
    /// When the view was last known to be the present one.
    pub(super) current: Option<Instant>,
    pub(super) stale: bool,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Have> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn follow(&self, orders: Orders) -> push::Follow {
        let have = self.lock();
        push::Follow {
            follow: orders.follow,
            view: have.view.filter(|_| !orders.whole).map(Into::into),
            config: have.config.map(Into::into),
        }
    }

    /// Milliseconds since the view was known to be the present one, and whether it is a kept or unconfirmed one.
    pub(crate) fn age(&self) -> (u64, bool) {
        let have = self.lock();
        let age = have.current.map(|at| at.elapsed());
        let ms = age.map_or(u64::MAX, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        (if have.view.is_some() { ms } else { 0 }, have.stale)
    }
}

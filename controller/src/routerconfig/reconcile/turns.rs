//! Who looks at a RouterConfig: one at a time.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use tokio::sync::{Mutex, MutexGuard};

use crate::{push::Key, routerconfig::limits::TURNS};

/// The first look and the reconciler see the same objects at the same time.
pub(super) struct Turns([Mutex<()>; TURNS]);

impl Default for Turns {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl Turns {
    /// Waits for the turn of who asks.
    pub(super) async fn of(&self, key: &Key) -> Option<MutexGuard<'_, ()>> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let index = usize::try_from(hasher.finish() >> 32).unwrap_or_default() % TURNS;
        Some(self.0.get(index)?.lock().await)
    }
}

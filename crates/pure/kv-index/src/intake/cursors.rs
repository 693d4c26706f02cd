//! How far the streams of one subscription have been read.

use std::collections::BTreeMap;

use continuum_fleet::ids::PublisherId;

use crate::RankKey;

/// How far each (publisher, worker, rank) of one subscription has been read.
#[derive(Debug)]
pub struct Cursors {
    subscription: u64,
    most: usize,
    cursors: BTreeMap<(PublisherId, RankKey), Cursor>,
    begun: u64,
    /// The view by which cursors of departed ranks were let go last.
    pruned: u64,
}

/// How far one stream has been read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    pub(super) subscription: u64,
    /// Its number among the streams of its subscription.
    pub(super) since: u64,
    last: Option<u64>,
}

/// The next event of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Events before it are missing.
    pub(super) gap: bool,
}

impl Cursors {
    /// For a subscription, whose number is its own, and at most so many cursors.
    #[must_use]
    pub const fn new(subscription: u64, most: usize) -> Self {
        Self {
            subscription,
            most,
            cursors: BTreeMap::new(),
            begun: 0,
            pruned: 0,
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cursors.len()
    }

    /// Whether nothing has been read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cursors.is_empty()
    }

    pub(super) const fn subscription(&self) -> u64 {
        self.subscription
    }

    /// The cursor of a stream, begun if it is new; `None` when there is no room for it. Room is made of ranks that are
    /// no longer live, once for each view.
    pub(super) fn of(
        &mut self,
        publisher: PublisherId,
        rank: &RankKey,
        view: u64,
        live: impl Fn(&RankKey) -> bool,
    ) -> Option<&mut Cursor> {
        let key = (publisher, rank.clone());
        if self.cursors.len() >= self.most && !self.cursors.contains_key(&key) {
            if self.pruned == view {
                return None;
            }
            self.pruned = view;
            self.cursors.retain(|(_, rank), _| live(rank));
            if self.cursors.len() >= self.most {
                return None;
            }
        }
        let (subscription, begun) = (self.subscription, &mut self.begun);
        Some(self.cursors.entry(key).or_insert_with(|| {
            *begun += 1;
            Cursor {
                subscription,
                since: *begun,
                last: None,
            }
        }))
    }

    pub(super) fn ranks(&self) -> impl Iterator<Item = (PublisherId, &RankKey)> {
        self.cursors.keys().map(|(publisher, rank)| (*publisher, rank))
    }

    pub(super) fn clear(&mut self) {
        self.cursors.clear();
    }
}

impl Cursor {
    /// Moves on to an event; `None` when it has been read. Any event may be the first.
    pub(super) fn step(&mut self, event: u64) -> Option<Step> {
        let gap = match self.last {
            None => false,
            Some(last) if event <= last => return None,
            Some(last) => event - last > 1,
        };
        self.last = Some(event);
        Some(Step { gap })
    }
}

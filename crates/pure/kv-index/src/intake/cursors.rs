//! How far the streams of one subscription have been read.

use std::{collections::BTreeMap, time::Duration};

use continuum_fleet::ids::PublisherId;

use crate::{RankKey, limits::MAX_STREAMS_PER_RANK};

/// How far each (publisher, worker, rank) of one subscription has been read.
#[derive(Debug)]
pub struct Cursors {
    subscription: u64,
    /// Never empty lists.
    ranks: BTreeMap<RankKey, Vec<Cursor>>,
    begun: u64,
    /// The view by which cursors of departed ranks were let go last.
    pruned: u64,
    /// A rank found no room, and none has found any since.
    full: bool,
}

/// A stream as long as it has a cursor: who loses the cursor is another one when it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) publisher: PublisherId,
    pub(super) subscription: u64,
    /// Its number among the streams of its subscription.
    pub(super) since: u64,
}

/// How far one stream has been read.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    stream: Stream,
    last: u64,
    heard: Duration,
}

/// The next event of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) stream: Stream,
    /// Events before it are missing.
    pub(super) gap: bool,
}

impl Cursors {
    /// For a subscription, whose number is its own.
    #[must_use]
    pub const fn new(subscription: u64) -> Self {
        Self {
            subscription,
            ranks: BTreeMap::new(),
            begun: 0,
            pruned: 0,
            full: false,
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranks.values().map(Vec::len).sum()
    }

    /// Of how many ranks.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.ranks.len()
    }

    /// Whether nothing has been read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// Whether the last new rank found no room, so that nothing is known of it.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.full
    }

    /// Whether a rank has cursors or there is room for them, with `most` ranks together. Room is made of ranks that are no
    /// longer live, once for each view.
    pub(super) fn admit(
        &mut self,
        rank: &RankKey,
        most: usize,
        view: u64,
        live: impl Fn(&RankKey) -> bool,
    ) -> bool {
        if self.ranks.contains_key(rank) {
            return true;
        }
        if self.ranks.len() >= most && self.pruned != view {
            self.pruned = view;
            self.ranks.retain(|rank, _| live(rank));
        }
        self.full = self.ranks.len() >= most;
        !self.full
    }

    /// Moves the cursor of a stream on to an event, and begins one if it is new: any event may be the first. `None` when
    /// the event has been read. Where a rank has no room for one more cursor, that of the stream that was silent for
    /// longest goes, and never that of the one that feeds the rank.
    pub(super) fn step(
        &mut self,
        publisher: PublisherId,
        rank: &RankKey,
        event: u64,
        feeding: Option<Stream>,
        now: Duration,
    ) -> Option<Step> {
        let cursors = self.ranks.entry(rank.clone()).or_default();
        let known = |cursor: &&mut Cursor| cursor.stream.publisher == publisher;
        if let Some(cursor) = cursors.iter_mut().find(known) {
            return cursor.step(event, now);
        }
        if cursors.len() >= MAX_STREAMS_PER_RANK {
            let silent = cursors
                .iter()
                .enumerate()
                .filter(|(_, cursor)| Some(cursor.stream) != feeding)
                .min_by_key(|(_, cursor)| (cursor.heard, cursor.stream.since));
            if let Some((at, _)) = silent {
                cursors.swap_remove(at);
            }
        }
        self.begun += 1;
        let stream = Stream {
            publisher,
            subscription: self.subscription,
            since: self.begun,
        };
        cursors.push(Cursor {
            stream,
            last: event,
            heard: now,
        });
        Some(Step { stream, gap: false })
    }

    pub(super) fn streams(&self) -> impl Iterator<Item = (&RankKey, Stream)> {
        self.ranks
            .iter()
            .flat_map(|(rank, cursors)| cursors.iter().map(move |cursor| (rank, cursor.stream)))
    }

    pub(super) fn clear(&mut self) {
        self.ranks.clear();
    }
}

impl Cursor {
    fn step(&mut self, event: u64, now: Duration) -> Option<Step> {
        if event <= self.last {
            return None;
        }
        let gap = event - self.last > 1;
        (self.last, self.heard) = (event, now);
        Some(Step {
            stream: self.stream,
            gap,
        })
    }
}

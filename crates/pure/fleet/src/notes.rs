//! What a change did, for the caller to count and to log. The reducer itself does neither.
//!
//! Every event is counted; a note exists only for what is worth a line in the log, and only the first time, so
//! the caller logs each note that it gets. A pass holds at most [`MAX_NOTES_PER_PASS`] of them.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    ids::{Graph, ModelName, Namespace, WorkerKey},
    keys::Bucket,
    limits::MAX_NOTES_PER_PASS,
    view::Role,
};

/// Label `kind` of `continuum_dynamo_discovery_events_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// A record was taken in.
    Put,
    /// A record went.
    Delete,
    /// A full list replaced everything.
    Resync,
    /// A record could not be read; it was skipped, and the record before it under the same key stays.
    Malformed,
    /// Several keys claim one identity; none of them is used.
    Duplicate,
    /// Key and value of a record contradict each other, or a card and a component do.
    Mismatch,
    /// A source refused an object that it cannot attribute.
    Refused,
    /// An event channel of a transport that this router does not speak.
    Unsupported,
    /// A cap kept something out.
    OverCapacity,
    /// A source was replaced by a reload.
    Restart,
}

impl EventKind {
    /// Every kind, in order.
    pub const ALL: [Self; 10] = [
        Self::Put,
        Self::Delete,
        Self::Resync,
        Self::Malformed,
        Self::Duplicate,
        Self::Mismatch,
        Self::Refused,
        Self::Unsupported,
        Self::OverCapacity,
        Self::Restart,
    ];

    /// The label's value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Delete => "delete",
            Self::Resync => "resync",
            Self::Malformed => "malformed",
            Self::Duplicate => "duplicate",
            Self::Mismatch => "mismatch",
            Self::Refused => "refused",
            Self::Unsupported => "unsupported",
            Self::OverCapacity => "over_capacity",
            Self::Restart => "restart",
        }
    }
}

/// What is kept out of a view, or is in it as it was before, at one moment: by kind, those that there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused(BTreeMap<EventKind, u64>);

impl Refused {
    /// So many more of a kind.
    pub fn add(&mut self, kind: EventKind, count: u64) {
        if count > 0 {
            let of_kind = self.0.entry(kind).or_default();
            *of_kind = of_kind.saturating_add(count);
        }
    }

    /// Those of another one too.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        other.iter().for_each(|(kind, count)| self.add(kind, count));
        self
    }

    /// By kind, in order.
    pub fn iter(&self) -> impl Iterator<Item = (EventKind, u64)> {
        self.0.iter().map(|(kind, count)| (*kind, *count))
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// How loud a note is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// For somebody who looks into one worker.
    Debug,
    /// Good news after a warning.
    Info,
    /// An operator should know.
    Warn,
}

/// Why a record was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Malformed {
    /// The key is longer than [`crate::limits::MAX_KEY_BYTES`].
    KeyTooLong,
    /// The key is not of the bucket's grammar.
    Key,
    /// The value is longer than [`crate::limits::MAX_RECORD_BYTES`].
    TooLarge,
    /// The value is not JSON of the expected shape.
    Json,
    /// The value's `type` is not that of its bucket.
    Type,
    /// There is no usable id in the value.
    NoId,
    /// A name or address is longer than its cap.
    TooLong,
    /// The event channel has no transport that can be read.
    Transport,
}

impl Malformed {
    /// The word for the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::KeyTooLong => "key_too_long",
            Self::Key => "key",
            Self::TooLarge => "too_large",
            Self::Json => "json",
            Self::Type => "type",
            Self::NoId => "no_id",
            Self::TooLong => "too_long",
            Self::Transport => "transport",
        }
    }
}

/// What contradicts what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mismatch {
    /// The id in the value is not the id in the key.
    Id,
    /// Component, endpoint, suffix, topic or scope of the value are not those of the key.
    Scope,
}

impl Mismatch {
    /// The word for the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Scope => "scope",
        }
    }
}

/// What several keys claim at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConflictKind {
    /// One generate instance: there is no worker.
    Instance,
    /// One base card: the worker has no card.
    BaseCard,
    /// One adapter card: the adapter's name is not served.
    AdapterCard,
    /// One publisher: there is no subscription.
    Channel,
    /// One event source: the publisher is not attributed.
    Source,
}

impl ConflictKind {
    /// The word for the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Instance => "instance",
            Self::BaseCard => "base_card",
            Self::AdapterCard => "adapter_card",
            Self::Channel => "event_channel",
            Self::Source => "event_source",
        }
    }
}

/// Why an object of Kubernetes is not used, or not as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceFault {
    /// `spec.data` is no object of the expected shape; the last valid records of the same object stay.
    Data,
    /// The records are larger than what is left of the total; the last valid ones stay.
    TooLarge,
    /// An endpoint or a card carries another id than the one that its resource's name gives.
    Id,
    /// The name is neither its pod's nor `<pod>-<container>`.
    Owner,
    /// It belongs to a container of a pod that is not there, or may not be read.
    NoPod,
    /// There are more objects than are kept.
    TooMany,
    /// The pod's containers register one by one, which Pods alone do not tell.
    ContainerMode,
    /// Two pod names give the same id: neither is used.
    SameId,
    /// No model is configured for the pod's component.
    NoModel,
}

impl ResourceFault {
    /// The word for the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::TooLarge => "too_large",
            Self::Id => "id",
            Self::Owner => "owner",
            Self::NoPod => "no_pod",
            Self::TooMany => "too_many",
            Self::ContainerMode => "container_mode",
            Self::SameId => "same_id",
            Self::NoModel => "no_model",
        }
    }

    /// The counter that it is added to; `None` when it is nothing wrong.
    #[must_use]
    pub const fn kind(self) -> Option<EventKind> {
        match self {
            Self::Data => Some(EventKind::Malformed),
            Self::Id => Some(EventKind::Mismatch),
            Self::Owner | Self::NoPod | Self::ContainerMode => Some(EventKind::Refused),
            Self::TooLarge | Self::TooMany => Some(EventKind::OverCapacity),
            Self::SameId => Some(EventKind::Duplicate),
            Self::NoModel => None,
        }
    }

    /// Whether the last valid records are better than none.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        match self {
            Self::Data | Self::TooLarge => true,
            Self::Id
            | Self::Owner
            | Self::NoPod
            | Self::TooMany
            | Self::ContainerMode
            | Self::SameId
            | Self::NoModel => false,
        }
    }
}

/// Something worth a line in the log.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// A record was skipped.
    Malformed {
        /// Its key, cut to a readable length.
        key: Arc<str>,
        /// Why.
        why: Malformed,
    },
    /// A record was rejected because key and value contradict each other.
    Mismatch {
        /// Its key.
        key: Arc<str>,
        /// What differs.
        what: Mismatch,
    },
    /// An object of Kubernetes is not used, or not as it is now.
    Resource {
        /// Its name.
        name: Arc<str>,
        /// Why.
        what: ResourceFault,
    },
    /// Several keys claim one identity.
    Duplicate {
        /// What they claim.
        kind: ConflictKind,
        /// Whom they claim to be, in words: no address, no card.
        identity: String,
        /// How many keys.
        count: usize,
        /// The first of them, at most [`crate::limits::MAX_KEYS_IN_REPORT`].
        keys: Vec<Arc<str>>,
    },
    /// A conflict that was reported is over.
    Resolved {
        /// What was claimed.
        kind: ConflictKind,
        /// Whom.
        identity: String,
    },
    /// The component's name and the card give a worker different roles; it is left out.
    RoleConflict {
        /// The worker.
        worker: WorkerKey,
        /// What the component's name says.
        component: Role,
        /// What the card says.
        card: Role,
    },
    /// An event channel needs a transport that this router does not speak.
    Unsupported {
        /// Its key.
        key: Arc<str>,
    },
    /// A key space is full.
    KeySpaceFull {
        /// Which.
        bucket: Bucket,
        /// Its cap.
        cap: usize,
    },
    /// Opaque JSON of a card was dropped: too large by itself, or the total budget is spent.
    CardDropped {
        /// The card's key.
        key: Arc<str>,
        /// Its length in bytes.
        bytes: usize,
    },
    /// A worker declares more ranks or names than take part in routing.
    WorkerTooWide {
        /// The worker.
        worker: WorkerKey,
        /// What there is too much of.
        what: TooWide,
    },
    /// A namespace serves one model with prefill or decode workers and with aggregated ones: a frontend picks
    /// one set at random and refuses pins of the other.
    MixedNamespace {
        /// The graph.
        graph: Graph,
        /// The namespace.
        namespace: Namespace,
        /// The model.
        model: ModelName,
        /// Workers by role.
        prefill: usize,
        /// Workers by role.
        decode: usize,
        /// Workers by role.
        aggregated: usize,
    },
    /// A pool serves one model with several sets of one role (generations, or components): a frontend draws one
    /// of them for each request, so a correct pin may be refused and has to be repeated.
    SeveralSets {
        /// The graph.
        graph: Graph,
        /// The model.
        model: ModelName,
        /// How many namespaces serve it.
        namespaces: usize,
        /// How many sets there are.
        sets: usize,
    },
    /// More models became mixed, or came into several sets, in this pass than are reported one by one.
    MixedNamespacesOmitted {
        /// Reported one by one.
        reported: usize,
        /// Left out.
        omitted: usize,
    },
    /// The version that a worker's card names; once per instance.
    Release {
        /// The worker.
        worker: WorkerKey,
        /// The card's field.
        field: &'static str,
        /// Its text.
        version: Arc<str>,
    },
}

/// What a worker has too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TooWide {
    /// [`crate::limits::MAX_RANKS_PER_WORKER`].
    Ranks,
    /// [`crate::limits::MAX_NAMES_PER_WORKER`].
    Names,
}

impl TooWide {
    /// The word for the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ranks => "ranks",
            Self::Names => "names",
        }
    }
}

impl Note {
    /// How loud it is.
    #[must_use]
    pub const fn level(&self) -> Level {
        match self {
            Self::Resource {
                what: ResourceFault::NoModel,
                ..
            } => Level::Debug,
            Self::Malformed { .. }
            | Self::Mismatch { .. }
            | Self::Resource { .. }
            | Self::Duplicate { .. }
            | Self::RoleConflict { .. }
            | Self::Unsupported { .. }
            | Self::KeySpaceFull { .. }
            | Self::CardDropped { .. }
            | Self::WorkerTooWide { .. }
            | Self::MixedNamespace { .. }
            | Self::SeveralSets { .. }
            | Self::MixedNamespacesOmitted { .. } => Level::Warn,
            Self::Resolved { .. } => Level::Info,
            Self::Release { .. } => Level::Debug,
        }
    }

    /// The counter that the event behind the note was added to, if it has one.
    #[must_use]
    pub const fn kind(&self) -> Option<EventKind> {
        match self {
            Self::Malformed { .. } => Some(EventKind::Malformed),
            Self::Mismatch { .. } | Self::RoleConflict { .. } => Some(EventKind::Mismatch),
            Self::Resource { what, .. } => what.kind(),
            Self::Duplicate { .. } => Some(EventKind::Duplicate),
            Self::Unsupported { .. } => Some(EventKind::Unsupported),
            Self::KeySpaceFull { .. } | Self::CardDropped { .. } | Self::WorkerTooWide { .. } => {
                Some(EventKind::OverCapacity)
            }
            Self::Resolved { .. }
            | Self::MixedNamespace { .. }
            | Self::SeveralSets { .. }
            | Self::MixedNamespacesOmitted { .. }
            | Self::Release { .. } => None,
        }
    }
}

/// Counts and notes of one pass: one change, or one full list. Empty notes own no memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Notes {
    counts: [u64; EventKind::ALL.len()],
    lines: Vec<Note>,
    omitted: u64,
}

impl Notes {
    /// Events of one kind.
    #[must_use]
    pub fn count(&self, kind: EventKind) -> u64 {
        self.counts.get(kind as usize).copied().unwrap_or_default()
    }

    /// Events by kind, those that happened.
    pub fn counts(&self) -> impl Iterator<Item = (EventKind, u64)> {
        EventKind::ALL
            .into_iter()
            .zip(self.counts)
            .filter(|(_, count)| *count > 0)
    }

    /// What to log, each line once.
    #[must_use]
    pub fn lines(&self) -> &[Note] {
        &self.lines
    }

    /// Notes left out because the pass had too many: log their number.
    #[must_use]
    pub const fn omitted(&self) -> u64 {
        self.omitted
    }

    /// Counts one event.
    pub(crate) fn add(&mut self, kind: EventKind) {
        if let Some(count) = self.counts.get_mut(kind as usize) {
            *count += 1;
        }
    }

    /// Adds a line.
    pub(crate) fn say(&mut self, note: Note) {
        if self.lines.len() < MAX_NOTES_PER_PASS {
            self.lines.push(note);
        } else {
            self.omitted += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_under_their_own_label() {
        for (index, kind) in EventKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            let mut notes = Notes::default();
            notes.add(kind);
            assert_eq!(notes.counts().collect::<Vec<_>>(), [(kind, 1)]);
        }
    }

    #[test]
    fn a_pass_keeps_a_bounded_number_of_lines() {
        let mut notes = Notes::default();
        for _ in 0..MAX_NOTES_PER_PASS + 3 {
            notes.say(Note::Unsupported { key: "k".into() });
        }
        assert_eq!((notes.lines().len(), notes.omitted()), (MAX_NOTES_PER_PASS, 3));
    }
}

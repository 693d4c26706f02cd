//! From a source to the cell: changes go through the reducer, notes to the log and the counters, views to readers.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use continuum_fleet::{
    EventKind, Note, Notes, Reducer, Refused, ids::Graph, limits::Limits, notes::Level, view::FleetView,
};
use continuum_runtime::cell::Cell;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::{
    metrics::Metrics,
    source::{Batch, Lost, Seed},
    state::Mirror,
};

/// The way of a fleet into this process. One watcher at a time writes to it.
#[derive(Debug)]
pub(crate) struct Feed {
    reducer: Reducer,
    cell: Arc<Cell<FleetView>>,
    metrics: Metrics,
    mirror: Option<Mirror>,
    /// Kinds of losses that the log has, until a full list is without them.
    said: BTreeSet<EventKind>,
    /// What is kept out now: by the source, since the last full list, and by the reducer.
    refused: [Refused; 3],
}

/// A feed that its watcher and the supervisor share.
#[derive(Clone, Debug)]
pub(crate) struct SharedFeed(Arc<Mutex<Feed>>);

impl SharedFeed {
    pub(crate) fn new(
        reducer: Reducer,
        cell: Arc<Cell<FleetView>>,
        metrics: Metrics,
        mirror: Option<Mirror>,
    ) -> Self {
        Self(Arc::new(Mutex::new(Feed {
            reducer,
            cell,
            metrics,
            mirror,
            said: BTreeSet::new(),
            refused: Default::default(),
        })))
    }

    /// Takes a full list of `names` over without publishing, unless the watcher that read it has been asked to stop: what comes
    /// after it must not be overwritten.
    pub(crate) fn take_unless(&self, stop: &CancellationToken, seed: Seed, names: &[Graph]) {
        let mut feed = self.lock();
        if !stop.is_cancelled() {
            feed.take(seed, names);
        }
    }

    /// As [`Feed::retain`], off the async threads: a list may be being taken over.
    pub(crate) async fn retain(&self, namespaces: Vec<Graph>) {
        let this = self.clone();
        let _lost = tokio::task::spawn_blocking(move || this.lock().retain(namespaces)).await;
    }

    /// Waits for a list that is being taken over, off the async threads.
    pub(crate) async fn settled(&self) {
        let this = self.clone();
        let _lost = tokio::task::spawn_blocking(move || drop(this.lock())).await;
    }

    /// The lock is held for the work of one batch and never across an await.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Feed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Feed {
    /// What an earlier process kept is what is known; one view follows.
    pub(crate) fn restore(&mut self, seed: Seed) {
        self.take(seed, &[]);
        self.publish();
    }

    /// A full list of `names` replaces what was known.
    fn take(&mut self, seed: Seed, names: &[Graph]) {
        for (kind, count) in losses(seed.lost) {
            if count == 0 {
                self.said.remove(&kind);
            }
        }
        let [of_source, lost, of_reducer] = &mut self.refused;
        *of_source = seed.refused;
        *lost = Refused::default();
        let notes = self
            .reducer
            .reset(seed.entries.iter().map(|(k, v)| (k, v)), Timestamp::now());
        *of_reducer = self.reducer.refused();
        self.lost(seed.lost);
        self.report(&seed.notes);
        self.report(&notes);
        if let Some(mirror) = &mut self.mirror {
            mirror.reset(seed.entries, names);
        }
    }

    /// Applies changes without publishing: the caller publishes once for all that are at hand.
    pub(crate) fn apply(&mut self, batch: Batch) {
        self.lost(batch.lost);
        self.report(&batch.notes);
        let [of_source, _, of_reducer] = &mut self.refused;
        if let Some(refused) = batch.refused {
            *of_source = refused;
        }
        let now = Timestamp::now();
        if let Some(mirror) = &mut self.mirror {
            batch.changes.iter().for_each(|change| mirror.apply(change));
        }
        let notes = self.reducer.apply_all(batch.changes, now);
        *of_reducer = self.reducer.refused();
        self.report(&notes);
    }

    /// Shows readers the present view.
    pub(crate) fn publish(&self) {
        self.cell.publish(self.reducer.view());
    }

    /// Drops what belongs to namespaces that are no longer configured; the others are not touched.
    pub(crate) fn retain(&mut self, namespaces: Vec<Graph>) {
        let notes = self.reducer.retain_namespaces(namespaces, Timestamp::now());
        self.report(&notes);
        self.publish();
    }

    /// The caps that it works under.
    pub(crate) const fn limits(&self) -> Limits {
        self.reducer.settings().limits
    }

    /// Whether a full list would bring back what a cap kept out.
    pub(crate) fn wants_reset(&self) -> bool {
        self.reducer.wants_reset()
    }

    /// What is kept out of the view now, or is in it as it was before.
    pub(crate) fn refused(&self) -> Refused {
        let [of_source, lost, of_reducer] = &self.refused;
        of_source.clone().and(lost).and(of_reducer)
    }

    /// Where the view is kept on disk, if it is.
    pub(crate) const fn mirror(&mut self) -> Option<&mut Mirror> {
        self.mirror.as_mut()
    }

    /// Keeps the view elsewhere, or no longer. The next full list fills it.
    pub(crate) fn set_mirror(&mut self, mirror: Option<Mirror>) {
        self.mirror = mirror;
    }

    /// Counts what could not be read, and says it once: whoever writes such records may go on for ever.
    fn lost(&mut self, lost: Lost) {
        for (kind, count) in losses(lost) {
            if count == 0 {
                continue;
            }
            self.metrics.count(kind, count);
            let [_, lost, _] = &mut self.refused;
            lost.add(kind, count);
            if self.said.insert(kind) {
                tracing::warn!(
                    kind = kind.as_str(),
                    count,
                    "records could not be read and were skipped"
                );
            } else {
                tracing::debug!(kind = kind.as_str(), count, "more records were skipped");
            }
        }
    }

    fn report(&self, notes: &Notes) {
        for (kind, count) in notes.counts() {
            self.metrics.count(kind, count);
        }
        for note in notes.lines() {
            log(note);
        }
        if notes.omitted() > 0 {
            tracing::warn!(
                count = notes.omitted(),
                "more records were found wanting than are logged one by one"
            );
        }
    }
}

const fn losses(lost: Lost) -> [(EventKind, u64); 2] {
    [
        (EventKind::Malformed, lost.malformed),
        (EventKind::OverCapacity, lost.over_capacity),
    ]
}

/// One line per note. The reducer says each condition once.
fn log(note: &Note) {
    // One place decides the level, so that a note cannot be louder here than the fleet model says.
    macro_rules! say {
        ($($fields:tt)*) => {
            match note.level() {
                Level::Warn => tracing::warn!($($fields)*),
                Level::Info => tracing::info!($($fields)*),
                Level::Debug => tracing::debug!($($fields)*),
            }
        };
    }
    match note {
        Note::Malformed { key, why } => say!(%key, why = why.as_str(), "skipped a record"),
        Note::Mismatch { key, what } => {
            say!(%key, what = what.as_str(), "rejected a record whose key and value contradict each other");
        }
        Note::Resource { name, what } => {
            say!(%name, what = what.as_str(), "a resource is not used, or not as it is now");
        }
        Note::Duplicate {
            kind,
            identity,
            count,
            keys,
        } => {
            say!(
                kind = kind.as_str(),
                identity,
                count,
                ?keys,
                "refused records that claim one identity"
            );
        }
        Note::Resolved { kind, identity } => {
            say!(
                kind = kind.as_str(),
                identity,
                "an identity is claimed once again"
            );
        }
        Note::RoleConflict {
            worker,
            component,
            card,
        } => say!(
            namespace = %worker.namespace,
            instance = worker.instance.hex(),
            component = component.as_str(),
            card = card.as_str(),
            "left out a worker whose component and card name different roles"
        ),
        Note::Unsupported { key } => say!(%key, "an event channel has a transport that is not supported"),
        Note::KeySpaceFull { bucket, cap } => {
            say!(
                bucket = bucket.as_str(),
                cap,
                "a key space is full; further keys are refused"
            );
        }
        Note::CardDropped { key, bytes } => {
            say!(%key, bytes, "dropped the opaque part of a model card; the worker stays");
        }
        Note::WorkerTooWide { worker, what } => say!(
            namespace = %worker.namespace,
            instance = worker.instance.hex(),
            what = what.as_str(),
            "a worker declares more than takes part in routing"
        ),
        Note::MixedNamespace {
            graph,
            namespace,
            model,
            prefill,
            decode,
            aggregated,
        } => say!(
            %graph,
            %namespace,
            %model,
            prefill,
            decode,
            aggregated,
            "a namespace serves a model with split and with aggregated workers; its frontend refuses some pins"
        ),
        Note::SeveralSets {
            graph,
            model,
            namespaces,
            sets,
        } => say!(
            %graph,
            %model,
            namespaces,
            sets,
            "a model is served by several worker sets of one pool; a frontend may refuse correct pins"
        ),
        Note::MixedNamespacesOmitted { reported, omitted } => {
            say!(
                reported,
                omitted,
                "more namespaces became mixed than are logged one by one"
            );
        }
        Note::Release {
            worker,
            field,
            version,
        } => say!(
            namespace = %worker.namespace,
            instance = worker.instance.hex(),
            field,
            %version,
            "a worker names its release"
        ),
    }
}

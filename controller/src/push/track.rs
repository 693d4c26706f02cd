//! One source as one set of Dynamo namespaces sees it: published once, whatever the number of routers.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use continuum_fleet::{Graphs, ids::Graph, view::FleetView};
use continuum_messages::{Digest, Epoch, Published, push};
use tokio::{sync::watch, time::Instant};

use super::{
    counts::counts,
    filter::Filter,
    limits::{KEPT_DIFFERENCES, RECENT_VIEWS, SUPERSEDED_VIEWS},
};

/// A published view, when it was published, and differences to it that sessions share.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) published: Arc<Published>,
    pub(super) at: Instant,
    differences: Mutex<Vec<(Digest, Arc<[push::ViewUpdate]>)>>,
    counts: OnceLock<Arc<push::FleetCounts>>,
}

impl Version {
    fn new(published: Published) -> Arc<Self> {
        Arc::new(Self {
            published: Arc::new(published),
            at: Instant::now(),
            differences: Mutex::default(),
            counts: OnceLock::new(),
        })
    }

    pub(super) fn digest(&self) -> Digest {
        self.published.id.digest
    }

    /// What it holds, counted once for all that ask.
    pub(super) fn counts(&self) -> Arc<push::FleetCounts> {
        let counts = self.counts.get_or_init(|| counts(&self.published.view).into());
        Arc::clone(counts)
    }

    /// What makes this view of `base`, made once for the sessions that are there.
    pub(super) fn since(&self, base: &Self) -> Arc<[push::ViewUpdate]> {
        // Held while it is made: the others wait for it instead of making it again.
        let mut kept = self.differences.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, parts)) = kept.iter().find(|(digest, _)| *digest == base.digest()) {
            return Arc::clone(parts);
        }
        let parts: Arc<[push::ViewUpdate]> = self.published.since(&base.published).into();
        if kept.len() >= KEPT_DIFFERENCES {
            kept.remove(0);
        }
        kept.push((base.digest(), Arc::clone(&parts)));
        parts
    }
}

/// What sessions follow.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// The newest view; `None` before the source's first.
    pub(super) newest: Option<Arc<Version>>,
    /// The source, `None` before it was told.
    pub(super) source: Option<Arc<push::SourceState>>,
}

/// The newest view of a source for a set of namespaces, and some before it.
#[derive(Debug)]
pub(super) struct Track {
    seen: watch::Sender<Seen>,
    names: Vec<Graph>,
    origins: Arc<[String]>,
    work: Mutex<Work>,
}

#[derive(Debug)]
struct Work {
    filter: Filter,
    epoch: Epoch,
    recent: VecDeque<Arc<Version>>,
    /// What views there were before the newest one, and when the next one took their place; the newest comes last.
    superseded: VecDeque<(Digest, Instant)>,
}

impl Track {
    pub(super) fn new(graphs: Graphs, origins: Arc<[String]>, epoch: Epoch) -> Self {
        Self {
            seen: watch::Sender::default(),
            names: graphs.names().to_vec(),
            origins,
            work: Mutex::new(Work {
                filter: Filter::new(graphs),
                epoch,
                recent: VecDeque::new(),
                superseded: VecDeque::new(),
            }),
        }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Seen> {
        self.seen.subscribe()
    }

    pub(super) fn newest(&self) -> Option<Arc<Version>> {
        self.seen.borrow().newest.clone()
    }

    /// A view of the source. Nothing happens if these namespaces see no difference.
    pub(super) fn view(&self, view: &FleetView) {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let part = work.filter.apply(view);
        let next = match work.recent.back() {
            None => Published::first(part, work.epoch),
            Some(newest) if newest.published.view == part => return,
            Some(newest) => {
                let next = newest.published.next(part);
                if next.id == newest.published.id {
                    return;
                }
                next
            }
        };
        let version = Version::new(next);
        if let Some(before) = work.recent.back().map(|before| before.digest()) {
            if work.superseded.len() >= SUPERSEDED_VIEWS {
                work.superseded.pop_front();
            }
            work.superseded.push_back((before, version.at));
        }
        if work.recent.len() >= RECENT_VIEWS {
            work.recent.pop_front();
        }
        work.recent.push_back(Arc::clone(&version));
        self.seen.send_modify(|seen| seen.newest = Some(version));
    }

    /// What the source is doing; routers are told what its views are of together with it. With `listed` it is synced as far
    /// as its last full list looked for these namespaces.
    pub(super) fn source(&self, state: &push::SourceState, listed: Option<&[Graph]>) {
        let synced = listed.map_or(state.synced, |listed| {
            self.names.iter().all(|name| listed.contains(name))
        });
        let state = push::SourceState {
            synced,
            origins: self.origins.to_vec(),
            ..state.clone()
        };
        self.seen.send_if_modified(|seen| {
            let differs = seen.source.as_deref() != Some(&state);
            if differs {
                seen.source = Some(Arc::new(state));
            }
            differs
        });
    }

    /// How long ago another view took the place of this one; `None` for the newest and for one that is not known.
    pub(super) fn superseded(&self, digest: Digest) -> Option<Duration> {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if work.recent.back().is_some_and(|newest| newest.digest() == digest) {
            return None;
        }
        let mut before = work.superseded.iter().rev();
        let (_, at) = before.find(|(of, _)| *of == digest)?;
        Some(at.elapsed())
    }

    /// A view that a router has, if it is one of the last.
    pub(super) fn find(&self, digest: Digest) -> Option<Arc<Version>> {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.recent
            .iter()
            .rev()
            .find(|version| version.digest() == digest)
            .map(Arc::clone)
    }
}

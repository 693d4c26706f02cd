//! What is true now, by `RouterConfig` and by source.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use continuum_fleet::{Graphs, ids::Graph, view::FleetView};
use continuum_messages::{ConfigId, Digest, Epoch, Published, push};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    Key, Metrics, Sessions,
    track::{Track, Version},
};

/// A source that the hub knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(u64);

/// The fleet that a `RouterConfig` sees: some Dynamo namespaces of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// The source.
    pub source: SourceId,
    /// The configured Dynamo namespaces, and how they match.
    pub graphs: Graphs,
    /// What routers are told that the views are of: see `continuum_config::model::Discovery::origins`.
    pub origins: Arc<[String]>,
}

/// The one place where the controller says what is true, and where sessions read it.
#[derive(Debug)]
pub struct Hub {
    replica: String,
    epoch: Epoch,
    leader: AtomicBool,
    stop: CancellationToken,
    inner: Mutex<Inner>,
    pub(super) sessions: Sessions,
    pub(super) metrics: Metrics,
}

/// What the sessions of a `RouterConfig` follow.
#[derive(Clone, Debug, Default)]
pub(super) struct Feed {
    pub(super) config: Option<Arc<Config>>,
    /// `None`: its routers read their fleet themselves.
    pub(super) track: Option<Arc<Track>>,
}

/// A config as it is sent.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) id: ConfigId,
    pub(super) uid: String,
    pub(super) text: String,
}

#[derive(Debug, Default)]
struct Inner {
    next_source: u64,
    sources: BTreeMap<SourceId, Source>,
    feeds: BTreeMap<Key, Slot>,
}

#[derive(Debug)]
struct Slot {
    feed: watch::Sender<Feed>,
    fleet: Option<Fleet>,
}

#[derive(Debug, Default)]
struct Source {
    view: Option<FleetView>,
    state: Option<Arc<push::SourceState>>,
    /// What its last full list looked for, where that is told.
    listed: Option<Arc<[Graph]>>,
    /// By names and matching rule; a track lives as long as a feed has it.
    tracks: BTreeMap<(Vec<Graph>, &'static str), Weak<Track>>,
}

impl Hub {
    /// A hub that knows nothing. `replica` is the pod's name; `epoch` is drawn by chance for each life.
    #[must_use]
    pub fn new(replica: impl Into<String>, epoch: Epoch, metrics: Metrics) -> Arc<Self> {
        Arc::new(Self {
            replica: replica.into(),
            epoch,
            leader: AtomicBool::new(false),
            stop: CancellationToken::new(),
            inner: Mutex::default(),
            sessions: Sessions::default(),
            metrics,
        })
    }

    /// The config of a `RouterConfig`, made from its `generation`; an empty `uid` is not told. Its routers may open
    /// sessions from now on.
    pub fn set_config(&self, key: &Key, uid: &str, generation: i64, text: &str) {
        let id = ConfigId::of(generation, text);
        self.with_slot(key, |slot| {
            slot.feed.send_if_modified(|feed| {
                let same = |config: &Arc<Config>| config.id == id && config.uid == uid;
                let differs = !feed.config.as_ref().is_some_and(same);
                if differs {
                    feed.config = Some(Arc::new(Config {
                        id,
                        uid: uid.to_owned(),
                        text: text.to_owned(),
                    }));
                }
                differs
            });
        });
    }

    /// The fleet of a `RouterConfig`; `None` when its routers read their fleet themselves.
    pub fn set_fleet(&self, key: &Key, fleet: Option<Fleet>) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let slot = inner.feeds.entry(key.clone()).or_insert_with(Slot::new);
        if slot.fleet == fleet {
            return;
        }
        let track = fleet.as_ref().and_then(|fleet| {
            let source = inner.sources.get_mut(&fleet.source)?;
            Some(source.track(fleet, self.epoch))
        });
        slot.feed.send_modify(|feed| feed.track = track);
        slot.fleet = fleet;
    }

    /// The `RouterConfig` is gone: its sessions end, and no more are taken.
    pub fn remove(&self, key: &Key) {
        self.lock().feeds.remove(key);
    }

    /// A new source, without a view.
    pub fn add_source(&self) -> SourceId {
        let mut inner = self.lock();
        let id = SourceId(inner.next_source);
        inner.next_source = inner.next_source.saturating_add(1);
        inner.sources.insert(id, Source::default());
        id
    }

    /// The source is gone. Routers that follow it keep its last view until their `RouterConfig` gets another fleet.
    pub fn remove_source(&self, id: SourceId) {
        self.lock().sources.remove(&id);
    }

    /// The newest view of a source. Computes what differs and wakes the sessions; the work is that of the change.
    pub fn set_view(&self, id: SourceId, view: &FleetView) {
        let tracks = {
            let mut inner = self.lock();
            let Some(source) = inner.sources.get_mut(&id) else {
                return;
            };
            source.view = Some(view.clone());
            source.live_tracks()
        };
        for track in tracks {
            track.view(view);
        }
    }

    /// What a source is doing, for all that see it.
    pub fn set_source_state(&self, id: SourceId, state: push::SourceState) {
        self.set_source(id, state, None);
    }

    /// What a source is doing, and which Dynamo namespaces its last full list looked for: it is synced for those who see
    /// none but these, whoever else has just come to it.
    pub fn set_source(&self, id: SourceId, state: push::SourceState, listed: Option<Arc<[Graph]>>) {
        let state = Arc::new(state);
        let mut inner = self.lock();
        let Some(source) = inner.sources.get_mut(&id) else {
            return;
        };
        for track in source.live_tracks() {
            track.source(&state, listed.as_deref());
        }
        (source.state, source.listed) = (Some(state), listed);
    }

    /// Whether this replica leads; told to routers, decides nothing here.
    pub fn set_leader(&self, leader: bool) {
        self.leader.store(leader, Ordering::Relaxed);
    }

    /// The newest view that the routers of a `RouterConfig` are given; `None` before the first, and for routers that
    /// read their fleet themselves.
    #[must_use]
    pub fn published(&self, key: &Key) -> Option<Arc<Published>> {
        Some(Arc::clone(&self.newest(key)?.published))
    }

    /// The content of that view, and what it holds. It is counted once, however many `RouterConfig`s see it.
    #[must_use]
    pub fn counted(&self, key: &Key) -> Option<(Digest, Arc<push::FleetCounts>)> {
        let newest = self.newest(key)?;
        Some((newest.digest(), newest.counts()))
    }

    /// The config that the routers of a `RouterConfig` are given.
    #[must_use]
    pub fn config(&self, key: &Key) -> Option<ConfigId> {
        self.feed(key)?.borrow().config.as_ref().map(|config| config.id)
    }

    /// How long ago another view took the place of one that a router has; `None` for the newest one, and for one that this
    /// replica does not know.
    #[must_use]
    pub fn superseded(&self, key: &Key, view: Digest) -> Option<Duration> {
        let feed = self.feed(key)?;
        let track = feed.borrow().track.clone()?;
        track.superseded(view)
    }

    /// What routers report.
    #[must_use]
    pub const fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Ends every session and takes no more; the routers go to another replica at once.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    pub(super) const fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    pub(super) fn feed(&self, key: &Key) -> Option<watch::Receiver<Feed>> {
        let inner = self.lock();
        let feed = &inner.feeds.get(key)?.feed;
        // Before its first config, a RouterConfig has no routers.
        feed.borrow().config.as_ref()?;
        Some(feed.subscribe())
    }

    pub(super) fn leads(&self) -> bool {
        self.leader.load(Ordering::Relaxed)
    }

    pub(super) fn replica(&self) -> &str {
        &self.replica
    }

    pub(super) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn newest(&self, key: &Key) -> Option<Arc<Version>> {
        let feed = self.feed(key)?;
        let track = feed.borrow().track.clone()?;
        track.newest()
    }

    fn with_slot(&self, key: &Key, change: impl FnOnce(&mut Slot)) {
        change(self.lock().feeds.entry(key.clone()).or_insert_with(Slot::new));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    fn new() -> Self {
        Self {
            feed: watch::Sender::default(),
            fleet: None,
        }
    }
}

impl Source {
    fn track(&mut self, fleet: &Fleet, epoch: Epoch) -> Arc<Track> {
        let graphs = &fleet.graphs;
        let names = (graphs.names().to_vec(), graphs.how().as_str());
        if let Some(track) = self.tracks.get(&names).and_then(Weak::upgrade) {
            return track;
        }
        let track = Arc::new(Track::new(graphs.clone(), Arc::clone(&fleet.origins), epoch));
        if let Some(state) = &self.state {
            track.source(state, self.listed.as_deref());
        }
        if let Some(view) = &self.view {
            track.view(view);
        }
        self.tracks.insert(names, Arc::downgrade(&track));
        track
    }

    fn live_tracks(&mut self) -> Vec<Arc<Track>> {
        self.tracks.retain(|_, track| track.strong_count() > 0);
        self.tracks.values().filter_map(Weak::upgrade).collect()
    }
}

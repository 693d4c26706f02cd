//! Following the fleet: which files its models need, loading them, and forgetting those that nobody needs.

use std::{collections::BTreeMap, sync::Arc};

use continuum_fleet::{ids::ModelName, view::FleetView};
use continuum_runtime::{cell::Cell, said::Said};
use tokio::{
    sync::watch,
    task::{JoinSet, spawn_blocking},
    time::{Instant, sleep_until},
};

use crate::{
    artifact::{Files, Key},
    ask::Unavailable,
    catalog::{Agreed, Catalog, Offer, Reader},
    limits::{MAX_LOADS, MAX_SAID, RETRY_AFTER, TOKEN_CACHE_BYTES},
    load::{self, Loaded},
    metrics::Outcome,
    prompts::{Served, Shared, State},
    settings::Settings,
    tokenizer::Cache,
};

/// The one writer of [`Shared::state`].
pub(crate) struct Follower {
    shared: Arc<Shared>,
    view: Arc<Cell<FleetView>>,
    settings: watch::Receiver<Settings>,
    reader: Reader,
    catalog: Catalog,
    files: BTreeMap<Key, Entry>,
    loads: JoinSet<(Key, Result<Loaded, load::Error>)>,
    cache: Arc<Cache>,
    said: Said<(ModelName, Condition)>,
}

/// What is known of some files.
#[derive(Debug)]
enum Entry {
    /// They are needed; there is no place for a load now.
    Waiting,
    Loading,
    Ready(Loaded),
    Failed(Instant),
}

/// What is told of a model, once while it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Condition {
    Unpinned,
    Disagree,
    Others,
    Unusable,
    NoBlocks,
    OverCapacity,
}

impl Condition {
    const ALL: [Self; 6] = [
        Self::Unpinned,
        Self::Disagree,
        Self::Others,
        Self::Unusable,
        Self::NoBlocks,
        Self::OverCapacity,
    ];
}

impl Follower {
    pub(crate) fn new(
        shared: Arc<Shared>,
        view: Arc<Cell<FleetView>>,
        settings: watch::Receiver<Settings>,
    ) -> Self {
        Self {
            shared,
            view,
            settings,
            reader: Reader::default(),
            catalog: Catalog::default(),
            files: BTreeMap::new(),
            loads: JoinSet::new(),
            cache: Arc::new(Cache::new(TOKEN_CACHE_BYTES)),
            said: Said::new(MAX_SAID),
        }
    }

    pub(crate) async fn run(mut self) {
        let mut changes = self.view.subscribe();
        let mut closed = false;
        loop {
            changes.mark_unchanged();
            self.settings.mark_unchanged();
            // A large fleet takes its time: off the threads that carry streams.
            let acted = spawn_blocking(move || {
                self.act();
                self
            });
            self = match acted.await {
                Ok(follower) => follower,
                Err(error) => {
                    tracing::error!(%error, "the files of models are no longer followed");
                    return;
                }
            };
            let retry = self.next_retry();
            tokio::select! {
                changed = changes.changed(), if !closed => closed = changed.is_err(),
                changed = self.settings.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    // A new rule may let through what failed under the old one.
                    self.files.retain(|_, entry| !matches!(entry, Entry::Failed(_)));
                }
                Some(done) = self.loads.join_next() => {
                    if let Ok((key, result)) = done {
                        self.finished(key, result);
                    }
                }
                () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => {}
            }
        }
    }

    /// Brings everything in line with the view and the settings.
    fn act(&mut self) {
        let settings = Arc::new(self.settings.borrow().clone());
        self.catalog = if settings.enabled {
            let pinned = |key: &Key| settings.pins(key);
            self.reader.read(&self.view.load(), pinned)
        } else {
            Catalog::default()
        };
        if !settings.enabled {
            self.reader = Reader::default();
        }
        self.forget(&settings);
        self.shrink(&settings);
        self.start(&settings);
        self.publish(&settings);
    }

    /// Files that no model needs, or that are no longer pinned. A load that runs is left to end.
    fn forget(&mut self, settings: &Settings) {
        let needed: Vec<&Key> = self
            .catalog
            .models
            .values()
            .filter_map(|offer| match &offer.files {
                Agreed::On(key, _) if settings.pins(key) => Some(key),
                Agreed::On(..) | Agreed::No | Agreed::Unusable(_) => None,
            })
            .collect();
        self.files
            .retain(|key, entry| matches!(entry, Entry::Loading) || needed.contains(&key));
    }

    /// What is loaded beyond the caps, should they have been lowered. What stays leaves no room for what goes.
    fn shrink(&mut self, settings: &Settings) {
        let (mut loaded, mut bytes) = (0_usize, 0_u64);
        for (key, entry) in &mut self.files {
            let Entry::Ready(ready) = entry else {
                continue;
            };
            let with = bytes.saturating_add(ready.bytes);
            if loaded < settings.max_loaded && with <= settings.max_total_bytes {
                (loaded, bytes) = (loaded + 1, with);
            } else {
                tracing::info!(checksums = ?key, bytes = ready.bytes, "a tokenizer is unloaded, the caps were lowered");
                *entry = Entry::Waiting;
            }
        }
    }

    fn start(&mut self, settings: &Arc<Settings>) {
        let now = Instant::now();
        for entry in self.files.values_mut() {
            if matches!(entry, Entry::Failed(at) if *at <= now) {
                *entry = Entry::Waiting;
            }
        }
        let offers: Vec<(Key, Vec<Files>)> = self
            .catalog
            .models
            .values()
            .filter_map(|offer| match &offer.files {
                Agreed::On(key, files) if settings.pins(key) => Some((key.clone(), files.clone())),
                Agreed::On(..) | Agreed::No | Agreed::Unusable(_) => None,
            })
            .collect();
        for (key, files) in offers {
            if !matches!(self.files.get(&key), None | Some(Entry::Waiting)) {
                continue;
            }
            let entry = if self.loads.len() < MAX_LOADS && self.has_room(&files, settings) {
                let (key, settings, cache) = (key.clone(), settings.clone(), self.cache.clone());
                self.loads
                    .spawn(async move { (key, load::load(files, settings, cache).await) });
                Entry::Loading
            } else {
                Entry::Waiting
            };
            self.files.insert(key, entry);
        }
    }

    fn has_room(&self, files: &[Files], settings: &Settings) -> bool {
        let taken = self
            .files
            .values()
            .filter(|entry| matches!(entry, Entry::Loading | Entry::Ready(_)))
            .count();
        let bytes: u64 = self
            .files
            .values()
            .map(|entry| match entry {
                Entry::Ready(loaded) => loaded.bytes,
                Entry::Waiting | Entry::Loading | Entry::Failed(_) => 0,
            })
            .sum();
        // Of the workers that name the same content, none can make it larger than the others say.
        let declared = files
            .iter()
            .map(|files| {
                files
                    .0
                    .iter()
                    .filter_map(|file| file.size)
                    .fold(0, u64::saturating_add)
            })
            .min()
            .unwrap_or(0);
        taken < settings.max_loaded && bytes.saturating_add(declared) <= settings.max_total_bytes
    }

    fn finished(&mut self, key: Key, result: Result<Loaded, load::Error>) {
        let models: Vec<&str> = self
            .catalog
            .models
            .iter()
            .filter(|(_, offer)| matches!(&offer.files, Agreed::On(other, _) if *other == key))
            .map(|(name, _)| name.as_str())
            .collect();
        let kept: u64 = self
            .files
            .values()
            .map(|entry| match entry {
                Entry::Ready(loaded) => loaded.bytes,
                Entry::Waiting | Entry::Loading | Entry::Failed(_) => 0,
            })
            .sum();
        let cap = self.settings.borrow().max_total_bytes;
        // Two loads may have been started that fit only one at a time.
        let result = result.and_then(|loaded| {
            if kept.saturating_add(loaded.bytes) > cap {
                Err(load::Error::Total(cap))
            } else {
                Ok(loaded)
            }
        });
        let entry = match result {
            Ok(loaded) => {
                self.shared.metrics.count(Outcome::Loaded);
                tracing::info!(
                    ?models,
                    bytes = loaded.bytes,
                    "tokenizer and chat template loaded"
                );
                Entry::Ready(loaded)
            }
            Err(error) => {
                self.shared.metrics.count(error.outcome());
                tracing::warn!(
                    ?models,
                    %error,
                    retry_seconds = RETRY_AFTER.as_secs(),
                    "tokenizer or chat template not loaded, workers are chosen by load"
                );
                self.reader.ask_others();
                Entry::Failed(Instant::now() + RETRY_AFTER)
            }
        };
        self.files.insert(key, entry);
    }

    fn publish(&mut self, settings: &Settings) {
        let mut models = BTreeMap::new();
        for (name, offer) in std::mem::take(&mut self.catalog.models) {
            self.tell(&name, &offer, settings);
            let model = match &offer.files {
                Agreed::On(key, _) if !settings.pins(key) => Err(Unavailable::Unpinned),
                Agreed::On(key, _) => match self.files.get(key) {
                    Some(Entry::Ready(loaded)) => Ok(loaded.model.clone()),
                    Some(Entry::Waiting | Entry::Loading | Entry::Failed(_)) | None => {
                        Err(Unavailable::Tokenizer)
                    }
                },
                Agreed::No | Agreed::Unusable(_) => Err(Unavailable::Tokenizer),
            };
            let (adapter, unanimous) = (offer.adapter, !offer.others);
            self.catalog.models.insert(name.clone(), offer);
            let served = Served {
                model,
                adapter,
                unanimous,
            };
            models.insert(name, served);
        }
        let loaded = self
            .files
            .values()
            .filter(|entry| matches!(entry, Entry::Ready(_)))
            .count();
        self.shared.permits.set_several(loaded > 1);
        self.shared.state.store(Arc::new(State {
            models,
            max_tokens: settings.max_tokens,
            max_text_bytes: settings.max_text_bytes,
        }));
    }

    /// Tells what keeps a model's prompts from being prepared, once while it lasts.
    fn tell(&mut self, name: &ModelName, offer: &Offer, settings: &Settings) {
        let mut conditions = Vec::new();
        match &offer.files {
            Agreed::On(key, files) if !settings.pins(key) => {
                conditions.push(Condition::Unpinned);
                if self.said.first_time((name.clone(), Condition::Unpinned)) {
                    self.shared.metrics.count(Outcome::Unpinned);
                    for file in files.first().into_iter().flat_map(|files| files.0.iter()) {
                        if !settings.pinned.contains(&file.checksum) {
                            tracing::warn!(
                                model = %name,
                                slot = file.slot.as_str(),
                                uri = file.origin.kind(),
                                checksum = %file.checksum,
                                "a file is not pinned and is not used: review it, then add its checksum to dynamo.kv.pinned_artifacts"
                            );
                        }
                    }
                }
            }
            Agreed::On(key, _) => {
                if matches!(self.files.get(key), Some(Entry::Waiting)) && self.loads.len() < MAX_LOADS {
                    conditions.push(Condition::OverCapacity);
                    if self.said.first_time((name.clone(), Condition::OverCapacity)) {
                        self.shared.metrics.count(Outcome::OverCapacity);
                        tracing::warn!(model = %name, "no room for its tokenizer: see max_artifacts and max_artifacts_total_bytes of dynamo.kv.limits");
                    }
                }
            }
            Agreed::No => {
                conditions.push(Condition::Disagree);
                if self.said.first_time((name.clone(), Condition::Disagree)) {
                    tracing::warn!(model = %name, "no more than half of its workers name the same tokenizer and template, they are chosen by load");
                }
            }
            Agreed::Unusable(why) => {
                conditions.push(Condition::Unusable);
                if self.said.first_time((name.clone(), Condition::Unusable)) {
                    self.shared.metrics.count(Outcome::Unsupported);
                    tracing::warn!(model = %name, %why, "its prompts cannot be rendered, workers are chosen by load");
                }
            }
        }
        if offer.others && matches!(offer.files, Agreed::On(..)) {
            conditions.push(Condition::Others);
            if self.said.first_time((name.clone(), Condition::Others)) {
                tracing::warn!(model = %name, "some of its workers name other files than most do, or call it an adapter where others do not: their caches count nothing");
            }
        }
        if offer.no_blocks {
            conditions.push(Condition::NoBlocks);
            if self.said.first_time((name.clone(), Condition::NoBlocks)) {
                self.shared.metrics.count(Outcome::Unsupported);
                tracing::warn!(model = %name, "a worker declares no block size from 1 to 65536, its cache is not looked at");
            }
        }
        for condition in Condition::ALL {
            if !conditions.contains(&condition) {
                self.said.forget(&(name.clone(), condition));
            }
        }
    }

    fn next_retry(&self) -> Option<Instant> {
        self.files
            .values()
            .filter_map(|entry| match entry {
                Entry::Failed(at) => Some(*at),
                Entry::Waiting | Entry::Loading | Entry::Ready(_) => None,
            })
            .min()
    }
}

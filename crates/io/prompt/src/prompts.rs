//! The handle that requests are prepared with, and what one of them costs at most.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use continuum_fleet::{
    ids::ModelName,
    view::{Blocks, FleetView},
};
use continuum_runtime::{cell::Cell, tasks::Spawner};
use jiff::Timestamp;
use tokio::{sync::watch, time::timeout};

use crate::{
    ask::{Ask, Endpoint, Prepared, Unavailable},
    follow, hashing,
    limits::{MAX_BODY_BYTES, MAX_BODY_VALUES, MAX_KINDS_OF_BLOCKS, PERMIT_WAIT, PERMITS, PREPARE_TIMEOUT},
    metrics::{Metrics, Stage},
    model::{Caps, Model},
    permits::Permits,
    settings::Settings,
};

/// Prepares prompts. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Prompts {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    /// What requests may use now.
    pub(crate) state: ArcSwap<State>,
    pub(crate) permits: Arc<Permits>,
    pub(crate) metrics: Metrics,
}

/// Models by served name, and the caps of the configuration.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) models: BTreeMap<ModelName, Served>,
    pub(crate) max_tokens: usize,
    pub(crate) max_text_bytes: usize,
}

/// What a served name's prompts are made with.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) model: Result<Arc<Model>, Unavailable>,
    pub(crate) adapter: bool,
    /// All of its workers name the same files.
    pub(crate) unanimous: bool,
}

impl Prompts {
    /// Starts the task that follows the fleet and loads what its models need.
    #[must_use]
    pub fn spawn(
        spawner: &Spawner,
        view: Arc<Cell<FleetView>>,
        settings: watch::Receiver<Settings>,
        metrics: Metrics,
    ) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shared = Arc::new(Shared {
            state: ArcSwap::default(),
            permits: Permits::new(cores.clamp(PERMITS.0, PERMITS.1)),
            metrics,
        });
        let follower = follow::Follower::new(shared.clone(), view, settings);
        spawner.essential("prompt files", |stop| async move {
            stop.run_until_cancelled(follower.run()).await;
            Ok(())
        });
        Self { shared }
    }

    /// The tokens and block hashes of a request's prompt.
    ///
    /// # Errors
    /// See [`Unavailable`]. It never takes longer than [`PREPARE_TIMEOUT`].
    pub async fn prepare(&self, ask: Ask<'_>) -> Result<Prepared, Unavailable> {
        let state = self.shared.state.load_full();
        let served = state.models.get(ask.model).ok_or(Unavailable::Tokenizer)?;
        let model = served.model.clone()?;
        if ask.body.len() > MAX_BODY_BYTES {
            return Err(Unavailable::TooLarge);
        }
        let asked = Instant::now();
        let permit = self.shared.permits.take(model.serial(), PERMIT_WAIT).await;
        self.shared.metrics.observe(Stage::Permit, asked.elapsed());
        let permit = permit.ok_or(Unavailable::Render)?;
        let job = Job {
            model,
            endpoint: ask.endpoint,
            body: ask.body.clone(),
            blocks: ask.blocks.iter().take(MAX_KINDS_OF_BLOCKS).copied().collect(),
            salt: ask.salt.filter(|salt| !salt.is_empty()).map(str::to_owned),
            adapter: ask
                .adapter
                .or_else(|| served.adapter.then_some(ask.model.as_str()))
                .map(str::to_owned),
            unanimous: served.unanimous,
            caps: Caps {
                text_bytes: state.max_text_bytes,
                tokens: state.max_tokens,
                until: asked + PREPARE_TIMEOUT,
            },
        };
        let metrics = self.shared.metrics.clone();
        let work = tokio::task::spawn_blocking(move || {
            // Held until the work is over, whether or not somebody still waits for it.
            let _permit = permit;
            job.run(&metrics)
        });
        let left = PREPARE_TIMEOUT.saturating_sub(asked.elapsed());
        match timeout(left, work).await {
            Ok(Ok(prepared)) => prepared,
            Ok(Err(_)) | Err(_) => Err(Unavailable::Render),
        }
    }
}

/// The work on one prompt.
struct Job {
    model: Arc<Model>,
    endpoint: Endpoint,
    body: Bytes,
    blocks: Vec<Blocks>,
    salt: Option<String>,
    adapter: Option<String>,
    unanimous: bool,
    caps: Caps,
}

impl Job {
    fn run(self, metrics: &Metrics) -> Result<Prepared, Unavailable> {
        let values = self
            .body
            .iter()
            .filter(|byte| matches!(byte, b',' | b'[' | b'{'))
            .count();
        if values > MAX_BODY_VALUES {
            return Err(Unavailable::TooLarge);
        }
        let encoded = self
            .model
            .encode(self.endpoint, &self.body, self.caps, Timestamp::now(), metrics)?;
        let hashing = Instant::now();
        let salt = self.salt.or(encoded.salt);
        let (adapter, salt) = (self.adapter.as_deref(), salt.as_deref());
        let mut hashes = Vec::with_capacity(self.blocks.len());
        for blocks in self.blocks {
            let found = hashing::hashes(&encoded.ids, blocks, adapter, salt, Some(self.caps.until))
                .map_err(|hashing::Late| Unavailable::Render)?;
            hashes.extend(found.map(|found| (blocks, found)));
        }
        metrics.observe(Stage::Hash, hashing.elapsed());
        Ok(Prepared {
            tokens: encoded.ids.into(),
            unanimous: self.unanimous,
            hashes,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;

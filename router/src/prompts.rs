//! What a request's prompt is to the picker: its tokens, its blocks, and who holds them.
//!
//! Nothing here fails a request: where the prompt cannot be had in time, workers are chosen by load, and the reason is
//! counted.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use bytes::Bytes;
use continuum_config::Config;
use continuum_events::Filled;
use continuum_fleet::{
    ids::ModelName,
    view::{Blocks, FleetView},
};
use continuum_kv_index::{Index, Matches, RankKey};
use continuum_prompt::{Ask, Endpoint, Hub, Prepared, Settings, Unavailable};
use continuum_routing::{
    Millis,
    picker::{
        Chosen, Pick,
        kv::{Held, InFlight, Prompt},
    },
};
use continuum_runtime::{cell::Cell, tasks::Spawner};
use prometheus::Registry;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};

use crate::{
    app::Error,
    fleet::{Clock, Fleet},
    in_use::Hold,
    ingress::routes::Route,
    live::Live,
    metrics::{KvResult, KvSelections},
};

/// Between two looks for ranks that hold nothing any more, so that one that says so all the time costs next to nothing.
const GONE_EVERY: Duration = Duration::from_secs(1);

/// Prompts of this process.
pub struct Prompts {
    inner: continuum_prompt::Prompts,
    settings: watch::Sender<Settings>,
    in_flight: Arc<InFlight>,
    selections: KvSelections,
}

/// A prompt whose blocks are known.
#[derive(Debug)]
pub(crate) struct Known {
    prepared: Prepared,
    held: Vec<Held>,
    settings: continuum_routing::picker::kv::Settings,
    chance: [f64; 2],
    in_flight: Arc<InFlight>,
    filled: Filled,
    clock: Clock,
}

/// Why load alone decides on a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// `dynamo.kv` is off.
    Off,
    /// What frontends make of requests of this route is not known here.
    Route,
    /// No worker of the model declares a block size.
    NoBlocks,
    /// The prompt could not be had.
    Unavailable(Unavailable),
}

impl Unknown {
    /// Why: the word that is counted, where one is and says enough.
    pub(crate) fn as_str(self) -> &'static str {
        if self == Self::Unavailable(Unavailable::Unsupported) {
            return "unsupported_prompt";
        }
        self.result().map_or("off", KvResult::as_str)
    }

    /// What is counted of it.
    const fn result(self) -> Option<KvResult> {
        match self {
            Self::Off => None,
            Self::Route => Some(KvResult::UnscoredRoute),
            Self::NoBlocks => Some(KvResult::NoBlockSize),
            Self::Unavailable(why) => Some(KvResult::Unavailable(why)),
        }
    }
}

impl Prompts {
    /// Starts following `view`, as far as the configuration wants it.
    ///
    /// # Errors
    /// The metrics are registered already.
    pub fn start(
        spawner: &Spawner,
        view: Arc<Cell<FleetView>>,
        filled: Filled,
        config: &Config,
        registry: &Registry,
    ) -> Result<Self, Error> {
        let metrics = continuum_prompt::Metrics::new()?;
        metrics.register(registry)?;
        let (settings, wanted) = watch::channel(settings(config));
        let in_flight = Arc::new(InFlight::seeded(rand::random()));
        spawner.essential("ranks of open requests", {
            let (in_flight, view, wanted) = (in_flight.clone(), view.clone(), wanted.clone());
            |stop| async move {
                stop.run_until_cancelled(follow(in_flight, view, || filled.take_gone(), wanted))
                    .await;
                Ok(())
            }
        });
        Ok(Self {
            inner: continuum_prompt::Prompts::spawn(spawner, view, wanted, metrics),
            settings,
            in_flight,
            selections: KvSelections::register(registry)?,
        })
    }

    /// Takes over new settings.
    pub fn reload(&self, config: &Config) {
        let next = settings(config);
        self.settings.send_if_modified(|now| {
            let changed = *now != next;
            *now = next;
            changed
        });
    }

    /// The blocks of the prompt in `body`, and who holds them.
    ///
    /// # Errors
    /// Load alone has to decide.
    pub(crate) async fn known(
        &self,
        fleet: &Fleet,
        live: &Live,
        route: Route,
        model: &ModelName,
        body: &Bytes,
    ) -> Result<Known, Unknown> {
        let settings = live.kv.ok_or(Unknown::Off)?;
        let index = fleet.kv.load().ok_or(Unknown::Off)?;
        let endpoint = if route == Route::ChatCompletions {
            Endpoint::Chat
        } else if route == Route::Completions {
            Endpoint::Completions
        } else {
            return Err(Unknown::Route);
        };
        let blocks = fleet.table().blocks(model);
        if blocks.is_empty() {
            return Err(Unknown::NoBlocks);
        }
        let ask = Ask {
            model,
            endpoint,
            body,
            blocks: &blocks,
            // Clients' own never pass this router, and it sends none.
            salt: None,
            adapter: None,
        };
        let prepared = self.inner.prepare(ask).await.map_err(Unknown::Unavailable)?;
        Ok(Known {
            held: held(&index, &self.in_flight, &prepared, fleet.now()),
            prepared,
            settings,
            chance: rand::random(),
            in_flight: self.in_flight.clone(),
            filled: fleet.kv.filled().clone(),
            clock: fleet.clock(),
        })
    }

    /// Counts a prompt that load alone has to decide on.
    pub(crate) fn count_unknown(&self, why: Unknown) {
        if let Some(result) = why.result() {
            self.selections.count(result);
        }
    }

    /// Counts what a pick made of a known prompt.
    pub(crate) fn count(&self, pick: &Pick) {
        self.selections.count_pick(pick);
    }
}

impl Known {
    /// For the picker.
    pub(crate) fn prompt(&self) -> Prompt<'_> {
        Prompt {
            tokens: self.length(),
            held: &self.held,
            settings: self.settings,
            chance: self.chance,
        }
    }

    /// Tokens of the prompt.
    pub(crate) fn length(&self) -> u64 {
        u64::try_from(self.prepared.tokens.len()).unwrap_or(u64::MAX)
    }

    /// The token ids, where they are right for any worker of the model.
    pub(crate) fn tokens(&self) -> Option<&[u32]> {
        self.prepared.unanimous.then_some(&*self.prepared.tokens)
    }

    /// The blocks of the request are in use on a picked rank until this is dropped.
    pub(crate) fn enter(&self, chosen: &Chosen) -> Option<Hold> {
        let blocks = chosen.worker.card.as_ref()?.blocks()?;
        let (_, hashes) = self.prepared.hashes.iter().find(|(of, _)| *of == blocks)?;
        let rank = RankKey {
            worker: chosen.worker.key.clone(),
            rank: chosen.rank?.0,
        };
        Some(Hold {
            entry: Some(self.in_flight.enter(&rank, hashes)),
            rank,
            filled: self.filled.clone(),
            clock: self.clock,
            read: AtomicBool::new(false),
        })
    }
}

fn held(index: &Index, in_flight: &InFlight, prepared: &Prepared, now: Millis) -> Vec<Held> {
    let lookup = |(blocks, hashes): &(Blocks, Vec<u64>)| {
        let mut cached = Matches::new();
        index.find(hashes, &mut cached);
        Held {
            block_size: blocks.size,
            cached,
            in_flight: in_flight.find(hashes, now),
        }
    };
    prepared.hashes.iter().map(lookup).collect()
}

fn settings(config: &Config) -> Settings {
    let mut settings = Settings::new(&config.dynamo.kv, Hub::of(|name| std::env::var(name).ok()));
    settings.enabled &= config.dynamo.enabled;
    settings
}

/// Tells which ranks exist, while prompts are wanted, and which hold nothing any more of what requests have left there.
async fn follow(
    in_flight: Arc<InFlight>,
    view: Arc<Cell<FleetView>>,
    take_gone: impl Fn() -> BTreeSet<RankKey>,
    mut settings: watch::Receiver<Settings>,
) {
    let mut changes = view.subscribe();
    // One for all the while: a fleet that changes all the time puts nothing off.
    let mut look = interval(GONE_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        changes.borrow_and_update();
        let live = if settings.borrow_and_update().enabled {
            ranks(&view.load())
        } else {
            Vec::new()
        };
        in_flight.set_live(&live);
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return } else { break },
                changed = settings.changed() => if changed.is_err() { return } else { break },
                _ = look.tick() => in_flight.empty(&take_gone()),
            }
        }
    }
}

/// In order.
fn ranks(view: &FleetView) -> Vec<RankKey> {
    let of = |worker: &Arc<continuum_fleet::view::Worker>| {
        let worker = worker.key.clone();
        move |rank: continuum_fleet::ids::Rank| RankKey {
            worker: worker.clone(),
            rank: rank.0,
        }
    };
    view.workers
        .values()
        .filter_map(|worker| Some(worker.ranks()?.iter().map(of(worker))))
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use continuum_fleet::view::Role;
    use continuum_testkit::view::{card, worker};
    use tokio::time::sleep;

    use super::*;

    /// A fleet in which worker 1 stays and others come and go.
    fn fleet(change: u64) -> FleetView {
        let mut view = FleetView::default();
        for id in [1, 2 + change] {
            let mut worker = worker("dynamo", id, Role::Aggregated);
            Arc::make_mut(&mut worker).card = Some(Arc::new(card()));
            view.workers.insert(worker.key.clone(), worker);
        }
        view
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_rank_read_counts_no_more_once_it_holds_nothing_however_often_the_fleet_changes() {
        let (all, view) = (Arc::new(InFlight::seeded(1)), Arc::new(Cell::new(fleet(0))));
        let mut config = Config::default();
        (config.dynamo.enabled, config.dynamo.kv.enabled) = (true, true);
        let (_settings, wanted) = watch::channel(settings(&config));
        let gone = Arc::new(Mutex::new((BTreeSet::new(), 0)));
        let take_gone = {
            let gone = gone.clone();
            move || {
                let (ranks, looks) = &mut *gone.lock().unwrap();
                *looks += 1;
                std::mem::take(ranks)
            }
        };
        let following = tokio::spawn(follow(all.clone(), view.clone(), take_gone, wanted));
        sleep(Duration::from_millis(1)).await;
        let one = ranks(&fleet(0)).remove(0);
        let now = Millis(1);
        let read = || all.find(&[1, 2, 3], now).of(&one).read;
        all.enter(&one, &[1, 2, 3]).remember(now);
        assert_eq!(read(), 3);
        gone.lock().unwrap().0.insert(one.clone());
        for change in 1..=4 {
            view.publish(fleet(change));
            sleep(GONE_EVERY / 4).await;
        }
        assert_eq!(read(), 0);
        assert_eq!(gone.lock().unwrap().1, 2, "once a second is enough");
        all.enter(&one, &[1, 2]).remember(now);
        assert_eq!(read(), 2, "what it reads from then on");
        following.abort();
    }

    #[test]
    fn each_reason_is_told_and_counted_under_a_known_word() {
        let reasons = [
            Unknown::Off,
            Unknown::Route,
            Unknown::NoBlocks,
            Unknown::Unavailable(Unavailable::Tokenizer),
            Unknown::Unavailable(Unavailable::Unpinned),
            Unknown::Unavailable(Unavailable::TooLarge),
            Unknown::Unavailable(Unavailable::Render),
            Unknown::Unavailable(Unavailable::Unsupported),
        ];
        let told: BTreeSet<&str> = reasons.iter().map(|why| why.as_str()).collect();
        assert_eq!(told.len(), reasons.len(), "{told:?}");
        let registry = Registry::new();
        let selections = KvSelections::register(&registry).unwrap();
        for why in reasons {
            let counted = why.result();
            assert_eq!(counted.is_none(), why == Unknown::Off, "{why:?}");
            counted.into_iter().for_each(|result| selections.count(result));
        }
        let families = registry.gather();
        let of_results = families
            .iter()
            .find(|family| family.name() == "continuum_dynamo_kv_selection_total")
            .unwrap();
        let counts: Vec<(&str, f64)> = of_results
            .get_metric()
            .iter()
            .map(|metric| (metric.get_label()[0].value(), metric.get_counter().get_value()))
            .collect();
        assert_eq!(
            counts,
            [
                ("artifact_unpinned", 1.0),
                ("bypass", 0.0),
                ("no_block_size", 1.0),
                ("no_overlap", 0.0),
                ("overlap", 0.0),
                ("prompt_too_large", 1.0),
                ("render_unavailable", 2.0),
                ("tokenizer_unavailable", 1.0),
                ("unscored_route", 1.0),
            ]
        );
    }
}

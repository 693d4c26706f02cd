//! From a request to workers: which pools it may use, whom the picker chooses there, and what a refusal of the
//! choice leads to.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use bytes::Bytes;
use continuum_fleet::ids::{Graph, ModelName, WorkerKey};
use continuum_routing::{
    Millis,
    load::{Booking, Dispatch},
    picker::{self, Chosen, Explained, NoPick, Pick, Pool, Reason, Request},
};
use http::HeaderMap;

use crate::{
    backends::{Backend, Set},
    dispatch::{
        refusal::Cause,
        serve::{Pins, Standing},
    },
    fleet::Fleet,
    in_use::Hold,
    ingress::{
        body::Inspected,
        pin_headers::{self, Pinned},
        routes::Route,
        token_data::{bytes_of_ids, with_token_data},
    },
    live::Live,
    metrics::Selections,
    prompts::Known,
};

/// A pick, booked on its ranks until it is dropped.
#[derive(Debug)]
pub struct Pin {
    /// Who serves the request, and why.
    pub pick: Pick,
    /// What it weighs.
    pub booking: Booking,
    /// Its blocks in use on the rank that decodes, where they are known.
    blocks: Option<Hold>,
    /// Those on the prefill rank of a pair, until the prompt has been read.
    reading: Mutex<Option<Hold>>,
    /// Its pool had prefill workers for the model when it was picked, also where none was picked: beside an
    /// aggregated worker none is.
    prefill_pool: bool,
}

impl Pin {
    /// The head of a good answer.
    fn head(&self, now: Millis) {
        if self.pick.head_ends_prefill() {
            self.booking.prefill_ended(now);
            self.end_reading();
        }
    }

    /// The first byte of a good answer: the prompt has been read.
    pub(crate) fn first_byte(&self, now: Millis) {
        self.booking.prefill_ended(now);
        self.blocks.iter().for_each(Hold::read);
        self.end_reading();
    }

    fn end_reading(&self) {
        let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner).take();
        reading.iter().for_each(Hold::read);
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // What others hold of its blocks stays booked.
        if let Some(blocks) = &mut self.blocks {
            self.booking.keep(blocks.end());
        }
    }
}

/// The selection of one request.
pub struct Selection<'a> {
    pub(crate) fleet: &'a Fleet,
    pub(crate) live: &'a Live,
    pub(crate) set: &'a Set,
    pub(crate) selections: &'a Selections,
    pub(crate) inspected: &'a Inspected,
    /// The body as the client sent it.
    pub(crate) body: &'a Bytes,
    known: Option<Known>,
    excluded: Vec<WorkerKey>,
    mapped: Option<&'a ModelName>,
    renamed: AtomicBool,
    /// A frontend has refused that a decode worker reads the prompt itself.
    bypass_refused: bool,
}

impl<'a> Selection<'a> {
    /// Prepares the selection of a request; nothing is picked yet.
    pub(crate) fn new(
        fleet: &'a Fleet,
        live: &'a Live,
        set: &'a Set,
        selections: &'a Selections,
        inspected: &'a Inspected,
        body: &'a Bytes,
    ) -> Self {
        Self {
            mapped: live.model_map.get(&inspected.model),
            fleet,
            live,
            set,
            selections,
            inspected,
            body,
            known: None,
            excluded: Vec::new(),
            renamed: AtomicBool::new(false),
            bypass_refused: false,
        }
    }

    /// Finds out what is known of the prompt in `body`, which is what a frontend gets.
    pub(crate) async fn know(&mut self, route: Route, body: &Bytes) {
        let (fleet, live) = (self.fleet, self.live);
        let known = fleet.prompts.known(fleet, live, route, self.model(), body).await;
        self.known = known.inspect_err(|why| fleet.prompts.count_unknown(*why)).ok();
    }

    /// Bytes of the body that an attempt may be sent in place of the client's: with another name of the model, or with
    /// token ids. 0 when it is sent as it is.
    pub(crate) fn rewritten_bytes(&self) -> usize {
        let known = self.known.as_ref().filter(|_| self.live.token_data);
        let ids = known.and_then(Known::tokens).map_or(0, bytes_of_ids);
        if ids == 0 && self.mapped.is_none() {
            return 0;
        }
        self.body.len().saturating_add(ids)
    }

    /// The first pick.
    ///
    /// # Errors
    /// Nobody was chosen. [`NoPick::NotReady`] also when workers are there and every replica of their pools is down,
    /// and when the fleet has not been listed yet: "no such model" would be a guess then.
    pub(crate) fn pick(&self) -> Result<Pin, NoPick> {
        match self.pick_in(&self.pools(true), &self.excluded) {
            Err(NoPick::NoModel) if self.is_unlisted() || self.is_served_somewhere() => Err(NoPick::NotReady),
            other => other,
        }
    }

    /// The name that replaced the client's in the body of the answered dispatch, if one did.
    pub(crate) fn renamed(&self) -> Option<&'a ModelName> {
        self.mapped.filter(|_| self.renamed.load(Relaxed))
    }

    fn model(&self) -> &'a ModelName {
        self.mapped.unwrap_or(&self.inspected.model)
    }

    fn pools(&self, usable: bool) -> Vec<Pool<'a>> {
        pools(self.set, &self.inspected.model, self.model(), usable)
    }

    fn is_unlisted(&self) -> bool {
        !self.fleet.status().listed() && !self.set.serves(self.inspected.model.as_str())
    }

    fn is_served_somewhere(&self) -> bool {
        let pools = self.pools(false);
        let request = self.request(&pools, &[]);
        let picked = picker::pick(&self.fleet.table(), &self.fleet.store, &request, self.fleet.now());
        !matches!(picked, Err(NoPick::NoModel))
    }

    fn pick_in(&self, pools: &[Pool<'_>], exclude: &[WorkerKey]) -> Result<Pin, NoPick> {
        let now = self.fleet.now();
        let table = self.fleet.table();
        let mut prompt = self.known.as_ref().map(Known::prompt);
        if let Some(prompt) = prompt.as_mut().filter(|_| self.bypass_refused) {
            prompt.settings.bypass = None;
        }
        let request = Request {
            prompt: prompt.as_ref(),
            ..self.request(pools, exclude)
        };
        let picked = picker::pick(&table, &self.fleet.store, &request, now);
        self.selections.count(&picked);
        let pick = picked?;
        self.fleet.prompts.count(&pick);
        let bypassed = pick.decode_reason == Reason::ConditionalBypass;
        let prefill_pool =
            pick.prefill.is_some() || !bypassed && table.has_prefill(self.model(), &pick.graph);
        let enter = |chosen| self.known.as_ref().and_then(|known| known.enter(chosen));
        let blocks = enter(&pick.decode);
        let dispatch = Dispatch {
            prompt_tokens: self.prompt_tokens(),
            streamed: self.inspected.stream,
            shared: blocks.as_ref().map_or(0, Hold::shared),
        };
        let booking = self.fleet.store.book(&pick, dispatch, now);
        Ok(Pin {
            blocks,
            reading: Mutex::new(pick.prefill.as_ref().and_then(enter)),
            pick,
            booking,
            prefill_pool,
        })
    }

    fn request<'r>(&self, pools: &'r [Pool<'r>], exclude: &'r [WorkerKey]) -> Request<'r>
    where
        'a: 'r,
    {
        Request {
            model: self.model(),
            pools,
            prompt_tokens: self.prompt_tokens(),
            prompt: None,
            exclude,
            settings: self.live.picker,
        }
    }

    fn prompt_tokens(&self) -> u64 {
        let known = self.known.as_ref().map(Known::length);
        known.unwrap_or_else(|| self.inspected.prompt.estimated_tokens())
    }
}

/// A pick that nobody is dispatched by.
#[derive(Debug)]
pub(crate) struct DryRun {
    /// The name that workers are looked up by.
    pub(crate) looked_up: ModelName,
    /// Every pool: whether it is usable, and whether it lists the name.
    pub(crate) pools: Vec<(Graph, bool, bool)>,
    /// Every candidate in the usable pools; in all of them when none is usable.
    pub(crate) candidates: Vec<Explained>,
}

/// What a pick would weigh now. Nothing moves.
pub(crate) fn explain(
    fleet: &Fleet,
    live: &Live,
    set: &Set,
    asked: &ModelName,
    prompt_tokens: u64,
    known: Option<&Known>,
) -> DryRun {
    let prompt = known.map(Known::prompt);
    let looked_up = live.model_map.get(asked).unwrap_or(asked);
    let all = pools(set, asked, looked_up, false);
    let usable = pools(set, asked, looked_up, true);
    let request = Request {
        model: looked_up,
        pools: if usable.is_empty() { &all } else { &usable },
        prompt_tokens,
        prompt: prompt.as_ref(),
        exclude: &[],
        settings: live.picker,
    };
    DryRun {
        candidates: picker::explain(&fleet.table(), &fleet.store, &request, fleet.now()),
        looked_up: looked_up.clone(),
        pools: all
            .iter()
            .map(|pool| {
                let is_usable = usable.iter().any(|usable| usable.graph == pool.graph);
                (pool.graph.clone(), is_usable, pool.listed)
            })
            .collect(),
    }
}

/// The pools of the running configuration, those with a usable replica or all.
fn pools<'a>(set: &'a Set, asked: &ModelName, looked_up: &ModelName, usable: bool) -> Vec<Pool<'a>> {
    let (asked, looked_up) = (asked.as_str(), looked_up.as_str());
    set.pools()
        .filter(|pool| !usable || pool.is_usable())
        .map(|pool| Pool {
            graph: pool.graph(),
            listed: pool.lists(looked_up) || (looked_up != asked && pool.lists(asked)),
        })
        .collect()
}

impl Pins for Selection<'_> {
    type Pin = Pin;

    fn graph<'p>(&self, pin: &'p Pin) -> &'p Graph {
        &pin.pick.graph
    }

    fn dress(&self, pin: &Pin, replica: &Backend, headers: &mut HeaderMap, body: &mut Bytes) {
        pin_headers::write(
            headers,
            pinned(&pin.pick.decode),
            pin.pick.prefill.as_ref().map(pinned),
        );
        // The client's own name stays while the frontend lists it.
        let rename = self
            .mapped
            .filter(|_| replica.lists(self.inspected.model.as_str()) != Some(true));
        if let Some(name) = rename {
            *body = self.inspected.outbound(self.body, Some(name.as_str()));
        }
        self.renamed.store(rename.is_some(), Relaxed);
        let known = self.known.as_ref().filter(|_| self.live.token_data);
        if let Some(with) = known.and_then(|known| with_token_data(body, known.tokens()?)) {
            *body = with;
        }
    }

    fn listed(&self, replica: &Backend) -> Option<bool> {
        let asked = replica.lists(self.inspected.model.as_str());
        match self.mapped {
            Some(mapped) if asked == Some(false) => replica.lists(mapped.as_str()),
            _ => asked,
        }
    }

    fn standing(&self, pin: &Pin) -> Standing {
        let view = self.fleet.view();
        Standing {
            sent_prefill: pin.pick.prefill.is_some(),
            prefill_pool_came: !pin.prefill_pool
                && self.fleet.table().has_prefill(self.model(), &pin.pick.graph),
            pins_live: pin.pick.workers().all(|key| view.workers.contains_key(key)),
            sets_in_pool: pin.pick.sets_in_pool,
            settling: self.fleet.is_settling(&pin.pick.graph),
            confirmed: self.fleet.is_confirmed(),
        }
    }

    /// Whom exactly the refusal was about is not known. First those are avoided that have fallen silent while the
    /// others have not, then all, then one by one where a role has only one worker left. A choice without suspects
    /// comes before all others: what replaces a worker must not be one that is known to be dead.
    fn repick(&mut self, refused: Pin, cause: Cause) -> Option<Pin> {
        let pools = self.pools(true);
        let workers: Vec<WorkerKey> = refused.pick.workers().cloned().collect();
        // Its booking would weigh on the very pick that replaces it.
        drop(refused);
        let refused = workers;
        if cause == Cause::ViewBehind {
            // A frontend that has prefill workers takes no bypass.
            self.bypass_refused = true;
            return self.pick_in(&pools, &self.excluded).ok();
        }
        let (now, store) = (self.fleet.now(), &self.fleet.store);
        let silent: Vec<WorkerKey> = refused
            .iter()
            .filter(|worker| !store.is_covered(worker))
            .cloned()
            .collect();
        let mut ways: Vec<&[WorkerKey]> = Vec::new();
        if (1..refused.len()).contains(&silent.len()) {
            ways.push(&silent);
        }
        ways.push(&refused);
        if refused.len() > 1 {
            ways.extend(refused.iter().map(std::slice::from_ref));
        }
        let mut best: Option<(usize, Pin, &[WorkerKey])> = None;
        for avoided in ways {
            let Ok(pin) = self.pick_in(&pools, avoided) else {
                continue;
            };
            let suspects = pin
                .pick
                .workers()
                .filter(|worker| store.is_suspect(worker, now))
                .count();
            if best.as_ref().is_none_or(|(fewest, ..)| suspects < *fewest) {
                best = Some((suspects, pin, avoided));
            }
            if suspects == 0 {
                break;
            }
        }
        let (_, pin, avoided) = best?;
        self.excluded = avoided.to_vec();
        Some(pin)
    }

    fn suspect_refused(&mut self) {
        let now = self.fleet.now();
        for worker in self.excluded.drain(..) {
            // Every request that fails on a dead worker comes here: one line is enough.
            if !self.fleet.store.is_suspect(&worker, now) {
                tracing::info!(namespace = %worker.namespace, worker = worker.instance.hex(), "worker is suspected to be dead");
            }
            self.fleet.store.suspect(&worker, now);
        }
    }

    /// A worker that is silent by nature, such as one that only reads prompts, has no other way to clear itself.
    fn answered(&mut self, pin: &Pin) {
        pin.head(self.fleet.now());
        if self.fleet.store.may_suspect(self.fleet.now()) {
            pin.pick
                .workers()
                .for_each(|worker| self.fleet.store.trust(worker));
        }
    }
}

/// What the headers say of a chosen rank.
pub(crate) fn pinned(chosen: &Chosen) -> Pinned {
    Pinned {
        instance: chosen.worker.key.instance,
        rank: chosen.rank,
    }
}

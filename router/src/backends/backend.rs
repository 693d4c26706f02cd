//! One configured server: its settings, its standing (in flight, up, cooling), its model list.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use continuum_config::{
    BackendUrl,
    model::{self, BackendRole, Timeouts},
};
use continuum_runtime::lookup::{Found, Lookups, Name};
use http::{HeaderValue, uri};
use tokio::{sync::Notify, time::Instant};

use super::{Error, listing::Listing, pool::Pool, tls::Tls};
use crate::dispatch::metrics::{BackendMetrics, Metrics, Outcome};

/// One configured server. A change of its settings makes a new one that shares the standing.
pub struct Backend {
    name: Arc<str>,
    settings: model::Backend,
    timeouts: Timeouts,
    shim: bool,
    pub(super) tls: Option<Tls>,
    host: HeaderValue,
    scheme: uri::Scheme,
    authority: uri::Authority,
    authorization: Option<HeaderValue>,
    pub(super) pool: Pool,
    standing: Arc<Standing>,
    metrics: Metrics,
    own: BackendMetrics,
}

/// What outlives a change of settings.
#[derive(Debug)]
pub(super) struct Standing {
    in_flight: AtomicU32,
    up: AtomicBool,
    /// A health check has succeeded: being up is more than a guess.
    answered: AtomicBool,
    /// Milliseconds since `epoch` until which others are preferred.
    cool_until: AtomicU64,
    epoch: Instant,
    listing: ArcSwapOption<Listing>,
    listing_wanted: Notify,
    /// Where it is; `None` for a socket in a folder.
    place: Option<Name>,
    /// The log has it that its name cannot be looked up.
    unnamed: AtomicBool,
}

impl Standing {
    fn new(place: Option<Name>) -> Self {
        Self {
            place,
            unnamed: AtomicBool::new(false),
            in_flight: AtomicU32::new(0),
            up: AtomicBool::new(true),
            answered: AtomicBool::new(false),
            cool_until: AtomicU64::new(0),
            epoch: Instant::now(),
            listing: ArcSwapOption::empty(),
            listing_wanted: Notify::new(),
        }
    }
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backend")
            .field("name", &self.name)
            .field("shim", &self.shim)
            .finish_non_exhaustive()
    }
}

impl Backend {
    /// Reads certificate files. `before` is the backend of the same name that this one replaces.
    pub(super) fn new(
        settings: model::Backend,
        timeouts: Timeouts,
        shim: bool,
        before: Option<&Self>,
        metrics: &Metrics,
        lookups: &Lookups,
    ) -> Result<Self, Error> {
        let invalid = |reason: &'static str| Error::Invalid {
            backend: settings.name.clone(),
            reason,
        };
        let (scheme, authority, tls) = match &settings.url {
            BackendUrl::Unix(_) => (uri::Scheme::HTTP, "localhost".to_owned(), None),
            BackendUrl::Tcp { scheme, host, .. } => {
                let authority = settings.url.authority();
                match scheme {
                    continuum_config::value::Scheme::Http => (uri::Scheme::HTTP, authority, None),
                    continuum_config::value::Scheme::Https => {
                        let tls = Tls::new(&settings.name, host, settings.tls.as_ref(), settings.http2)?;
                        (uri::Scheme::HTTPS, authority, Some(tls))
                    }
                }
            }
        };
        let authorization = match &settings.api_key {
            None => None,
            Some(key) => {
                let mut value = HeaderValue::try_from(format!("Bearer {}", key.expose()))
                    .map_err(|_| invalid("api_key holds characters that no header may have"))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        // What is known of another address says nothing about this one.
        let same_place = before.filter(|before| before.settings.url == settings.url);
        let standing = same_place.map_or_else(
            || Arc::new(Standing::new(place(&settings.url, lookups))),
            |before| Arc::clone(&before.standing),
        );
        let own = metrics.backend(&settings.name);
        let backend = Self {
            name: settings.name.as_str().into(),
            timeouts,
            shim,
            tls,
            host: HeaderValue::try_from(&authority)
                .map_err(|_| invalid("url has a host that no header may have"))?,
            authority: authority
                .parse()
                .map_err(|_| invalid("url has a host that no request may have"))?,
            scheme,
            authorization,
            pool: Pool::default(),
            standing,
            metrics: metrics.clone(),
            own,
            settings,
        };
        if !backend.settings.health.enabled || !backend.settings.enabled {
            backend.standing.up.store(true, Relaxed);
        }
        backend.show_up();
        Ok(backend)
    }

    /// Its configured name.
    #[must_use]
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its configuration.
    #[must_use]
    pub const fn settings(&self) -> &model::Backend {
        &self.settings
    }

    /// Its deadlines, those of the server where it has none of its own.
    #[must_use]
    pub const fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// Whether it is a frontend in direct mode: it answers pinned requests only.
    #[must_use]
    pub const fn is_shim(&self) -> bool {
        self.shim
    }

    /// Whether it may get a request now.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.settings.enabled && self.is_up()
    }

    /// What its health checks say. Up until they say otherwise.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.standing.up.load(Relaxed)
    }

    /// Exchanges that this router has with it.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.standing.in_flight.load(Relaxed)
    }

    /// The names of its own `GET /v1/models`; `None` until it has answered once, and where nobody asks.
    #[must_use]
    pub fn listing(&self) -> Option<Arc<Listing>> {
        self.standing.listing.load_full()
    }

    /// Whether its own list holds the name; `None` when there is no list.
    #[must_use]
    pub fn lists(&self, model: &str) -> Option<bool> {
        self.standing
            .listing
            .load()
            .as_ref()
            .map(|listing| listing.holds(model))
    }

    /// Asks for its model list again, soon: the fleet behind it has changed.
    pub fn refresh_listing(&self) {
        self.standing.listing_wanted.notify_one();
    }

    /// Whether ordinary routing may send it a request for the model, health aside.
    #[must_use]
    pub fn serves(&self, model: &str) -> bool {
        self.settings.enabled
            && !self.settings.internal
            && !self.shim
            && self.settings.role == BackendRole::Unified
            && if self.settings.models.is_empty() {
                self.lists(model).unwrap_or(true)
            } else {
                self.settings.models.iter().any(|name| name == model)
            }
    }

    /// How many names ordinary routing would send it now. One that nobody has told which names it has takes any: that counts
    /// as one.
    #[must_use]
    pub fn offered(&self) -> usize {
        let known = !self.settings.health.enabled || self.standing.answered.load(Relaxed);
        if !known || !self.is_usable() {
            return 0;
        }
        let serves = |name: &&str| self.serves(name);
        match self.listing() {
            _ if !self.settings.models.is_empty() => {
                let names = self.settings.models.iter().map(String::as_str);
                names.filter(serves).count()
            }
            Some(listing) => listing.names().filter(serves).count(),
            None => usize::from(self.serves("")),
        }
    }

    /// Exchanges of one outcome so far.
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.own.count(outcome)
    }

    /// Whether its model list is read: shims, and servers whose configuration names no models.
    pub(super) fn wants_listing(&self) -> bool {
        self.shim || self.settings.models.is_empty()
    }

    pub(super) async fn listing_wanted(&self) {
        self.standing.listing_wanted.notified().await;
    }

    /// Where it is; `None` for a socket in a folder.
    pub(super) fn place(&self) -> Option<&Name> {
        self.standing.place.as_ref()
    }

    /// Says once that its name service is away, and once that it is there again.
    pub(super) fn tell_of(&self, found: &Found) {
        if self.standing.unnamed.swap(!found.current, Relaxed) == found.current {
            if found.current {
                tracing::info!(backend = %self.name, "the backend's name is looked up again");
            } else {
                tracing::warn!(
                    backend = %self.name,
                    "the backend's name cannot be looked up, its last known addresses are used"
                );
            }
        }
    }

    pub(super) fn set_listing(&self, listing: Listing) {
        self.standing.listing.store(Some(Arc::new(listing)));
    }

    pub(super) fn set_answered(&self) {
        self.standing.answered.store(true, Relaxed);
    }

    pub(super) fn set_up(&self, up: bool) {
        self.standing.up.store(up, Relaxed);
        self.show_up();
    }

    fn show_up(&self) {
        self.own.up.set(i64::from(self.is_usable()));
    }

    pub(crate) const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(crate) const fn host(&self) -> &HeaderValue {
        &self.host
    }

    pub(crate) const fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    pub(crate) const fn target(&self) -> (&uri::Scheme, &uri::Authority) {
        (&self.scheme, &self.authority)
    }

    /// It did not answer: prefer others for a while.
    pub(crate) fn cool_down(&self, lasting: Duration) {
        let until = self.standing.epoch.elapsed().saturating_add(lasting);
        self.standing
            .cool_until
            .store(u64::try_from(until.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(crate) fn is_cooling(&self) -> bool {
        let until = self.standing.cool_until.load(Relaxed);
        until != 0 && self.standing.epoch.elapsed().as_millis() < u128::from(until)
    }

    /// Counts one exchange from now to the end of the guard.
    pub(crate) fn begin(self: &Arc<Self>) -> Exchange {
        self.standing.in_flight.fetch_add(1, Relaxed);
        Exchange {
            backend: Arc::clone(self),
            outcome: Outcome::Canceled,
        }
    }
}

fn place(url: &BackendUrl, lookups: &Lookups) -> Option<Name> {
    match url {
        BackendUrl::Unix(_) => None,
        BackendUrl::Tcp { host, port, .. } => Some(Name::new(host, *port, lookups.clone())),
    }
}

/// One exchange with a backend: in flight until dropped, and counted then, once, whatever happened. Without a
/// word about how it ended the client has left.
#[derive(Debug)]
pub(crate) struct Exchange {
    backend: Arc<Backend>,
    outcome: Outcome,
}

impl Exchange {
    pub(crate) const fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }

    pub(crate) const fn ends(&mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.backend.standing.in_flight.fetch_sub(1, Relaxed);
        self.backend.own.ended(self.outcome);
    }
}

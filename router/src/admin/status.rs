//! `GET /admin/status`: the process at one look.

#[cfg(feature = "dynamo")]
mod controllers;
#[cfg(feature = "dynamo")]
mod fleet;

use serde::Serialize;

use super::{Admin, config::Reload, moment};
use crate::{app::NotReady, backends::Backend, cli::BUILD, reload::Outcome};

/// The answer.
#[derive(Serialize)]
pub(super) struct Status {
    version: &'static str,
    features: Features,
    started: String,
    uptime_seconds: i64,
    ready: bool,
    /// Why not.
    not_ready: Option<&'static str>,
    draining: bool,
    requests_in_flight: u32,
    config: Config,
    /// `null` for a router that no operator started.
    #[cfg(feature = "dynamo")]
    controllers: Option<controllers::Controllers>,
    #[cfg(feature = "dynamo")]
    discovery: fleet::Discovery,
    #[cfg(feature = "dynamo")]
    subscriptions: fleet::Subscriptions,
    pools: Vec<Pool>,
    backends: Vec<Server>,
}

/// What this build can do.
#[derive(Serialize)]
struct Features {
    dynamo: bool,
    kubernetes: bool,
    dynamo_kv: bool,
    dynamo_event_bus: bool,
}

#[derive(Serialize)]
struct Config {
    /// 1 at start, one more for each reload that changed something.
    version: u64,
    /// The file is the configuration in force.
    valid: bool,
    last_reload: Option<Reload>,
    /// Changed fields that only a new process takes.
    restart_needed: Vec<&'static str>,
}

/// The shim replicas of a namespace.
#[derive(Serialize)]
struct Pool {
    namespace: String,
    usable: bool,
    replicas: Vec<Server>,
}

/// A configured server, without its address.
#[derive(Serialize)]
struct Server {
    name: String,
    enabled: bool,
    up: bool,
    in_flight: u32,
    /// Names in its own list of models; `null` until it was read, and where nobody asks.
    listed_models: Option<usize>,
}

impl Status {
    pub(super) fn of(admin: &Admin) -> Self {
        let app = &admin.app;
        let not_ready = app.not_ready();
        let set = app.backends.load();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            features: Features {
                dynamo: BUILD.dynamo,
                kubernetes: BUILD.kubernetes,
                dynamo_kv: BUILD.dynamo_kv,
                dynamo_event_bus: BUILD.dynamo_event_bus,
            },
            started: moment(admin.started),
            uptime_seconds: admin.started.duration_until(jiff::Timestamp::now()).as_secs(),
            ready: not_ready.is_none(),
            not_ready: not_ready.map(NotReady::as_str),
            draining: app.is_draining(),
            requests_in_flight: app.in_flight.count(),
            config: Config::of(admin),
            #[cfg(feature = "dynamo")]
            controllers: controllers::Controllers::of(admin),
            #[cfg(feature = "dynamo")]
            discovery: fleet::Discovery::of(app),
            #[cfg(feature = "dynamo")]
            subscriptions: fleet::subscriptions(app),
            pools: set
                .pools()
                .map(|pool| Pool {
                    namespace: pool.graph().to_string(),
                    usable: pool.is_usable(),
                    replicas: pool
                        .replicas()
                        .iter()
                        .map(|replica| Server::of(replica))
                        .collect(),
                })
                .collect(),
            backends: set
                .iter()
                .filter(|backend| !backend.is_shim())
                .map(|backend| Server::of(backend))
                .collect(),
        }
    }
}

impl Config {
    fn of(admin: &Admin) -> Self {
        let last = admin.reloader.last();
        Self {
            version: admin.app.live().version,
            valid: last
                .as_ref()
                .is_none_or(|report| report.outcome != Outcome::Rejected),
            last_reload: last.map(Reload::from),
            restart_needed: admin.reloader.restart_needed(),
        }
    }
}

impl Server {
    fn of(backend: &Backend) -> Self {
        Self {
            name: backend.name().to_string(),
            enabled: backend.settings().enabled,
            up: backend.is_up(),
            in_flight: backend.in_flight(),
            listed_models: backend.listing().map(|listing| listing.names().count()),
        }
    }
}

//! What a reload must do: a comparison of two checked configurations.
//!
//! Every field has one row in [`ROWS`] that says how a change of it takes effect; a test walks the schema and
//! proves that none is missing.

mod watcher;

pub use watcher::{Reason, ViewOf, WatcherSwap};

use crate::model::Config;

/// How a change of a field takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The next request, check or pick reads the new value.
    Live,
    /// Subscriptions to load and cache events that it forbids end; with another transport all start anew. Stores, indexes
    /// and cursors stay.
    Subscriptions,
    /// The watcher of the fleet is exchanged, where the change matters to it: see [`WatcherSwap`].
    Watcher,
    /// The event bus takes the change in itself.
    EventBus,
    /// Only a new process has it.
    Process,
}

/// What a reload must do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reload {
    /// The fields that differ, by path and class, in the order of the reference.
    pub changed: Vec<(&'static str, Class)>,
    /// The watcher to exchange, if any.
    pub watcher: Option<WatcherSwap>,
}

impl Reload {
    /// Whether the two configurations are the same.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.changed.is_empty()
    }

    /// Whether a field of that class differs.
    #[must_use]
    pub fn has(&self, class: Class) -> bool {
        self.changed.iter().any(|(_, of)| *of == class)
    }

    /// The fields of that class that differ. Those of [`Class::Process`] are what the log must name.
    pub fn paths(&self, class: Class) -> impl Iterator<Item = &'static str> {
        self.changed
            .iter()
            .filter(move |(_, of)| *of == class)
            .map(|(path, _)| *path)
    }
}

/// Compares the running configuration with a new one.
#[must_use]
pub fn plan(old: &Config, new: &Config) -> Reload {
    let changed = ROWS
        .iter()
        .filter(|row| (row.differs)(old, new))
        .map(|row| (row.path, row.class))
        .collect();
    Reload {
        changed,
        watcher: watcher::swap(old, new),
    }
}

/// The class of a field, or of the section that it lies in.
#[must_use]
pub fn class_of(path: &str) -> Option<Class> {
    ROWS.iter()
        .find(|row| {
            path.strip_prefix(row.path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
        .map(|row| row.class)
}

/// One field, or one section whose fields change together.
struct Row {
    path: &'static str,
    class: Class,
    differs: fn(&Config, &Config) -> bool,
}

macro_rules! rows {
    ($($class:ident: $first:ident $(.$rest:ident)*;)+) => {
        &[$(Row {
            path: concat!(stringify!($first) $(, ".", stringify!($rest))*),
            class: Class::$class,
            differs: |old, new| old.$first $(.$rest)* != new.$first $(.$rest)*,
        }),+]
    };
}

const ROWS: &[Row] = rows! {
    Process: server.bind_address;
    Process: server.tls;
    Live: server.body_limit;
    Live: server.body_budget;
    Live: server.timeouts;
    Live: server.graceful_period;
    Live: server.max_in_flight;
    Process: server.threads;
    Process: admin.bind_address;
    Live: admin.token;
    Live: admin.token_hash;
    Process: telemetry.metrics_bind_address;
    Process: logging.format;
    Live: logging.level;
    Live: backends;
    Live: disaggregated_serving.enabled;
    Live: disaggregated_serving.fallback_to_unified;
    Watcher: dynamo.enabled;
    Watcher: dynamo.discovery.source;
    Watcher: dynamo.discovery.namespace_match;
    Watcher: dynamo.discovery.etcd.endpoints;
    Watcher: dynamo.discovery.etcd.namespace;
    Watcher: dynamo.discovery.etcd.namespaces;
    Watcher: dynamo.discovery.etcd.tls;
    Watcher: dynamo.discovery.etcd.auth;
    Watcher: dynamo.discovery.etcd.watch_reconnect_backoff;
    Watcher: dynamo.discovery.file.path;
    Watcher: dynamo.discovery.file.namespace;
    Watcher: dynamo.discovery.file.namespaces;
    Watcher: dynamo.discovery.file.watch_reconnect_backoff;
    Watcher: dynamo.discovery.kubernetes.namespace;
    Watcher: dynamo.discovery.kubernetes.dynamo_namespace;
    Watcher: dynamo.discovery.kubernetes.dynamo_namespaces;
    Watcher: dynamo.discovery.kubernetes.model;
    Watcher: dynamo.discovery.kubernetes.models;
    Watcher: dynamo.discovery.kubernetes.watch_reconnect_backoff;
    Watcher: dynamo.discovery.limits;
    Live: dynamo.load.max_staleness;
    Subscriptions: dynamo.load.transport;
    Subscriptions: dynamo.load.direct_allow_cidrs;
    Subscriptions: dynamo.load.zmq_broker;
    Subscriptions: dynamo.load.max_subscriptions;
    Live: dynamo.load.max_ranks;
    Live: dynamo.shim.backends;
    Live: dynamo.shim.pools;
    Live: dynamo.shim.model_map;
    Live: dynamo.picker.ties;
    Live: dynamo.kv;
    EventBus: dynamo.event_bus;
    Watcher: dynamo.state_dir;
    Live: controller;
};

#[cfg(test)]
mod tests;

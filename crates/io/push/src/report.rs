//! What a router tells every controller about itself.

use continuum_fleet::Refused;
use continuum_messages::{
    ConfigId, ViewId,
    limits::{MAX_POOLS, MAX_REPORT_TEXT_BYTES, MAX_REPORT_TEXTS},
    push,
};

/// What a router tells every controller about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The pushed view that picks are made from.
    pub view: Option<ViewId>,
    /// The configuration in force.
    pub config: Option<ConfigId>,
    /// The newest configuration, if it could not be taken over, and why.
    pub refused: Option<(ConfigId, String)>,
    /// Fields that changed and that only a new process takes.
    pub pending: Vec<String>,
    /// Whether clients may come.
    pub ready: bool,
    /// The shim pools.
    pub pools: Vec<Pool>,
    /// Subscriptions to the workers' publishers.
    pub subscriptions: Subscriptions,
    /// Requests being served.
    pub in_flight: u64,
    /// For a router that reads its fleet itself: how that fares, and what is there.
    pub local: Option<(Source, Counts)>,
    /// The same for what is kept out of that fleet, or is in it as it was before.
    pub local_refused: Refused,
    /// Base names of the fleet that clients can ask for now; `None` before the first look.
    pub served_models: Option<u32>,
    /// Names that backends without a fleet can be asked for now, one for each that takes any; `None` before the first look.
    pub backend_models: Option<u32>,
    /// Base names with workers that no healthy frontend lists.
    pub unlisted_models: Vec<String>,
}

/// The shim pool of one configured Dynamo namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// The namespace.
    pub namespace: String,
    /// Replicas that are configured and enabled.
    pub replicas: u32,
    /// Those that are up.
    pub healthy: u32,
}

/// Subscriptions by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subscriptions {
    /// All.
    pub wanted: u32,
    /// Those that are connected.
    pub connected: u32,
    /// Those that wait before connecting again.
    pub failing: u32,
    /// Those that a rule or a cap keeps from connecting.
    pub refused: u32,
}

/// How a source fares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// `kubernetes`, `kubernetes_pods`, `etcd` or `file`.
    pub kind: String,
    /// The list is complete and the watch stands.
    pub connected: bool,
    /// The first full list is done.
    pub synced: bool,
    /// The view was kept by an earlier process.
    pub stale: bool,
    /// Why it is not connected.
    pub last_error: Option<String>,
}

/// What is in a fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Prefill workers.
    pub prefill: u32,
    /// Decode workers.
    pub decode: u32,
    /// Aggregated workers.
    pub aggregated: u32,
    /// Encode workers.
    pub encode: u32,
    /// Workers of no known role.
    pub unknown: u32,
    /// Names that workers serve.
    pub models: u32,
    /// Event publishers.
    pub publishers: u32,
    /// Models that have one half of a pair alone.
    pub unpaired_models: Vec<String>,
}

impl Report {
    /// The message. `view_age_ms` and `stale` are the session's to know.
    pub(crate) fn message(&self, view_age_ms: u64, stale: bool) -> push::Report {
        let (local_source, local_fleet) = match &self.local {
            Some((source, counts)) => (Some(source.message()), Some(counts.message())),
            None => (None, None),
        };
        push::Report {
            view: self.view.map(Into::into),
            view_age_ms,
            config: self.config.map(Into::into),
            refused: self.refused.as_ref().map(|(id, error)| push::RefusedConfig {
                config: Some((*id).into()),
                error: short(error),
            }),
            pending: texts(&self.pending),
            ready: self.ready,
            pools: self
                .pools
                .iter()
                .take(MAX_POOLS)
                .map(|pool| push::Pool {
                    namespace: short(&pool.namespace),
                    replicas: pool.replicas,
                    healthy: pool.healthy,
                })
                .collect(),
            subscriptions: Some(push::Subscriptions {
                wanted: self.subscriptions.wanted,
                connected: self.subscriptions.connected,
                failing: self.subscriptions.failing,
                refused: self.subscriptions.refused,
            }),
            in_flight: self.in_flight,
            stale,
            local_source,
            local_fleet,
            served_models: self.served_models,
            backend_models: self.backend_models,
            unlisted_models: texts(&self.unlisted_models),
            local_refused: self
                .local_refused
                .iter()
                .map(|(kind, count)| push::RefusedRecords {
                    kind: kind.as_str().to_owned(),
                    count,
                })
                .collect(),
        }
    }
}

impl Source {
    fn message(&self) -> push::SourceState {
        push::SourceState {
            kind: self.kind.clone(),
            connected: self.connected,
            synced: self.synced,
            stale: self.stale,
            last_error: self.last_error.as_deref().map(short).unwrap_or_default(),
            origins: Vec::new(),
        }
    }
}

impl From<push::SourceState> for Source {
    fn from(told: push::SourceState) -> Self {
        Self {
            kind: crate::error::cut(&told.kind),
            connected: told.connected,
            synced: told.synced,
            stale: told.stale,
            last_error: (!told.last_error.is_empty()).then(|| crate::error::cut(&told.last_error)),
        }
    }
}

impl Counts {
    fn message(&self) -> push::FleetCounts {
        push::FleetCounts {
            prefill: self.prefill,
            decode: self.decode,
            aggregated: self.aggregated,
            encode: self.encode,
            unknown: self.unknown,
            models: self.models,
            publishers: self.publishers,
            unpaired_models: texts(&self.unpaired_models),
        }
    }
}

/// The first of them, each cut to its cap.
fn texts(of: &[String]) -> Vec<String> {
    of.iter().take(MAX_REPORT_TEXTS).map(|text| short(text)).collect()
}

/// A text of at most [`MAX_REPORT_TEXT_BYTES`], cut between characters.
fn short(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_REPORT_TEXT_BYTES);
    text.get(..end).unwrap_or_default().to_owned()
}

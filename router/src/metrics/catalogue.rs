//! Every family of metrics with its labels, for the reference. A test holds it against a running router.

use continuum_routing::picker::Reason;

use super::{Path, StatusClass};
use crate::{
    dispatch::metrics::{Outcome, Repicked, Retry},
    error::Phase,
    ingress::routes::Route,
    reload,
};

/// One family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What it measures.
    pub help: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its labels, in order of the name.
    pub labels: Vec<(&'static str, Values)>,
}

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Buckets, a sum and a count.
    Histogram,
}

impl Kind {
    /// The word of the exposition format.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// What a label may say. There is no value for a client's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// One of these.
    Closed(Vec<&'static str>),
    /// A name out of the configuration.
    Configured(&'static str),
    /// Something of the fleet, as many as it has workers and ranks.
    Fleet(&'static str),
}

/// All families of this build, by name.
#[must_use]
pub fn catalogue() -> Vec<Family> {
    let mut families = served();
    #[cfg(feature = "dynamo")]
    families.extend(of_fleet());
    #[cfg(feature = "dynamo")]
    families.extend(of_controllers());
    #[cfg(feature = "dynamo-kv")]
    families.extend(of_prompts());
    families.sort_by_key(|family| family.name);
    families
}

const fn family(
    name: &'static str,
    help: &'static str,
    kind: Kind,
    labels: Vec<(&'static str, Values)>,
) -> Family {
    Family {
        name,
        help,
        kind,
        labels,
    }
}

fn closed<const N: usize>(values: [&'static str; N]) -> Values {
    Values::Closed(values.to_vec())
}

fn served() -> Vec<Family> {
    let route = || ("route", closed(Route::ALL.map(Route::as_str)));
    let path = || ("routing_path", closed(Path::ALL.map(Path::as_str)));
    let backend = || ("backend", Values::Configured("name of a backend"));
    let of_request = || vec![route(), path()];
    vec![
        family(
            "continuum_requests_total",
            "Requests that have ended.",
            Kind::Counter,
            vec![
                route(),
                path(),
                ("status_class", closed(StatusClass::ALL.map(StatusClass::as_str))),
            ],
        ),
        family(
            "continuum_request_duration_seconds",
            "Time from a request's head to its end.",
            Kind::Histogram,
            of_request(),
        ),
        family(
            "continuum_time_to_first_byte_seconds",
            "Time from a request's head to the first byte of the answer's body.",
            Kind::Histogram,
            of_request(),
        ),
        family(
            "continuum_requests_in_flight",
            "Requests that are being served.",
            Kind::Gauge,
            vec![route()],
        ),
        family(
            "continuum_request_body_bytes",
            "Bytes of request bodies that are held, of server.body_budget.",
            Kind::Gauge,
            Vec::new(),
        ),
        family(
            "continuum_backend_up",
            "Whether a backend takes requests: 1 or 0.",
            Kind::Gauge,
            vec![backend()],
        ),
        family(
            "continuum_backend_requests_total",
            "Exchanges with a backend, health checks left out, by how they ended.",
            Kind::Counter,
            vec![backend(), ("outcome", closed(Outcome::ALL.map(Outcome::as_str)))],
        ),
        family(
            "continuum_retries_total",
            "Requests sent once more, by reason.",
            Kind::Counter,
            vec![("kind", closed(Retry::ALL.map(Retry::as_str)))],
        ),
        family(
            "continuum_config_reloads_total",
            "Reloads of the configuration, by what they came to.",
            Kind::Counter,
            vec![(
                "result",
                closed(reload::Outcome::ALL.map(reload::Outcome::as_str)),
            )],
        ),
        family(
            "continuum_config_valid",
            "1 while the configuration file is the one in force.",
            Kind::Gauge,
            Vec::new(),
        ),
        family(
            "disaggregated_requests_total",
            "Requests that workers of the fleet were considered for, by how they were answered.",
            Kind::Counter,
            vec![path()],
        ),
        family(
            "disaggregated_errors_total",
            "Pinned requests that their pool did not answer, by phase.",
            Kind::Counter,
            vec![("phase", closed(Phase::ALL.map(Phase::as_str)))],
        ),
        family(
            "continuum_dynamo_repicks_total",
            "Picks of other workers after a refusal, by cause and by whether they were answered.",
            Kind::Counter,
            vec![
                ("cause", closed(Repicked::ALL.map(Repicked::as_str))),
                ("result", closed(["success", "failure"])),
            ],
        ),
        family(
            "continuum_dynamo_selection_total",
            "Selections of a worker, by role and reason.",
            Kind::Counter,
            vec![
                ("reason", closed(Reason::ALL.map(Reason::as_str))),
                ("role", closed(["prefill", "decode"])),
            ],
        ),
    ]
}

#[cfg(feature = "dynamo-kv")]
fn of_prompts() -> Vec<Family> {
    use continuum_prompt::{Outcome as Files, metrics::Stage};

    vec![
        family(
            "continuum_dynamo_kv_artifacts_total",
            "Tokenizers and chat templates of models, by what became of them.",
            Kind::Counter,
            vec![("result", closed(Files::ALL.map(Files::as_str)))],
        ),
        family(
            "continuum_dynamo_kv_render_seconds",
            "Time that a prompt took to be rendered, tokenized and hashed, by stage.",
            Kind::Histogram,
            vec![("stage", closed(Stage::ALL.map(Stage::as_str)))],
        ),
        family(
            "continuum_dynamo_kv_selection_total",
            "Picks that the blocks of a prompt were to decide, by what came of it.",
            Kind::Counter,
            vec![("result", closed(super::KvResult::WORDS))],
        ),
        family(
            "continuum_dynamo_kv_overlap_blocks",
            "Blocks of a prompt that the rank which reads it holds, by its role.",
            Kind::Histogram,
            vec![("role", closed(["prefill", "decode"]))],
        ),
    ]
}

#[cfg(feature = "dynamo")]
fn of_controllers() -> Vec<Family> {
    use continuum_push::{Reason as Cause, SessionState, metrics::Kind as Came};

    vec![
        family(
            "continuum_controller_sessions",
            "Sessions with controllers of the operator, by state.",
            Kind::Gauge,
            vec![("state", closed(SessionState::ALL.map(SessionState::as_str)))],
        ),
        family(
            "continuum_controller_followed",
            "1 while a controller is followed: its views and its configuration are taken.",
            Kind::Gauge,
            Vec::new(),
        ),
        family(
            "continuum_controller_view_age_seconds",
            "Time since the pushed view was last known to be the present one.",
            Kind::Gauge,
            Vec::new(),
        ),
        family(
            "continuum_controller_updates_total",
            "Views and configurations that came from controllers, by kind.",
            Kind::Counter,
            vec![("kind", closed(Came::ALL.map(Came::as_str)))],
        ),
        family(
            "continuum_controller_errors_total",
            "Sessions that ended or could not begin and updates that were refused, by reason.",
            Kind::Counter,
            vec![("reason", closed(Cause::ALL.map(Cause::as_str)))],
        ),
    ]
}

#[cfg(feature = "dynamo")]
fn of_fleet() -> Vec<Family> {
    use continuum_discovery::SourceKind;
    use continuum_events::{
        metrics::Outcome as Heard,
        status::{State, Via},
    };
    use continuum_fleet::{
        EventKind,
        view::{Role, Topic},
    };
    use continuum_kv_index::Outcome as BlockOutcome;

    let namespace = || ("namespace", Values::Configured("Dynamo namespace"));
    let role = || ("role", closed(Role::ALL.map(Role::as_str)));
    let rank = || {
        vec![
            ("dp_rank", Values::Fleet("rank, decimal")),
            namespace(),
            ("worker", Values::Fleet("instance id, hex")),
        ]
    };
    vec![
        family(
            "continuum_dynamo_discovery_connected",
            "1 while the registry is listed and watched",
            Kind::Gauge,
            Vec::new(),
        ),
        family(
            "continuum_dynamo_discovery_workers",
            "Workers in the view, by configured namespace and role",
            Kind::Gauge,
            vec![namespace(), role()],
        ),
        family(
            "continuum_dynamo_discovery_publishers",
            "Event channels in the view, by configured namespace and topic",
            Kind::Gauge,
            vec![namespace(), ("topic", closed(Topic::ALL.map(Topic::as_str)))],
        ),
        family(
            "continuum_dynamo_discovery_events_total",
            "Records and events of the fleet's registry, by what became of them",
            Kind::Counter,
            vec![("kind", closed(EventKind::ALL.map(EventKind::as_str)))],
        ),
        family(
            "continuum_dynamo_discovery_resync_seconds",
            "Time from connecting to a complete list with its watch open",
            Kind::Histogram,
            vec![("source", closed(SourceKind::ALL.map(SourceKind::as_str)))],
        ),
        family(
            "continuum_dynamo_load_active_decode_blocks",
            "KV blocks of running sequences, as the worker says.",
            Kind::Gauge,
            rank(),
        ),
        family(
            "continuum_dynamo_load_active_prefill_tokens",
            "Prompt tokens being read, as a publisher says.",
            Kind::Gauge,
            rank(),
        ),
        family(
            "continuum_dynamo_load_kv_used_blocks",
            "KV blocks in use, as the worker says.",
            Kind::Gauge,
            rank(),
        ),
        family(
            "continuum_dynamo_load_last_sample_age_seconds",
            "Age of the newest load sample.",
            Kind::Gauge,
            rank(),
        ),
        family(
            "continuum_dynamo_load_subscriptions",
            "Load subscriptions, by state and transport.",
            Kind::Gauge,
            vec![
                ("state", closed(State::ALL.map(State::as_str))),
                ("transport", closed(Via::ALL.map(Via::as_str))),
            ],
        ),
        family(
            "continuum_dynamo_load_events_total",
            "Load messages and refused load connections, by what became of them.",
            Kind::Counter,
            vec![("result", closed(Heard::ALL.map(Heard::as_str)))],
        ),
        family(
            "continuum_dynamo_kv_events_total",
            "Block events, and refused connections of their publishers, by what became of them.",
            Kind::Counter,
            vec![("result", closed(BlockOutcome::ALL.map(BlockOutcome::as_str)))],
        ),
        family(
            "continuum_dynamo_kv_subscriptions",
            "Subscriptions to block events, by state and transport.",
            Kind::Gauge,
            vec![
                ("state", closed(State::ALL.map(State::as_str))),
                ("transport", closed(Via::ALL.map(Via::as_str))),
            ],
        ),
        family(
            "continuum_dynamo_kv_index_nodes",
            "Different blocks in the index.",
            Kind::Gauge,
            Vec::new(),
        ),
        family(
            "continuum_dynamo_kv_index_ownerships",
            "Blocks that ranks hold, as far as the index knows: one rank holds one block in one tier.",
            Kind::Gauge,
            Vec::new(),
        ),
        family(
            "continuum_dynamo_kv_index_ranks",
            "Ranks whose blocks are indexed.",
            Kind::Gauge,
            Vec::new(),
        ),
        family(
            "continuum_dynamo_kv_index_bytes",
            "Memory of the index.",
            Kind::Gauge,
            Vec::new(),
        ),
        family(
            "continuum_dynamo_inflight_booked",
            "Requests of this router that are booked on workers.",
            Kind::Gauge,
            vec![namespace(), role()],
        ),
        family(
            "continuum_dynamo_suspect_workers",
            "Workers that are suspected to be dead.",
            Kind::Gauge,
            vec![namespace(), role()],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_closed_unless_configuration_or_fleet_bounds_them() {
        for family in catalogue() {
            for (label, values) in &family.labels {
                let bounded = match values {
                    Values::Closed(values) => !values.is_empty(),
                    Values::Configured(_) => ["backend", "namespace"].contains(label),
                    Values::Fleet(_) => ["worker", "dp_rank"].contains(label),
                };
                assert!(bounded, "{} {label}", family.name);
            }
            assert!(
                family.labels.is_sorted_by_key(|(label, _)| *label),
                "{}: a scrape sorts labels",
                family.name
            );
        }
    }
}

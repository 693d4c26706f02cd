//! Records and scripted sources for the tests of this crate.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use continuum_fleet::{
    Change, NamespaceMatch, Reducer, Settings, ids::Graph, limits::Limits, view::FleetView,
};
use continuum_runtime::cell::Cell;
use prometheus::Registry;
use tokio::time::{Instant, sleep};

use crate::{
    error::Error,
    feed::SharedFeed,
    metrics::Metrics,
    session::Outlet,
    source::{Batch, Entries, Over, Seed, Source, SourceKind, Watch},
    status::Status,
};

/// The record of a `generate` instance.
pub(crate) fn instance(namespace: &str, id: u64) -> (String, Vec<u8>) {
    let value = serde_json::json!({
        "type": "Endpoint", "namespace": namespace, "component": "decode", "endpoint": "generate",
        "instance_id": id, "transport": {"tcp": "127.0.0.1:1/x"},
    });
    (
        format!("v1/instances/{namespace}/decode/generate/{id:x}"),
        value.to_string().into_bytes(),
    )
}

pub(crate) fn put((key, value): (String, Vec<u8>)) -> Change {
    Change::Put { key, value }
}

pub(crate) fn delete((key, _): (String, Vec<u8>)) -> Change {
    Change::Delete { key }
}

/// A view with one worker in each of these namespaces.
pub(crate) fn view(namespaces: &[&str]) -> FleetView {
    let mut reducer = Reducer::new(Settings {
        namespaces: namespaces.iter().map(|name| Graph::from(*name)).collect(),
        namespace_match: NamespaceMatch::Generation,
        limits: Limits::default(),
    });
    let entries: Vec<_> = namespaces.iter().map(|name| instance(name, 1)).collect();
    reducer.reset(entries.iter().map(|(k, v)| (k, v)), jiff::Timestamp::UNIX_EPOCH);
    reducer.view()
}

/// An outlet of its own, for namespace `dynamo`.
pub(crate) fn outlet() -> (Outlet, Arc<Cell<FleetView>>, Registry) {
    let (registry, fleet, status) = (Registry::new(), Arc::default(), Arc::<Cell<Status>>::default());
    let metrics = Metrics::register(&registry, &fleet, &status).unwrap();
    let settings = Settings {
        namespaces: vec![Graph::from("dynamo")],
        namespace_match: NamespaceMatch::Generation,
        limits: Limits::default(),
    };
    let feed = SharedFeed::new(Reducer::new(settings), Arc::clone(&fleet), metrics.clone(), None);
    (
        Outlet {
            kind: SourceKind::Etcd,
            feed,
            status,
            metrics,
            names: tokio::sync::watch::channel(vec![Graph::from("dynamo")]).1,
        },
        fleet,
        registry,
    )
}

/// The value of a series of `continuum_dynamo_discovery_events_total`.
pub(crate) fn events(registry: &Registry, kind: &str) -> u64 {
    registry
        .gather()
        .iter()
        .filter(|family| family.name() == "continuum_dynamo_discovery_events_total")
        .flat_map(|family| family.get_metric().to_vec())
        .filter(|metric| metric.get_label().iter().any(|label| label.value() == kind))
        .map(|metric| metric.get_counter().get_value() as u64)
        .sum()
}

/// What a scripted source does in one pass.
pub(crate) enum Pass {
    /// It cannot begin.
    Fails(Error),
    /// It never finishes its list.
    Hangs,
    /// A list, then changes (all at hand unless a time is given), then an end after a time; none: it stays.
    Runs {
        list: Entries,
        changes: Vec<(Duration, Change)>,
        end: Option<(Duration, Error)>,
    },
    /// A list, and a planned end.
    Turns {
        list: Entries,
        after: Duration,
        over: Over,
    },
}

/// A source that plays passes and notes when each began. After the last one it hangs.
pub(crate) struct Scripted {
    pub(crate) passes: VecDeque<Pass>,
    pub(crate) began: Arc<std::sync::Mutex<Vec<Instant>>>,
}

impl Scripted {
    pub(crate) fn new(passes: impl IntoIterator<Item = Pass>) -> Self {
        Self {
            passes: passes.into_iter().collect(),
            began: Arc::default(),
        }
    }
}

/// The rest of a scripted pass.
pub(crate) struct ScriptedWatch {
    changes: VecDeque<(Instant, Change)>,
    end: Option<(Instant, Error)>,
    over: Option<(Instant, Over)>,
}

impl Source for Scripted {
    type Watch = ScriptedWatch;

    async fn open(&mut self) -> Result<(Seed, ScriptedWatch), Error> {
        self.began.lock().unwrap().push(Instant::now());
        match self.passes.pop_front() {
            None | Some(Pass::Hangs) => std::future::pending().await,
            Some(Pass::Fails(error)) => Err(error),
            Some(Pass::Turns { list, after, over }) => Ok((
                Seed {
                    entries: list,
                    ..Seed::default()
                },
                ScriptedWatch {
                    changes: VecDeque::new(),
                    end: None,
                    over: Some((Instant::now() + after, over)),
                },
            )),
            Some(Pass::Runs { list, changes, end }) => {
                let now = Instant::now();
                let watch = ScriptedWatch {
                    changes: changes
                        .into_iter()
                        .map(|(after, change)| (now + after, change))
                        .collect(),
                    end: end.map(|(after, error)| (now + after, error)),
                    over: None,
                };
                Ok((
                    Seed {
                        entries: list,
                        ..Seed::default()
                    },
                    watch,
                ))
            }
        }
    }
}

impl Watch for ScriptedWatch {
    async fn next(&mut self) -> Result<Batch, Error> {
        if let Some((at, _)) = self.changes.front() {
            tokio::time::sleep_until(*at).await;
            let change = self.changes.pop_front().map(|(_, change)| change);
            return Ok(Batch {
                changes: change.into_iter().collect(),
                ..Batch::default()
            });
        }
        if let Some((at, over)) = self.over {
            tokio::time::sleep_until(at).await;
            return Ok(Batch {
                over: Some(over),
                ..Batch::default()
            });
        }
        match self.end.take() {
            Some((at, error)) => {
                // Put back first: a dropped call must not lose the end.
                if Instant::now() < at {
                    self.end = Some((at, error));
                    tokio::time::sleep_until(at).await;
                    return match self.end.take() {
                        Some((_, error)) => Err(error),
                        None => Err(Error::Silent),
                    };
                }
                Err(error)
            }
            None => {
                sleep(Duration::from_secs(86_400 * 365)).await;
                Err(Error::Silent)
            }
        }
    }
}

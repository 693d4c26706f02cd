//! Fleets that real Dynamo processes of three releases registered.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot read its fixture has failed"
)]

use continuum_fleet::{
    Change, EventKind, Generation, Reducer, Settings,
    ids::{Graph, Rank},
    limits::Limits,
    view::{FleetView, NameKind, Role, Topic, Transport, Worker},
};
use jiff::Timestamp;

const VERSIONS: [&str; 3] = ["1.4.2", "1.5.1", "1.6.1"];

#[derive(serde::Deserialize)]
struct Line {
    key: String,
    value: String,
}

macro_rules! fixtures {
    ($($version:literal: $($fleet:literal)*;)*) => {
        fn text(version: &str, fleet: &str) -> &'static str {
            match (version, fleet) {
                $($(($version, $fleet) => include_str!(concat!("fixtures/", $version, "/", $fleet, ".jsonl")),)*)*
                _ => panic!("no fixture {version} {fleet}"),
            }
        }
    };
}

fixtures! {
    "1.4.2": "agg" "default-component-names" "disagg" "dp2" "mixed" "scripted";
    "1.5.1": "agg" "default-component-names" "disagg" "dp2" "mixed" "scripted";
    "1.6.1": "agg" "default-component-names" "disagg" "dp2" "mixed" "scripted";
}

fn records(version: &str, fleet: &str) -> Vec<(String, String)> {
    let lines = text(version, fleet)
        .lines()
        .map(|line| serde_json::from_str::<Line>(line).unwrap());
    lines.map(|line| (line.key, line.value)).collect()
}

fn reducer() -> Reducer {
    Reducer::new(Settings {
        namespaces: vec![Graph::from("dynamo")],
        namespace_match: Default::default(),
        limits: Limits::default(),
    })
}

/// The view after a full list; the same records one by one, in any order, must give the same.
fn view(version: &str, fleet: &str) -> FleetView {
    let records = records(version, fleet);
    let mut listed = reducer();
    let notes = listed.reset(
        records.iter().map(|(key, value)| (key, value)),
        Timestamp::UNIX_EPOCH,
    );
    let kinds: Vec<_> = notes.counts().collect();
    assert_eq!(
        kinds,
        [(EventKind::Resync, 1)],
        "{version} {fleet}: {:?}",
        notes.lines()
    );

    let mut watched = reducer();
    for (key, value) in records.into_iter().rev() {
        watched.apply(
            Change::Put {
                key,
                value: value.into_bytes(),
            },
            Timestamp::UNIX_EPOCH,
        );
    }
    assert_eq!(listed.view(), watched.view(), "{version} {fleet}");
    listed.view()
}

fn roles(view: &FleetView) -> Vec<(&str, Role)> {
    let mut roles: Vec<_> = view
        .workers
        .values()
        .map(|worker| (&*worker.component, worker.role))
        .collect();
    roles.sort();
    roles
}

fn publishers(view: &FleetView, topic: Topic) -> usize {
    view.publishers.keys().filter(|key| key.topic == topic).count()
}

fn names(worker: &Worker) -> Vec<(&str, NameKind)> {
    worker
        .names
        .iter()
        .map(|name| (name.name.as_str(), name.kind))
        .collect()
}

#[test]
fn a_disaggregated_fleet() {
    for version in VERSIONS {
        let view = view(version, "disagg");
        assert_eq!(
            roles(&view),
            [
                ("decode", Role::Decode),
                ("decode", Role::Decode),
                ("prefill", Role::Prefill),
                ("prefill", Role::Prefill)
            ]
        );
        for worker in view.workers.values() {
            assert_eq!(
                (worker.graph.as_str(), &worker.generation),
                ("dynamo", &Generation::Base)
            );
            assert_eq!(names(worker), [("Qwen/Qwen3-0.6B", NameKind::Base)]);
            let card = worker.card.as_ref().unwrap();
            assert_eq!(card.worker_type, Some(worker.role));
            let peer = if worker.role == Role::Prefill {
                Role::Decode
            } else {
                Role::Prefill
            };
            assert_eq!(card.needs, [[peer]]);
            assert_eq!((card.block_size, card.context_length), (Some(16), Some(40_960)));
            assert_eq!(card.capacity.total_kv_blocks, Some(64));
            assert_eq!(card.capacity.max_num_batched_tokens, Some(8192));
            assert_eq!(card.capacity.max_num_seqs, Some(256));
            assert_eq!((card.ranks.start, card.ranks.size), (0, 1));
            assert!(!card.has_router_config && !card.has_disaggregated_endpoint && !card.enable_eagle);
            assert!(
                card.artifacts
                    .tokenizer
                    .as_ref()
                    .unwrap()
                    .contains("hf_tokenizer_json")
            );
            assert!(
                card.json
                    .as_ref()
                    .unwrap()
                    .contains("architectural_max_context_length")
            );
        }
        assert_eq!(
            (
                publishers(&view, Topic::KvMetrics),
                publishers(&view, Topic::KvEvents)
            ),
            (4, 2)
        );
    }
}

#[test]
fn publishers_are_attributed_where_a_source_names_their_rank() {
    for version in VERSIONS {
        let view = view(version, "dp2");
        assert!(
            view.workers
                .values()
                .all(|worker| worker.ranks().unwrap().iter().eq([Rank(0), Rank(1)]))
        );
        let mut fed = Vec::new();
        for publisher in view.publishers.values() {
            assert!(
                matches!(&publisher.transport, Transport::Zmq { endpoint } if endpoint.starts_with("tcp://127.0.0.1:"))
            );
            match publisher.key.topic {
                Topic::KvMetrics => {
                    assert_eq!(publisher.feeds, None, "real fleets register no source of load")
                }
                Topic::KvEvents => fed.push(publisher.feeds.unwrap()),
            }
        }
        let prefill = view
            .workers
            .values()
            .filter(|worker| worker.role == Role::Prefill);
        let mut expected: Vec<_> = prefill
            .flat_map(|worker| [0, 1].map(|rank| (worker.key.instance, Rank(rank))))
            .collect();
        fed.sort();
        expected.sort();
        assert_eq!(fed, expected);
    }
}

#[test]
fn aggregated_fleets_and_component_names_that_say_nothing() {
    for version in VERSIONS {
        assert_eq!(
            roles(&view(version, "agg")),
            [("agg", Role::Aggregated), ("agg", Role::Aggregated)]
        );
        assert_eq!(
            roles(&view(version, "default-component-names")),
            [
                ("backend", Role::Decode),
                ("backend", Role::Aggregated),
                ("prefill", Role::Prefill)
            ]
        );
    }
}

#[test]
fn an_adapter_is_a_name_of_its_worker() {
    for version in VERSIONS {
        let view = view(version, "scripted");
        let workers: Vec<_> = view.workers.values().collect();
        let [worker] = workers.as_slice() else {
            panic!("one worker, not {workers:?}")
        };
        assert_eq!(
            names(worker),
            [
                ("Qwen/Qwen3-0.6B", NameKind::Base),
                ("my-lora/v1", NameKind::Adapter)
            ]
        );
        assert_eq!(worker.role, Role::Aggregated);
        assert_eq!(worker.card.as_ref().unwrap().capacity.total_kv_blocks, Some(1000));
    }
}

#[test]
fn a_mixed_fleet_is_warned_of() {
    for version in VERSIONS {
        let mut reducer = reducer();
        let notes = reducer.reset(records(version, "mixed"), Timestamp::UNIX_EPOCH);
        let lines: Vec<String> = notes.lines().iter().map(|note| format!("{note:?}")).collect();
        let [line] = lines.as_slice() else {
            panic!("one line, not {lines:?}")
        };
        assert!(
            line.contains("MixedNamespace") && line.contains("prefill: 1, decode: 1, aggregated: 1"),
            "{line}"
        );
    }
}

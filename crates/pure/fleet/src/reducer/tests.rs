use std::sync::Arc;

use super::*;
use crate::{
    graphs::Generation,
    ids::{InstanceId, Namespace, PublisherId, Rank},
    limits::{MAX_MIXED_REPORTS, MAX_RANKS_PER_WORKER, MAX_RECORDS_PER_KEYSPACE},
    notes::{ConflictKind, Malformed, Note},
    view::{NameKind, Role, Topic, Transport, Worker},
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or(Timestamp::MAX)
}

fn reducer_with(limits: Limits) -> Reducer {
    Reducer::new(Settings {
        namespaces: vec!["dynamo".into(), "other".into()],
        namespace_match: NamespaceMatch::Generation,
        limits,
    })
}

fn reducer() -> Reducer {
    reducer_with(Limits::default())
}

fn put(key: impl Into<String>, value: impl Into<String>) -> Change {
    Change::Put {
        key: key.into(),
        value: value.into().into_bytes(),
    }
}

fn delete(key: impl Into<String>) -> Change {
    Change::Delete { key: key.into() }
}

fn instance(namespace: &str, component: &str, id: u64) -> Change {
    put(
        instance_key(namespace, component, id),
        format!(r#"{{"type":"Endpoint","instance_id":{id}}}"#),
    )
}

fn instance_key(namespace: &str, component: &str, id: u64) -> String {
    format!("v1/instances/{namespace}/{component}/generate/{id:x}")
}

fn card(namespace: &str, component: &str, id: u64, json: &str) -> Change {
    let place = format!(r#""component":"{component}","endpoint":"generate""#);
    put(
        format!("v1/mdc/{namespace}/{component}/generate/{id:x}"),
        format!(r#"{{"type":"Model",{place},"instance_id":{id},"card_json":{json}}}"#),
    )
}

fn worker(view: &FleetView, namespace: &str, id: u64) -> Option<Arc<Worker>> {
    view.workers
        .get(&WorkerKey {
            namespace: Namespace::from(namespace),
            instance: InstanceId::new(id),
        })
        .cloned()
}

fn only(reducer: &Reducer) -> Arc<Worker> {
    let view = reducer.view();
    assert_eq!(view.workers.len(), 1, "{:?}", view.workers);
    view.workers.values().next().cloned().expect("one")
}

fn names(worker: &Worker) -> Vec<(&str, NameKind)> {
    worker
        .names
        .iter()
        .map(|name| (name.name.as_str(), name.kind))
        .collect()
}

#[test]
fn a_worker_follows_its_component_until_its_card_comes() {
    let mut reducer = reducer();
    reducer.apply(instance("dynamo-0a1b2c3d", "backend", 7), at(1));
    let alone = only(&reducer);
    assert_eq!(
        (alone.role, alone.model(), alone.ranks()),
        (Role::Unknown, None, None)
    );
    assert_eq!(
        (alone.graph.as_str(), &alone.generation),
        ("dynamo", &Generation::Hash(0x0a1b_2c3d))
    );

    reducer.apply(
        card(
            "dynamo-0a1b2c3d",
            "backend",
            7,
            r#"{"display_name":"m","worker_type":"Decode"}"#,
        ),
        at(2),
    );
    let joined = only(&reducer);
    assert_eq!(
        (joined.role, names(&joined)),
        (Role::Decode, vec![("m", NameKind::Base)])
    );
    assert_eq!((joined.seen.first, joined.seen.updated), (at(1), at(2)));
    assert_eq!(
        joined.ranks().map(|ranks| (ranks.start, ranks.size)),
        Some((0, 1))
    );

    // A put of the same text is a sign of life and no update; a changed card replaces the old one.
    let before = reducer.view();
    reducer.apply(
        card(
            "dynamo-0a1b2c3d",
            "backend",
            7,
            r#"{"display_name":"m","worker_type":"Decode"}"#,
        ),
        at(3),
    );
    assert!(reducer.view().workers.ptr_eq(&before.workers));
    reducer.apply(
        card(
            "dynamo-0a1b2c3d",
            "backend",
            7,
            r#"{"display_name":"n","worker_type":"decode"}"#,
        ),
        at(4),
    );
    assert_eq!(
        (names(&only(&reducer)), only(&reducer).seen.updated),
        (vec![("n", NameKind::Base)], at(4))
    );

    // The instance goes first when a worker stops; the card alone is nobody.
    reducer.apply(delete(instance_key("dynamo-0a1b2c3d", "backend", 7)), at(5));
    assert!(reducer.view().workers.is_empty());
    reducer.apply(instance("dynamo-0a1b2c3d", "backend", 7), at(6));
    assert_eq!(only(&reducer).seen.first, at(6));
}

#[test]
fn one_bad_record_harms_nobody_and_leaves_what_its_key_said() {
    let mut reducer = reducer();
    reducer.apply(instance("dynamo", "decode", 1), at(1));
    let card_key = "v1/mdc/dynamo/decode/generate/1";
    reducer.apply(card("dynamo", "decode", 1, r#"{"display_name":"m"}"#), at(1));
    let before = reducer.view();
    let huge = "x".repeat(crate::limits::MAX_RECORD_BYTES + 1);
    for (key, value, kind, why) in [
        (card_key, "not json", EventKind::Malformed, Some(Malformed::Json)),
        (card_key, "[]", EventKind::Malformed, Some(Malformed::Json)),
        (
            card_key,
            r#"{"card_json":{}}"#,
            EventKind::Malformed,
            Some(Malformed::NoId),
        ),
        (
            card_key,
            r#"{"instance_id":1,"card_json":7}"#,
            EventKind::Malformed,
            Some(Malformed::Json),
        ),
        (
            card_key,
            r#"{"type":"Endpoint","instance_id":1}"#,
            EventKind::Malformed,
            Some(Malformed::Type),
        ),
        (
            card_key,
            r#"{"instance_id":2,"card_json":{}}"#,
            EventKind::Mismatch,
            None,
        ),
        (
            card_key,
            r#"{"instance_id":1,"component":"prefill","card_json":{}}"#,
            EventKind::Mismatch,
            None,
        ),
        (
            card_key,
            huge.as_str(),
            EventKind::Malformed,
            Some(Malformed::TooLarge),
        ),
        (
            "v1/instances/dynamo/decode/generate/2",
            r#"{"type":"Endpoint"}"#,
            EventKind::Malformed,
            Some(Malformed::NoId),
        ),
        (
            "v1/instances/dynamo/decode/generate/zz",
            "{}",
            EventKind::Malformed,
            Some(Malformed::Key),
        ),
    ] {
        let notes = reducer.apply(put(key, value), at(2));
        assert_eq!(notes.counts().collect::<Vec<_>>(), [(kind, 1)], "{key}");
        let said = notes.lines().iter().find_map(|note| {
            if let Note::Malformed { why, .. } = note {
                Some(*why)
            } else {
                None
            }
        });
        assert!(
            why.is_none() || said == why || notes.lines().is_empty(),
            "{key} {:?}",
            notes.lines()
        );
        let again = reducer.apply(put(key, value), at(2));
        assert_eq!(
            (again.count(kind), again.lines().len()),
            (1, 0),
            "counted again, said once: {key}"
        );
        assert_eq!(reducer.view(), before, "{key}");
    }

    // A full list in which the value is unreadable keeps it too; a list without the key does not.
    let list = [
        (instance_key("dynamo", "decode", 1), r#"{"instance_id":"1"}"#),
        (card_key.to_owned(), "rubbish"),
    ];
    reducer.reset(list, at(3));
    assert_eq!(reducer.view(), before);
    reducer.reset(
        [(instance_key("dynamo", "decode", 1), r#"{"instance_id":"1"}"#)],
        at(4),
    );
    assert_eq!(only(&reducer).card, None);
}

#[test]
fn what_is_not_ours_is_left_out_without_a_word() {
    let mut reducer = reducer_with(Limits {
        records_per_keyspace: 1,
        ..Limits::default()
    });
    for key in [
        "v1/instances/dynamo2/decode/generate/1",
        "v1/instances/dynamo/decode/clear_kv_blocks/1",
        "v1/mdc/dynamo/decode/other/1",
        "v1/event_channels/namespace/dynamo/component/c/topic/forward-pass-metrics/1",
        "v1/event_sources/namespace/elsewhere/topic/kv-events/1",
    ] {
        let notes = reducer.apply(put(key, "rubbish"), at(1));
        assert_eq!(notes, Notes::default(), "{key}");
    }
    assert_eq!(
        reducer
            .apply(instance("dynamo", "decode", 1), at(1))
            .count(EventKind::Put),
        1,
        "none of them counts"
    );
}

#[test]
fn two_keys_of_one_instance_are_no_worker_and_are_said_once() {
    let mut reducer = reducer();
    reducer.apply(instance("dynamo", "decode", 0xa), at(1));
    let second = instance("dynamo", "prefill", 0xa);
    let notes = reducer.apply(second.clone(), at(2));
    assert_eq!(notes.count(EventKind::Duplicate), 1);
    let [
        Note::Duplicate {
            kind,
            identity,
            count,
            keys,
        },
    ] = notes.lines()
    else {
        panic!("{:?}", notes.lines())
    };
    assert_eq!(
        (*kind, identity.as_str(), *count),
        (ConflictKind::Instance, "dynamo/a", 2)
    );
    assert_eq!(
        keys.iter().map(|key| &**key).collect::<Vec<_>>(),
        [
            "v1/instances/dynamo/decode/generate/a",
            "v1/instances/dynamo/prefill/generate/a"
        ]
    );
    assert!(reducer.view().workers.is_empty());

    // Not again while it lasts, nor after a full list, nor when the very same conflict returns.
    assert_eq!(reducer.apply(second.clone(), at(3)).lines(), []);
    let list = [("decode", "a"), ("prefill", "a")].map(|(component, id)| {
        (
            format!("v1/instances/dynamo/{component}/generate/{id}"),
            r#"{"instance_id":10}"#,
        )
    });
    assert_eq!(reducer.reset(list, at(4)).count(EventKind::Duplicate), 0);
    let notes = reducer.apply(delete(instance_key("dynamo", "prefill", 0xa)), at(5));
    assert!(matches!(
        notes.lines(),
        [Note::Resolved {
            kind: ConflictKind::Instance,
            ..
        }]
    ));
    assert_eq!(only(&reducer).role, Role::Decode);
    let notes = reducer.apply(second, at(6));
    assert_eq!(
        (notes.count(EventKind::Duplicate), notes.lines()),
        (1, [].as_slice())
    );

    // Another spelling of the id is another key of the same identity.
    let notes = reducer.apply(
        put(
            "v1/instances/dynamo/decode/generate/0A",
            r#"{"instance_id":"0xa"}"#,
        ),
        at(7),
    );
    assert!(matches!(notes.lines(), [Note::Duplicate { count: 3, .. }]));
}

#[test]
fn a_flood_of_claims_is_bounded_in_records_and_in_lines() {
    let mut reducer = reducer();
    let mut lines = 0;
    let mut refused = 0;
    for zeros in 0..100 {
        let key = format!("v1/instances/dynamo/decode/generate/{}a", "0".repeat(zeros));
        let notes = reducer.apply(put(key, r#"{"instance_id":10}"#), at(1));
        lines += notes.lines().len();
        refused += notes.count(EventKind::OverCapacity);
        for note in notes.lines() {
            let Note::Duplicate { keys, .. } = note else {
                panic!("{note:?}")
            };
            assert!(keys.len() <= 4);
        }
    }
    assert_eq!(refused, 100 - crate::limits::MAX_CLAIMS_PER_IDENTITY as u64);
    assert_eq!(lines, 5, "two, three, four, eight and sixteen keys");
    assert_eq!(reducer.view().capped.records, refused);
}

#[test]
fn two_base_cards_leave_a_worker_without_one() {
    let mut reducer = reducer();
    reducer.apply(instance("dynamo", "backend", 0xa), at(1));
    reducer.apply(
        card(
            "dynamo",
            "backend",
            0xa,
            r#"{"display_name":"m","worker_type":"decode"}"#,
        ),
        at(1),
    );
    let twin = r#"{"type":"Model","component":"backend","endpoint":"generate","instance_id":10,"card_json":{"display_name":"evil"}}"#;
    let notes = reducer.apply(put("v1/mdc/dynamo/backend/generate/0a", twin), at(2));
    assert!(matches!(
        notes.lines(),
        [Note::Duplicate {
            kind: ConflictKind::BaseCard,
            count: 2,
            ..
        }]
    ));
    assert_eq!(
        (
            only(&reducer).card.clone(),
            only(&reducer).role,
            names(&only(&reducer))
        ),
        (None, Role::Unknown, vec![])
    );
    reducer.apply(delete("v1/mdc/dynamo/backend/generate/0a"), at(3));
    assert_eq!(names(&only(&reducer)), [("m", NameKind::Base)]);
}

#[test]
fn a_card_without_a_scope_serves_until_one_with_a_scope_comes() {
    let mut reducer = reducer();
    reducer.apply(instance("dynamo", "backend", 1), at(1));
    let old = r#"{"type":"Model","component":"","endpoint":"","instance_id":"1","card_json":{"display_name":"old"}}"#;
    reducer.apply(put("v1/mdc/dynamo///1", old), at(1));
    assert_eq!(
        (names(&only(&reducer)), only(&reducer).role),
        (vec![("old", NameKind::Base)], Role::Aggregated)
    );
    let notes = reducer.apply(card("dynamo", "backend", 1, r#"{"display_name":"new"}"#), at(2));
    assert_eq!(
        (notes.count(EventKind::Duplicate), names(&only(&reducer))),
        (0, vec![("new", NameKind::Base)])
    );
    // The card of another component is not this worker's.
    reducer.apply(delete("v1/mdc/dynamo/backend/generate/1"), at(3));
    reducer.apply(
        card("dynamo", "elsewhere", 1, r#"{"display_name":"foreign"}"#),
        at(3),
    );
    assert_eq!(names(&only(&reducer)), [("old", NameKind::Base)]);
}

#[test]
fn aliases_and_adapters_are_names_and_change_nothing_else() {
    let mut reducer = reducer();
    reducer.apply(instance("dynamo", "decode", 1), at(1));
    let adapter = r#"{"type":"Model","instance_id":1,"component":"decode","endpoint":"generate","model_suffix":"ad",
        "card_json":{"display_name":"adapter","worker_type":"prefill","kv_cache_block_size":99}}"#;
    reducer.apply(put("v1/mdc/dynamo/decode/generate/1/ad", adapter), at(1));
    assert_eq!(names(&only(&reducer)), [("adapter", NameKind::Adapter)]);
    let base = r#"{"display_name":"base","aliases":["other","base","other"],"kv_cache_block_size":16}"#;
    reducer.apply(card("dynamo", "decode", 1, base), at(2));
    let worker = only(&reducer);
    assert_eq!(
        names(&worker),
        [
            ("base", NameKind::Base),
            ("other", NameKind::Alias),
            ("adapter", NameKind::Adapter)
        ]
    );
    assert_eq!(
        (worker.role, worker.card.as_ref().and_then(|card| card.block_size)),
        (Role::Decode, Some(16))
    );
}

#[test]
fn contradicting_roles_leave_a_worker_out_and_are_said_once() {
    let mut reducer = reducer();
    reducer.apply(instance("dynamo", "decode", 1), at(1));
    let notes = reducer.apply(card("dynamo", "decode", 1, r#"{"worker_type":"prefill"}"#), at(2));
    assert!(matches!(
        notes.lines(),
        [Note::RoleConflict {
            component: Role::Decode,
            card: Role::Prefill,
            ..
        }]
    ));
    assert_eq!(notes.count(EventKind::Mismatch), 1);
    assert!(reducer.view().workers.is_empty());
    reducer.apply(card("dynamo", "decode", 1, r#"{"worker_type":"DECODE"}"#), at(3));
    assert_eq!(only(&reducer).role, Role::Decode);
    assert_eq!(only(&reducer).seen.first, at(1));
    assert_eq!(
        reducer
            .apply(card("dynamo", "decode", 1, r#"{"worker_type":"prefill"}"#), at(4))
            .lines(),
        []
    );
}

#[test]
fn cache_events_of_many_ranks_leave_room_for_the_load_of_their_workers() {
    let mut reducer = reducer_with(Limits {
        records_per_keyspace: 2,
        ..Limits::default()
    });
    // In the order of a list: cache events first, four ranks of each of two workers.
    let channel = |topic: &str, id: u64| {
        put(
            format!("v1/event_channels/namespace/dynamo/topic/{topic}/{id:x}"),
            format!(
                r#"{{"instance_id":{id},"transport":{{"kind":"Zmq","config":{{"endpoint":"tcp://a:{id}"}}}}}}"#
            ),
        )
    };
    for id in 0..8 {
        reducer.apply(channel("kv-events", id), at(1));
    }
    for id in 0..2 {
        reducer.apply(channel("kv_metrics", id), at(1));
    }
    assert_eq!(reducer.view().publishers.len(), 10);
    let notes = reducer.apply(channel("kv_metrics", 2), at(1));
    assert_eq!(
        notes.lines(),
        [Note::KeySpaceFull {
            bucket: Bucket::EventChannels,
            cap: 10
        }]
    );
}

#[test]
fn a_full_key_space_refuses_new_keys_only() {
    let mut reducer = reducer_with(Limits {
        records_per_keyspace: 2,
        ..Limits::default()
    });
    reducer.apply(instance("dynamo", "decode", 1), at(1));
    reducer.apply(instance("dynamo", "decode", 2), at(1));
    let notes = reducer.apply(instance("dynamo", "decode", 3), at(1));
    assert_eq!(notes.count(EventKind::OverCapacity), 1);
    assert_eq!(
        notes.lines(),
        [Note::KeySpaceFull {
            bucket: Bucket::Instances,
            cap: 2
        }]
    );
    let notes = reducer.apply(instance("dynamo", "decode", 4), at(1));
    assert_eq!(
        (notes.count(EventKind::OverCapacity), notes.lines()),
        (1, [].as_slice())
    );
    assert_eq!(
        reducer
            .apply(instance("dynamo", "decode", 2), at(1))
            .count(EventKind::Put),
        1
    );
    assert_eq!(
        (reducer.view().workers.len(), reducer.view().capped.records),
        (2, 2)
    );
    // Cards have a space of their own.
    assert_eq!(
        reducer
            .apply(card("dynamo", "decode", 1, "{}"), at(1))
            .count(EventKind::Put),
        1
    );

    assert!(!reducer.wants_reset());
    reducer.apply(delete(instance_key("dynamo", "decode", 1)), at(2));
    assert!(reducer.wants_reset(), "a list would bring the refused ones in");
    let list = [2, 3].map(|id| {
        (
            instance_key("dynamo", "decode", id),
            format!(r#"{{"instance_id":{id}}}"#),
        )
    });
    reducer.reset(list, at(3));
    assert_eq!(
        (reducer.view().workers.len(), reducer.view().capped.records),
        (2, 0)
    );
    assert!(!reducer.wants_reset());
}

#[test]
fn a_full_list_replaces_everything_and_keeps_first_times() {
    let mut reducer = reducer();
    for id in 1..=3 {
        reducer.apply(instance("dynamo", "decode", id), at(1));
    }
    reducer.apply(card("dynamo", "decode", 1, r#"{"display_name":"m"}"#), at(1));
    let before = reducer.view();
    let entries = |ids: &[u64]| -> Vec<(String, Vec<u8>)> {
        let mut entries: Vec<_> = ids
            .iter()
            .map(|id| {
                (
                    instance_key("dynamo", "decode", *id),
                    format!(r#"{{"instance_id":{id}}}"#).into_bytes(),
                )
            })
            .collect();
        if let Change::Put { key, value } = card("dynamo", "decode", 1, r#"{"display_name":"m"}"#) {
            entries.push((key, value));
        }
        entries
    };
    let notes = reducer.reset(entries(&[1, 2, 3]), at(5));
    assert_eq!(notes.counts().collect::<Vec<_>>(), [(EventKind::Resync, 1)]);
    assert!(
        reducer.view().workers.ptr_eq(&before.workers),
        "an unchanged fleet is the same view"
    );

    reducer.reset(entries(&[1, 2, 4]), at(6));
    let view = reducer.view();
    assert_eq!(worker(&view, "dynamo", 3), None);
    let first = |id| worker(&view, "dynamo", id).map(|worker| worker.seen.first);
    assert_eq!(
        (first(1), first(2), first(4)),
        (Some(at(1)), Some(at(1)), Some(at(6)))
    );
    reducer.reset(entries(&[3]), at(7));
    assert_eq!(only(&reducer).seen.first, at(7), "it had gone in between");
}

#[test]
fn removed_namespaces_leave_and_the_others_stay_as_they_are() {
    let mut reducer = reducer_with(Limits {
        records_per_keyspace: 2,
        ..Limits::default()
    });
    reducer.apply(instance("dynamo-legacy", "decode", 1), at(1));
    reducer.apply(instance("other", "decode", 1), at(1));
    let channel = |namespace: &str| {
        put(
            format!("v1/event_channels/namespace/{namespace}/topic/broker/5"),
            r#"{"instance_id":5,"transport":{"kind":"ZmqBroker","config":{"xpub_endpoints":["tcp://b:1"]}}}"#,
        )
    };
    reducer.apply(channel("other"), at(1));
    assert_eq!(reducer.view().publishers.len(), 2, "a broker carries every topic");
    let kept = worker(&reducer.view(), "dynamo-legacy", 1);

    let notes = reducer.retain_namespaces(vec!["dynamo".into()], at(2));
    assert_eq!(notes, Notes::default());
    assert!(reducer.view().publishers.is_empty());
    assert!(Arc::ptr_eq(&only(&reducer), &kept.expect("it was there")));
    assert_eq!(only(&reducer).graph.as_str(), "dynamo");
    // Their room is free again.
    assert_eq!(
        reducer
            .apply(instance("dynamo", "decode", 2), at(3))
            .count(EventKind::Put),
        1
    );
    assert_eq!(
        reducer.apply(instance("other", "decode", 2), at(3)),
        Notes::default()
    );

    // A name that is now configured exactly takes its namespace over.
    reducer.retain_namespaces(vec!["dynamo".into(), "dynamo-legacy".into()], at(4));
    assert_eq!(
        worker(&reducer.view(), "dynamo-legacy", 1).map(|w| w.graph.clone()),
        Some("dynamo-legacy".into())
    );
}

#[test]
fn event_channels_become_publishers_and_sources_attribute_them() {
    let mut reducer = reducer();
    let key = |bucket: &str, topic: &str, id: &str| {
        format!("v1/{bucket}/namespace/dynamo/component/decode/endpoint/generate/topic/{topic}/{id}")
    };
    let zmq = |id: u64| {
        format!(
            r#"{{"type":"EventChannel","instance_id":{id},"transport":{{"kind":"Zmq","config":{{"endpoint":"tcp://h:1"}}}},
            "scope":{{"kind":"endpoint","endpoint":{{"namespace":"x","component":"decode","name":"generate"}}}}}}"#
        )
    };
    reducer.apply(put(key("event_channels", "kv-events", "a"), zmq(10)), at(1));
    let id = PublisherKey {
        topic: Topic::KvEvents,
        id: PublisherId::new(10),
    };
    let publisher = |reducer: &Reducer| reducer.view().publishers.get(&id).cloned();
    assert_eq!(
        publisher(&reducer).map(|p| (p.component.clone(), p.feeds)),
        Some((Some("decode".into()), None))
    );

    let source =
        r#"{"type":"EventSource","publisher_id":"A","metadata":{"worker":{"worker_id":1,"dp_rank":3}}}"#;
    reducer.apply(put(key("event_sources", "kv-events", "a"), source), at(2));
    assert_eq!(
        publisher(&reducer).and_then(|p| p.feeds),
        Some((InstanceId::new(1), Rank(3)))
    );
    let notes = reducer.apply(put(key("event_sources", "kv-events", "0a"), source), at(3));
    assert!(matches!(
        notes.lines(),
        [Note::Duplicate {
            kind: ConflictKind::Source,
            ..
        }]
    ));
    assert_eq!(publisher(&reducer).map(|p| p.feeds), Some(None));
    let notes = reducer.apply(put(key("event_channels", "kv-events", "0a"), zmq(10)), at(4));
    assert!(matches!(
        notes.lines(),
        [Note::Duplicate {
            kind: ConflictKind::Channel,
            ..
        }]
    ));
    assert_eq!(publisher(&reducer), None);
    reducer.apply(delete(key("event_channels", "kv-events", "0a")), at(5));
    assert!(matches!(
        publisher(&reducer).map(|p| p.transport.clone()),
        Some(Transport::Zmq { .. })
    ));

    let nats = r#"{"instance_id":11,"transport":{"kind":"Nats","config":{"subject_prefix":"s"}}}"#;
    let notes = reducer.apply(put(key("event_channels", "kv_metrics", "b"), nats), at(6));
    assert_eq!((notes.count(EventKind::Unsupported), notes.lines().len()), (1, 1));
    assert_eq!(reducer.view().publishers.len(), 1);
}

#[test]
fn namespaces_that_become_mixed_are_named_up_to_eight_a_pass() {
    let mut reducer = reducer();
    let pairs = |reducer: &mut Reducer, second| {
        let changes = (1..=10_u64).flat_map(|n| {
            let model = format!(r#"{{"display_name":"m{n}"}}"#);
            [
                instance("dynamo", "decode", n),
                card("dynamo", "decode", n, &model),
                instance("dynamo", "backend", n + 100),
                card("dynamo", "backend", n + 100, &model),
            ]
        });
        reducer.apply_all(changes.collect::<Vec<_>>(), at(second))
    };
    let notes = pairs(&mut reducer, 1);
    let mixed = notes
        .lines()
        .iter()
        .filter(|note| matches!(note, Note::MixedNamespace { .. }))
        .count();
    assert_eq!(mixed, MAX_MIXED_REPORTS);
    assert_eq!(
        notes.lines().last(),
        Some(&Note::MixedNamespacesOmitted {
            reported: 8,
            omitted: 2
        })
    );
    assert_eq!(pairs(&mut reducer, 2).lines(), [], "not while it stays so");
    let shown = crate::lotteries(&reducer.view());
    assert_eq!(shown.len(), 10, "whoever looks sees all of them");
    assert!(
        shown
            .iter()
            .all(|lottery| lottery.mixed == ["dynamo".into()] && lottery.sets == 2)
    );

    reducer.apply(delete(instance_key("dynamo", "backend", 101)), at(3));
    let notes = reducer.apply(instance("dynamo", "backend", 101), at(4));
    assert!(matches!(
        notes.lines(),
        [Note::MixedNamespace {
            decode: 1,
            aggregated: 1,
            prefill: 0,
            ..
        }]
    ));
    // Another generation is another namespace: it is not mixed with this one, but one more set.
    reducer.apply(instance("dynamo-legacy", "decode", 1), at(5));
    let notes = reducer.apply(
        card("dynamo-legacy", "decode", 1, r#"{"display_name":"m1"}"#),
        at(5),
    );
    assert!(
        matches!(
            notes.lines(),
            [Note::SeveralSets {
                namespaces: 2,
                sets: 3,
                ..
            }]
        ),
        "{:?}",
        notes.lines()
    );
}

#[test]
fn several_sets_of_one_role_are_said_while_they_come_and_not_while_they_last() {
    let mut reducer = reducer();
    let join = |namespace: &str, component: &str, id, role: &str| {
        let json = format!(r#"{{"display_name":"m","worker_type":"{role}"}}"#);
        [
            instance(namespace, component, id),
            card(namespace, component, id, &json),
        ]
    };
    let several = |notes: &Notes| {
        notes
            .lines()
            .iter()
            .filter(|n| matches!(n, Note::SeveralSets { .. }))
            .count()
    };
    let pair = [
        join("dynamo", "prefill", 1, "prefill"),
        join("dynamo", "decode", 2, "decode"),
    ]
    .concat();
    assert_eq!(
        reducer.apply_all(pair, at(1)).lines(),
        [],
        "a pair is what a frontend expects"
    );
    assert_eq!(crate::lotteries(&reducer.view()), []);
    assert_eq!(
        several(&reducer.apply_all(join("dynamo", "decode", 3, "decode"), at(1))),
        0
    );
    assert_eq!(
        several(&reducer.apply_all(join("dynamo", "backend", 4, "decode"), at(2))),
        1,
        "two components"
    );
    assert_eq!(
        several(&reducer.apply_all(join("dynamo-legacy", "decode", 5, "decode"), at(3))),
        0,
        "lasts"
    );
    assert_eq!(
        crate::lotteries(&reducer.view()),
        [crate::Lottery {
            graph: "dynamo".into(),
            model: "m".into(),
            namespaces: 2,
            sets: 4,
            mixed: Vec::new(),
        }]
    );
    reducer.apply(delete(instance_key("dynamo", "backend", 4)), at(4));
    reducer.apply(delete(instance_key("dynamo-legacy", "decode", 5)), at(4));
    assert_eq!(
        several(&reducer.apply(instance("dynamo-legacy", "decode", 5), at(5))),
        1,
        "two generations"
    );
    assert_eq!(
        several(&reducer.apply_all(join("other", "decode", 6, "decode"), at(6))),
        0,
        "another pool"
    );
}

#[test]
fn a_version_is_said_once_and_a_card_is_kept_once() {
    let mut reducer = reducer();
    for id in 1..=2 {
        let notes = reducer.apply_all(
            [
                instance("dynamo", "decode", id),
                card("dynamo", "decode", id, r#"{"dynamo_version":"1.4.2"}"#),
            ],
            at(1),
        );
        assert!(
            matches!(
                notes.lines(),
                [Note::Release {
                    field: "dynamo_version",
                    ..
                }]
            ),
            "{:?}",
            notes.lines()
        );
    }
    let view = reducer.view();
    let card_of = |id| {
        worker(&view, "dynamo", id)
            .and_then(|worker| worker.card.clone())
            .expect("a card")
    };
    assert!(Arc::ptr_eq(&card_of(1), &card_of(2)));
    assert_eq!(reducer.cards.len(), 1);
    let notes = reducer.apply(
        card("dynamo", "decode", 1, r#"{"dynamo_version":"1.4.2","name":"m"}"#),
        at(2),
    );
    assert_eq!(notes.lines(), []);
    reducer.reset(Vec::<(String, String)>::new(), at(3));
    assert_eq!(
        (reducer.cards.len(), reducer.cards.json_bytes()),
        (0, 0),
        "nothing is left of them"
    );
}

#[test]
fn a_card_too_large_to_keep_keeps_its_fields() {
    let limits = Limits {
        retained_card_bytes: 60,
        retained_cards_total_bytes: 100,
        ..Limits::default()
    };
    let mut reducer = reducer_with(limits);
    reducer.apply(instance("dynamo", "decode", 1), at(1));
    let json = format!(r#"{{"display_name":"m","padding":"{}"}}"#, "x".repeat(60));
    let notes = reducer.apply(card("dynamo", "decode", 1, &json), at(1));
    assert!(matches!(notes.lines(), [Note::CardDropped { .. }]));
    assert_eq!(notes.count(EventKind::OverCapacity), 1);
    let worker = only(&reducer);
    assert_eq!(
        (
            names(&worker),
            worker.card.as_ref().map(|card| card.json.is_none())
        ),
        (vec![("m", NameKind::Base)], Some(true))
    );
    assert_eq!(reducer.view().capped.cards, 1);
}

#[test]
fn hostile_json_is_neither_deep_nor_wide_to_us() {
    let mut reducer = reducer();
    reducer.apply(instance("dynamo", "decode", 1), at(1));
    let deep = format!(
        r#"{{"display_name":"m","needs":{}{}}}"#,
        "[".repeat(200_000),
        "]".repeat(200_000)
    );
    reducer.apply(card("dynamo", "decode", 1, &deep), at(1));
    assert_eq!(names(&only(&reducer)), [("m", NameKind::Base)]);
    let wide = format!(
        r#"{{"display_name":"m","aliases":[{}"z"],"runtime_config":{{"data_parallel_size":4294967295,"data_parallel_start_rank":4294967290}}}}"#,
        r#""a","#.repeat(100_000)
    );
    reducer.apply(card("dynamo", "decode", 1, &wide), at(2));
    let ranks = only(&reducer).ranks().expect("a card");
    assert_eq!((ranks.start, ranks.size), (u32::MAX - 5, 6));
    let notes = reducer.apply(
        card(
            "dynamo",
            "decode",
            1,
            r#"{"runtime_config":{"data_parallel_size":4294967295}}"#,
        ),
        at(3),
    );
    assert_eq!(
        only(&reducer).ranks().map(|ranks| ranks.size),
        Some(MAX_RANKS_PER_WORKER)
    );
    assert!(notes.lines().is_empty(), "said for this worker already");
}

/// A whole fleet at its cap: what one change costs is counted in joins and in what the view does not share.
#[test]
fn one_change_in_a_full_fleet_is_the_work_of_one_worker() {
    let workers = MAX_RECORDS_PER_KEYSPACE as u64;
    let mut reducer = reducer();
    let model = r#"{"display_name":"m","worker_type":"decode","kv_cache_block_size":16}"#;
    let records = (0..workers).flat_map(|id| {
        [
            instance("dynamo", "decode", id),
            card("dynamo", "decode", id, model),
        ]
    });
    let records = records.filter_map(|change| match change {
        Change::Put { key, value } => Some((key, value)),
        Change::Delete { .. } => None,
    });
    reducer.reset(records, at(1));
    let before = reducer.view();
    assert_eq!(
        (before.workers.len() as u64, reducer.joins, reducer.cards.len()),
        (workers, workers, 1)
    );

    for (change, joins) in [
        (card("dynamo", "decode", 77, r#"{"display_name":"n"}"#), 1),
        (instance("dynamo", "decode", 78), 0),
        (delete(instance_key("dynamo", "decode", 79)), 1),
        (delete("v1/mdc/dynamo/decode/generate/50"), 1),
        (put("v1/mdc/dynamo/decode/generate/51", "rubbish"), 0),
    ] {
        let joined = reducer.joins;
        reducer.apply(change.clone(), at(2));
        assert_eq!(reducer.joins - joined, joins, "{change:?}");
    }
    let after = reducer.view();
    assert_eq!(after.workers.len() as u64, workers - 1);
    assert_eq!(before.workers.diff(&after.workers).count(), 3);
    let shared = after
        .workers
        .iter()
        .filter(|&(key, worker)| {
            before
                .workers
                .get(key)
                .is_some_and(|known| Arc::ptr_eq(known, worker))
        })
        .count() as u64;
    assert_eq!(shared, workers - 3);
}

#[test]
fn what_is_refused_is_known_while_it_lasts() {
    let mut reducer = reducer();
    let counts = |reducer: &mut Reducer| reducer.refused().iter().collect::<Vec<_>>();
    reducer.apply(instance("dynamo", "decode", 1), at(1));
    reducer.apply(instance("dynamo", "prefill", 2), at(1));
    assert_eq!(counts(&mut reducer), []);
    // Unreadable, then contradicting, then gone.
    let key = instance_key("dynamo", "decode", 3);
    reducer.apply(put(key.clone(), "{"), at(2));
    assert_eq!(counts(&mut reducer), [(EventKind::Malformed, 1)]);
    reducer.apply(put(key.clone(), r#"{"type":"Endpoint","instance_id":4}"#), at(2));
    assert_eq!(counts(&mut reducer), [(EventKind::Mismatch, 1)]);
    reducer.apply(delete(key), at(2));
    assert_eq!(counts(&mut reducer), []);
    // Roles that contradict each other, twice: said once, known both times.
    for second in [3, 5] {
        reducer.apply(
            card("dynamo", "decode", 1, r#"{"worker_type":"prefill"}"#),
            at(second),
        );
        assert_eq!(counts(&mut reducer), [(EventKind::Mismatch, 1)]);
        reducer.apply(
            card("dynamo", "decode", 1, r#"{"worker_type":"decode"}"#),
            at(second + 1),
        );
        assert_eq!(counts(&mut reducer), []);
    }
    // Two keys of one instance, until a full list is without the second.
    reducer.apply(instance("dynamo", "backend", 2), at(7));
    assert_eq!(counts(&mut reducer), [(EventKind::Duplicate, 1)]);
    let Change::Put { key, value } = instance("dynamo", "prefill", 2) else {
        return;
    };
    reducer.reset([(key.as_str(), value.as_slice())], at(8));
    assert_eq!(counts(&mut reducer), []);
    reducer.reset([(key.as_str(), b"{".as_slice())], at(9));
    assert_eq!(counts(&mut reducer), [(EventKind::Malformed, 1)]);
    assert_eq!(only(&reducer).role, Role::Prefill, "what it said before stays");
}

//! Resources that real Dynamo workers of three releases wrote to an API server, and what becomes of them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use continuum_fleet::{
    Change, EventKind, Notes, Reducer, Settings,
    ids::Graph,
    kubernetes::{Container, Endpoint, Limits, Metadata, Owner, Pod, Slice, metadata::Join},
    limits,
    pod_hash::pod_hash,
    view::{FleetView, Role},
};
use jiff::Timestamp;
use serde_json::{Value, json, value::to_raw_value};

macro_rules! items {
    ($file:literal) => {
        items(include_str!(concat!("fixtures/kubernetes/", $file, ".json")))
    };
}

fn items(list: &str) -> Vec<Value> {
    let list: Value = serde_json::from_str(list).unwrap();
    list["items"].as_array().unwrap().clone()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn metadata(object: &Value) -> Metadata {
    let owner = object["metadata"]["ownerReferences"]
        .as_array()
        .and_then(|owners| owners.iter().find(|owner| owner["kind"] == "Pod"));
    Metadata {
        name: text(&object["metadata"]["name"]).unwrap(),
        uid: text(&object["metadata"]["uid"]).unwrap(),
        owner: owner.map(|owner| Owner {
            name: text(&owner["name"]).unwrap(),
            uid: text(&owner["uid"]).unwrap(),
        }),
        data: Some(to_raw_value(&object["spec"]["data"]).unwrap()),
        left_out: false,
    }
}

fn slice(object: &Value) -> Slice {
    let endpoint = |endpoint: &Value| Endpoint {
        name: text(&endpoint["targetRef"]["name"]),
        uid: text(&endpoint["targetRef"]["uid"]),
        ready: endpoint["conditions"]["ready"] == true,
    };
    Slice {
        name: text(&object["metadata"]["name"]).unwrap(),
        backend: text(&object["metadata"]["labels"]["nvidia.com/dynamo-discovery-backend"]),
        endpoints: object["endpoints"]
            .as_array()
            .unwrap()
            .iter()
            .map(endpoint)
            .collect(),
    }
}

fn reducer() -> Reducer {
    Reducer::new(Settings {
        namespaces: vec![Graph::from("dynamo")],
        namespace_match: Default::default(),
        limits: limits::Limits::default(),
    })
}

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

/// The same records as an etcd fleet has them.
fn etcd(resources: &[Value]) -> Vec<(String, String)> {
    let mut records = Vec::new();
    for resource in resources {
        for (map, bucket) in [
            ("endpoints", "v1/instances"),
            ("model_cards", "v1/mdc"),
            ("event_channels", "v1/event_channels"),
            ("event_sources", "v1/event_sources"),
        ] {
            for (path, value) in resource["spec"]["data"][map].as_object().into_iter().flatten() {
                records.push((format!("{bucket}/{path}"), value.to_string()));
            }
        }
    }
    records
}

fn view_of(join: &mut Join, resources: &[Value], slices: &[Value], pods: Vec<Pod>) -> FleetView {
    let (entries, notes) = join.reset(
        resources.iter().map(metadata).collect(),
        slices.iter().map(slice).collect(),
        pods,
    );
    assert_eq!(notes, Notes::default());
    let mut reducer = reducer();
    let notes = reducer.reset(entries, now());
    assert_eq!(
        notes.count(EventKind::Malformed) + notes.count(EventKind::Mismatch),
        0
    );
    reducer.view()
}

fn releases() -> [(&'static str, Vec<Value>, Vec<Value>); 3] {
    [
        (
            "1.4.2",
            items!("1.4.2-cr-pod-mode"),
            items!("1.4.2-endpointslices"),
        ),
        (
            "1.5.1",
            items!("1.5.1-cr-pod-mode"),
            items!("1.5.1-endpointslices"),
        ),
        (
            "1.6.1",
            items!("1.6.1-cr-pod-mode"),
            items!("1.6.1-endpointslices"),
        ),
    ]
}

#[test]
fn equal_fleets_in_etcd_and_in_kubernetes_give_equal_views() {
    for (release, resources, slices) in releases() {
        let listed = view_of(&mut Join::new(Limits::default()), &resources, &slices, Vec::new());
        assert_eq!(listed.workers.len(), resources.len(), "{release}");
        assert!(!listed.publishers.is_empty());

        let mut other = reducer();
        other.reset(etcd(&resources), now());
        assert_eq!(listed, other.view(), "{release}: a list");

        // Object by object, readiness first and last.
        for slices_first in [true, false] {
            let mut join = Join::new(Limits::default());
            let mut watched = reducer();
            let mut apply = |changes: Vec<Change>| drop(watched.apply_all(changes, now()));
            if slices_first {
                slices
                    .iter()
                    .for_each(|object| apply(join.put_slice(slice(object)).0));
            }
            resources
                .iter()
                .for_each(|object| apply(join.put_metadata(metadata(object)).0));
            if !slices_first {
                slices
                    .iter()
                    .for_each(|object| apply(join.put_slice(slice(object)).0));
            }
            assert_eq!(watched.view(), listed, "{release}: a watch");
            for object in &resources {
                let name = object["metadata"]["name"].as_str().unwrap();
                watched.apply_all(join.remove_metadata(name).0, now());
            }
            assert_eq!(watched.view(), FleetView::default(), "{release}: all gone");
        }
    }
}

#[test]
fn a_real_pod_with_two_workers_is_followed_container_by_container() {
    let (resources, slices) = (items!("1.6.1-container-mode"), items!("1.6.1-endpointslices"));
    let mut join = Join::new(Limits::default());
    let pod = |main: bool, engine: bool| Pod {
        name: "cpod-0".to_owned(),
        uid: "30ebeda6-0cae-49a3-9ed8-ce073b2406ca".to_owned(),
        containers: [("main", main), ("engine-1", engine)]
            .map(|(name, ready)| Container {
                name: name.to_owned(),
                ready,
            })
            .into(),
        ..Pod::default()
    };
    for (main, engine) in [(true, true), (true, false), (false, true), (false, false)] {
        let view = view_of(&mut join, &resources, &slices, vec![pod(main, engine)]);
        assert!(join.needs_pods());
        let ids: Vec<_> = view.workers.keys().map(|key| key.instance).collect();
        assert_eq!(ids.contains(&pod_hash("cpod-0")), main);
        assert_eq!(ids.contains(&pod_hash("cpod-0-engine-1")), engine);
        let roles = |role| view.workers.values().filter(|worker| worker.role == role).count();
        assert_eq!(roles(Role::Prefill), 1 + usize::from(main));
        assert_eq!(roles(Role::Decode), 1 + usize::from(engine));
    }
    let replaced = Pod {
        uid: "another".to_owned(),
        ..pod(true, true)
    };
    assert_eq!(
        join.put_pod(replaced).0,
        [],
        "another pod of that name says nothing about these"
    );
}

#[test]
fn a_container_whose_pod_nobody_sees_is_refused_once() {
    let resources: Vec<Metadata> = items!("1.6.1-container-mode").iter().map(metadata).collect();
    let mut join = Join::new(Limits::default());
    for refused in [1, 0] {
        let (_, notes) = join.reset(resources.clone(), Vec::new(), Vec::new());
        assert_eq!(notes.count(EventKind::Refused), refused);
        assert_eq!(notes.lines().len() as u64, refused);
    }
}

fn worker(name: &str, uid: &str) -> Metadata {
    let id = pod_hash(name);
    let place = format!("dynamo/backend/generate/{}", id.hex());
    let endpoint =
        json!({"type": "Endpoint", "component": "backend", "endpoint": "generate", "instance_id": id.raw()});
    let card = json!({"type": "Model", "instance_id": id.raw(), "card_json": {"display_name": "m"}});
    with(
        name,
        uid,
        &json!({"endpoints": {&place: endpoint}, "model_cards": {&place: card}}),
    )
}

fn with(name: &str, uid: &str, data: &Value) -> Metadata {
    Metadata {
        name: name.to_owned(),
        uid: format!("cr of {uid}"),
        owner: Some(Owner {
            name: name.to_owned(),
            uid: uid.to_owned(),
        }),
        data: Some(to_raw_value(data).unwrap()),
        left_out: false,
    }
}

fn ready(slice: &str, pods: &[(&str, &str)]) -> Slice {
    Slice {
        name: slice.to_owned(),
        backend: None,
        endpoints: pods
            .iter()
            .map(|(name, uid)| Endpoint {
                name: Some((*name).to_owned()),
                uid: Some((*uid).to_owned()),
                ready: true,
            })
            .collect(),
    }
}

fn keys(changes: &[Change]) -> Vec<String> {
    let word = |change: &Change| match change {
        Change::Put { key, .. } => format!("+{key}"),
        Change::Delete { key } => format!("-{key}"),
    };
    changes.iter().map(word).collect()
}

#[test]
fn a_resource_that_turns_unreadable_keeps_what_it_said_while_it_is_the_same_one() {
    let mut join = Join::new(Limits::default());
    join.put_slice(ready("s", &[("p", "1"), ("p", "")]));
    assert_eq!(join.put_metadata(worker("p", "1")).0.len(), 2);
    for (data, malformed) in [(json!(null), 1), (json!([1]), 0), (json!({"endpoints": 5}), 0)] {
        let (changes, notes) = join.put_metadata(with("p", "1", &data));
        assert_eq!(
            (changes.len(), notes.count(EventKind::Malformed)),
            (0, malformed),
            "{data}"
        );
    }
    let (entries, notes) = join.reset(
        vec![with("p", "1", &json!(null))],
        vec![ready("s", &[("p", "1")])],
        Vec::new(),
    );
    assert_eq!((entries.len(), notes.count(EventKind::Malformed)), (2, 0));
    assert_eq!(
        join.put_metadata(worker("p", "1")),
        Default::default(),
        "it reads again, and says the same"
    );

    let mut another = with("p", "1", &json!(null));
    another.uid = "recreated".to_owned();
    assert_eq!(keys(&join.put_metadata(another).0).len(), 2, "both records go");
}

#[test]
fn a_foreign_id_rejects_the_whole_resource() {
    let id = pod_hash("p");
    let place = format!("dynamo/backend/generate/{}", id.hex());
    let good = json!({"type": "Endpoint", "instance_id": id.raw()});
    for data in [
        json!({"endpoints": {&place: good, "dynamo/backend/generate/7": {"instance_id": 7}}}),
        json!({"endpoints": {&place: good}, "model_cards": {&place: {"instance_id": 7, "card_json": {}}}}),
        json!({"endpoints": {&place: good}, "model_cards": {"dynamo/backend/generate/7": {"instance_id": 7}}}),
        json!({"endpoints": {&place: good, "dynamo/backend/clear/7": {"instance_id": 7}}}),
    ] {
        let mut join = Join::new(Limits::default());
        join.put_slice(ready("s", &[("p", "1")]));
        join.put_metadata(worker("p", "1"));
        let (changes, notes) = join.put_metadata(with("p", "1", &data));
        assert_eq!(notes.count(EventKind::Mismatch), 1, "{data}");
        assert_eq!(
            keys(&changes),
            [format!("-v1/instances/{place}"), format!("-v1/mdc/{place}")]
        );
    }
    // The id of a channel is its publisher's.
    let channel = json!({"event_channels": {"namespace/dynamo/topic/kv_metrics/7": {"instance_id": 7}}});
    let mut join = Join::new(Limits::default());
    join.put_slice(ready("s", &[("p", "1")]));
    assert_eq!(join.put_metadata(with("p", "1", &channel)).0.len(), 1);
}

#[test]
fn channels_of_old_writers_are_the_channels_of_today() {
    for (path, component) in [
        ("dynamo/backend/kv_metrics/7", Some("backend")),
        ("dynamo//kv_metrics/7", None),
    ] {
        let channel = json!({"instance_id": 7, "namespace": "dynamo", "component": component, "topic": "kv_metrics",
            "transport": {"kind": "Zmq", "config": {"endpoint": "tcp://h:1"}}});
        let mut join = Join::new(Limits::default());
        join.put_slice(ready("s", &[("p", "1")]));
        let (changes, _) = join.put_metadata(with("p", "1", &json!({"event_channels": {path: channel}})));
        let mut reducer = reducer();
        let notes = reducer.apply_all(changes, now());
        assert_eq!(notes.lines(), []);
        let view = reducer.view();
        let publisher = view.publishers.values().next().unwrap();
        assert_eq!(publisher.component.as_deref(), component, "{path}");
    }
}

#[test]
fn a_shared_channel_goes_with_its_last_resource() {
    let channel = json!({"event_channels": {"namespace/dynamo/topic/kv_metrics/7": {"instance_id": 7}}});
    let key = "v1/event_channels/namespace/dynamo/topic/kv_metrics/7";
    let mut join = Join::new(Limits::default());
    join.put_slice(ready("s", &[("p", "1"), ("q", "2")]));
    assert_eq!(
        keys(&join.put_metadata(with("q", "2", &channel)).0),
        [format!("+{key}")]
    );
    assert_eq!(join.put_metadata(with("p", "1", &channel)).0, []);
    assert_eq!(join.put_slice(ready("s", &[("q", "2")])).0, []);
    assert_eq!(keys(&join.remove_metadata("q").0), [format!("-{key}")]);
}

#[test]
fn readiness_is_a_union_over_slices_and_two_pods_of_one_name_are_none() {
    let mut join = Join::new(Limits::default());
    join.put_metadata(worker("p", "1"));
    assert_eq!(join.put_slice(ready("s", &[("p", "1")])).0.len(), 2);
    assert_eq!(join.put_slice(ready("t", &[("p", "1")])).0, [], "named twice");
    assert_eq!(join.remove_slice("s").0, [], "named once more");
    assert_eq!(
        join.put_slice(ready("s", &[("p", "2")])).0.len(),
        2,
        "whose records are these?"
    );
    assert_eq!(join.remove_slice("s").0.len(), 2);
    let foreign = Slice {
        backend: Some("etcd".to_owned()),
        ..ready("t", &[("p", "1")])
    };
    assert_eq!(
        join.put_slice(foreign).0.len(),
        2,
        "no longer a slice of Kubernetes discovery"
    );
    for (name, uid, expected) in [
        (None, Some("1"), 0),
        (Some(""), Some("1"), 0),
        (Some("p"), Some("9"), 0),
        (Some("p"), None, 2),
    ] {
        let endpoint = Endpoint {
            name: name.map(str::to_owned),
            uid: uid.map(str::to_owned),
            ready: true,
        };
        let one = Slice {
            endpoints: vec![endpoint],
            ..ready("u", &[])
        };
        assert_eq!(join.put_slice(one).0.len(), expected, "{name:?} {uid:?}");
    }
}

#[test]
fn caps_keep_new_resources_out_and_known_ones_up_to_date() {
    let mut join = Join::new(Limits {
        resources: 1,
        bytes: 1000,
    });
    join.put_slice(ready("s", &[("p", "1"), ("q", "2")]));
    assert_eq!(join.put_metadata(worker("p", "1")).0.len(), 2);
    let (changes, notes) = join.put_metadata(worker("q", "2"));
    assert_eq!((changes.len(), notes.count(EventKind::OverCapacity)), (0, 1));
    let large = json!({"event_channels": {"namespace/dynamo/topic/kv_metrics/7": {"pad": "x".repeat(1000)}}});
    let (changes, notes) = join.put_metadata(with("p", "1", &large));
    assert_eq!(
        (changes.len(), notes.count(EventKind::OverCapacity)),
        (0, 1),
        "the last valid records stay"
    );
    join.remove_metadata("p");
    assert_eq!(join.put_metadata(worker("q", "2")).0.len(), 2, "room came back");
}

#[test]
fn a_resource_whose_records_were_left_out_stays_as_it_was() {
    let mut join = Join::new(Limits::default());
    let slices = || vec![ready("s", &[("p", "1"), ("q", "2")])];
    let (before, _) = join.reset(vec![worker("p", "1"), worker("q", "2")], slices(), Vec::new());
    let without = |name, uid| Metadata {
        data: None,
        left_out: true,
        ..worker(name, uid)
    };
    let (after, notes) = join.reset(vec![worker("p", "1"), without("q", "2")], slices(), Vec::new());
    assert_eq!((after, notes.count(EventKind::OverCapacity)), (before, 1));
    assert_eq!(
        join.refused().iter().collect::<Vec<_>>(),
        [(EventKind::OverCapacity, 1)]
    );
    // Of one that was never read there is nothing to keep.
    let (after, _) = join.reset(
        vec![without("r", "3")],
        vec![ready("s", &[("r", "3")])],
        Vec::new(),
    );
    assert!(after.is_empty());
}

#[test]
fn a_name_that_is_not_of_its_pod_is_refused() {
    let mut join = Join::new(Limits::default());
    for (pod, refused) in [("other", 1), ("p", 0), ("p-", 1)] {
        let resource = Metadata {
            owner: Some(Owner {
                name: pod.to_owned(),
                uid: "1".to_owned(),
            }),
            ..worker("p-x", "1")
        };
        let (changes, notes) = join.put_metadata(resource);
        assert_eq!(
            (changes.len(), notes.count(EventKind::Refused)),
            (0, refused),
            "{pod}"
        );
    }
}

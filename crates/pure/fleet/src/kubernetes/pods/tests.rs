use jiff::Timestamp;

use super::*;
use crate::{
    Generation, NamespaceMatch, Reducer,
    ids::{Graph, ModelName},
    view::{FleetView, Worker},
};

fn settings() -> Settings {
    Settings {
        namespaces: vec!["dynamo".to_owned()],
        generations: true,
        model: Some("m".to_owned()),
        ..Settings::default()
    }
}

fn pod(name: &str, labels: &[(&str, &str)]) -> Pod {
    let usual = [
        (BACKEND, "kubernetes"),
        (ENABLED, "true"),
        (NAMESPACE, "dynamo"),
        (COMPONENT_TYPE, "worker"),
    ];
    Pod {
        name: name.to_owned(),
        labels: usual
            .iter()
            .chain(labels)
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        phase: Some("Running".to_owned()),
        ready: true,
        ..Pod::default()
    }
}

/// The view of a router that lists these pods.
fn view(settings: Settings, pods: Vec<Pod>) -> FleetView {
    let mut reducer = Reducer::new(crate::Settings {
        namespaces: settings
            .namespaces
            .iter()
            .map(|name| Graph::from(name.as_str()))
            .collect(),
        namespace_match: NamespaceMatch::Generation,
        limits: Default::default(),
    })
    .without_cards();
    let (entries, _) = Join::new(settings).reset(pods);
    let notes = reducer.reset(entries, Timestamp::UNIX_EPOCH);
    assert_eq!(
        notes.count(EventKind::Malformed) + notes.count(EventKind::Mismatch),
        0
    );
    reducer.view()
}

fn only(pod: Pod) -> Option<Arc<Worker>> {
    let view = view(settings(), vec![pod]);
    view.workers.values().next().cloned()
}

#[test]
fn a_ready_worker_pod_is_a_worker_without_a_card() -> Result<(), &'static str> {
    let worker = only(pod("worker-0", &[(SUB_COMPONENT_TYPE, "decode")])).ok_or("no worker")?;
    assert_eq!(worker.key.instance, InstanceId::new(1_186_445_869_714_687));
    assert_eq!(worker.model(), Some(&ModelName::from("m")));
    assert_eq!((worker.role, worker.ranks()), (Role::Decode, None));
    assert!(worker.card.is_none());
    Ok(())
}

#[test]
fn labels_decide_about_role_and_membership() {
    for (labels, expected) in [
        (&[][..], Some(Role::Aggregated)),
        (&[(SUB_COMPONENT_TYPE, "prefill")], Some(Role::Prefill)),
        (&[(SUB_COMPONENT_TYPE, "decode")], Some(Role::Decode)),
        (&[(SUB_COMPONENT_TYPE, "else")], Some(Role::Aggregated)),
        (&[(COMPONENT_TYPE, "prefill")], Some(Role::Prefill)),
        (&[(COMPONENT_TYPE, "decode")], Some(Role::Decode)),
        (
            &[(COMPONENT_TYPE, "prefill"), (COMPONENT, "decode")],
            Some(Role::Prefill),
        ),
        (
            &[(COMPONENT_TYPE, "decode"), (COMPONENT, "VllmDecode.a_b")],
            Some(Role::Decode),
        ),
        (&[(COMPONENT_TYPE, "frontend")], None),
        (&[(COMPONENT_TYPE, "planner")], None),
        (&[(COMPONENT_TYPE, "epp")], None),
        (&[(COMPONENT_TYPE, "default")], None),
        (&[(COMPONENT_TYPE, "")], None),
        (&[(NAMESPACE, "other")], None),
        (&[(BACKEND, "etcd")], None),
        (&[(ENABLED, "false")], None),
    ] {
        let pod = pod("p", labels);
        assert_eq!(only(pod).map(|worker| worker.role), expected, "{labels:?}");
    }
}

#[test]
fn only_a_running_ready_pod_that_stays_is_a_worker() {
    let good = pod("p", &[]);
    assert!(only(good.clone()).is_some());
    for bad in [
        Pod {
            phase: Some("Pending".to_owned()),
            ..good.clone()
        },
        Pod {
            phase: None,
            ..good.clone()
        },
        Pod {
            ready: false,
            ..good.clone()
        },
        Pod {
            deleting: true,
            ..good.clone()
        },
    ] {
        assert!(only(bad.clone()).is_none(), "{bad:?}");
    }
}

#[test]
fn a_generation_has_a_namespace_of_its_own() {
    for (hash, namespace, generation) in [
        ("0a1b2c3d", "dynamo-0a1b2c3d", Generation::Hash(0x0a1b_2c3d)),
        ("0A1B2C3D", "dynamo", Generation::Base),
        ("short", "dynamo", Generation::Base),
    ] {
        let worker = only(pod("p", &[(GENERATION, hash)]));
        let seen = worker.map(|worker| {
            (
                worker.key.namespace.to_string(),
                worker.generation.clone(),
                worker.graph.to_string(),
            )
        });
        assert_eq!(
            seen,
            Some((namespace.to_owned(), generation, "dynamo".to_owned())),
            "{hash}"
        );
    }
    let exact = Settings {
        generations: false,
        ..settings()
    };
    let view = view(exact, vec![pod("p", &[(GENERATION, "0a1b2c3d")])]);
    assert!(view.workers.keys().all(|key| key.namespace.as_str() == "dynamo"));
}

#[test]
fn models_go_by_component_case_included() {
    let of = |component: &str, model: &str, namespace: Option<&str>| ModelOf {
        component: component.to_owned(),
        model: model.to_owned(),
        namespace: namespace.map(str::to_owned),
    };
    let settings = Settings {
        namespaces: vec!["dynamo".to_owned(), "canary".to_owned()],
        model: None,
        models: vec![
            of("A", "a", Some("dynamo")),
            of("A", "c", Some("canary")),
            of("B", "b", None),
        ],
        ..settings()
    };
    for (labels, model) in [
        (&[(COMPONENT, "A")][..], Some("a")),
        (&[(COMPONENT, "A"), (NAMESPACE, "canary")], Some("c")),
        (&[(COMPONENT, "B"), (NAMESPACE, "canary")], Some("b")),
        (&[(COMPONENT, "a")], None),
        (&[], None),
    ] {
        let mut join = Join::new(settings.clone());
        let (changes, notes) = join.put_pod(pod("p", labels));
        assert_eq!(changes.is_empty(), model.is_none());
        let told = notes
            .lines()
            .iter()
            .any(|note| note.level() == crate::notes::Level::Debug);
        assert_eq!((told, notes.counts().count()), (model.is_none(), 0), "{labels:?}");
        assert_eq!(join.put_pod(pod("p", labels)), Default::default(), "nothing new");
        let view = view(settings.clone(), vec![pod("p", labels)]);
        let seen = view
            .workers
            .values()
            .next()
            .and_then(|worker| worker.model().cloned());
        assert_eq!(seen, model.map(ModelName::from), "{labels:?}");
    }
}

#[test]
fn a_pod_whose_containers_register_one_by_one_is_refused_once() {
    let mut join = Join::new(settings());
    let mut pod = pod("p", &[]);
    pod.annotations
        .insert(DISCOVERY_MODE.to_owned(), CONTAINER_MODE.to_owned());
    for refused in [1, 0] {
        let (changes, notes) = join.put_pod(pod.clone());
        assert_eq!((changes.len(), notes.count(EventKind::Refused)), (0, refused));
    }
    let (entries, notes) = join.reset(vec![pod]);
    assert_eq!((entries.len(), notes.count(EventKind::Refused)), (0, 0));
}

#[test]
fn two_names_with_one_id_are_both_left_out_while_both_are_there() {
    let mut join = Join::new(settings());
    join.hash = |_| InstanceId::new(7);
    assert_eq!(join.put_pod(pod("a", &[])).0.len(), 2);
    let (changes, notes) = join.put_pod(pod("b", &[]));
    let deletes = changes
        .iter()
        .filter(|change| matches!(change, Change::Delete { .. }))
        .count();
    assert_eq!(
        (deletes, changes.len(), notes.count(EventKind::Duplicate)),
        (2, 2, 1)
    );
    let (entries, _) = join.reset(vec![pod("a", &[]), pod("b", &[])]);
    assert!(entries.is_empty());
    let (changes, _) = join.remove_pod("a");
    assert_eq!(changes.len(), 2, "the other one is alone again");
}

#[test]
fn changes_are_told_once_and_a_cap_keeps_new_pods_out() {
    let mut join = Join::new(Settings {
        limits: Limits {
            resources: 1,
            ..Limits::default()
        },
        ..settings()
    });
    assert_eq!(join.put_pod(pod("a", &[])).0.len(), 2);
    assert_eq!(join.put_pod(pod("a", &[])).0, []);
    let (changes, notes) = join.put_pod(pod("b", &[]));
    assert_eq!((changes.len(), notes.count(EventKind::OverCapacity)), (0, 1));
    let (changes, _) = join.put_pod(Pod {
        ready: false,
        ..pod("a", &[])
    });
    assert_eq!(changes.len(), 2);
    assert_eq!(join.remove_pod("a").0, []);
    assert_eq!(join.put_pod(pod("b", &[])).0.len(), 2);
}

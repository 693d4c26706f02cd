use serde_json::Value as Json;

use super::*;
use crate::{
    Build,
    model::{Backend, BusRole, DiscoverySource, KubernetesModel, NamespaceMatch},
    schema,
    value::{BackendUrl, Endpoint, Secret},
};

/// The paths of all fields that hold a value.
fn leaves(field: &Json, path: &str, out: &mut Vec<String>) {
    for option in schema::alternatives(field) {
        match option.get("properties").and_then(Json::as_object) {
            Some(properties) => {
                for (key, field) in properties {
                    leaves(
                        field,
                        &if path.is_empty() {
                            key.clone()
                        } else {
                            format!("{path}.{key}")
                        },
                        out,
                    );
                }
            }
            None => out.push(path.to_owned()),
        }
    }
}

#[test]
fn every_field_has_exactly_one_class() {
    let mut fields = Vec::new();
    leaves(schema::checked(), "", &mut fields);
    assert!(fields.len() > 90, "{fields:?}");
    for field in &fields {
        let rows = ROWS
            .iter()
            .filter(|row| field == row.path || field.starts_with(&format!("{}.", row.path)));
        assert_eq!(rows.count(), 1, "{field}");
    }
    for row in ROWS {
        assert!(
            fields
                .iter()
                .any(|field| field == row.path || field.starts_with(&format!("{}.", row.path))),
            "{}",
            row.path
        );
        assert_eq!(class_of(row.path), Some(row.class));
    }
}

#[test]
fn fields_outside_dynamo_need_a_new_process_or_nothing() {
    for row in ROWS.iter().filter(|row| !row.path.starts_with("dynamo.")) {
        assert!(matches!(row.class, Class::Live | Class::Process), "{}", row.path);
    }
    for row in ROWS.iter().filter(|row| row.path.starts_with("dynamo.")) {
        assert_ne!(
            row.class,
            Class::Process,
            "every field of dynamo reloads: {}",
            row.path
        );
    }
}

fn parsed(text: &str) -> Config {
    crate::parse(text, &|_| None, Build::FULL).unwrap().config
}

/// A fleet in etcd, followed.
fn etcd() -> Config {
    let mut config = Config::default();
    config.dynamo.enabled = true;
    config.dynamo.discovery.etcd.endpoints = vec![Endpoint::parse("http://a:2379").unwrap()];
    config
}

fn source(source: DiscoverySource) -> Config {
    let mut config = etcd();
    config.dynamo.discovery.source = source;
    config
}

fn swap(reason: Reason, view: ViewOf) -> Option<WatcherSwap> {
    Some(WatcherSwap {
        reason,
        view,
        starts: true,
    })
}

fn after(old: &Config, change: impl FnOnce(&mut Config)) -> Reload {
    let mut new = old.clone();
    change(&mut new);
    plan(old, &new)
}

#[test]
fn the_same_configuration_needs_nothing() {
    let one = parsed("server: {timeouts: {header: 60s}}");
    let same = parsed("server: {timeouts: {header: 1m}, body_limit: 33554432}\nlogging:\n");
    assert_eq!(plan(&one, &same), Reload::default());
    assert!(plan(&one, &same).is_nothing());
}

#[test]
fn values_that_are_read_at_each_use_touch_neither_watcher_nor_subscriptions() {
    let reload = after(&etcd(), |new| {
        new.dynamo.load.max_staleness *= 2;
        new.dynamo.shim.model_map.insert("a".into(), "b".into());
        new.dynamo.kv.enabled = true;
        new.backends
            .push(Backend::new("b", BackendUrl::parse("http://b").unwrap()));
    });
    let paths: Vec<_> = reload.paths(Class::Live).collect();
    assert_eq!(
        paths,
        [
            "backends",
            "dynamo.load.max_staleness",
            "dynamo.shim.model_map",
            "dynamo.kv"
        ]
    );
    assert_eq!(reload.watcher, None);
    assert!(!reload.has(Class::Subscriptions));
}

#[test]
fn another_transport_restarts_subscriptions_alone() {
    for text in [
        "transport: broker",
        "direct_allow_cidrs: [10.0.0.0/8]",
        "max_subscriptions: 5",
    ] {
        let old = Config::default();
        let new = parsed(&format!("dynamo: {{load: {{{text}}}}}"));
        let reload = plan(&old, &new);
        assert!(reload.has(Class::Subscriptions), "{text}");
        assert_eq!(reload.watcher, None, "{text}");
    }
}

#[test]
fn a_rotated_secret_is_a_change() {
    let mut old = etcd();
    old.admin.token = Some(Secret::new("one"));
    let reload = after(&old, |new| new.admin.token = Some(Secret::new("two")));
    assert_eq!(reload.changed, [("admin.token", Class::Live)]);
}

#[test]
fn what_needs_a_new_process_is_named() {
    let reload = plan(
        &Config::default(),
        &parsed("server: {bind_address: '0.0.0.0:1', threads: 2}\nlogging: {format: json}"),
    );
    let paths: Vec<_> = reload.paths(Class::Process).collect();
    assert_eq!(paths, ["server.bind_address", "server.threads", "logging.format"]);
}

#[test]
fn turning_discovery_off_starts_nothing() {
    let (off, on) = (Config::default(), etcd());
    let enabled = |starts| {
        Some(WatcherSwap {
            reason: Reason::Enabled,
            view: ViewOf::Cleared,
            starts,
        })
    };
    assert_eq!(plan(&off, &on).watcher, enabled(true));
    assert_eq!(plan(&on, &off).watcher, enabled(false));
    // While it is off, nothing has to be exchanged.
    assert_eq!(
        after(&off, |new| new.dynamo.discovery.etcd.namespace = "x".into()).watcher,
        None
    );
}

#[test]
fn each_change_of_an_etcd_fleet_has_its_reason_and_its_view() {
    use crate::model::{EtcdAuth, EtcdTls};
    type Change = fn(&mut crate::model::Discovery);
    let cases: [(Change, Reason, ViewOf); 9] = [
        (
            |d| d.etcd.watch_reconnect_backoff.max *= 2,
            Reason::Backoff,
            ViewOf::Kept,
        ),
        (
            |d| d.etcd.endpoints.push(Endpoint::parse("http://b:1").unwrap()),
            Reason::Connection,
            ViewOf::Cleared,
        ),
        (
            |d| d.etcd.tls = Some(EtcdTls::default()),
            Reason::Connection,
            ViewOf::Kept,
        ),
        (
            |d| {
                d.etcd.auth = Some(EtcdAuth {
                    username: "u".into(),
                    password: Secret::new("p"),
                })
            },
            Reason::Connection,
            ViewOf::Kept,
        ),
        (
            |d| d.etcd.namespace = "other".into(),
            Reason::Namespace,
            ViewOf::Cleared,
        ),
        (
            |d| d.namespace_match = NamespaceMatch::Exact,
            Reason::Namespace,
            ViewOf::Cleared,
        ),
        (
            |d| d.etcd.namespaces = vec!["dynamo".into(), "b".into()],
            Reason::Namespaces,
            ViewOf::Pruned(vec![]),
        ),
        (
            |d| d.etcd.namespaces = vec!["b".into()],
            Reason::Namespaces,
            ViewOf::Pruned(vec!["dynamo".into()]),
        ),
        (|d| d.limits.max_record_bytes += 1, Reason::Other, ViewOf::Kept),
    ];
    for (index, (change, reason, view)) in cases.into_iter().enumerate() {
        let reload = after(&etcd(), |new| change(&mut new.dynamo.discovery));
        assert_eq!(reload.watcher, swap(reason, view), "case {index}");
        assert!(reload.has(Class::Watcher), "case {index}");
    }
    let reload = after(&etcd(), |new| new.dynamo.state_dir = Some("/x".into()));
    assert_eq!(reload.watcher, swap(Reason::Other, ViewOf::Kept));
    let reload = after(&etcd(), |new| new.dynamo.discovery.source = DiscoverySource::File);
    assert_eq!(reload.watcher, swap(Reason::Source, ViewOf::Cleared));
}

#[test]
fn the_strictest_of_several_changes_decides_the_view() {
    let mut old = etcd();
    old.dynamo.discovery.etcd.namespaces = vec!["a".into(), "b".into(), "c".into()];
    let reload = after(&old, |new| {
        new.dynamo.discovery.etcd.namespaces = vec!["c".into(), "d".into()];
        new.dynamo.discovery.etcd.watch_reconnect_backoff.max *= 2;
    });
    assert_eq!(
        reload.watcher,
        swap(Reason::Namespaces, ViewOf::Pruned(vec!["a".into(), "b".into()]))
    );
    let reload = after(&old, |new| {
        new.dynamo.discovery.etcd.namespaces = vec!["c".into(), "d".into()];
        new.dynamo.discovery.etcd.endpoints.clear();
    });
    assert_eq!(reload.watcher, swap(Reason::Connection, ViewOf::Cleared));
    let reload = after(&old, |new| new.dynamo.discovery.etcd.namespaces.reverse());
    assert_eq!(reload.watcher, None, "the order means nothing");
}

#[test]
fn fields_of_another_source_do_not_touch_the_watcher() {
    let reload = after(&etcd(), |new| {
        new.dynamo.discovery.kubernetes.namespace = "x".into();
        new.dynamo.discovery.file.namespace = "x".into();
        new.dynamo.discovery.file.watch_reconnect_backoff.max *= 2;
    });
    assert_eq!(reload.watcher, None);
    assert!(
        reload.has(Class::Watcher),
        "they are fields of that class all the same"
    );
}

#[test]
fn model_names_matter_to_pods_only() {
    let change = |new: &mut Config| new.dynamo.discovery.kubernetes.model = Some("m".into());
    assert_eq!(
        after(&source(DiscoverySource::KubernetesPods), change).watcher,
        swap(Reason::Other, ViewOf::Cleared)
    );
    assert_eq!(after(&source(DiscoverySource::Kubernetes), change).watcher, None);
    let change = |new: &mut Config| new.dynamo.discovery.kubernetes.namespace = "k".into();
    assert_eq!(
        after(&source(DiscoverySource::Kubernetes), change).watcher,
        swap(Reason::Namespace, ViewOf::Cleared)
    );
}

#[test]
fn a_namespace_may_come_and_go_while_the_others_keep_their_models() {
    let model = |namespace: &str, model: &str| KubernetesModel {
        component: "w".into(),
        model: model.into(),
        dynamo_namespace: Some(namespace.into()),
    };
    let mut old = source(DiscoverySource::KubernetesPods);
    old.dynamo.discovery.kubernetes.dynamo_namespaces = vec!["a".into(), "b".into()];
    old.dynamo.discovery.kubernetes.models = vec![model("a", "m"), model("b", "m")];
    let reload = after(&old, |new| {
        new.dynamo.discovery.kubernetes.dynamo_namespaces = vec!["a".into(), "c".into()];
        new.dynamo.discovery.kubernetes.models = vec![model("c", "n"), model("a", "m")];
    });
    assert_eq!(
        reload.watcher,
        swap(Reason::Namespaces, ViewOf::Pruned(vec!["b".into()]))
    );
    let reload = after(&old, |new| {
        new.dynamo.discovery.kubernetes.models[0].model = "other".into()
    });
    assert_eq!(reload.watcher, swap(Reason::Other, ViewOf::Cleared));
}

#[test]
fn a_broker_that_changes_concerns_the_event_bus_alone() {
    let text = "dynamo: {event_bus: {brokers: [{id: a, token_hash: 'sha256:";
    let old = parsed(&format!("{text}{}'}}]}}}}", "0".repeat(64)));
    let new = parsed(&format!("{text}{}'}}]}}}}", "1".repeat(64)));
    assert_eq!(plan(&old, &new).changed, [("dynamo.event_bus", Class::EventBus)]);
    assert_eq!(old.dynamo.event_bus.brokers[0].role, BusRole::Broker);
}

#[test]
fn a_pushed_view_follows_the_classes_of_what_stands_behind_it() {
    let with = |upstream: &str, rest: &str| {
        parsed(&format!(
            "dynamo: {{enabled: true, discovery: {{source: controller, kubernetes: {{model: m{rest}}}}}}}\n\
             controller: {{endpoint: 'https://c:1', ca_file: /ca, token_file: /t, generation: 1, upstream: {upstream}}}"
        ))
    };
    let base = with("kubernetes", "");
    for (new, expected) in [
        (base.clone(), None),
        (with("kubernetes_pods", ""), swap(Reason::Source, ViewOf::Cleared)),
        (
            with("kubernetes", ", namespace: other"),
            swap(Reason::Namespace, ViewOf::Cleared),
        ),
        (
            with("kubernetes", ", dynamo_namespace: other"),
            swap(Reason::Namespace, ViewOf::Cleared),
        ),
        (with("kubernetes", ", models: []"), None),
    ] {
        assert_eq!(plan(&base, &new).watcher, expected, "{new:?}");
    }
    let mut newer = base.clone();
    newer.controller.as_mut().unwrap().generation = 2;
    assert_eq!(plan(&base, &newer).changed, [("controller", Class::Live)]);
}

use serde_json::json;

use super::*;
use crate::cli::Namespaces;

pub(crate) fn settings() -> Settings {
    Settings {
        fleet_namespaces: Namespaces::Some(vec!["shared".to_owned()]),
        router_image: "registry.example:5000/continuum/router:1.0".to_owned(),
        pull_policy: None,
        push_endpoint: "https://continuum-controller-push.continuum.svc:9443".to_owned(),
        pod_monitors: true,
    }
}

/// A RouterConfig with that config and that `spec.router`.
pub(crate) fn object(config: Value, router: Value) -> RouterConfig {
    serde_json::from_value(json!({
        "apiVersion": "router.continuum.dev/v1alpha1",
        "kind": "RouterConfig",
        "metadata": { "name": "chat", "namespace": "dynamo", "uid": "0-1", "generation": 7 },
        "spec": { "config": config, "router": router },
    }))
    .unwrap()
}

/// The config of a fleet in Kubernetes.
pub(crate) fn fleet_of(discovery: Value) -> Value {
    json!({
        "backends": [{ "name": "frontend", "url": "http://frontend:8000" }],
        "dynamo": {
            "enabled": true,
            "discovery": discovery,
            "load": { "direct_allow_cidrs": ["10.0.0.0/8"] },
            "shim": { "backends": ["frontend"] },
        },
    })
}

fn judge(config: Value, router: Value) -> Result<Accepted, Rejected> {
    validate(&object(config, router), &settings())
}

#[test]
fn who_reads_the_fleet() {
    let kubernetes = |source: &str| fleet_of(json!({ "source": source, "kubernetes": { "model": "m" } }));
    let pushed = judge(kubernetes("kubernetes_pods"), json!({})).unwrap().fleet;
    assert!(
        matches!(&pushed, Fleet::Pushed { upstream: Upstream::KubernetesPods, namespace, .. } if namespace == "dynamo")
    );
    let local = judge(kubernetes("kubernetes"), json!({ "fleetView": "Local" }))
        .unwrap()
        .fleet;
    let namespace = Some("dynamo".to_owned());
    assert_eq!(
        local,
        Fleet::Local {
            source: DiscoverySource::Kubernetes,
            namespace
        }
    );
    let etcd = fleet_of(json!({ "source": "etcd", "etcd": { "endpoints": ["http://etcd:2379"] } }));
    let local = judge(etcd.clone(), json!({})).unwrap().fleet;
    assert_eq!(
        local,
        Fleet::Local {
            source: DiscoverySource::Etcd,
            namespace: None
        }
    );
    assert_eq!(
        judge(json!({ "backends": [] }), json!({})).unwrap().fleet,
        Fleet::None
    );
    let refused = judge(etcd, json!({ "fleetView": "Pushed" })).unwrap_err();
    assert_eq!(refused.reason, Reason::InvalidRouter);
}

#[test]
fn the_rendered_configuration_is_what_was_written_and_the_operators_fields() {
    let mut config = fleet_of(json!({ "source": "kubernetes", "kubernetes": { "dynamo_namespace": "d" } }));
    config["backends"][0]["api_key"] = json!("${KEY}");
    let accepted = judge(config.clone(), json!({})).unwrap();
    assert_eq!(accepted.text, judge(config, json!({})).unwrap().text);
    assert!(accepted.text.contains("${KEY}"), "{}", accepted.text);
    let environment = |name: &str| (name == "KEY").then(|| "secret".to_owned());
    let router = continuum_config::parse(&accepted.text, &environment, Build::FULL)
        .unwrap()
        .config;
    assert_eq!(router.dynamo.discovery.source, DiscoverySource::Controller);
    assert_eq!(router.dynamo.discovery.kubernetes.dynamo_namespace, "d");
    let controller = router.controller.unwrap();
    assert_eq!(
        (controller.generation, controller.upstream),
        (7, Some(Upstream::Kubernetes))
    );
    // What the operator looks at is what the user wrote.
    assert_eq!(
        accepted.config.dynamo.discovery.source,
        DiscoverySource::Kubernetes
    );

    let local = fleet_of(json!({ "source": "etcd", "etcd": { "endpoints": ["http://etcd:2379"] } }));
    let text = judge(local, json!({})).unwrap().text;
    let router = continuum_config::parse(&text, &|_| None, Build::FULL)
        .unwrap()
        .config;
    assert_eq!(router.dynamo.discovery.source, DiscoverySource::Etcd);
    assert_eq!(router.controller.unwrap().upstream, None);
}

#[test]
fn what_is_wrong_is_named_with_its_reason() {
    let kubernetes = |over: Value| fleet_of(json!({ "source": "kubernetes", "kubernetes": over }));
    let with = |path: &str, value: Value| {
        let mut config = kubernetes(json!({}));
        *config.pointer_mut("/dynamo").unwrap() = json!({});
        let mut at = &mut config;
        for name in path.split('.') {
            at = &mut at[name];
        }
        *at = value;
        config
    };
    for (config, router, reason, field) in [
        (
            with("server.bind_address", json!("0.0.0.0:1")),
            json!({}),
            Reason::InvalidConfig,
            "spec.config.server.bind_address: the operator sets it",
        ),
        (
            with("admin.token", json!("x")),
            json!({}),
            Reason::InvalidConfig,
            "spec.config.admin: the operator sets it",
        ),
        (
            with("controller", json!({})),
            json!({}),
            Reason::InvalidConfig,
            "spec.config.controller: the operator sets it",
        ),
        (
            with("server.timeouts.header", json!("0s")),
            json!({}),
            Reason::InvalidConfig,
            "spec.config.server.timeouts.header",
        ),
        (
            with("server.nonsense", json!(1)),
            json!({}),
            Reason::InvalidConfig,
            "spec.config.server.nonsense",
        ),
        (
            fleet_of(json!({})),
            json!({}),
            Reason::InvalidConfig,
            "spec.config.dynamo.discovery.source: say where",
        ),
        (
            fleet_of(json!({ "source": "controller" })),
            json!({}),
            Reason::InvalidConfig,
            "spec.config.dynamo.discovery.source",
        ),
        (
            fleet_of(json!({ "source": "kubernetes_pods" })),
            json!({}),
            Reason::InvalidConfig,
            "spec.config.dynamo.discovery.kubernetes",
        ),
        (
            kubernetes(json!({ "namespace": "${NS}" })),
            json!({}),
            Reason::InvalidConfig,
            "spec.config.dynamo.discovery.kubernetes.namespace: the operator acts on it",
        ),
        (
            kubernetes(json!({ "dynamo_namespace": "${NS}" })),
            json!({}),
            Reason::InvalidConfig,
            "spec.config.dynamo.discovery.kubernetes.dynamo_namespace: the operator acts on it",
        ),
        (
            kubernetes(json!({ "namespace": "foreign" })),
            json!({}),
            Reason::FleetNamespaceNotAllowed,
            "fleetNamespaces",
        ),
        (
            kubernetes(json!({ "namespace": "foreign" })),
            json!({ "fleetView": "Local" }),
            Reason::FleetNamespaceNotAllowed,
            "namespace foreign",
        ),
        (
            kubernetes(json!({})),
            json!({ "autoscaling": { "minReplicas": 3, "maxReplicas": 2 } }),
            Reason::InvalidRouter,
            "spec.router.autoscaling.maxReplicas",
        ),
        (
            kubernetes(json!({})),
            json!({ "podDisruptionBudget": { "minAvailable": 1, "maxUnavailable": 1 } }),
            Reason::InvalidRouter,
            "spec.router.podDisruptionBudget",
        ),
        (
            kubernetes(json!({})),
            json!({ "podTemplate": { "spec": { "nodeSelectr": {"a": "b"} } } }),
            Reason::InvalidRouter,
            "spec.router.podTemplate.spec.nodeSelectr",
        ),
        (
            kubernetes(json!({})),
            json!({ "podTemplate": { "spec": { "nodeSelector": 1 } } }),
            Reason::InvalidRouter,
            "spec.router.podTemplate",
        ),
        (
            kubernetes(json!({})),
            json!({ "podTemplate": { "kind": "Pod" } }),
            Reason::InvalidRouter,
            "spec.router.podTemplate.kind",
        ),
        (
            kubernetes(json!({})),
            json!({ "podTemplate": { "spec": { "$patch": "replace" } } }),
            Reason::InvalidRouter,
            "spec.router.podTemplate.spec.$patch",
        ),
    ] {
        let refused = judge(config.clone(), router).expect_err(field);
        assert_eq!(refused.reason, reason, "{refused}");
        assert!(refused.message.contains(field), "wanted {field}\nsaid {refused}");
    }
}

#[test]
fn a_fleet_elsewhere_needs_to_be_allowed() {
    let config = fleet_of(json!({ "source": "kubernetes", "kubernetes": { "namespace": "shared" } }));
    assert_eq!(
        judge(config.clone(), json!({})).unwrap().fleet.namespace(),
        Some("shared")
    );
    let all = Settings {
        fleet_namespaces: Namespaces::All,
        ..settings()
    };
    assert!(validate(&object(config.clone(), json!({})), &all).is_ok());
    let none = Settings {
        fleet_namespaces: Namespaces::Some(vec![]),
        ..settings()
    };
    let refused = validate(&object(config, json!({})), &none).unwrap_err();
    assert_eq!(refused.reason, Reason::FleetNamespaceNotAllowed);
}

#[test]
fn warnings_are_in_the_message() {
    let mut config = fleet_of(json!({ "source": "kubernetes" }));
    let good = judge(config.clone(), json!({})).unwrap();
    assert_eq!(
        (good.reason(), good.warnings.as_slice()),
        (Reason::Valid, [].as_slice())
    );
    config["dynamo"]["load"] = json!({});
    let warned = judge(config, json!({})).unwrap();
    assert_eq!(warned.reason(), Reason::ValidWithWarnings);
    assert!(
        warned
            .message()
            .contains("spec.config.dynamo.load.direct_allow_cidrs"),
        "{}",
        warned.message()
    );
}

#[test]
fn limits_of_a_fleet_that_the_operator_reads_are_warned_of() {
    let config = || fleet_of(json!({ "source": "kubernetes", "limits": { "max_resources": 1_000_000 } }));
    let of_limits = |router: Value| {
        let accepted = judge(config(), router).unwrap();
        accepted
            .message()
            .contains("spec.config.dynamo.discovery.limits: ")
    };
    assert!(of_limits(json!({})));
    assert!(!of_limits(json!({ "fleetView": "Local" })));
}

#[test]
fn secrets_in_clear_text_and_on_open_ways_are_warned_of() {
    let with = |url: &str, key: &str| {
        let mut config = fleet_of(json!({ "source": "kubernetes" }));
        config["backends"][0] = json!({ "name": "frontend", "url": url, "api_key": key });
        judge(config, json!({})).unwrap()
    };
    let clear = with("https://frontend", "sk-123");
    assert_eq!(clear.reason(), Reason::ValidWithWarnings);
    let message = clear.message();
    for part in [
        "spec.config.backends[0].api_key",
        "clear text",
        "${NAME}",
        "spec.router.env ",
        "envFrom",
        "Secret",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(!message.contains("sk-123"), "{message}");
    let open = with("http://frontend:8000", "${MY_KEY}").warnings;
    assert_eq!(open.len(), 1, "{open:#?}");
    assert!(open[0].starts_with("spec.config.backends[0].api_key: the URL is plain http://"));
    assert_eq!(with("https://frontend", "${MY_KEY}").reason(), Reason::Valid);
}

#[test]
fn only_fields_of_the_process_change_the_template() {
    let template = |over: Value| {
        let mut config = fleet_of(json!({ "source": "kubernetes" }));
        if let (Some(config), Value::Object(over)) = (config.as_object_mut(), over) {
            config.extend(over);
        }
        judge(config, json!({})).unwrap().template
    };
    let before = template(json!({}));
    for live in [
        json!({ "server": { "max_in_flight": 5 } }),
        json!({ "logging": { "level": "debug" } }),
        json!({ "backends": [{ "name": "frontend", "url": "http://other:8000" }] }),
        // The default, written out.
        json!({ "logging": { "format": "text" } }),
    ] {
        assert_eq!(template(live.clone()), before, "{live}");
    }
    let threads = template(json!({ "server": { "threads": 3 } }));
    let json = template(json!({ "logging": { "format": "json" } }));
    let reference = template(json!({ "server": { "threads": "${A}" } }));
    let other = template(json!({ "server": { "threads": "${B}" } }));
    for (index, one) in [&before, &threads, &json, &reference, &other].iter().enumerate() {
        for two in [&before, &threads, &json, &reference, &other]
            .iter()
            .skip(index + 1)
        {
            assert_ne!(one, two);
        }
    }
    // Pods are given the time that requests in flight may take.
    let patient = template(json!({ "server": { "graceful_period": "5m" } }));
    assert_eq!(patient["spec"]["terminationGracePeriodSeconds"], 315);
}

#[test]
fn an_operator_at_another_address_replaces_pods() {
    let object = object(fleet_of(json!({ "source": "kubernetes" })), json!({}));
    let here = validate(&object, &settings()).unwrap();
    let mut elsewhere = settings();
    elsewhere.push_endpoint = "https://other-push.elsewhere.svc:9443".to_owned();
    let elsewhere = validate(&object, &elsewhere).unwrap();
    assert_ne!(here.process_hash(), elsewhere.process_hash());
}

#[test]
fn what_is_too_long_for_one_message_is_rejected_with_its_size() {
    let of = |length: usize| {
        let mut config = fleet_of(json!({ "source": "kubernetes" }));
        config["backends"][0]["api_key"] = json!("x".repeat(length));
        judge(config, json!({}))
    };
    let rest = of(1).unwrap().text.len() - 1;
    let most = of(MAX_CONFIG_BYTES - rest).unwrap();
    assert_eq!(most.text.len(), MAX_CONFIG_BYTES);
    let rejected = of(MAX_CONFIG_BYTES - rest + 1).unwrap_err();
    assert_eq!(rejected.reason, Reason::InvalidConfig);
    assert!(
        rejected.message.contains("524289 bytes") && rejected.message.contains("shorten"),
        "{rejected}"
    );
}

//! Renders: chart and overlays agree, pods are hardened, policies open what is needed, and wrong values are named.

use std::{env, fs};

use clap::Parser as _;
use continuum_controller::cli::{Cli, Namespaces};
use serde_json::{Value, json};

use crate::render::{STANDALONE, chart, find, helm, id, kustomize, root, said, template};

/// Everything that can be switched on.
const EVERYTHING: [&str; 7] = [
    "--set=watchNamespaces={team-b,team-a},fleetNamespaces={team-a,dynamo}",
    "--set=tls.certManager.enabled=true,tls.certManager.issuerRef.name=internal",
    "--set=controller.podMonitor.enabled=true,controller.priorityClassName=high,imagePullSecrets[0].name=registry",
    "--set=router.enabled=true,router.podMonitor.enabled=true,router.config.server.max_connections=100",
    "--set=dynamoPodDiscovery.enabled=true,dynamoPodDiscovery.metadata=true,dynamoPodDiscovery.namespace=dynamo",
    "--set=routerConfig.create=true,routerConfig.namespace=team-a,routerConfig.spec.config.dynamo.enabled=true",
    "--set=crds.install=false",
];

/// What says who rendered an object, and when.
const MARKS: [&str; 3] = [
    "helm.sh/chart",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
];

/// Without the marks of a renderer, everywhere.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, _)| !MARKS.contains(&key.as_str()));
            Value::Object(kept.map(|(key, value)| (key.clone(), plain(value))).collect())
        }
        Value::Array(list) => list.iter().map(plain).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// The objects of these kinds, without marks and labels, sorted.
fn of_kinds(objects: &[Value], kinds: &[&str]) -> Vec<Value> {
    let mut found: Vec<Value> = objects
        .iter()
        .filter(|object| kinds.contains(&id(object).0.as_str()))
        .map(|object| {
            let mut object = plain(object);
            if let Some(meta) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
                meta.remove("labels");
            }
            object
        })
        .collect();
    found.sort_by_key(id);
    found
}

const RBAC: [&str; 4] = ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];

#[test]
fn chart_and_overlays_of_a_router_render_the_same() {
    for (overlay, metadata) in [
        ("dynamo-pod-discovery", "--set=dynamoPodDiscovery.metadata=false"),
        (
            "dynamo-metadata-discovery",
            "--set=dynamoPodDiscovery.metadata=true",
        ),
    ] {
        let arguments: Vec<&str> = STANDALONE.into_iter().chain([metadata]).collect();
        // A release that is called as the chart gives its name to everything.
        let (rendered, overlaid) = (
            helm("continuum-router", "continuum-system", &arguments),
            kustomize(overlay),
        );
        let roles = of_kinds(&overlaid, &RBAC);
        assert_eq!(roles.len(), 2, "{overlay}");
        let all = [
            RBAC.as_slice(),
            &[
                "ServiceAccount",
                "Deployment",
                "Service",
                "PodDisruptionBudget",
                "NetworkPolicy",
            ],
        ];
        for kinds in all {
            assert_eq!(
                of_kinds(&rendered, kinds),
                of_kinds(&overlaid, kinds),
                "{overlay}"
            );
        }
    }
}

#[test]
fn the_operators_overlay_is_the_chart() {
    let rendered = helm("continuum", "continuum-system", &["--skip-tests"]);
    let mut overlaid = kustomize("operator");
    overlaid.retain(|object| object["kind"] != "Namespace");
    assert!(of_kinds(&overlaid, &RBAC).len() >= 6);
    let sorted = |objects: &[Value]| {
        let mut objects: Vec<Value> = objects.iter().map(plain).collect();
        objects.sort_by_key(id);
        objects
    };
    assert_eq!(sorted(&rendered), sorted(&overlaid), "run `make generate`");
}

#[test]
fn roles_are_those_of_the_documents() {
    let reader = |metadata: &str| {
        let arguments: Vec<&str> = STANDALONE.into_iter().chain([metadata]).collect();
        let objects = helm("x", "here", &arguments);
        let role = find(&objects, "Role", "continuum-router-dynamo-pod-reader");
        assert_eq!(role["metadata"]["namespace"], "dynamo");
        let binding = find(&objects, "RoleBinding", "continuum-router-dynamo-pod-reader");
        assert_eq!(
            binding["subjects"],
            json!([{"kind": "ServiceAccount", "name": "x-continuum-router", "namespace": "here"}])
        );
        role["rules"].clone()
    };
    let read = json!(["get", "list", "watch"]);
    let pods = json!({"apiGroups": [""], "resources": ["pods"], "verbs": read});
    assert_eq!(reader("--set=dynamoPodDiscovery.metadata=false"), json!([pods]));
    assert_eq!(
        reader("--set=dynamoPodDiscovery.metadata=true"),
        json!([
            pods,
            {"apiGroups": ["nvidia.com"], "resources": ["dynamoworkermetadatas"], "verbs": read},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": read},
        ])
    );
}

#[test]
fn namespaces_decide_where_there_are_roles() {
    let places = |arguments: &[&str]| -> Vec<String> {
        let objects = helm("c", "ops", arguments);
        let roles = objects
            .iter()
            .map(id)
            .filter(|(kind, ..)| kind == "Role" || kind == "ClusterRole");
        let mut places: Vec<String> = roles
            .map(|(_, namespace, name)| format!("{namespace}/{name}"))
            .collect();
        places.sort();
        places
    };
    for (arguments, expected) in [
        (
            "--set=x=",
            vec![
                "/ops-c-controller-auth",
                "ops/c-controller",
                "ops/c-controller-own",
            ],
        ),
        (
            "--set=watchNamespaces={a,b},fleetNamespaces={b,d}",
            vec![
                "/ops-c-controller-auth",
                "a/c-controller",
                "b/c-controller",
                "d/c-controller-fleet",
                "ops/c-controller-own",
            ],
        ),
        // As lists are emptied with --set.
        (
            "--set=watchNamespaces={},fleetNamespaces={}",
            vec![
                "/ops-c-controller-auth",
                "ops/c-controller",
                "ops/c-controller-own",
            ],
        ),
        (
            "--set=watchNamespaces={a},fleetNamespaces={*}",
            vec![
                "/ops-c-controller-auth",
                "/ops-c-controller-fleet",
                "a/c-controller",
                "ops/c-controller-own",
            ],
        ),
        (
            "--set=watchNamespaces={*},fleetNamespaces={d}",
            vec![
                "/ops-c-controller",
                "/ops-c-controller-auth",
                "ops/c-controller-own",
            ],
        ),
    ] {
        let arguments = if arguments == "--set=x=" {
            vec![]
        } else {
            vec![arguments]
        };
        assert_eq!(places(&arguments), expected, "{arguments:?}");
    }
}

#[test]
fn the_operator_takes_its_flags() {
    for (arguments, served, fleets) in [
        (vec![], vec!["continuum-system"], vec![]),
        (
            EVERYTHING.to_vec(),
            vec!["team-a", "team-b"],
            vec!["dynamo", "team-a"],
        ),
    ] {
        let objects = helm("continuum", "continuum-system", &arguments);
        let deployment = find(&objects, "Deployment", "continuum-controller");
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let flags = container["args"]
            .as_array()
            .unwrap()
            .iter()
            .map(|flag| flag.as_str().unwrap());
        // What the API server fills in.
        let pod = ["--pod-name=p", "--pod-namespace=continuum-system"];
        let cli = Cli::try_parse_from(["continuum-controller"].into_iter().chain(flags).chain(pod)).unwrap();
        let names = |list: &[&str]| Namespaces::Some(list.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(
            (cli.served(), cli.foreign_fleets()),
            (names(&served), names(&fleets))
        );
        let service = find(&objects, "Service", "continuum-controller-push");
        assert_eq!(service["spec"]["clusterIP"], "None");
        assert_ne!(service["spec"]["publishNotReadyAddresses"], json!(true));
        assert_eq!(
            cli.push_endpoint,
            "https://continuum-controller-push.continuum-system.svc:9443"
        );
        if let Some(secret) = &cli.ca_secret {
            assert_eq!(
                find(&objects, "Secret", secret).get("data"),
                None,
                "an upgrade would empty it"
            );
        } else {
            let mounts = container["volumeMounts"].as_array().unwrap();
            let directory = cli.tls_dir.unwrap();
            assert!(
                mounts
                    .iter()
                    .any(|mount| mount["mountPath"] == directory.to_str().unwrap())
            );
            let certificate = find(&objects, "Certificate", "continuum-controller-tls");
            assert_eq!(
                certificate["spec"]["dnsNames"],
                json!(["continuum-controller-push.continuum-system.svc"])
            );
        }
    }
}

/// What each pod is allowed to be, everywhere.
#[test]
fn pods_are_hardened() {
    let mut renders = vec![
        helm("x", "here", &[]),
        helm("x", "here", &STANDALONE),
        helm("x", "here", &EVERYTHING),
    ];
    renders.extend(["operator", "dynamo-pod-discovery", "dynamo-metadata-discovery"].map(kustomize));
    let mut seen = 0;
    for object in renders.iter().flatten() {
        let pod = match id(object).0.as_str() {
            "Deployment" => &object["spec"]["template"]["spec"],
            "Pod" => &object["spec"],
            _ => continue,
        };
        seen += 1;
        let context = &pod["securityContext"];
        assert_eq!(context["runAsNonRoot"], true, "{object}");
        assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault", "{object}");
        for container in pod["containers"].as_array().unwrap() {
            let context = &container["securityContext"];
            assert_eq!(context["allowPrivilegeEscalation"], false, "{object}");
            assert_eq!(context["readOnlyRootFilesystem"], true, "{object}");
            assert_eq!(context["capabilities"]["drop"], json!(["ALL"]), "{object}");
        }
        assert!(pod["automountServiceAccountToken"].is_boolean(), "{object}");
    }
    assert!(seen >= 9, "{seen}");
    for account in renders
        .iter()
        .flatten()
        .filter(|object| object["kind"] == "ServiceAccount")
    {
        assert_eq!(account["automountServiceAccountToken"], false, "{account}");
    }
}

#[test]
fn only_a_router_that_asks_the_api_server_has_a_token() {
    for (enabled, expected) in [("true", true), ("false", false)] {
        let enabled = format!("--set=dynamoPodDiscovery.enabled={enabled}");
        let arguments: Vec<&str> = STANDALONE.into_iter().chain([enabled.as_str()]).collect();
        let objects = helm("x", "here", &arguments);
        let deployment = find(&objects, "Deployment", "x-continuum-router");
        assert_eq!(
            deployment["spec"]["template"]["spec"]["automountServiceAccountToken"],
            expected
        );
        assert_eq!(objects.iter().any(|object| object["kind"] == "Role"), expected);
    }
}

/// Ports that a policy's rules open, for one direction.
fn ports(policy: &Value, direction: &str) -> Vec<i64> {
    let rules = policy["spec"][direction].as_array().unwrap();
    let ports = rules.iter().filter_map(|rule| rule["ports"].as_array()).flatten();
    let mut ports: Vec<i64> = ports.map(|port| port["port"].as_i64().unwrap()).collect();
    ports.dedup();
    ports
}

#[test]
fn network_policies_open_what_is_needed() {
    let objects = helm(
        "x",
        "here",
        &["--set=controller.networkPolicy.apiServerPorts={443,6443,16443}"],
    );
    let policy = find(&objects, "NetworkPolicy", "x-controller");
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(ports(policy, "ingress"), [9443, 8081]);
    assert_eq!(ports(policy, "egress"), [53, 443, 6443, 16443]);
    // The push port is for routers alone, wherever they are.
    assert_eq!(
        policy["spec"]["ingress"][0]["from"],
        json!([{
            "namespaceSelector": {},
            "podSelector": {"matchLabels": {
                "app.kubernetes.io/name": "continuum-router", "app.kubernetes.io/component": "router",
            }},
        }])
    );

    let router = |more: &[&str]| {
        let arguments: Vec<&str> = STANDALONE.iter().chain(more).copied().collect();
        find(
            &helm("x", "here", &arguments),
            "NetworkPolicy",
            "x-continuum-router",
        )
        .clone()
    };
    let policy = router(&[]);
    assert_eq!(ports(&policy, "ingress"), [8080, 9091]);
    assert_eq!(ports(&policy, "egress"), [53, 443, 6443]);
    // Publishers' ports are not known beforehand: every port, of the fleet's namespace only.
    let fleet = &policy["spec"]["egress"][1];
    assert_eq!(
        fleet["to"],
        json!([{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "dynamo"}}}])
    );
    assert_eq!(fleet.get("ports"), None);
    let policy = router(&[
        "--set=router.networkPolicy.fleetPorts={8000,20080}",
        "--set=dynamoPodDiscovery.apiServerPorts={16443}",
        "--set=router.networkPolicy.extraEgress[0].ports[0].port=443",
    ]);
    assert_eq!(ports(&policy, "egress"), [53, 8000, 20080, 16443, 443]);
    let policy = router(&["--set=dynamoPodDiscovery.enabled=false"]);
    assert_eq!(ports(&policy, "egress"), [53]);
}

#[test]
fn the_first_routerconfig_comes_after_the_install() {
    let objects = helm("x", "here", &EVERYTHING);
    let config = find(&objects, "RouterConfig", "llm");
    assert_eq!(config["metadata"]["namespace"], "team-a");
    assert_eq!(config["metadata"]["annotations"]["helm.sh/hook"], "post-install");
    assert_eq!(config["spec"], json!({"config": {"dynamo": {"enabled": true}}}));
}

#[test]
fn the_routers_own_addresses_win() {
    let objects = helm(
        "x",
        "here",
        &[
            &STANDALONE[..],
            &["--set=router.config.server.bind_address=1.2.3.4:5,router.config.server.max_connections=7"],
        ]
        .concat(),
    );
    let text = find(&objects, "ConfigMap", "x-continuum-router")["data"]["router.yaml"]
        .as_str()
        .unwrap()
        .to_owned();
    let config: Value = serde_yaml_ng::from_str(&text).unwrap();
    assert_eq!(
        config["server"],
        json!({"bind_address": "0.0.0.0:8080", "max_connections": 7})
    );
    assert_eq!(config["admin"]["bind_address"], "127.0.0.1:9090");
    assert_eq!(config["dynamo"]["state_dir"], "/var/lib/continuum-router");
}

#[test]
fn configurations_of_the_overlays_are_valid() {
    for overlay in ["dynamo-pod-discovery", "dynamo-metadata-discovery"] {
        let objects = kustomize(overlay);
        let text = find(&objects, "ConfigMap", "continuum-router")["data"]["router.yaml"]
            .as_str()
            .unwrap();
        continuum_config::parse(text, &|_| None, continuum_config::Build::FULL)
            .unwrap_or_else(|errors| panic!("{overlay}: {errors:?}"));
    }
}

#[test]
fn the_example_of_values_is_a_valid_router() {
    let file = format!(
        "--values={}",
        root().join("examples/standalone-values.yaml").display()
    );
    let objects = helm("router", "routers", &[&file]);
    let config = find(&objects, "ConfigMap", "router-continuum-router");
    let text = config["data"]["router.yaml"].as_str().unwrap();
    continuum_config::parse(text, &|_| None, continuum_config::Build::FULL).unwrap();
    find(&objects, "Role", "continuum-router-dynamo-pod-reader");
    assert!(
        objects
            .iter()
            .all(|object| object["kind"] != "CustomResourceDefinition")
    );
}

#[test]
fn wrong_values_are_named() {
    for (argument, expected) in [
        ("--set=watchNamspaces={a}", "watchNamspaces"),
        ("--set=controller.replica=3", "replica"),
        ("--set=controller.replicas=many", "/controller/replicas"),
        ("--set=controller.log.format=xml", "/controller/log/format"),
        ("--set=watchNamespaces=team", "/watchNamespaces"),
        ("--set=fleetNamespaces={Team_A}", "/fleetNamespaces/0"),
        ("--set=router.image.digest=abc", "/router/image/digest"),
        (
            "--set=router.image.pullPolicy=Sometimes",
            "/router/image/pullPolicy",
        ),
        (
            "--set=dynamoPodDiscovery.apiServerPorts={0}",
            "/dynamoPodDiscovery/apiServerPorts/0",
        ),
        ("--set=dynamoPodDiscovery.metdata=true", "metdata"),
        ("--set=routerConfig.name=Upper", "/routerConfig/name"),
        (
            "--set=tls.certManager.enabled=true",
            "tls.certManager.issuerRef.name",
        ),
        (
            "--set=tls.certManager.enabled=true,tls.certManager.issuerRef.name=i,tls.existingSecret=s",
            "tls.existingSecret or tls.certManager.enabled",
        ),
        ("--set=router.enabled=true", "router.config"),
        ("--set=routerConfig.create=true", "routerConfig.spec"),
        (
            "--set=routerConfig.create=true,routerConfig.namespace=b,routerConfig.spec.a=b",
            "watchNamespaces",
        ),
    ] {
        let refused = template("x", "here", &[argument]).unwrap_err();
        let pointer = expected.replace('/', ".");
        assert!(
            refused.contains(expected) || refused.contains(pointer.trim_start_matches('.')),
            "{argument}: {refused}"
        );
    }
}

#[test]
fn helm_finds_nothing_to_complain_of() {
    let mut command = std::process::Command::new(continuum_testkit::kube::binary("helm"));
    said(command.args(["lint", "--strict"]).arg(chart())).unwrap();
}

/// What changes in a render is seen in review. `UPDATE_GOLDEN=1` writes the files anew.
#[test]
fn renders_are_as_reviewed() {
    for (name, arguments) in [("everything", &EVERYTHING[..]), ("standalone", &STANDALONE[..])] {
        let text = template("continuum", "continuum-system", arguments).unwrap();
        let file = root().join("tests/golden/chart").join(format!("{name}.yaml"));
        if env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&file, &text).unwrap();
        }
        let golden = fs::read_to_string(&file).unwrap();
        assert!(
            text == golden,
            "{} differs: set UPDATE_GOLDEN=1 and review the change",
            file.display()
        );
    }
}

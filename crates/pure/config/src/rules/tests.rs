//! One line for each rule: what breaks it, and the path and message that name it. What fits is in the templates
//! and in the tests of the parser.

use crate::{Build, parse};

/// Whether the text is valid, and what its errors are.
fn errors(text: &str) -> String {
    parse(text, &|_| None, Build::FULL).map_or_else(|error| error.to_string(), |_| String::new())
}

fn etcd(inside: &str) -> String {
    format!("dynamo: {{enabled: true, discovery: {{etcd: {{{inside}}}}}}}")
}

#[test]
fn etcd_endpoints() {
    for (inside, part) in [
        ("endpoints: []", "endpoints: name at least one"),
        (
            "endpoints: ['a:1', 'http://a:1', '[::1]:2379', '10.0.0.1:2379']",
            "",
        ),
        ("endpoints: ['http://a:1', 'https://b:1']", "cannot be mixed"),
        ("endpoints: ['https://a:1'], tls: {ca_cert: /ca}", ""),
        (
            "endpoints: ['a:1', 'http://a:2'], tls: {}",
            "endpoints[1]: plain http://",
        ),
        ("endpoints: ['http://u@a:1']", "credentials"),
        ("endpoints: ['http://a:1?']", "query"),
        ("endpoints: ['http://a:1#']", "fragment"),
        ("endpoints: ['http://a:1/']", "path"),
        (
            "endpoints: ['a:1'], tls: {client_key: /k}",
            "tls.client_key: client_cert and client_key go together",
        ),
    ] {
        let found = errors(&etcd(inside));
        assert_eq!(found.is_empty(), part.is_empty(), "{inside}: {found}");
        assert!(found.contains(part), "{inside}: {found}");
    }
    let many = |n: usize| {
        etcd(&format!(
            "endpoints: [{}]",
            (0..n).map(|i| format!("'h{i}:1'")).collect::<Vec<_>>().join(", ")
        ))
    };
    assert_eq!(errors(&many(16)), "");
    assert!(errors(&many(17)).contains("at most 16 entries, found 17"));
    assert_eq!(
        errors("dynamo: {enabled: false}"),
        "",
        "a source that is off needs nothing"
    );
}

#[test]
fn the_largest_body_fits_into_the_budget() {
    for (inside, part) in [
        ("body_limit: 64MiB", ""),
        ("body_limit: 1KiB, body_budget: 4KiB", ""),
        ("body_limit: 1GiB", ""),
        (
            "body_limit: 65MiB, body_budget: 256MiB",
            "server.body_budget: must be at least four times server.body_limit (65MiB), that is 260MiB; found 256MiB",
        ),
        (
            "body_budget: 100MiB",
            "server.body_budget: must be at least four times server.body_limit (32MiB), that is 128MiB; found 100MiB",
        ),
        ("body_limit: 1GiB, body_budget: 4GiB", ""),
        ("body_budget: 65GiB", "must be from 4KiB to 64GiB"),
        ("body_limit: 2GiB", "must be from 1KiB to 1GiB"),
    ] {
        let found = errors(&format!("server: {{{inside}}}"));
        assert_eq!(found.is_empty(), part.is_empty(), "{inside}: {found}");
        assert!(found.contains(part), "{inside}: {found}");
        assert!(found.lines().count() <= 1, "{inside}: {found}");
    }
}

#[test]
fn overlapping_namespaces_depend_on_the_match() {
    let with = |by: &str, names: &str| {
        let pools: Vec<String> = names
            .split(", ")
            .enumerate()
            .map(|(index, name)| format!("{{namespace: {name}, backends: [b{index}]}}"))
            .collect();
        let backends: Vec<String> = (0..pools.len())
            .map(|index| format!("{{name: b{index}, url: 'http://b{index}'}}"))
            .collect();
        errors(&format!(
            "backends: [{}]\ndynamo: {{enabled: true, discovery: {{namespace_match: {by}, etcd: {{endpoints: ['a:1'], \
             namespaces: [{names}]}}}}, shim: {{pools: [{}]}}}}",
            backends.join(", "),
            pools.join(", ")
        ))
    };
    for (by, names, part) in [
        ("generation", "a, b", ""),
        ("generation", "a, a-b", ""),
        ("generation", "a, a-0123456", ""),
        ("generation", "a, a-ABCDEF01", ""),
        (
            "generation",
            "a-0123abcd, a",
            "namespaces[0]: this is a generation of \"a\"",
        ),
        ("generation", "a, a-legacy", "namespaces[1]: this is a generation"),
        ("exact", "a, a-legacy", ""),
        ("prefix", "a, b", ""),
        ("prefix", "a, ab", "namespaces[1]: this begins with \"a\""),
        ("exact", "a, a", "stands here twice"),
    ] {
        let found = with(by, names);
        assert_eq!(found.is_empty(), part.is_empty(), "{by} {names}: {found}");
        assert!(found.contains(part), "{by} {names}: {found}");
    }
}

#[test]
fn namespaces_and_their_limits() {
    for (inside, part) in [
        ("endpoints: ['a:1'], namespace: ''", "this is empty"),
        ("endpoints: ['a:1'], namespace: 'a b'", "white space"),
        ("endpoints: ['a:1'], namespace: \"a\\u0007\"", "control"),
        (
            "endpoints: ['a:1'], namespace: a, namespaces: [b]",
            "set namespace or namespaces, not both",
        ),
        ("endpoints: ['a:1'], namespaces: [b]", ""),
        ("endpoints: ['a:1'], namespace: dynamo, namespaces: [b]", ""),
        (
            "endpoints: ['a:1'], namespaces: [b, c]",
            "use shim.pools, one pool for each",
        ),
    ] {
        let found = errors(&etcd(inside));
        assert_eq!(found.is_empty(), part.is_empty(), "{inside}: {found}");
        assert!(found.contains(part), "{inside}: {found}");
    }
    let names: Vec<String> = (0..17).map(|n| format!("n{n}")).collect();
    assert!(
        errors(&etcd(&format!(
            "endpoints: ['a:1'], namespaces: [{}]",
            names.join(", ")
        )))
        .contains("at most 16")
    );
}

#[test]
fn kubernetes_sources() {
    let with = |source: &str, inside: &str| {
        errors(&format!(
            "dynamo: {{enabled: true, discovery: {{source: {source}, kubernetes: {{{inside}}}}}}}"
        ))
    };
    for (source, inside, part) in [
        ("kubernetes", "namespace: fleet-1", ""),
        (
            "kubernetes",
            "namespace: Fleet",
            "kubernetes.namespace: a Kubernetes namespace",
        ),
        (
            "kubernetes",
            "namespace: ''",
            "kubernetes.namespace: a Kubernetes namespace",
        ),
        ("kubernetes", "dynamo_namespace: Ab.c_d-e", ""),
        ("kubernetes", "dynamo_namespace: a-", "a label value"),
        ("kubernetes_pods", "model: m", ""),
        ("kubernetes_pods", "", "pods do not say what they serve"),
        (
            "kubernetes_pods",
            "model: m, models: [{component: c, model: m}]",
            "set model or models, not both",
        ),
        (
            "kubernetes_pods",
            "models: [{component: c, model: m}, {component: C, model: n}]",
            "",
        ),
        (
            "kubernetes_pods",
            "models: [{component: c, model: m}, {component: c, model: n}]",
            "stands here twice",
        ),
        (
            "kubernetes",
            "models: [{component: c, model: m}, {component: c, model: n}]",
            "",
        ),
    ] {
        let found = with(source, inside);
        assert_eq!(found.is_empty(), part.is_empty(), "{source} {inside}: {found}");
        assert!(found.contains(part), "{source} {inside}: {found}");
    }
    let models: Vec<String> = (0..257)
        .map(|n| format!("{{component: c{n}, model: m}}"))
        .collect();
    assert!(with("kubernetes_pods", &format!("models: [{}]", models.join(", "))).contains("at most 256"));
}

#[test]
fn times_stay_in_their_bounds() {
    for (text, part) in [
        ("dynamo: {load: {max_staleness: 100ms}}", ""),
        ("dynamo: {load: {max_staleness: 5m}}", ""),
        ("dynamo: {load: {max_staleness: 99ms}}", "from 100ms to 5m"),
        ("dynamo: {load: {max_staleness: 301s}}", "from 100ms to 5m"),
        (
            "dynamo: {discovery: {etcd: {watch_reconnect_backoff: {initial: 31s}}}}",
            "max must be at least initial",
        ),
        (
            "dynamo: {discovery: {etcd: {watch_reconnect_backoff: {initial: 30s}}}}",
            "",
        ),
        (
            "dynamo: {discovery: {file: {watch_reconnect_backoff: {max: 100ms}}}}",
            "file.watch_reconnect_backoff.max",
        ),
        ("server: {timeouts: {request: 0s}}", "at least 1ms"),
    ] {
        let found = errors(text);
        assert_eq!(found.is_empty(), part.is_empty(), "{text}: {found}");
        assert!(found.contains(part), "{text}: {found}");
    }
}

#[test]
fn counts_stay_in_their_bounds() {
    let list = |n: usize, item: &dyn Fn(usize) -> String| (0..n).map(item).collect::<Vec<_>>().join(", ");
    let cidrs = |n| {
        format!(
            "dynamo: {{load: {{direct_allow_cidrs: [{}]}}}}",
            list(n, &|i| format!("10.{i}.0.0/16"))
        )
    };
    assert_eq!(errors(&cidrs(64)), "");
    assert!(errors(&cidrs(65)).contains("at most 64"));
    let map = |n| {
        format!(
            "dynamo: {{shim: {{model_map: {{{}}}}}}}",
            list(n, &|i| format!("m{i}: x"))
        )
    };
    assert_eq!(errors(&map(1024)), "");
    assert!(errors(&map(1025)).contains("at most 1024 entries, found 1025"));
    let shim = |n| {
        format!(
            "backends: [{}]\ndynamo: {{shim: {{backends: [{}]}}}}",
            list(n, &|i| format!("{{name: b{i}, url: 'http://b{i}'}}")),
            list(n, &|i| format!("b{i}"))
        )
    };
    assert_eq!(errors(&shim(64)), "");
    assert!(errors(&shim(65)).contains("at most 64"));
}

#[test]
fn the_event_bus_has_a_port_and_a_budget_of_its_own() {
    let bus = |inside: &str, rest: &str| {
        errors(&format!(
            "dynamo: {{event_bus: {{enabled: true, tls: {{cert: /c, key: /k, client_ca: /ca}}, {inside}}}}}\n{rest}"
        ))
    };
    for (inside, rest, part) in [
        ("", "", ""),
        (
            "listen: '127.0.0.1:8080'",
            "",
            "server.bind_address has this port",
        ),
        ("listen: '127.0.0.1:9090'", "", "admin.bind_address has this port"),
        (
            "listen: '127.0.0.1:9091'",
            "telemetry: {metrics_bind_address: '[::1]:9091'}",
            "telemetry.metrics_bind_address has",
        ),
        (
            "listen: '127.0.0.1:8080'",
            "server: {bind_address: 'unix:/a'}",
            "",
        ),
        ("listen: 'host:7443'", "", "expected an IP address and a port"),
        ("max_session_buffer_bytes: 65535KiB", "", "need at least 64MiB"),
        ("max_streams_per_session: 1025", "", "need at least"),
        (
            "heartbeat_interval: 10s, idle_timeout: 10s",
            "",
            "must be less than idle_timeout",
        ),
        ("brokers: [{id: broker-a.dynamo}]", "", ""),
        ("brokers: [{id: '*.dynamo'}]", "", "DNS name in its certificate"),
        ("brokers: [{id: Broker}]", "", "DNS name in its certificate"),
        (
            "brokers: [{id: a, token_hash: 'sha256:AA'}]",
            "",
            "64 lower-case hex",
        ),
        (
            "brokers: [{id: a, role: kv_listener}]",
            "",
            "name at least one backend",
        ),
        (
            "brokers: [{id: a, namespaces: ['x/y']}]",
            "",
            "cannot contain \"/\"",
        ),
        ("brokers: [{id: a, namespaces: [x, x]}]", "", "stands here twice"),
    ] {
        let found = bus(inside, rest);
        assert_eq!(found.is_empty(), part.is_empty(), "{inside} {rest}: {found}");
        assert!(found.contains(part), "{inside} {rest}: {found}");
    }
    assert!(errors("dynamo: {event_bus: {enabled: true}}").contains("TLS only"));
    assert!(errors("dynamo: {event_bus: {brokers: [{id: a}]}}").contains("set token_hash"));
}

#[test]
fn listeners_and_tokens() {
    for (text, part) in [
        (
            "admin: {bind_address: '0.0.0.0:9090', token: long-enough-token-here}",
            "",
        ),
        ("admin: {bind_address: '[::1]:9090'}", ""),
        ("admin: {bind_address: 'unix:/run/admin.sock'}", ""),
        ("admin: {bind_address: '0.0.0.0:9090'}", "set admin.token"),
        ("admin: {token: 'a b'}", "visible ASCII"),
        (
            "admin: {bind_address: '127.0.0.1:8080'}",
            "the server listens on this address already",
        ),
        ("server: {bind_address: ['127.0.0.1:1', '127.0.0.2:1']}", ""),
        ("server: {bind_address: ['127.0.0.1:0', '127.0.0.1:0']}", ""),
        (
            "server: {bind_address: ['unix:/a', 'unix:/a']}",
            "listens on this address already",
        ),
    ] {
        let found = errors(text);
        assert_eq!(found.is_empty(), part.is_empty(), "{text}: {found}");
        assert!(found.contains(part), "{text}: {found}");
    }
}

#[test]
fn one_mistake_is_told_once() {
    // The backend whose name is in doubt is not also missed where it is used, nor is the misspelt key missing.
    for (text, lines) in [
        (
            "backends: [{nam: a, url: 'http://a'}]\ndynamo: {shim: {backends: [a]}}",
            1,
        ),
        (
            "dynamo: {enabled: true, discovery: {etcd: {endpoint: ['a:1']}}}",
            1,
        ),
        (
            "dynamo: {enabled: true, discovery: {etcd: {endpoints: ['a']}}}",
            1,
        ),
        ("admin: {bind_address: '0.0.0.0:1', token: [x]}", 1),
        ("dynamo: {enabled: true, discovery: {etcd: 5}}", 1),
    ] {
        let found = errors(text);
        assert_eq!(found.lines().count(), lines, "{text}: {found}");
    }
}

#[test]
fn the_section_of_the_operator() {
    let with = |source: &str, controller: &str| {
        errors(&format!(
            "dynamo: {{enabled: true, discovery: {{source: {source}, kubernetes: {{model: m}}}}}}\ncontroller: {controller}"
        ))
    };
    let section = |endpoint: &str, rest: &str| {
        format!("{{endpoint: '{endpoint}', ca_file: /ca, token_file: /t, generation: 3{rest}}}")
    };
    for (source, controller, part) in [
        (
            "controller",
            section("https://c:9443", ", upstream: kubernetes"),
            "",
        ),
        (
            "controller",
            section("https://c:9443", ", upstream: kubernetes_pods"),
            "",
        ),
        ("kubernetes", section("https://c:9443", ""), ""),
        (
            "controller",
            "null".to_owned(),
            "source: source controller is set by the operator",
        ),
        (
            "controller",
            section("https://c:9443", ""),
            "controller.upstream: source controller needs it",
        ),
        (
            "controller",
            section("https://c:9443", ", upstream: etcd"),
            "expected \"kubernetes\"",
        ),
        (
            "kubernetes",
            section("http://c:9443", ""),
            "controller.endpoint: controllers speak TLS only",
        ),
        (
            "kubernetes",
            section("c:9443", ""),
            "controller.endpoint: controllers speak TLS only",
        ),
        (
            "kubernetes",
            "{endpoint: 'https://c:1'}".to_owned(),
            "\"generation\" is missing",
        ),
        (
            "kubernetes",
            section("https://c:9443", ", more: 1"),
            "unknown key \"more\"",
        ),
    ] {
        let found = with(source, &controller);
        assert_eq!(
            found.is_empty(),
            part.is_empty(),
            "{source} {controller}: {found}"
        );
        assert!(found.contains(part), "{source} {controller}: {found}");
    }
    let pods = errors(&format!(
        "dynamo: {{enabled: true, discovery: {{source: controller}}}}\ncontroller: {}",
        section("https://c:1", ", upstream: kubernetes_pods")
    ));
    assert!(pods.contains("pods do not say what they serve"), "{pods}");
}

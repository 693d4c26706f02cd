use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{
    limits::MAX_TEXT_BYTES,
    plan,
    value::{BackendUrl, MASK, Secret},
};

fn load(text: &str) -> Config {
    parse(text, &|_| None, Build::FULL)
        .unwrap_or_else(|error| panic!("{error}"))
        .config
}

fn errors(text: &str) -> String {
    parse(text, &|_| None, Build::FULL).unwrap_err().to_string()
}

#[test]
fn an_empty_file_is_the_defaults() {
    for text in ["", "# nothing", "server:\nbackends:\n", "{}"] {
        assert_eq!(load(text), Config::default(), "{text:?}");
    }
}

#[test]
fn the_defaults_are_those_that_the_project_promises() {
    let config = load("backends: [{name: a, url: 'http://a'}]");
    let server = &config.server;
    assert_eq!(
        server.bind_address.0,
        [crate::BindAddress::parse("0.0.0.0:8080").unwrap()]
    );
    assert_eq!(
        config.admin.bind_address,
        crate::BindAddress::parse("127.0.0.1:9090").unwrap()
    );
    assert_eq!(config.telemetry.metrics_bind_address, None);
    assert_eq!((server.body_limit, server.max_in_flight), (32 << 20, 8192));
    assert_eq!((server.body_budget, server.bodies()), (None, 256 << 20));
    assert_eq!(server.graceful_period, Duration::from_secs(30));
    let timeouts = &server.timeouts;
    assert_eq!(
        (timeouts.header, timeouts.first_token),
        (Duration::from_secs(60), Duration::from_secs(600))
    );
    assert_eq!(
        (timeouts.idle, timeouts.request),
        (Duration::from_secs(300), None)
    );
    let backend = &config.backends[0];
    assert_eq!(
        (backend.connect_timeout, backend.retries),
        (Duration::from_secs(2), 2)
    );
    assert_eq!(backend.pool.idle_timeout, Duration::from_secs(4));
    let health = &backend.health;
    assert_eq!(
        (health.path.as_str(), health.interval, health.timeout),
        ("/health", Duration::from_secs(5), Duration::from_secs(3))
    );
    assert_eq!((health.down_after, health.up_after), (3, 1));
    assert_eq!(
        *backend,
        Backend::new("a", BackendUrl::parse("http://a").unwrap())
    );
    let dynamo = &config.dynamo;
    assert!(!dynamo.enabled);
    assert_eq!(dynamo.discovery.namespaces(), ["dynamo"]);
    assert_eq!(dynamo.load.max_staleness, Duration::from_secs(3));
    assert_eq!(dynamo.load.max_subscriptions, 4096);
    assert_eq!(dynamo.event_bus.listen.to_string(), "0.0.0.0:7443");
    assert_eq!(dynamo.kv.limits.event_bytes_budget, 256 << 20);
}

use crate::model::Backend;

#[test]
fn disaggregation_is_on_when_a_pool_is_configured() {
    let shim = "backends: [{name: a, url: 'http://a'}]\ndynamo: {shim: {backends: [a]}}\n";
    assert!(!Config::default().disaggregated());
    assert!(load(shim).disaggregated());
    assert!(!load(&format!("{shim}disaggregated_serving: {{enabled: false}}")).disaggregated());
    assert_eq!(load(shim).shim_pools(), [("dynamo", &["a".to_owned()][..])]);
}

#[test]
fn a_backends_own_deadlines_stand_above_the_servers() {
    let config = load(
        "server: {timeouts: {idle: 7s, request: 9s}}\nbackends: [{name: a, url: 'http://a', timeouts: {header: 1s}}]",
    );
    let timeouts = config.timeouts_of(&config.backends[0]);
    assert_eq!(
        (timeouts.header, timeouts.idle),
        (Duration::from_secs(1), Duration::from_secs(7))
    );
    assert_eq!(timeouts.request, Some(Duration::from_secs(9)));
}

#[test]
fn what_looks_like_a_reference_is_shown_so_that_it_stays_one() {
    let config = load("dynamo: {state_dir: '/x/$${HOME}'}");
    assert!(
        show(&config).contains("state_dir: \"/x/$${HOME}\"\n"),
        "{}",
        show(&config)
    );
    assert_eq!(load(&show(&config)), config);
}

#[test]
fn editors_may_leave_their_marks() {
    assert_eq!(
        load("\u{feff}server:\r\n  max_in_flight: 7\r\nlogging: {level: warn}\r\n")
            .server
            .max_in_flight,
        7
    );
    assert!(errors("t: &t {}\nserver:\n  <<: *t\n").contains("merge keys"));
}

#[test]
fn one_address_or_several() {
    assert_eq!(
        load("server: {bind_address: 'unix:/a'}")
            .server
            .bind_address
            .0
            .len(),
        1
    );
    assert_eq!(
        load("server: {bind_address: ['127.0.0.1:1', '[::1]:2', 'unix:/a']}")
            .server
            .bind_address
            .0
            .len(),
        3
    );
    assert!(errors("server: {bind_address: []}").contains("at least 1 entry"));
    let nine: Vec<String> = (1..=9).map(|port| format!("'127.0.0.1:{port}'")).collect();
    assert!(
        errors(&format!("server: {{bind_address: [{}]}}", nine.join(", ")))
            .contains("at most 8 entries, found 9")
    );
    assert!(
        errors("server: {bind_address: ['nowhere']}")
            .contains("server.bind_address[0]: listen on an IP address")
    );
}

#[test]
fn showing_masks_secrets_and_keeps_everything_else() {
    let text = "admin: {token: correct-horse-battery}\nbackends: [{name: a, url: 'http://a', api_key: sk-1}]\n\
                dynamo: {discovery: {etcd: {auth: {username: u, password: pw}, tls: {client_cert: /c, client_key: /k}}}}";
    let config = load(text);
    let shown = show(&config);
    for secret in ["correct-horse-battery", "sk-1", "pw", "/k\n"] {
        assert!(!shown.contains(secret), "{secret} in\n{shown}");
    }
    assert_eq!(shown.matches(MASK).count(), 4);
    assert!(shown.contains("client_cert: /c\n"));
    let debug = format!("{config:?}");
    assert!(
        !debug.contains("correct-horse") && !debug.contains("sk-1"),
        "{debug}"
    );
    let again = load(&shown);
    assert_eq!(again.server, config.server);
    assert_eq!(again.admin.token, Some(Secret::new(MASK)));
}

#[test]
fn the_number_of_errors_that_are_told_is_bounded() {
    let many: String = (0..500).map(|n| format!("wrong_{n}: 1\n")).collect();
    let error = parse(&many, &|_| None, Build::FULL).unwrap_err();
    assert_eq!((error.problems.len(), error.more, error.count()), (100, 400, 500));
    assert!(error.to_string().ends_with("\nand 400 more"));
}

#[test]
fn hostile_sizes_are_refused_in_no_time() {
    #[expect(clippy::disallowed_methods, reason = "this test is about time")]
    let now = std::time::Instant::now;
    let start = now();
    assert!(errors(&"x".repeat(MAX_TEXT_BYTES + 1)).contains("larger than"));
    for text in [
        "[".repeat(MAX_TEXT_BYTES),
        "{a: ".repeat(MAX_TEXT_BYTES / 4),
        "- ".repeat(MAX_TEXT_BYTES / 2),
        "? ".repeat(MAX_TEXT_BYTES / 2),
        "backends:\n".to_owned() + &"- a\n".repeat(100_000),
        (0..10_000).map(|n| format!("k{n}: 1\n")).collect(),
        format!(
            "backends:\n{}\ndynamo: {{shim: {{backends: [{}]}}}}\n{}",
            (0..10_000)
                .map(|n| format!("- {{name: a{n}, url: 'http://a'}}\n"))
                .collect::<String>(),
            (0..10_000).map(|n| format!("b{n},")).collect::<String>(),
            (0..5_000).map(|n| format!("k{n}: 1\n")).collect::<String>(),
        ),
        "a: &a [*a, *a]".to_owned(),
        "\"".to_owned() + &"\\".repeat(100_000),
        "!".repeat(100_000),
        "&".repeat(100_000),
        "a: |\n".to_owned() + &" x\n".repeat(100_000),
    ] {
        let _ = parse(&text, &|_| None, Build::FULL);
        assert!(start.elapsed() < Duration::from_secs(60), "{}", &text[..20]);
    }
}

/// Pieces of configurations, to be put together in ways that nobody means.
fn fragments() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "server:",
        "dynamo:",
        "discovery:",
        "etcd:",
        "endpoints:",
        "backends:",
        "- name: a",
        "url: http://a:1",
        "[",
        "]",
        "{",
        "}",
        "shim:",
        "pools:",
        "namespace: x",
        "&a",
        "*a",
        "${X}",
        "${XX}",
        "${",
        "null",
        "~",
        "1",
        "-1",
        "1e9",
        "true",
        "'",
        "\"",
        "|",
        ">",
        "#",
        "?",
        ":",
        ",",
        "---",
        "...",
        "!t",
        "max_staleness: 3s",
        "event_bus:",
        "brokers:",
        "token_hash:",
        "kv:",
        "\u{feff}",
        "bind_address:",
        "timeouts:",
        "model_map:",
        "a: b",
        "\t",
        "é",
        "enabled: true",
        "source: file",
        "path: /x",
    ]);
    let gap = prop::sample::select(vec!["\n", "\n  ", "\n    ", "\n      ", " ", ""]);
    prop::collection::vec((gap, words), 0..40)
        .prop_map(|pieces| pieces.into_iter().flat_map(|(gap, word)| [gap, word]).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn no_bytes_panic(data in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzz(&data);
    }

    #[test]
    fn no_composition_panics(text in fragments()) {
        fuzz(text.as_bytes());
    }

    /// Any one scalar of a full configuration, replaced by anything: an error there or none, never a panic.
    #[test]
    fn no_value_in_any_place_panics(index in 0usize..400, value in prop::sample::select(vec![
        "x", "1", "-1", "1.5", "[]", "{}", "[1]", "{a: 1}", "null", "true", "''", "5s", "1GiB", "http://u:p@h", "99999999999999999999999",
        "${UNSET}", "${SIXSIX}", "\"\\u0000\"", "\"\\n\"",
    ])) {
        let full = show(&load(FULL));
        let lines: Vec<&str> = full.lines().collect();
        let index = index % lines.len();
        let changed: Vec<String> = lines.iter().enumerate().map(|(nth, line)| match line.rsplit_once(": ") {
            Some((key, _)) if nth == index => format!("{key}: {value}"),
            _ => (*line).to_owned(),
        }).collect();
        fuzz(changed.join("\n").as_bytes());
    }
}

/// Every section is there.
const FULL: &str = "
server: {tls: {cert: /c, key: /k}}
backends: [{name: a, url: 'https://a', models: [m], tls: {}}, {name: b, url: 'unix:/b'}]
dynamo:
  enabled: true
  discovery:
    etcd: {endpoints: ['a:1'], namespaces: [x, y], auth: {username: u, password: p}, tls: {}}
    kubernetes: {models: [{component: c, model: m}]}
  load: {direct_allow_cidrs: ['10.0.0.0/8'], zmq_broker: {xpub_endpoints: ['tcp://b:1']}}
  shim: {pools: [{namespace: x, backends: [a]}, {namespace: y, backends: [b]}], model_map: {a: b}}
  event_bus: {enabled: true, tls: {cert: /c, key: /k, client_ca: /ca}, brokers: [{id: b, namespaces: [x]}]}
";

#[test]
fn what_is_shown_can_be_read() {
    let config = load(FULL);
    let mut again = load(&show(&config));
    again.server.tls.clone_from(&config.server.tls);
    again
        .dynamo
        .discovery
        .etcd
        .auth
        .clone_from(&config.dynamo.discovery.etcd.auth);
    again
        .dynamo
        .event_bus
        .tls
        .clone_from(&config.dynamo.event_bus.tls);
    assert!(plan(&config, &again).is_nothing());
}

fn judged(text: &str) -> Result<Vec<String>, String> {
    check_unexpanded(text, Build::FULL)
        .map(|judged| judged.opaque)
        .map_err(|error| error.to_string())
}

#[test]
fn a_document_is_judged_without_its_environment() {
    let opaque = judged(
        "server: {max_in_flight: '${MAX}', bind_address: '${BIND}'}\n\
         admin: {bind_address: '0.0.0.0:9090', token: '${TOKEN}'}\n\
         backends: [{name: a, url: 'http://${HOST}:1', api_key: '${KEY:-x}', enabled: '${ON}'}, {name: b, url: 'http://b'}]\n\
         dynamo:\n  enabled: true\n  discovery: {source: etcd, etcd: {endpoints: ['${ETCD}', 'http://b:1'], namespace: dynamo, \n\
         \x20   auth: {username: '${U}', password: '${P}'}, watch_reconnect_backoff: {initial: '${I}', max: 20ms}}}\n\
         \x20 shim: {backends: [a, b]}\n  picker: {ties: '${TIES}'}\n  state_dir: '/x/$${literal}'\n",
    )
    .unwrap();
    assert_eq!(opaque.len(), 11, "{opaque:?}");
    assert!(
        opaque
            .iter()
            .any(|path| path == "dynamo.discovery.etcd.endpoints[0]"),
        "{opaque:?}"
    );
}

#[test]
fn what_does_not_hang_on_a_reference_is_judged() {
    for (text, part) in [
        (
            "server: {nonsense: 1, threads: '${N}'}",
            "unknown key \"nonsense\"",
        ),
        ("server: {threads: '${N'}", "has no \"}\""),
        ("server: {threads: '${1}'}", "write ${NAME}"),
        ("server: '${S}'", "expected a mapping"),
        ("backends: '${S}'", "expected a list"),
        ("server: {body_limit: 1, threads: '${N}'}", "must be from 1KiB"),
        (
            "dynamo: {enabled: true, discovery: {source: etcd, etcd: {auth: {username: u, password: '${P}'}}}}",
            "name at least one etcd endpoint",
        ),
        (
            "backends: [{name: a, url: '${U}'}]\ndynamo: {shim: {backends: [b]}}",
            "there is no backend named \"b\"",
        ),
        (
            "admin: {bind_address: '0.0.0.0:1'}\nlogging: {level: '${L}'}",
            "token",
        ),
    ] {
        let error = judged(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn secrets_that_are_written_out_are_told_from_references_and_paths() {
    let text = "backends: [{name: a, url: 'https://a', api_key: sk-1}, {name: b, url: 'https://b', api_key: '${B}'}, \
                {name: c, url: 'https://c', api_key: '$${C}'}]\n\
                admin: {token: '${T}'}\n\
                dynamo: {enabled: true, discovery: {source: etcd, etcd: {endpoints: ['https://a:1'], \
                auth: {username: u, password: p}, tls: {client_cert: /c, client_key: /k}}}}";
    let judged = check_unexpanded(text, Build::FULL).unwrap();
    assert_eq!(
        judged.plain_secrets,
        [
            "backends[0].api_key",
            "backends[2].api_key",
            "dynamo.discovery.etcd.auth.password"
        ]
    );
}

#[test]
fn what_a_secret_travels_over_is_judged_without_the_secret() {
    let warned = |text: &str, path: &str| {
        let judged = check_unexpanded(text, Build::FULL).unwrap();
        judged.warnings.iter().any(|warning| warning.path == path)
    };
    let key = "backends[0].api_key";
    let backend = |url: &str| format!("backends: [{{name: a, url: '{url}', api_key: '${{K}}'}}]");
    assert!(warned(&backend("http://a"), key));
    for quiet in ["https://a", "http://127.0.0.1:1", "${U}", "http://${H}"] {
        assert!(!warned(&backend(quiet), key), "{quiet}");
    }
    let auth = "dynamo.discovery.etcd.auth";
    let etcd = |endpoint: &str| {
        format!(
            "dynamo: {{enabled: true, discovery: {{source: etcd, etcd: {{endpoints: ['{endpoint}'], auth: {{username: u, password: '${{P}}'}}}}}}}}"
        )
    };
    assert!(warned(&etcd("http://a:1"), auth));
    for quiet in ["https://a:1", "${E}"] {
        assert!(!warned(&etcd(quiet), auth), "{quiet}");
    }
}

#[test]
fn rules_keep_quiet_about_what_hangs_on_a_reference() {
    for text in [
        "backends: [{name: '${A}', url: 'http://a'}]\ndynamo: {shim: {backends: [b]}}",
        "backends: [{name: '${A}', url: 'http://a'}, {name: backend, url: 'http://b'}]",
        "dynamo: {enabled: true, discovery: {source: '${S}'}}",
        "dynamo: {enabled: '${E}', discovery: {source: file}}",
        "dynamo: {enabled: true, discovery: {source: etcd, etcd: {endpoints: ['a:1'], namespaces: ['${A}', b]}}, shim: {pools: [{namespace: a, backends: [x]}]}}\nbackends: [{name: x, url: 'http://x'}]",
        "dynamo: {enabled: true, discovery: {source: etcd, etcd: {endpoints: ['https://a:1'], tls: {client_cert: '${C}', client_key: /k}}}}",
        "dynamo: {enabled: true, discovery: {source: kubernetes_pods, kubernetes: {model: '${M}'}}}",
        "dynamo: {event_bus: {enabled: '${E}'}}",
    ] {
        judged(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
}

proptest::proptest! {
    /// Whatever one environment makes valid is not refused without it.
    #[test]
    fn judging_is_never_stricter_than_reading(picks in proptest::collection::vec(proptest::bool::ANY, 14)) {
        let names = ["8", "60s", "true", "etcd", "exact", "a:1", "ns", "direct", "10.0.0.0/8", "64KiB", "b", "http://b", "ns", "info"];
        let fill = |index: usize| {
            let value = names[index];
            if picks[index] { format!("\"${{V{index}}}\"") } else { value.to_owned() }
        };
        let text = format!(
            "server: {{threads: {}, timeouts: {{header: {}}}, body_limit: {}}}\nlogging: {{level: {}}}\n\
             backends: [{{name: {}, url: {}}}]\ndynamo:\n  enabled: {}\n  discovery: {{source: {}, namespace_match: {}, etcd: {{endpoints: [{}], namespaces: [{}]}}}}\n\
             \x20 load: {{transport: {}, direct_allow_cidrs: [{}]}}\n  shim: {{pools: [{{namespace: {}, backends: [b]}}]}}\n",
            fill(0), fill(1), fill(9), fill(13), fill(10), fill(11), fill(2), fill(3), fill(4), fill(5), fill(6), fill(7),
            fill(8), fill(12),
        );
        let environment = |name: &str| name.strip_prefix('V').and_then(|i| i.parse::<usize>().ok()).map(|i| names[i].to_owned());
        proptest::prop_assert!(parse(&text, &environment, Build::FULL).is_ok(), "{}", text);
        let judged = check_unexpanded(&text, Build::FULL);
        proptest::prop_assert!(judged.is_ok(), "{}\n{:?}", text, judged);
    }
}

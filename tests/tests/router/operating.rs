//! What operators see and do.

use std::{collections::BTreeMap, fs, path::Path};

use continuum_router::metrics::catalogue::{Values, catalogue};
use http::{Request, StatusCode};
use prometheus::proto::MetricType;
use serde_json::Value;

use crate::support::{MODEL, Router, ask, chat, config, fleet, post, until};

/// Replaces a file as editors and deployment tools do.
fn replace(file: &Path, text: &str) {
    let fresh = file.with_extension("new");
    fs::write(&fresh, text).unwrap();
    fs::rename(fresh, file).unwrap();
}

#[tokio::test]
async fn the_fleet_is_shown_without_an_address() {
    let (sim, store) = fleet(1).await;
    let more = "backends:\n  - {name: other, url: 'http://127.0.0.1:9', models: [own], api_key: a-key-to-hide, health: {enabled: false}}\n";
    let router = Router::before(&sim, &store, more).await;
    ask(router.clients(), post(), chat(MODEL, true).to_string()).await;
    let shown = router.admin("/admin/dynamo/workers").await;
    assert_eq!(shown["enabled"], true);
    assert_eq!(shown["connected"], true);
    assert_eq!(shown["source"], "file");
    assert_eq!(
        shown["signals"],
        serde_json::json!({"load": true, "capacity": true})
    );
    assert_eq!(shown["namespaces"], serde_json::json!(["dynamo"]));
    assert_eq!(shown["load_publishers"], 4);
    assert_eq!(shown["degraded"], Value::Array(Vec::new()));
    let none = serde_json::json!({"records": 0, "cards": 0, "ranks": 0, "subscriptions": 0});
    assert_eq!(shown["caps"], none);
    let workers = shown["workers"].as_array().unwrap();
    assert_eq!(workers.len(), 4);
    for (shown, worker) in workers.iter().zip(sim.fleet().workers()) {
        assert_eq!(shown["worker_id"], worker.instance.to_string());
        assert_eq!(shown["instance_id"], format!("{:x}", worker.instance));
        assert_eq!(shown["role"], worker.role.as_str());
        assert_eq!(shown["model"], MODEL);
        assert_eq!(shown["suspect"], false);
        assert_eq!(shown["ranks"].as_array().unwrap().len(), 1);
        assert!(shown["first_seen"].as_str().unwrap().ends_with("+00:00"));
    }
    for row in shown["subscriptions"].as_array().unwrap() {
        assert_eq!(row["family"], "kv_metrics");
        assert_eq!(
            (&row["state"], &row["transport"]),
            (&"connected".into(), &"direct".into())
        );
    }
    let status = router.admin("/admin/status").await;
    assert_eq!(status["config"]["version"], 1);
    assert_eq!(status["pools"][0]["replicas"][0]["listed_models"], 1);
    assert_eq!(status["discovery"]["workers"]["decode"], 2);

    // Ports of publishers are in no text, nor is a secret.
    let ports: Vec<String> = sim
        .fleet()
        .workers()
        .iter()
        .filter_map(|worker| Some(format!(":{}", worker.publisher_port()?)))
        .collect();
    assert_eq!(ports.len(), 4);
    for path in [
        "/admin/dynamo/workers",
        "/admin/dynamo/explain?model=sim/tiny",
        "/admin/status",
        "/admin/config",
        "/metrics",
    ] {
        let text = ask(router.operators(), Request::get(path), "").await.text();
        assert!(
            !text.contains("tcp://") && !text.contains("a-key-to-hide"),
            "{path}: {text}"
        );
        for port in &ports {
            assert!(!text.contains(port), "{path}: {text}");
        }
    }
    assert!(
        router.admin("/admin/config").await["backends"]
            .to_string()
            .contains("********")
    );
    assert!(router.stop().await);
}

#[tokio::test]
async fn a_router_without_a_fleet_shows_an_empty_one() {
    let router =
        Router::start("server: {bind_address: '127.0.0.1:0'}\nadmin: {bind_address: '127.0.0.1:0'}\n").await;
    let shown = router.admin("/admin/dynamo/workers").await;
    assert_eq!(shown["enabled"], false);
    assert_eq!(shown["workers"], Value::Array(Vec::new()));
    assert_eq!(shown["subscriptions"], Value::Array(Vec::new()));
    assert!(router.stop().await);
}

#[tokio::test]
async fn a_dry_run_says_who_would_serve_and_moves_nothing() {
    let (sim, store) = fleet(1).await;
    let router = Router::before(&sim, &store, "").await;
    let named = |model: &str| format!("/admin/dynamo/explain?model={model}&prompt_tokens=100");
    let shown = router.admin(&named("mapped")).await;
    assert_eq!(
        (&shown["model"], &shown["looked_up"]),
        (&"mapped".into(), &MODEL.into())
    );
    assert_eq!(shown["outcome"], "chosen");
    assert_eq!(shown["prompt_tokens"], 100);
    let candidates = shown["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 4);
    let chosen = candidates
        .iter()
        .filter(|row| row["standing"] == "chosen")
        .count();
    assert_eq!(chosen, 2);
    assert_eq!(router.admin(&named("nobody")).await["outcome"], "no_model");
    let posted = ask(
        router.operators(),
        Request::post("/admin/dynamo/explain"),
        chat(MODEL, false).to_string(),
    )
    .await;
    assert_eq!(posted.json()["outcome"], "chosen");
    let wrong = ask(router.operators(), Request::get("/admin/dynamo/explain"), "").await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    let wrong = ask(router.operators(), Request::post("/admin/dynamo/explain"), "{").await;
    assert_eq!(wrong.code(), "invalid_body");
    assert_eq!(router.metric("continuum_dynamo_selection_total", &[]), 0.0);
    assert_eq!(router.metric("continuum_dynamo_inflight_booked", &[]), 0.0);
    assert!(router.stop().await);
}

#[tokio::test]
async fn the_token_opens_the_operators_side_and_nothing_else_does() {
    let router = Router::start(
        "server: {bind_address: '127.0.0.1:0'}\n\
         admin: {bind_address: '127.0.0.1:0', token: token-of-the-operator}\n\
         telemetry: {metrics_bind_address: '127.0.0.1:0'}\n",
    )
    .await;
    let to = router.operators();
    for path in [
        "/admin/status",
        "/admin/config",
        "/admin/dynamo/workers",
        "/metrics",
    ] {
        let answer = ask(to, Request::get(path), "").await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        assert_eq!(answer.code(), "token_missing");
        let with = |token: &str| Request::get(path).header("authorization", format!("Bearer {token}"));
        assert_eq!(ask(to, with("another"), "").await.code(), "token_wrong");
        assert_eq!(
            ask(to, with("token-of-the-operator"), "").await.status,
            StatusCode::OK
        );
    }
    let reload = ask(to, Request::post("/admin/config/reload"), "").await;
    assert_eq!(reload.status, StatusCode::UNAUTHORIZED);
    let scrapers = router.serving.scrapers.as_deref().unwrap().parse().unwrap();
    for path in ["/metrics", "/health", "/live", "/ready"] {
        assert_eq!(
            ask(scrapers, Request::get(path), "").await.status,
            StatusCode::OK,
            "{path}"
        );
    }
    for path in ["/admin/status", "/admin/config"] {
        let answer = ask(scrapers, Request::get(path), "").await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
    }
    // A new token holds at once.
    let text = fs::read_to_string(&router.file).unwrap();
    replace(&router.file, &text.replace("of-the-operator", "of-another-one"));
    until("the new token is in force", || {
        router.serving.app.live().version == 2
    })
    .await;
    let with = Request::get("/admin/status").header("authorization", "Bearer token-of-the-operator");
    assert_eq!(ask(to, with, "").await.code(), "token_wrong");
    assert!(router.stop().await);
}

#[tokio::test]
async fn a_changed_file_is_in_force_and_a_broken_one_is_not() {
    let (sim, store) = fleet(1).await;
    let router = Router::before(&sim, &store, "").await;
    let to = router.clients();
    let good = fs::read_to_string(&router.file).unwrap();
    let other = good.replace("mapped:", "renamed:");
    replace(&router.file, &other);
    until("the new name is in force", || {
        router.serving.app.live().version == 2
    })
    .await;
    assert_eq!(
        ask(to, post(), chat("renamed", false).to_string()).await.status,
        200
    );
    assert_eq!(
        ask(to, post(), chat("mapped", false).to_string()).await.status,
        404
    );

    replace(&router.file, &other.replace("dynamo:", "dynamoo:"));
    let rejected = || router.metric("continuum_config_reloads_total", &[("result", "rejected")]);
    until("the broken file is rejected", || rejected() > 0.0).await;
    assert_eq!(router.metric("continuum_config_valid", &[]), 0.0);
    let status = router.admin("/admin/status").await;
    assert_eq!(status["config"]["valid"], false);
    assert_eq!(status["config"]["last_reload"]["result"], "rejected");
    assert!(
        status["config"]["last_reload"]["problems"]
            .to_string()
            .contains("dynamoo")
    );
    assert_eq!(
        ask(to, post(), chat("renamed", false).to_string()).await.status,
        200
    );
    let asked = ask(router.operators(), Request::post("/admin/config/reload"), "").await;
    assert_eq!(asked.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(asked.text().contains("dynamoo"), "{}", asked.text());

    // Back at what is in force, by request; then a field that only a new process takes.
    replace(&router.file, &other);
    let asked = ask(router.operators(), Request::post("/admin/config/reload"), "").await;
    assert_eq!(
        (asked.status, asked.json()["result"].as_str()),
        (StatusCode::OK, Some("unchanged"))
    );
    assert_eq!(router.metric("continuum_config_valid", &[]), 1.0);
    replace(&router.file, &other.replace("server: {", "server: {threads: 3, "));
    let asked = ask(router.operators(), Request::post("/admin/config/reload"), "")
        .await
        .json();
    assert_eq!(asked["restart_needed"], serde_json::json!(["server.threads"]));
    let status = router.admin("/admin/status").await;
    assert_eq!(
        status["config"]["restart_needed"],
        serde_json::json!(["server.threads"])
    );
    assert!(router.stop().await);
}

/// Deployment tools write files one after the other, and the configuration may come first.
#[tokio::test]
async fn a_file_that_comes_after_the_configuration_that_names_it_is_taken() {
    let (sim, store) = fleet(1).await;
    let router = Router::before(&sim, &store, "").await;
    let good = fs::read_to_string(&router.file).unwrap();
    let ca = router.file.with_file_name("ca.pem");
    let secure = format!(
        "{good}  - {{name: secure, url: 'https://127.0.0.1:1', models: [other], health: {{enabled: false}}, \
         tls: {{ca_cert: {}}}}}\n",
        ca.display()
    );
    replace(&router.file, &secure);
    let counted = |result| router.metric("continuum_config_reloads_total", &[("result", result)]);
    let problem = || {
        router
            .serving
            .reloader
            .last()
            .map(|last| last.problems.join("\n"))
    };
    until("it is rejected", || counted("rejected") == 1.0).await;
    assert!(problem().unwrap().contains("ca.pem"), "{:?}", problem());
    // Another reason is told; the same one is not told again.
    fs::write(&ca, "").unwrap();
    until("the reason is the new one", || {
        problem().is_some_and(|problem| problem.contains("holds no certificate"))
    })
    .await;
    let rejected = counted("rejected");
    let made = rcgen::generate_simple_self_signed(vec!["frontend.test".to_owned()]).unwrap();
    fs::write(&ca, made.cert.pem()).unwrap();
    until("it is in force", || router.serving.app.live().version == 2).await;
    assert_eq!((counted("applied"), counted("rejected")), (1.0, rejected));
    assert_eq!(router.metric("continuum_config_valid", &[]), 1.0);
    let status = router.admin("/admin/status").await;
    assert_eq!(status["config"]["last_reload"]["result"], "applied");
    assert!(router.stop().await);
}

/// What stands in the file's place for a moment, or by mistake, is no configuration: it empties nothing, and holds up
/// nobody.
#[tokio::test]
async fn nothing_but_a_file_with_text_is_taken_over() {
    let (sim, store) = fleet(1).await;
    let router = Router::before(&sim, &store, "").await;
    let good = fs::read_to_string(&router.file).unwrap();
    let pipe = |path: &Path| {
        assert!(
            std::process::Command::new("mkfifo")
                .arg(path)
                .status()
                .unwrap()
                .success()
        );
    };
    let stand_ins: [&dyn Fn(&Path); 5] = [
        &|path| fs::write(path, "").unwrap(),
        &|path| fs::write(path, "\n  \n").unwrap(),
        &|path| fs::create_dir(path).unwrap(),
        &|path| std::os::unix::fs::symlink("/dev/zero", path).unwrap(),
        &pipe,
    ];
    for stand_in in stand_ins {
        fs::remove_file(&router.file).unwrap();
        stand_in(&router.file);
        let asked = ask(router.operators(), Request::post("/admin/config/reload"), "").await;
        assert_eq!(asked.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", asked.text());
        let answer = ask(router.clients(), post(), chat(MODEL, false).to_string()).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        if router.file.is_dir() {
            fs::remove_dir(&router.file).unwrap();
        } else {
            fs::remove_file(&router.file).unwrap();
        }
        fs::write(&router.file, &good).unwrap();
        let asked = ask(router.operators(), Request::post("/admin/config/reload"), "").await;
        assert_eq!(asked.json()["result"], "unchanged");
    }
    assert_eq!(router.serving.app.live().version, 1);
    assert!(router.stop().await);
}

/// Caps are seen while they hold, and a larger one holds without a change of the fleet.
#[tokio::test]
async fn a_cap_is_shown_and_can_be_raised() {
    let (sim, store) = fleet(1).await;
    let capped = config(&store, &[format!("http://{}", sim.frontends()[0])], "")
        .replace("load: {", "load: {max_ranks: 3, max_subscriptions: 1, ");
    let router = Router::start(&capped).await;
    until("all workers are seen", || {
        router.serving.app.fleet.view().workers.len() == 4
    })
    .await;
    let caps = router.admin("/admin/dynamo/workers").await["caps"].clone();
    assert_eq!((&caps["ranks"], &caps["subscriptions"]), (&1.into(), &3.into()));
    // A rank without a key is served all the same.
    let answer = ask(router.clients(), post(), chat(MODEL, false).to_string()).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let text = fs::read_to_string(&router.file).unwrap();
    replace(
        &router.file,
        &text.replace("max_ranks: 3, max_subscriptions: 1, ", ""),
    );
    router.settle(4).await;
    let fleet = &router.serving.app.fleet;
    until("every rank has a key", || fleet.ranks_over_capacity() == 0).await;
    assert!(router.stop().await);
}

/// A mounted ConfigMap changes by a symlink that is swapped.
#[tokio::test]
async fn a_swapped_symlink_is_a_changed_file() {
    let folder = tempfile::tempdir().unwrap();
    let router =
        Router::start("server: {bind_address: '127.0.0.1:0'}\nadmin: {bind_address: '127.0.0.1:0'}\n").await;
    let text = fs::read_to_string(&router.file).unwrap();
    let mount = router.file.parent().unwrap();
    for (n, limit) in ["1MiB", "2MiB"].into_iter().enumerate() {
        let data = folder.path().join(n.to_string());
        fs::create_dir(&data).unwrap();
        let changed = text.replace("server: {", &format!("server: {{body_limit: {limit}, "));
        fs::write(data.join("router.yaml"), changed).unwrap();
        let swap = mount.join("..data_tmp");
        std::os::unix::fs::symlink(&data, &swap).unwrap();
        fs::rename(swap, mount.join("..data")).unwrap();
        if n == 0 {
            let link = mount.join("link");
            std::os::unix::fs::symlink("..data/router.yaml", &link).unwrap();
            fs::rename(link, &router.file).unwrap();
        }
        let wanted = (n + 1) << 20;
        until("the limit is in force", || {
            router.serving.app.live().body_limit == wanted
        })
        .await;
    }
    assert!(router.stop().await);
}

/// The reference tells the truth: every family that a router has, and nothing else, with its help, type and labels.
#[tokio::test]
async fn the_catalogue_of_metrics_is_what_is_scraped() {
    let (sim, store) = fleet(1).await;
    let router = Router::before(&sim, &store, "").await;
    // Enough of it that every family has a series.
    for stream in [false, true] {
        ask(router.clients(), post(), chat(MODEL, stream).to_string()).await;
        ask(
            router.clients(),
            post(),
            chat("text of a client", stream).to_string(),
        )
        .await;
    }
    let gather = || router.serving.app.registry.gather();
    let known: BTreeMap<&str, _> = catalogue()
        .into_iter()
        .map(|family| (family.name, family))
        .collect();
    // What no simulated worker says has no series.
    let silent = [
        "continuum_dynamo_load_active_prefill_tokens",
        "continuum_dynamo_load_active_decode_blocks",
    ];
    for name in known.keys().filter(|name| !silent.contains(name)) {
        until(name, || gather().iter().any(|family| family.name() == *name)).await;
    }
    for found in gather() {
        let family = known
            .get(found.name())
            .unwrap_or_else(|| panic!("{} is in no reference", found.name()));
        assert_eq!(found.help(), family.help, "{}", family.name);
        let kind = match found.get_field_type() {
            MetricType::COUNTER => "counter",
            MetricType::GAUGE => "gauge",
            MetricType::HISTOGRAM => "histogram",
            other @ (MetricType::SUMMARY | MetricType::UNTYPED) => panic!("{other:?}"),
        };
        assert_eq!(kind, family.kind.as_str(), "{}", family.name);
        for series in found.get_metric() {
            let labels: Vec<&str> = series.get_label().iter().map(|pair| pair.name()).collect();
            let expected: Vec<&str> = family.labels.iter().map(|(name, _)| *name).collect();
            assert_eq!(labels, expected, "{}", family.name);
            for (pair, (_, values)) in series.get_label().iter().zip(&family.labels) {
                let value = pair.value();
                let fits = match values {
                    Values::Closed(values) => values.contains(&value),
                    Values::Configured(_) => ["dynamo", "shim-0"].contains(&value),
                    Values::Fleet(_) => value.chars().all(|digit| digit.is_ascii_hexdigit()),
                };
                assert!(fits, "{} {}={value}", family.name, pair.name());
            }
        }
    }
    assert!(router.stop().await);
}

#[test]
fn the_reference_of_metrics_is_current() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference");
    for (name, page) in [
        ("metrics.md", continuum_tests::metrics::page()),
        (
            "controller-metrics.md",
            continuum_tests::metrics::controller_page().unwrap(),
        ),
    ] {
        assert_eq!(
            fs::read_to_string(pages.join(name)).unwrap(),
            page,
            "run `make generate`"
        );
    }
}

/// Whoever watches the drain is answered to its end.
#[tokio::test]
async fn operators_are_answered_while_the_router_drains() {
    let (sim, store) = fleet(1).await;
    let router = Router::start(&config(&store, &[format!("http://{}", sim.frontends()[0])], "")).await;
    router.settle(4).await;
    router.serving.app.drain();
    let ready = ask(router.operators(), Request::get("/ready"), "").await;
    assert_eq!(ready.status, StatusCode::SERVICE_UNAVAILABLE);
    let status = router.admin("/admin/status").await;
    assert_eq!(
        (&status["draining"], &status["not_ready"]),
        (&true.into(), &"draining".into())
    );
    assert!(router.stop().await);
}

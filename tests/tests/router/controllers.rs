//! A router and real controllers: what is pushed, what is reported, and what happens while nobody is there.

use std::{
    net::SocketAddr,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use continuum_fleet::view::{FleetView, Role};
use continuum_fleet_sim::Sim;
use continuum_messages::push;
use continuum_push::{Client, Report};
use continuum_router::cli::{ArtifactsCommand, FleetArgs, artifacts};
use continuum_runtime::tasks::Tasks;
use http::StatusCode;
use prometheus::Registry;
use tempfile::TempDir;
use tokio::sync::watch;

use self::ground::{
    Controller, Ground, LOGGING, NAMESPACE, Traffic, begins_with, document, is_kept_for, key, seen,
};
use crate::support::{MODEL, PATIENCE, Router, ask, chat, config, fleet, post, until};

mod ground;

/// The same fleet through another source: what a controller would have found, and the router that has.
async fn found(sim: &Sim, store: &TempDir) -> (Router, FleetView) {
    let local = Router::before(sim, store, "").await;
    let view = FleetView::clone(&local.serving.app.fleet.view());
    (local, view)
}

#[tokio::test]
async fn the_files_of_a_pushed_fleet_are_listed_beside_the_router_that_it_is_pushed_to() {
    let (sim, store) = fleet(1).await;
    let frontend = format!("http://{}", sim.frontends()[0]);
    let (_local, view) = found(&sim, &store).await;
    let ground = Ground::new();
    let text = document(&ground, &frontend, 1, "");
    let controller = Controller::start(&ground, [127, 0, 0, 1], 1, (1, &text), &view).await;
    let router = Router::start(text.strip_prefix(LOGGING).unwrap()).await;
    router.settle(4).await;
    until("the view is acknowledged", || controller.acknowledged()).await;
    let traffic = Traffic::start(router.clients());
    traffic.goes_on().await;
    // As `kubectl exec` does in the router's pod: the same configuration, token and pod.
    let file = ground.file("router.yaml");
    std::fs::write(&file, &text).unwrap();
    let listed = tokio::task::spawn_blocking(move || {
        let fleet = FleetArgs {
            config: file,
            wait: 30,
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = artifacts::run(&ArtifactsCommand::List { fleet }, &|_| None, &mut out, &mut err);
        (
            code.map_err(|error| error.to_string()),
            String::from_utf8(out).unwrap(),
        )
    });
    let (code, shown) = listed.await.unwrap();
    assert_eq!(code, Ok(ExitCode::SUCCESS));
    // The simulated cards have no files, and it says so of each worker.
    assert!(shown.starts_with("MODEL"), "{shown}");
    assert!(shown.contains("4 of 4 workers"), "{shown}");
    traffic.goes_on().await;
    until("the router's own session is back", || controller.acknowledged()).await;
    traffic.goes_on().await;
    traffic.stop().await;
    controller.stop().await;
}

#[tokio::test]
async fn requests_go_on_while_controllers_come_and_go() {
    let (sim, store) = fleet(1).await;
    let frontend = format!("http://{}", sim.frontends()[0]);
    let (local, view) = found(&sim, &store).await;
    let ground = Ground::new();
    let first = document(&ground, &frontend, 1, "body_limit: 64KiB");
    let controller = Controller::start(&ground, [127, 0, 0, 1], 1, (1, &first), &view).await;
    let router = Router::start(first.strip_prefix(LOGGING).unwrap()).await;
    router.settle(4).await;
    let pushed = router.serving.app.fleet.view();
    assert!(pushed.workers.keys().eq(view.workers.keys()) && pushed.publishers == view.publishers);
    until("the view is acknowledged", || controller.acknowledged()).await;
    let report = controller.report().unwrap();
    assert!(
        report.ready && !report.stale && report.refused.is_none(),
        "{report:?}"
    );
    until("pools and subscriptions are reported", || {
        controller.report().is_some_and(|report| {
            report
                .pools
                .iter()
                .any(|pool| pool.namespace == "dynamo" && pool.healthy == 1)
                && report
                    .subscriptions
                    .is_some_and(|of| of.wanted == 4 && of.connected == 4)
        })
    })
    .await;
    let status = router.admin("/admin/status").await;
    assert_eq!(status["discovery"]["source"], "controller");
    assert_eq!(status["discovery"]["upstream"], "kubernetes");
    assert_eq!(status["controllers"]["followed"], "controller-1");
    assert_eq!(status["controllers"]["view"]["in_force"], true);
    let generation = router.serving.app.fleet.generation();

    // Nobody is there: everything goes on, and says so.
    let traffic = Traffic::start(router.clients());
    traffic.goes_on().await;
    controller.stop().await;
    until("the loss is noticed", || {
        router.metric("continuum_controller_followed", &[]) == 0.0
    })
    .await;
    traffic.goes_on().await;
    let status = router.admin("/admin/status").await;
    assert_eq!(
        (&status["ready"], &status["discovery"]["connected"]),
        (&true.into(), &false.into())
    );
    assert_eq!(status["controllers"]["followed"], serde_json::Value::Null);
    assert!(status["controllers"]["unreachable_since"].is_string(), "{status}");

    // Another life of a controller, with the same content: nothing changes, nothing is sent again.
    let controller = Controller::start(&ground, [127, 0, 0, 1], 2, (1, &first), &view).await;
    until("the view is acknowledged again", || controller.acknowledged()).await;
    assert_eq!(router.serving.app.fleet.generation(), generation);
    assert_eq!(
        router.metric("continuum_controller_updates_total", &[("kind", "full")]),
        1.0
    );
    assert!(router.metric("continuum_controller_updates_total", &[("kind", "resumed")]) >= 1.0);

    // A worker leaves and comes back: a difference each.
    let mut fewer = view.clone();
    let gone = fewer.workers.keys().next().unwrap().clone();
    fewer.workers.remove(&gone);
    for next in [&fewer, &view] {
        controller.view(next);
        until("the change is acknowledged", || controller.acknowledged()).await;
        assert_eq!(router.serving.app.fleet.view().workers.len(), next.workers.len());
    }
    assert_eq!(
        router.metric("continuum_controller_updates_total", &[("kind", "delta")]),
        2.0
    );

    // Configurations through the stream.
    let second = document(&ground, &frontend, 2, "body_limit: 128KiB, threads: 3");
    controller.hub.set_config(&key(), "", 2, &second);
    until("the second configuration is in force", || {
        controller.session().and_then(|session| session.config) == controller.hub.config(&key())
    })
    .await;
    assert_eq!(router.serving.app.live().body_limit, 128 << 10);
    until("what needs a new process is named", || {
        controller
            .report()
            .is_some_and(|report| report.pending == ["server.threads"])
    })
    .await;
    controller
        .hub
        .set_config(&key(), "", 3, &second.replace("128KiB", "a lot"));
    until("the third is refused", || {
        controller.report().is_some_and(|report| {
            report
                .refused
                .as_ref()
                .is_some_and(|refused| refused.error.contains("server.body_limit"))
                && report
                    .config
                    .as_ref()
                    .is_some_and(|config| config.generation == 2)
        })
    })
    .await;
    assert_eq!(router.serving.app.live().body_limit, 128 << 10);
    // The file is older than what is in force.
    std::fs::write(&router.file, &first).unwrap();
    assert_eq!(
        router.serving.reloader.reload().outcome.as_str(),
        "rejected",
        "the third is still the newest"
    );
    controller.hub.set_config(
        &key(),
        "",
        4,
        &document(&ground, &frontend, 4, "body_limit: 96KiB"),
    );
    until("the fourth is in force", || {
        router.serving.app.live().body_limit == 96 << 10
    })
    .await;
    assert_eq!(router.serving.reloader.reload().outcome.as_str(), "unchanged");
    traffic.goes_on().await;
    traffic.stop().await;

    // A new process while nobody is there: the file, and the last view.
    // It is written now and then.
    let begun = Instant::now();
    while begins_with(&ground, NAMESPACE).await != 4 {
        assert!(begun.elapsed() < PATIENCE, "the view is not kept");
    }
    controller.stop().await;
    let again = Router::start(first.strip_prefix(LOGGING).unwrap()).await;
    again.settle(4).await;
    let status = again.admin("/admin/status").await;
    assert_eq!(status["discovery"]["stale"], true, "{status}");
    assert_eq!(status["controllers"]["view"]["kept"], true, "{status}");
    let traffic = Traffic::start(again.clients());
    traffic.goes_on().await;
    traffic.stop().await;
    assert!(router.stop().await && again.stop().await && local.stop().await);
}

/// Nobody tells the router that a worker has died; the frontends know, and say so with the words that they have for a
/// client's mistake.
#[tokio::test]
async fn while_nobody_is_there_a_worker_that_frontends_have_lost_is_avoided() {
    let (mut sim, store) = fleet(1).await;
    let frontend = format!("http://{}", sim.frontends()[0]);
    let (local, view) = found(&sim, &store).await;
    let ground = Ground::new();
    let first = document(&ground, &frontend, 1, "body_limit: 64KiB");
    let controller = Controller::start(&ground, [127, 0, 0, 1], 1, (1, &first), &view).await;
    let router = Router::start(first.strip_prefix(LOGGING).unwrap()).await;
    router.settle(4).await;
    let known = &router.serving.app.fleet;
    let suspects = || -> Vec<_> {
        let now = known.now();
        let view = known.view();
        view.workers
            .keys()
            .filter(|worker| known.store.is_suspect(worker, now))
            .cloned()
            .collect()
    };
    let repicks = |result| {
        let labels = [("cause", "suspect"), ("result", result)];
        router.metric("continuum_dynamo_repicks_total", &labels)
    };
    let mut mistaken = chat(MODEL, false);
    mistaken["max_tokens"] = "many".into();
    let mistaken = mistaken.to_string();
    let refused = || async {
        let answer = ask(router.clients(), post(), mistaken.clone()).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.text());
        assert_eq!(answer.json()["message"], "Invalid request");
    };
    refused().await;
    assert_eq!((repicks("success"), repicks("failure")), (0.0, 0.0));

    controller.stop().await;
    until("the loss is noticed", || !known.is_confirmed()).await;
    // A request that is invalid stays so: another pair is asked, and nobody is suspected.
    refused().await;
    assert_eq!((repicks("success"), repicks("failure")), (0.0, 1.0));
    assert_eq!(suspects(), []);

    let decodes = view.workers.values().filter(|worker| worker.role == Role::Decode);
    let dead = decodes.map(|worker| worker.key.clone()).next().unwrap();
    sim.leave(dead.instance.raw()).unwrap();
    for n in 0..20 {
        let answer = ask(router.clients(), post(), chat(MODEL, n % 2 == 0).to_string()).await;
        assert_eq!(answer.status, StatusCode::OK, "{n}: {}", answer.text());
    }
    assert_eq!(
        (repicks("success"), repicks("failure")),
        (1.0, 1.0),
        "one request has met it, the others have avoided it"
    );
    let avoided = suspects();
    assert!(avoided.contains(&dead), "{avoided:?}");
    refused().await;
    assert_eq!(suspects(), avoided);

    // Somebody is there again, and says who is left.
    let mut fewer = view.clone();
    fewer.workers.remove(&dead);
    let controller = Controller::start(&ground, [127, 0, 0, 1], 2, (1, &first), &fewer).await;
    until("the view is right again", || {
        known.is_confirmed() && known.view().workers.len() == 3
    })
    .await;
    controller.stop().await;
    assert!(router.stop().await && local.stop().await);
}

#[tokio::test]
async fn a_configuration_that_names_another_fleet_ends_the_one_before_at_once() {
    let (sim, store) = fleet(1).await;
    let frontend = format!("http://{}", sim.frontends()[0]);
    let (local, view) = found(&sim, &store).await;
    let mut fewer = view.clone();
    let gone = fewer.workers.keys().next_back().unwrap().clone();
    fewer.workers.remove(&gone);
    let ground = Ground::new();
    let document = |generation: i64, namespace: &str| {
        let text = document(&ground, &frontend, generation, "body_limit: 64KiB");
        text.replace(
            "{source: controller}",
            &format!("{{source: controller, kubernetes: {{namespace: {namespace}}}}}"),
        )
    };
    let first = document(1, NAMESPACE);
    let controller = Controller::start(&ground, [127, 0, 0, 1], 1, (1, &first), &view).await;
    let router = Router::start(first.strip_prefix(LOGGING).unwrap()).await;
    router.settle(4).await;
    until("the view is kept", || is_kept_for(&ground, NAMESPACE)).await;
    assert_eq!(begins_with(&ground, NAMESPACE).await, 4);
    let app = &router.serving.app;

    // Another source, which takes its time to list.
    let hub = &controller.hub;
    let other = hub.add_source();
    hub.set_fleet(&key(), Some(seen(other, "other")));
    hub.set_config(&key(), "", 2, &document(2, "other"));
    until("nobody of the fleet before is routed to", || {
        app.fleet.view().workers.is_empty()
    })
    .await;
    let answer = ask(router.clients(), post(), chat(MODEL, true).to_string()).await;
    assert_eq!(
        answer.status,
        StatusCode::SERVICE_UNAVAILABLE,
        "{}",
        answer.text()
    );
    until("the configuration is acknowledged, and no view", || {
        controller
            .session()
            .is_some_and(|session| session.config == controller.hub.config(&key()) && session.view.is_none())
    })
    .await;
    let status = router.admin("/admin/status").await;
    assert_eq!(status["discovery"]["synced"], false, "{status}");
    // What the source before still finds is nobody's.
    controller.view(&fewer);
    // Longer than from one look at what is to be kept to the next.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert!(app.fleet.view().workers.is_empty() && is_kept_for(&ground, NAMESPACE));
    assert_eq!(begins_with(&ground, "other").await, 0);

    // Its first list.
    let state = push::SourceState {
        kind: "kubernetes".to_owned(),
        connected: true,
        synced: true,
        ..push::SourceState::default()
    };
    hub.set_source_state(other, state);
    hub.set_view(other, &fewer);
    until("the new fleet is seen", || app.fleet.view().workers.len() == 3).await;
    until("the view is acknowledged", || controller.acknowledged()).await;
    until("the view is kept for what it is of", || {
        is_kept_for(&ground, "other")
    })
    .await;
    assert_eq!(begins_with(&ground, "other").await, 3);
    assert_eq!(begins_with(&ground, NAMESPACE).await, 0);

    // And back: the view is there before the configuration, and no request fails.
    let traffic = Traffic::start(router.clients());
    traffic.goes_on().await;
    hub.set_view(controller.source, &view);
    hub.set_fleet(&key(), Some(seen(controller.source, NAMESPACE)));
    until("the view is ahead", || app.fleet.status().stale).await;
    assert_eq!(app.fleet.view().workers.len(), 3);
    traffic.goes_on().await;
    hub.set_config(&key(), "", 3, &document(3, NAMESPACE));
    router.settle(4).await;
    until("the view is acknowledged again", || controller.acknowledged()).await;
    traffic.goes_on().await;
    traffic.stop().await;
    assert!(router.stop().await && local.stop().await);
    controller.stop().await;
}

#[tokio::test]
async fn a_routerconfig_that_was_made_anew_counts_from_one_again() {
    let (sim, store) = fleet(1).await;
    let ground = Ground::new();
    let frontends = [format!("http://{}", sim.frontends()[0])];
    let document = |uid: &str, generation: i64| {
        let section = ground.section(generation);
        let section = section.replace("upstream: kubernetes", &format!("uid: {uid}"));
        format!("{}{section}", config(&store, &frontends, ""))
    };
    let sent = |uid: &str, generation: i64| format!("{LOGGING}{}", document(uid, generation));
    let (ip, nobody) = ([127, 0, 0, 1], FleetView::default());
    let controller = Controller::start(&ground, ip, 1, (1, &sent("second", 1)), &nobody).await;
    controller.hub.set_fleet(&key(), None);
    controller.hub.set_config(&key(), "second", 1, &sent("second", 1));
    // What the one before left in the ConfigMap.
    let router = Router::start(&document("first", 7)).await;
    let taken = || controller.session().and_then(|session| session.config) == controller.hub.config(&key());
    until("the first of the second is in force", taken).await;
    // The file is late, and then gone for good.
    std::fs::write(&router.file, sent("first", 8)).unwrap();
    assert_eq!(router.serving.reloader.reload().outcome.as_str(), "unchanged");
    let in_force = router.serving.reloader.versions().borrow().in_force;
    assert_eq!(in_force, controller.hub.config(&key()));
    controller.hub.set_config(&key(), "second", 2, &sent("second", 2));
    until("the second of the second is in force", taken).await;
    assert!(router.stop().await);
    controller.stop().await;
}

#[tokio::test]
async fn a_configuration_that_was_refused_for_a_missing_file_is_reported_in_force_when_it_comes() {
    let (sim, store) = fleet(1).await;
    let ground = Ground::new();
    let frontends = [format!("http://{}", sim.frontends()[0])];
    let plain = |generation: i64| {
        let section = ground
            .section(generation)
            .replace("upstream: kubernetes", "uid: one");
        format!("{section}{}", config(&store, &frontends, ""))
    };
    let (ip, nobody) = ([127, 0, 0, 1], FleetView::default());
    let controller = Controller::start(&ground, ip, 1, (1, &format!("{LOGGING}{}", plain(1))), &nobody).await;
    controller.hub.set_fleet(&key(), None);
    let router = Router::start(&plain(1)).await;
    let ca = router.file.with_file_name("ca.pem");
    let secure = format!(
        "{LOGGING}{}  - {{name: secure, url: 'https://127.0.0.1:1', models: [other], health: {{enabled: false}}, \
         tls: {{ca_cert: {}}}}}\n",
        plain(2),
        ca.display()
    );
    controller.hub.set_config(&key(), "one", 2, &secure);
    let refused = || controller.report().and_then(|report| report.refused.clone());
    until("it is refused", || refused().is_some()).await;
    assert!(refused().unwrap().error.contains("ca.pem"), "{:?}", refused());
    let made = rcgen::generate_simple_self_signed(vec!["frontend.test".to_owned()]).unwrap();
    std::fs::write(&ca, made.cert.pem()).unwrap();
    until("it is in force", || {
        let in_force = controller.session().and_then(|session| session.config);
        in_force == controller.hub.config(&key()) && refused().is_none()
    })
    .await;
    assert!(router.serving.app.backends.load().backend("secure").is_some());
    assert!(router.stop().await);
    controller.stop().await;
}

#[tokio::test]
async fn a_configuration_is_acknowledged_together_with_its_pools() {
    let (sim, store) = fleet(1).await;
    let frontend = format!("http://{}", sim.frontends()[0]);
    let (local, view) = found(&sim, &store).await;
    let ground = Ground::new();
    let first = document(&ground, &frontend, 1, "body_limit: 64KiB");
    let second = document(&ground, &frontend, 2, "body_limit: 64KiB")
        .replace(
            "backends: [{name: shim,",
            "backends: [{name: other, url: 'http://127.0.0.1:9'}, {name: shim,",
        )
        .replace(
            "{source: controller}",
            "{source: controller, kubernetes: {dynamo_namespaces: [dynamo, other]}}",
        )
        .replace(
            "{backends: [shim]}",
            "{pools: [{namespace: dynamo, backends: [shim]}, {namespace: other, backends: [other]}]}",
        );
    let controller = Controller::start(&ground, [127, 0, 0, 1], 1, (1, &first), &view).await;
    let router = Router::start(first.strip_prefix(LOGGING).unwrap()).await;
    router.settle(4).await;
    let pools = || controller.report().map_or(0, |report| report.pools.len());
    until("the pool is reported", || pools() == 1).await;
    let mut told = controller.hub.sessions().subscribe();
    controller.hub.set_config(&key(), "", 2, &second);
    let acknowledged = async {
        while controller.session().and_then(|session| session.config) != controller.hub.config(&key()) {
            told.changed().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, acknowledged).await.unwrap();
    assert_eq!(pools(), 2, "{:?}", controller.report());
    assert!(router.stop().await && local.stop().await);
    controller.stop().await;
}

#[tokio::test]
async fn a_router_that_reads_its_fleet_itself_reports_what_it_refuses() {
    let (sim, store) = fleet(1).await;
    let ground = Ground::new();
    let local = config(&store, &[format!("http://{}", sim.frontends()[0])], "");
    let text = format!(
        "{local}{}",
        ground.section(1).replace(", upstream: kubernetes", "")
    );
    let controller = Controller::start(
        &ground,
        [127, 0, 0, 1],
        1,
        (1, &format!("{LOGGING}{text}")),
        &FleetView::default(),
    )
    .await;
    controller.hub.set_fleet(&key(), None);
    let router = Router::start(&text).await;
    router.settle(4).await;
    until("the fleet is reported", || {
        controller
            .report()
            .is_some_and(|report| report.local_fleet.as_ref().is_some_and(|fleet| fleet.decode == 2))
    })
    .await;
    assert_eq!(controller.report().unwrap().local_refused, []);
    let bad = store.path().join("v1/instances/dynamo%2Fdecode%2Fgenerate%2F77");
    std::fs::write(&bad, "{").unwrap();
    until("what is refused is reported", || {
        controller.report().is_some_and(|report| {
            let told: Vec<(&str, u64)> = report
                .local_refused
                .iter()
                .map(|refused| (refused.kind.as_str(), refused.count))
                .collect();
            told == [("malformed", 1)]
        })
    })
    .await;
    std::fs::remove_file(&bad).unwrap();
    until("and that it is mended", || {
        controller
            .report()
            .is_some_and(|report| report.local_refused.is_empty())
    })
    .await;
    assert!(router.stop().await);
    controller.stop().await;
}

#[tokio::test]
async fn another_controller_is_followed_within_a_second_and_changes_nothing() {
    let (sim, store) = fleet(1).await;
    let (local, view) = found(&sim, &store).await;
    let ground = Ground::new();
    let hosts = [[127, 0, 0, 1], [127, 0, 0, 2], [127, 0, 0, 3]];
    let mut controllers = Vec::new();
    for (host, epoch) in hosts.into_iter().zip(1..) {
        controllers.push(Controller::start(&ground, host, epoch, (1, "text"), &view).await);
    }
    let tasks = Tasks::new();
    let (_to_settings, settings) = watch::channel(Some(ground.settings()));
    let (to_report, report) = watch::channel(Report::default());
    let registry = Registry::new();
    let port = ground.port;
    let lookup: continuum_push::Lookup = Arc::new(move |_, _| {
        Box::pin(async move { Ok(hosts.map(|host| SocketAddr::from((host, port))).to_vec()) })
    });
    let client = Client::spawn_with(&tasks.spawner(), settings, report, &registry, lookup).unwrap();
    let pushed = client.pushed();
    let first = pushed
        .wait_for(|pushed| pushed.id.is_some() && !pushed.kept)
        .await;
    to_report.send_modify(|report| report.in_flight = 7);
    for controller in &controllers {
        until("every controller is reported to", || {
            controller.report().is_some_and(|report| report.in_flight == 7)
        })
        .await;
    }
    let followed = |controllers: &[Controller]| {
        controllers
            .iter()
            .filter(|controller| controller.session().is_some_and(|session| session.followed))
            .count()
    };
    assert_eq!(followed(&controllers), 1);
    while controllers.len() > 1 {
        let lost = controllers
            .iter()
            .position(|controller| controller.session().is_some_and(|session| session.followed))
            .unwrap();
        let lost = controllers.remove(lost);
        let begun = Instant::now();
        lost.stop.cancel();
        let next = pushed
            .wait_for(|now| now.followed && now.id.map(|id| id.epoch) != first.id.map(|id| id.epoch))
            .await;
        until("another is followed", || followed(&controllers) == 1).await;
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert_eq!(next.number, first.number, "an equal digest is no change");
        lost.serving.await.unwrap();
    }
    tasks.drain(PATIENCE, std::future::pending()).await;
    local.stop().await;
}

#[tokio::test]
async fn a_token_that_is_refused_and_certificates_that_are_not_trusted_are_told() {
    let ground = Ground::new();
    let controller = Controller::start(&ground, [127, 0, 0, 1], 1, (1, "text"), &FleetView::default()).await;
    let trusted = std::fs::read(ground.file("ca.crt")).unwrap();
    std::fs::write(ground.file("token"), "stolen").unwrap();
    let tasks = Tasks::new();
    let (_to_settings, settings) = watch::channel(Some(ground.settings()));
    let (_to_report, report) = watch::channel(Report::default());
    let registry = Registry::new();
    let client = Client::spawn(&tasks.spawner(), settings, report, &registry).unwrap();
    let told = |part: &'static str| {
        let status = client.status();
        async move {
            status
                .wait_for(|status| {
                    status
                        .last_error
                        .as_deref()
                        .is_some_and(|error| error.contains(part))
                })
                .await
        }
    };
    let status = told("the controller refuses this router: the token is not a router's").await;
    assert!(status.unreachable_since.is_some());
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(ground.file("ca.crt"), other.cert.pem()).unwrap();
    told("cannot connect to the controller").await;
    std::fs::write(ground.file("ca.crt"), "nothing").unwrap();
    told("it holds no certificate").await;
    // Both files are read again for each session.
    std::fs::write(ground.file("ca.crt"), trusted).unwrap();
    std::fs::write(ground.file("token"), "a-token").unwrap();
    client
        .status()
        .wait_for(|status| status.unreachable_since.is_none())
        .await;
    assert_eq!(client.status().load().last_error, None);
    assert!(controller.session().is_some());
    tasks.drain(PATIENCE, std::future::pending()).await;
}

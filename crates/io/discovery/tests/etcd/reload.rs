//! What a change of the config does to a running watcher and its view.

use std::{fs, time::Duration};

use continuum_config::{model::DiscoverySource, value::Endpoint};
use continuum_discovery::SourceKind;
use continuum_testkit::etcd::Etcd;

use crate::support::{Registrar, Router, ids, instance};

#[tokio::test]
async fn namespaces_come_and_go_without_a_gap_for_the_others() {
    let mut fleet = Registrar::shared().await;
    let (ns, canary) = (fleet.namespace.clone(), format!("{}canary", fleet.namespace));
    fleet.put(instance(&ns, "decode", 1)).await;
    fleet.put(instance(&canary, "decode", 2)).await;
    let router = Router::start(fleet.config());
    router.ids(&[1]).await;

    let both = vec![ns.clone(), canary.clone()];
    router.reload(|config| config.dynamo.discovery.etcd.namespaces = both);
    let view = router.ids(&[1, 2]).await;
    assert_eq!(
        view.workers
            .values()
            .map(|w| w.graph.as_str())
            .collect::<Vec<_>>(),
        [ns.as_str(), canary.as_str()]
    );
    router.reload(|config| {
        config.dynamo.discovery.etcd.namespaces.clear();
        config.dynamo.discovery.etcd.namespace = canary;
    });
    let mut seen_empty = false;
    router
        .fleet("the canary alone", |view| {
            seen_empty |= view.workers.is_empty();
            ids(view) == [2]
        })
        .await;
    assert!(!seen_empty, "the graph that stays is never dropped");
    router
        .state("in sync", |status| status.connected && status.restarts == 2)
        .await;
    assert_eq!(router.events("restart"), 2);
    router.stop().await;
    fleet.clean().await;
}

#[tokio::test]
async fn sixteen_namespaces_are_watched() {
    let mut fleet = Registrar::shared().await;
    let names: Vec<String> = (0..16).map(|n| format!("{}n{n:02}", fleet.namespace)).collect();
    let mut config = fleet.config();
    config.dynamo.discovery.etcd.namespaces.clone_from(&names);
    let router = Router::start(config);
    router.state("in sync", |status| status.connected).await;
    for (id, name) in (1..).zip(&names) {
        fleet.put(instance(name, "decode", id)).await;
    }
    router.fleet("all sixteen", |view| view.workers.len() == 16).await;
    router.stop().await;
    fleet.clean().await;
}

#[tokio::test]
async fn a_back_off_alone_keeps_the_view() {
    let mut fleet = Registrar::own(Etcd::start()).await;
    let ns = fleet.namespace.clone();
    fleet.put(instance(&ns, "decode", 1)).await;
    let router = Router::start(fleet.config());
    let first_seen = router.ids(&[1]).await.workers.values().next().unwrap().seen.first;
    fleet.own.as_mut().unwrap().kill();
    router.state("disconnected", |status| !status.connected).await;
    router.reload(|config| {
        config.dynamo.discovery.etcd.watch_reconnect_backoff.max = Duration::from_millis(600)
    });
    router
        .state("restarted and failing", |status| {
            status.restarts == 1 && status.last_error.is_some()
        })
        .await;
    assert_eq!(ids(&router.discovery.fleet().load()), [1]);
    fleet.own.as_mut().unwrap().restart();
    router.state("in sync", |status| status.connected).await;
    let view = router.ids(&[1]).await;
    assert_eq!(view.workers.values().next().unwrap().seen.first, first_seen);
    router.stop().await;
}

#[tokio::test]
async fn another_place_or_name_begins_empty() {
    let mut fleet = Registrar::shared().await;
    let ns = fleet.namespace.clone();
    fleet.put(instance(&ns, "decode", 1)).await;
    let router = Router::start(fleet.config());
    router.ids(&[1]).await;
    router.reload(|config| config.dynamo.discovery.etcd.namespace = format!("{ns}other"));
    router.ids(&[]).await;
    router.reload(|config| config.dynamo.discovery.etcd.namespace.clone_from(&ns));
    router.ids(&[1]).await;
    router.reload(|config| {
        config.dynamo.discovery.etcd.endpoints = vec![Endpoint::parse("http://127.0.0.1:9").unwrap()];
    });
    router.ids(&[]).await;
    router
        .state("failing", |status| status.last_error.is_some() && status.ready())
        .await;
    router.stop().await;
    fleet.clean().await;
}

#[tokio::test]
async fn off_empties_the_view_and_counts_no_restart() {
    let mut fleet = Registrar::shared().await;
    let ns = fleet.namespace.clone();
    fleet.put(instance(&ns, "decode", 1)).await;
    let mut config = fleet.config();
    config.dynamo.enabled = false;
    let router = Router::start(config);
    assert!(router.status().ready());
    router.reload(|config| config.dynamo.enabled = true);
    router.ids(&[1]).await;
    router.reload(|config| config.dynamo.enabled = false);
    router.ids(&[]).await;
    router
        .state("off", |status| {
            !status.enabled && !status.connected && status.source.is_none()
        })
        .await;
    assert_eq!(router.events("restart"), 0);
    router.reload(|config| config.dynamo.enabled = true);
    router.ids(&[1]).await;
    assert_eq!(router.events("restart"), 1);
    router.stop().await;
    fleet.clean().await;
}

#[tokio::test]
async fn another_source_clears_the_view_and_holds_nobody_back() {
    let mut fleet = Registrar::shared().await;
    let ns = fleet.namespace.clone();
    fleet.put(instance(&ns, "decode", 1)).await;
    let router = Router::start(fleet.config());
    router.ids(&[1]).await;
    router.reload(|config| {
        config.dynamo.discovery.source = DiscoverySource::Kubernetes;
        config.dynamo.discovery.kubernetes.namespace = "continuum-no-such-fleet".into();
    });
    router.ids(&[]).await;
    // A build without the source says so at once; one with it looks for a cluster.
    let status = router
        .state("the other source", |status| {
            status.source == Some(SourceKind::Kubernetes) && (status.supported || status.last_error.is_some())
        })
        .await;
    assert!(status.ready());
    assert_eq!(status.supported, cfg!(feature = "kubernetes"));
    router.reload(|config| config.dynamo.discovery.source = DiscoverySource::Etcd);
    router.ids(&[1]).await;
    router.stop().await;
    fleet.clean().await;
}

#[tokio::test]
async fn a_kept_view_serves_while_the_registry_is_down() {
    let dir = tempfile::tempdir().unwrap();
    let mut fleet = Registrar::own(Etcd::start()).await;
    let ns = fleet.namespace.clone();
    fleet.put(instance(&ns, "decode", 1)).await;
    let mut config = fleet.config();
    config.dynamo.state_dir = Some(dir.path().join("state"));
    let router = Router::start(config.clone());
    router.ids(&[1]).await;
    fleet.put(instance(&ns, "decode", 2)).await;
    router.ids(&[1, 2]).await;
    router.stop().await;

    fleet.own.as_mut().unwrap().kill();
    let router = Router::start(config.clone());
    router.ids(&[1, 2]).await;
    let status = router
        .state("failing", |status| status.last_error.is_some())
        .await;
    assert!(status.stale && status.ready() && !status.first_sync && !status.connected);
    fleet.own.as_mut().unwrap().restart();
    fleet.delete(instance(&ns, "decode", 1)).await;
    router.ids(&[2]).await;
    assert!(!router.status().stale);
    router.stop().await;

    // Another fleet's view is not ours.
    fleet.own.as_mut().unwrap().kill();
    config.dynamo.discovery.etcd.namespace = "another".into();
    let router = Router::start(config);
    let status = router
        .state("failing", |status| status.last_error.is_some())
        .await;
    assert!(!status.stale && !status.ready());
    router.stop().await;
    assert!(fs::read_dir(dir.path().join("state")).unwrap().count() >= 1);
}

//! Put, delete, leases, compaction, restart, and records that mean harm.

use std::time::Duration;

use continuum_fleet::view::{PublisherKey, Role, Topic};
use continuum_testkit::etcd::Etcd;
use etcd_client::LeaseGrantOptions;

use crate::support::{Registrar, Router, card, channel, ids, instance};

#[tokio::test]
async fn a_fleet_is_found_and_followed() {
    let mut fleet = Registrar::shared().await;
    let ns = fleet.namespace.clone();
    fleet.put(card(&ns, "prefill", 1)).await;
    fleet.put(instance(&ns, "prefill", 1)).await;
    let router = Router::start(fleet.config());
    let view = router.ids(&[1]).await;
    assert_eq!(view.workers.values().next().unwrap().role, Role::Prefill);
    let status = router.state("in sync", |status| status.connected).await;
    assert!(status.first_sync && status.ready() && status.last_error.is_none() && status.restarts == 0);

    fleet.put(instance(&ns, "decode", 0xffff_ffff_ffff_fff0)).await;
    let view = router.ids(&[1, 0xffff_ffff_ffff_fff0]).await;
    assert!(view.workers.values().nth(1).unwrap().card.is_none());
    fleet.put(card(&ns, "decode", 0xffff_ffff_ffff_fff0)).await;
    router
        .fleet("card", |view| {
            view.workers.values().all(|worker| worker.card.is_some())
        })
        .await;
    fleet.put(channel(&ns, "decode", 7)).await;
    let key = PublisherKey {
        topic: Topic::KvMetrics,
        id: continuum_fleet::ids::PublisherId::new(7),
    };
    router
        .fleet("publisher", |view| view.publishers.contains_key(&key))
        .await;

    fleet.delete(instance(&ns, "prefill", 1)).await;
    router.ids(&[0xffff_ffff_ffff_fff0]).await;
    fleet.delete(channel(&ns, "decode", 7)).await;
    router
        .fleet("no publisher", |view| view.publishers.is_empty())
        .await;
    assert_eq!(router.events("delete"), 2);
    router.stop().await;
    fleet.clean().await;
}

#[tokio::test]
async fn an_expired_lease_is_a_delete() {
    let mut fleet = Registrar::shared().await;
    let ns = fleet.namespace.clone();
    let lease = fleet
        .client
        .lease_grant(2, None::<LeaseGrantOptions>)
        .await
        .unwrap()
        .id();
    fleet.put(instance(&ns, "decode", 1)).await;
    fleet.put_leased(instance(&ns, "decode", 2), lease).await;
    fleet.put_leased(card(&ns, "decode", 2), lease).await;
    let router = Router::start(fleet.config());
    router.ids(&[1, 2]).await;
    router.ids(&[1]).await;
    assert_eq!(router.status().passes, 1, "no resync was needed");
    router.stop().await;
    fleet.clean().await;
}

#[tokio::test]
async fn generations_of_a_name_are_one_fleet_and_neighbours_are_not() {
    let mut fleet = Registrar::shared().await;
    let ns = fleet.namespace.clone();
    for (suffix, id) in [("", 1), ("-legacy", 2), ("-0a1b2c3d", 3), ("-eu", 4), ("2", 5)] {
        fleet.put(instance(&format!("{ns}{suffix}"), "decode", id)).await;
    }
    let router = Router::start(fleet.config());
    let view = router
        .fleet("three generations", |view| view.workers.len() == 3)
        .await;
    let mut found = ids(&view);
    found.sort_unstable();
    assert_eq!(found, [1, 2, 3]);
    fleet.put(instance(&format!("{ns}-eu"), "decode", 6)).await;
    fleet.put(instance(&format!("{ns}-ffffffff"), "decode", 7)).await;
    router
        .fleet("a new generation", |view| {
            view.workers.len() == 4 && ids(view).contains(&7)
        })
        .await;
    router.stop().await;
    fleet.clean().await;
}

#[tokio::test]
async fn a_compacted_history_costs_nothing() {
    let mut fleet = Registrar::own(Etcd::start()).await;
    let ns = fleet.namespace.clone();
    fleet.put(instance(&ns, "decode", 1)).await;
    let router = Router::start(fleet.config());
    router.ids(&[1]).await;
    for _ in 0..50 {
        fleet.put(instance("elsewhere", "decode", 9)).await;
    }
    let revision = fleet
        .client
        .get("x", None)
        .await
        .unwrap()
        .header()
        .unwrap()
        .revision();
    fleet.client.compact(revision, None).await.unwrap();
    fleet.put(instance(&ns, "decode", 2)).await;
    router.ids(&[1, 2]).await;

    // While it is away the fleet changes and all that history is compacted.
    fleet.own.as_mut().unwrap().kill();
    router.state("disconnected", |status| !status.connected).await;
    fleet.own.as_mut().unwrap().restart();
    fleet.delete(instance(&ns, "decode", 1)).await;
    fleet.put(instance(&ns, "decode", 3)).await;
    let revision = fleet
        .client
        .get("x", None)
        .await
        .unwrap()
        .header()
        .unwrap()
        .revision();
    fleet.client.compact(revision, None).await.unwrap();
    router.ids(&[2, 3]).await;
    router.stop().await;
}

#[tokio::test]
async fn a_restart_of_etcd_empties_nothing_and_first_seen_stays() {
    let mut fleet = Registrar::own(Etcd::start()).await;
    let ns = fleet.namespace.clone();
    fleet.put(instance(&ns, "decode", 1)).await;
    let router = Router::start(fleet.config());
    let first_seen = router.ids(&[1]).await.workers.values().next().unwrap().seen.first;

    fleet.own.as_mut().unwrap().kill();
    let status = router
        .state("disconnected", |status| {
            !status.connected && status.last_error.is_some()
        })
        .await;
    assert!(status.ready(), "a router that lost its registry serves on");
    assert_eq!(ids(&router.discovery.fleet().load()), [1]);

    fleet.own.as_mut().unwrap().restart();
    router
        .state("connected again", |status| {
            status.connected && status.last_error.is_none()
        })
        .await;
    fleet.put(instance(&ns, "decode", 2)).await;
    let view = router.ids(&[1, 2]).await;
    assert_eq!(view.workers.values().next().unwrap().seen.first, first_seen);
    assert_eq!(router.events("restart"), 0, "the watcher was not replaced");
    router.stop().await;
}

#[tokio::test]
async fn a_registry_that_is_not_there_yet_is_found_later() {
    let mut etcd = Etcd::start();
    let endpoints = vec![etcd.url().to_owned()];
    etcd.kill();
    let router = Router::start(crate::support::config(&endpoints, "dynamo"));
    let status = router.state("failing", |status| status.passes > 2).await;
    assert!(!status.ready() && !status.connected);
    let error = status.last_error.clone().unwrap();
    assert!(
        error.contains(&endpoints[0]) && error.contains("refused"),
        "{error}"
    );
    etcd.restart();
    router
        .state("in sync", |status| status.connected && status.ready())
        .await;
    router.stop().await;
}

#[tokio::test]
async fn hostile_records_harm_nobody_else() {
    let mut fleet = Registrar::shared().await;
    let ns = fleet.namespace.clone();
    fleet.put(instance(&ns, "decode", 1)).await;
    let at = |rest: &str| format!("v1/instances/{ns}/{rest}");
    let deep = "[".repeat(100_000);
    let hostile: Vec<(Vec<u8>, Vec<u8>)> = vec![
        (at("decode/generate/2").into_bytes(), b"not json".to_vec()),
        (at("decode/generate/3").into_bytes(), deep.into_bytes()),
        (at("decode/generate/4").into_bytes(), vec![0xff; 1_000]),
        (
            at("decode/generate/5").into_bytes(),
            b"{\"type\":\"Endpoint\"}".to_vec(),
        ),
        (
            at("decode/generate/6").into_bytes(),
            instance(&ns, "decode", 66).1.to_string().into_bytes(),
        ),
        (at("decode/generate/zz").into_bytes(), b"{}".to_vec()),
        (at("decode").into_bytes(), b"{}".to_vec()),
        (
            [at("decode/generate/").as_bytes(), b"\xff\xfe"].concat(),
            b"{}".to_vec(),
        ),
        (
            format!("v1/mdc/{ns}/decode/generate/1").into_bytes(),
            b"{\"card_json\":7".to_vec(),
        ),
        (
            format!("v1/event_channels/namespace/{ns}/topic/%zz/1").into_bytes(),
            b"[]".to_vec(),
        ),
        (at("decode/generate/7").into_bytes(), vec![b' '; 1_400_000]),
    ];
    // Once before the list, once as events.
    for (key, value) in &hostile {
        fleet.client.put(key.clone(), value.clone(), None).await.unwrap();
    }
    let router = Router::start(fleet.config());
    router.ids(&[1]).await;
    let listed = router.events("malformed");
    assert!(listed >= 8, "{listed}");
    for (key, value) in &hostile {
        fleet.client.put(key.clone(), value.clone(), None).await.unwrap();
    }
    fleet.put(instance(&ns, "decode", 8)).await;
    router.ids(&[1, 8]).await;
    assert!(
        router.events("malformed") + 2 >= 2 * listed,
        "{}",
        router.events("malformed")
    );
    assert_eq!(router.events("mismatch"), 2);
    assert_eq!(router.status().passes, 1);
    router.stop().await;
    fleet.clean().await;
}

#[tokio::test]
async fn records_in_one_transaction_make_one_view() {
    use etcd_client::{Txn, TxnOp};
    let mut fleet = Registrar::shared().await;
    let ns = fleet.namespace.clone();
    let router = Router::start(fleet.config());
    router.state("in sync", |status| status.connected).await;
    let before = router.discovery.fleet().generation();
    let puts: Vec<TxnOp> = (1..=50)
        .map(|id| {
            let (key, value) = instance(&ns, "decode", id);
            TxnOp::put(key, value.to_string(), None)
        })
        .collect();
    fleet.client.txn(Txn::new().and_then(puts)).await.unwrap();
    router
        .fleet("fifty workers", |view| view.workers.len() == 50)
        .await;
    assert_eq!(router.discovery.fleet().generation(), before + 1);
    router.stop().await;
    fleet.clean().await;
}

#[tokio::test]
async fn metrics_follow_the_fleet() {
    let mut fleet = Registrar::shared().await;
    let ns = fleet.namespace.clone();
    fleet.put(instance(&ns, "decode", 1)).await;
    let router = Router::start(fleet.config());
    router.ids(&[1]).await;
    router.state("in sync", |status| status.connected).await;
    let gauge = |name: &str, label: &str| {
        router
            .registry
            .gather()
            .iter()
            .filter(|family| family.name() == name)
            .flat_map(|family| family.get_metric().to_vec())
            .filter(|m| label.is_empty() || m.get_label().iter().any(|l| l.value() == label))
            .map(|metric| metric.get_gauge().get_value())
            .sum::<f64>()
    };
    assert_eq!(gauge("continuum_dynamo_discovery_connected", ""), 1.0);
    assert_eq!(gauge("continuum_dynamo_discovery_workers", "decode"), 1.0);
    assert_eq!(gauge("continuum_dynamo_discovery_workers", "prefill"), 0.0);
    fleet.put(instance(&ns, "decode", 2)).await;
    router.ids(&[1, 2]).await;
    assert_eq!(gauge("continuum_dynamo_discovery_workers", &ns), 2.0);
    router.stop().await;
    fleet.clean().await;
}

#[tokio::test]
async fn nothing_is_ever_written() {
    let mut fleet = Registrar::own(Etcd::start()).await;
    let ns = fleet.namespace.clone();
    fleet.put(instance(&ns, "decode", 1)).await;
    let revision = |client: &mut etcd_client::Client| {
        let mut client = client.clone();
        async move { client.get("x", None).await.unwrap().header().unwrap().revision() }
    };
    let before = revision(&mut fleet.client).await;
    let router = Router::start(fleet.config());
    router.ids(&[1]).await;
    router.reload(|config| config.dynamo.discovery.etcd.watch_reconnect_backoff.max = Duration::from_secs(1));
    router
        .state("restarted", |status| status.restarts == 1 && status.connected)
        .await;
    router.stop().await;
    assert_eq!(
        revision(&mut fleet.client).await,
        before,
        "every write moves the revision"
    );
    assert!(fleet.client.leases().await.unwrap().leases().is_empty());
}

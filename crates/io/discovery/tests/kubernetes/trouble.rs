//! What becomes of a view when the API server is not well.

use std::time::Duration;

use continuum_config::model::DiscoverySource::{Kubernetes as Metadata, KubernetesPods};
use continuum_discovery::{
    Error,
    k8s::{Credentials, Kubernetes, Settings},
    source::{Over, Source as _, Watch as _},
};
use continuum_fleet::kubernetes::Limits;
use continuum_testkit::kube::{Cluster, Options, fleet::Worker};
use tokio::time::{Instant, timeout};

use crate::support::{PATIENCE, Router, cluster, config};

fn settings(cluster: &Cluster, namespace: &str) -> Settings {
    let credentials = Credentials::Kubeconfig(cluster.kubeconfig());
    Settings::new(credentials, namespace.to_owned(), Limits::default())
}

#[tokio::test]
async fn a_restart_of_the_api_server_keeps_the_view() {
    let cluster = Cluster::start().await;
    cluster.install_worker_metadata().await;
    let namespace = cluster.namespace("restart").await;
    let (first, second) = (
        Worker::new(&namespace, "w-0", "worker", "m"),
        Worker::new(&namespace, "w-1", "worker", "m"),
    );
    cluster.write_worker(&first).await;
    let router = Router::start(config(Metadata, &namespace), cluster.kubeconfig());
    router.ids(&[first.instance()]).await;
    cluster.kill();
    router
        .state("away", |status| !status.connected && status.last_error.is_some())
        .await;
    router.ids(&[first.instance()]).await;
    assert!(router.status().ready());
    cluster.restart().await;
    cluster.write_worker(&second).await;
    router.ids(&[first.instance(), second.instance()]).await;
}

#[tokio::test]
async fn a_router_that_starts_without_the_api_server_begins_with_the_kept_view() {
    let cluster = Cluster::start().await;
    let namespace = cluster.namespace("kept").await;
    let worker = Worker::new(&namespace, "w-0", "worker", "ignored");
    cluster.write_pod(&worker).await;
    let state = tempfile::tempdir().unwrap();
    let mut config = config(KubernetesPods, &namespace);
    config.dynamo.state_dir = Some(state.path().to_owned());
    let before = Router::start(config.clone(), cluster.kubeconfig());
    before.ids(&[worker.instance()]).await;
    before.stop().await;
    cluster.kill();
    let after = Router::start(config.clone(), cluster.kubeconfig());
    after.ids(&[worker.instance()]).await;
    assert!(after.status().stale && after.status().ready());
    let cardless =
        |view: &continuum_fleet::view::FleetView| view.workers.values().all(|worker| worker.card.is_none());
    after.fleet("no card", cardless).await;
    // Pods do not say what they serve: with another model the kept records are of another fleet.
    config.dynamo.discovery.kubernetes.model = Some("other".into());
    let other = Router::start(config, cluster.kubeconfig());
    other.state("away", |status| status.last_error.is_some()).await;
    other.ids(&[]).await;
}

#[tokio::test]
async fn a_compacted_watch_lists_again() {
    let cluster = Cluster::start_with(Options {
        watch_cache: false,
        ..Options::default()
    })
    .await;
    cluster.install_worker_metadata().await;
    let namespace = cluster.namespace("expired").await;
    let worker = Worker::new(&namespace, "w-0", "worker", "m");
    cluster.write_worker(&worker).await;
    let router = Router::start(config(Metadata, &namespace), cluster.kubeconfig());
    router.ids(&[worker.instance()]).await;
    cluster.kill();
    cluster.compact();
    cluster.restart().await;
    router
        .state("again", |status| status.passes > 1 && status.connected)
        .await;
    router.ids(&[worker.instance()]).await;
}

#[tokio::test]
async fn a_watch_that_has_had_its_time_is_no_failure() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("turn").await;
    let mut source = Kubernetes::new(Settings {
        watch_length: Duration::from_secs(1),
        ..settings(cluster, &namespace)
    });
    let (_seed, mut watch) = source.open().await.unwrap();
    let batch = timeout(PATIENCE, watch.next()).await.unwrap().unwrap();
    assert_eq!(batch.over, Some(Over::Turn));
}

/// The server is stopped in its tracks: TCP stands, nothing comes. Only our own clock notices, which runs ahead here.
#[tokio::test]
async fn a_watch_that_stays_silent_is_given_up() {
    let cluster = Cluster::start().await;
    cluster.install_worker_metadata().await;
    let namespace = cluster.namespace("silent").await;
    let settings = settings(&cluster, &namespace);
    let mut source = Kubernetes::new(settings.clone());
    let (_seed, mut watch) = source.open().await.unwrap();
    cluster.freeze();
    tokio::time::pause();
    let began = Instant::now();
    let end = watch.next().await;
    assert!(matches!(end, Err(Error::Silent)), "{end:?}");
    let waited = began.elapsed();
    assert!(
        waited <= settings.watch_idle && waited > settings.watch_length,
        "{waited:?}"
    );
    tokio::time::resume();
    cluster.thaw();
}

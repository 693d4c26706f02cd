//! The file source on a store that real Dynamo 1.6.1 processes wrote.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on should say why and stop"
)]

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use continuum_config::{Config, model::DiscoverySource};
use continuum_discovery::{Discovery, SourceKind};
use continuum_fleet::view::{FleetView, Role};
use continuum_runtime::tasks::Tasks;
use prometheus::Registry;
use tokio::{sync::watch, time::timeout};

const PATIENCE: Duration = Duration::from_secs(60);

struct Router {
    discovery: Discovery,
    config: watch::Sender<Arc<Config>>,
    tasks: Tasks,
}

impl Router {
    fn start(root: &Path) -> Self {
        let mut config = Config::default();
        config.dynamo.enabled = true;
        config.dynamo.discovery.source = DiscoverySource::File;
        config.dynamo.discovery.file.path = Some(root.to_owned());
        config.dynamo.discovery.file.watch_reconnect_backoff.initial = Duration::from_millis(50);
        config.dynamo.discovery.file.watch_reconnect_backoff.max = Duration::from_millis(200);
        let tasks = Tasks::new();
        let (config, receiver) = watch::channel(Arc::new(config));
        let discovery = Discovery::spawn(&tasks.spawner(), receiver, &Registry::new()).unwrap();
        Self {
            discovery,
            config,
            tasks,
        }
    }

    async fn fleet(&self, what: &str, condition: impl FnMut(&FleetView) -> bool) -> Arc<FleetView> {
        let fleet = self.discovery.fleet();
        match timeout(PATIENCE, fleet.wait_for(condition)).await {
            Ok(view) => view,
            Err(_elapsed) => panic!("no {what}; {:?}", self.discovery.status().load()),
        }
    }

    async fn stop(self) {
        assert!(self.tasks.drain(PATIENCE, std::future::pending()).await);
    }
}

/// A fresh copy of the recorded store: as if its writers had touched every record just now.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::write(target, fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/1.6.1/file-store")
}

fn touch(path: &Path, at: SystemTime) {
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(at)
        .unwrap();
}

fn roles(view: &FleetView, role: Role) -> usize {
    view.workers.values().filter(|worker| worker.role == role).count()
}

#[tokio::test]
async fn a_recorded_fleet_is_found_expires_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    copy(&recorded(), dir.path());
    let router = Router::start(dir.path());
    let view = router.fleet("fleet", |view| view.workers.len() == 4).await;
    assert_eq!((roles(&view, Role::Prefill), roles(&view, Role::Decode)), (2, 2));
    assert!(
        view.workers
            .values()
            .all(|worker| worker.model().is_some() && worker.ranks().is_some())
    );
    // Ids of a file store are random over the whole range: none may be cut to a float or an i64.
    assert!(view.workers.keys().any(|key| key.instance.hex().len() == 16));
    assert_eq!(view.publishers.len(), 6, "four of load, two of cache events");
    let status = router.discovery.status();
    assert_eq!(
        (status.load().source, status.load().connected),
        (Some(SourceKind::File), true)
    );

    // A worker that is no longer touched is gone after ten seconds, without anybody deleting its record.
    let folder = dir.path().join("v1/instances");
    let records: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains("decode%2Fgenerate"))
        .collect();
    assert_eq!(records.len(), 2);
    touch(&records[0], SystemTime::now() - Duration::from_secs(11));
    let view = router.fleet("expiry", |view| view.workers.len() < 4).await;
    assert!(records[0].exists() && roles(&view, Role::Prefill) <= 2);
    // All is touched again: the fleet is whole.
    for bucket in ["instances", "mdc", "event_channels", "event_sources"] {
        for entry in fs::read_dir(dir.path().join("v1").join(bucket)).unwrap() {
            touch(&entry.unwrap().path(), SystemTime::now());
        }
    }
    router.fleet("fleet again", |view| view.workers.len() == 4).await;
    router.stop().await;
}

#[tokio::test]
async fn a_store_that_is_not_there_yet_is_found_later_and_one_that_goes_keeps_its_view() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let router = Router::start(&root);
    let status = router.discovery.status();
    let failing = status.wait_for(|status| status.last_error.is_some());
    let failed = timeout(PATIENCE, failing).await.unwrap();
    assert!(!failed.ready() && failed.last_error.as_ref().unwrap().contains("store"));
    copy(&recorded(), &root);
    router.fleet("fleet", |view| view.workers.len() == 4).await;
    fs::rename(&root, dir.path().join("elsewhere")).unwrap();
    timeout(PATIENCE, status.wait_for(|status| !status.connected))
        .await
        .unwrap();
    assert_eq!(router.discovery.fleet().load().workers.len(), 4);
    router.stop().await;
}

#[tokio::test]
async fn caps_of_the_config_hold_and_can_be_raised_live() {
    let dir = tempfile::tempdir().unwrap();
    copy(&recorded(), dir.path());
    let router = Router::start(dir.path());
    router.fleet("fleet", |view| view.workers.len() == 4).await;
    let cap = |cap: u32| {
        router.config.send_modify(|config| {
            Arc::make_mut(config)
                .dynamo
                .discovery
                .limits
                .max_records_per_keyspace = cap;
        });
    };
    cap(3);
    let view = router.fleet("capped fleet", |view| view.workers.len() == 3).await;
    assert!(view.capped.records > 0);
    for bucket in ["instances", "mdc", "event_channels", "event_sources"] {
        for entry in fs::read_dir(dir.path().join("v1").join(bucket)).unwrap() {
            touch(&entry.unwrap().path(), SystemTime::now());
        }
    }
    cap(100);
    router
        .fleet("whole fleet", |view| {
            view.workers.len() == 4 && view.capped.records == 0
        })
        .await;
    router.stop().await;
}

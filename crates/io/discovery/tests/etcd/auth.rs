//! A cluster with users: read permission is enough, and what may not be read is lived without.

use continuum_config::{Config, Secret, model::EtcdAuth};
use continuum_testkit::etcd::{Etcd, Options};
use etcd_client::{Client, Permission, PermissionType};
use tokio::time::{Duration, sleep};

use crate::support::{Registrar, Router, card, channel, ids, instance};

/// Locks a cluster: `root` may do all, `reader` may read the given prefixes and write nothing.
async fn lock(fleet: &mut Registrar, prefixes: &[String]) {
    let client = &mut fleet.client;
    client.user_add("root", "root", None).await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.role_add("reader").await.unwrap();
    for prefix in prefixes {
        let permission = Permission::new(PermissionType::Read, prefix.as_str()).with_prefix();
        client.role_grant_permission("reader", permission).await.unwrap();
    }
    client.user_add("reader", "right", None).await.unwrap();
    client.user_grant_role("reader", "reader").await.unwrap();
    client.auth_enable().await.unwrap();
    let options = etcd_client::ConnectOptions::new().with_user("root", "root");
    fleet.client = Client::connect(&fleet.endpoints, Some(options)).await.unwrap();
}

fn with_password(mut config: Config, password: &str) -> Config {
    let auth = EtcdAuth {
        username: "reader".into(),
        password: Secret::new(password),
    };
    config.dynamo.discovery.etcd.auth = Some(auth);
    config
}

async fn locked(prefixes: impl Fn(&str) -> Vec<String>, options: &Options) -> Registrar {
    let mut fleet = Registrar::own(Etcd::start_with(options)).await;
    let ns = fleet.namespace.clone();
    fleet.put(instance(&ns, "decode", 1)).await;
    fleet.put(card(&ns, "decode", 1)).await;
    fleet.put(channel(&ns, "decode", 7)).await;
    fleet.put(instance(&format!("{ns}-0a1b2c3d"), "decode", 2)).await;
    lock(&mut fleet, &prefixes(&ns)).await;
    fleet
}

fn all(_: &str) -> Vec<String> {
    vec!["v1/".into()]
}

#[tokio::test]
async fn read_permission_alone_is_enough() {
    let mut fleet = locked(all, &Options::default()).await;
    let ns = fleet.namespace.clone();
    let router = Router::start(with_password(fleet.config(), "right"));
    let view = router
        .fleet("both generations", |view| view.workers.len() == 2)
        .await;
    assert_eq!(view.publishers.len(), 1);
    fleet.put(instance(&ns, "decode", 3)).await;
    router
        .fleet("a third worker", |view| ids(view).contains(&3))
        .await;
    router.stop().await;
}

#[tokio::test]
async fn a_wrong_password_is_said_and_a_right_one_is_taken_live() {
    let fleet = locked(all, &Options::default()).await;
    let router = Router::start(with_password(fleet.config(), "wrong-password"));
    let status = router
        .state("refused", |status| status.last_error.is_some())
        .await;
    let error = status.last_error.clone().unwrap();
    assert!(error.contains("refused the credentials"), "{error}");
    assert!(!error.contains("wrong-password"));
    let fixed = with_password(fleet.config(), "right");
    router.reload(|config| *config = fixed);
    router.state("connected", |status| status.connected).await;
    router
        .fleet("both generations", |view| view.workers.len() == 2)
        .await;

    // Rotated to a wrong one: the view stays while nothing can be read.
    let broken = with_password(fleet.config(), "wrong-again");
    router.reload(|config| *config = broken);
    router
        .state("refused again", |status| {
            !status.connected && status.last_error.is_some()
        })
        .await;
    assert_eq!(router.discovery.fleet().load().workers.len(), 2);
    assert_eq!(router.events("restart"), 2);
    router.stop().await;
}

#[tokio::test]
async fn no_credentials_where_they_are_needed_is_said() {
    let fleet = locked(all, &Options::default()).await;
    let router = Router::start(fleet.config());
    let status = router
        .state("refused", |status| status.last_error.is_some())
        .await;
    let error = status.last_error.clone().unwrap();
    assert!(
        error.contains("credentials") || error.contains("user name"),
        "{error}"
    );
    router.stop().await;
}

#[tokio::test]
async fn event_sources_that_may_not_be_read_are_lived_without() {
    let three = |_: &str| {
        ["v1/instances/", "v1/mdc/", "v1/event_channels/"]
            .map(String::from)
            .to_vec()
    };
    let mut fleet = locked(three, &Options::default()).await;
    let ns = fleet.namespace.clone();
    let router = Router::start(with_password(fleet.config(), "right"));
    let view = router
        .fleet("both generations", |view| view.workers.len() == 2)
        .await;
    assert_eq!(view.publishers.len(), 1);
    fleet.put(instance(&ns, "decode", 3)).await;
    router
        .fleet("a third worker", |view| ids(view).contains(&3))
        .await;
    assert_eq!(router.status().passes, 1);
    router.stop().await;
}

#[tokio::test]
async fn a_wide_prefix_that_may_not_be_read_is_narrowed_to_the_name() {
    let exact = |ns: &str| {
        vec![
            format!("v1/instances/{ns}/"),
            format!("v1/mdc/{ns}/"),
            format!("v1/event_channels/namespace/{ns}/"),
        ]
    };
    let mut fleet = locked(exact, &Options::default()).await;
    let ns = fleet.namespace.clone();
    let router = Router::start(with_password(fleet.config(), "right"));
    let view = router.ids(&[1]).await;
    assert_eq!(view.publishers.len(), 1);
    fleet.put(instance(&ns, "decode", 3)).await;
    router.ids(&[1, 3]).await;
    router.stop().await;
}

#[tokio::test]
async fn an_unreadable_bucket_is_named() {
    let none = |_: &str| vec!["v1/mdc/".to_owned()];
    let fleet = locked(none, &Options::default()).await;
    let router = Router::start(with_password(fleet.config(), "right"));
    let status = router.state("denied", |status| status.last_error.is_some()).await;
    let error = status.last_error.clone().unwrap();
    assert!(
        error.contains(&format!("v1/instances/{}/", fleet.namespace)),
        "{error}"
    );
    router.stop().await;
}

#[tokio::test]
async fn a_token_that_expires_leaves_no_dead_watcher() {
    let options = Options {
        flags: vec!["--auth-token-ttl=1".into()],
        ..Options::default()
    };
    let mut fleet = locked(all, &options).await;
    let ns = fleet.namespace.clone();
    let router = Router::start(with_password(fleet.config(), "right"));
    router
        .fleet("both generations", |view| view.workers.len() == 2)
        .await;
    // Long past the token's life, by etcd's own clock: there is no state to wait for.
    sleep(Duration::from_secs(3)).await;
    let options = etcd_client::ConnectOptions::new().with_user("root", "root");
    fleet.client = Client::connect(&fleet.endpoints, Some(options)).await.unwrap();
    fleet.put(instance(&ns, "decode", 3)).await;
    router
        .fleet("a third worker", |view| ids(view).contains(&3))
        .await;
    // A restart forgets every token; the next pass authenticates anew.
    fleet.own.as_mut().unwrap().restart();
    let options = etcd_client::ConnectOptions::new().with_user("root", "root");
    fleet.client = Client::connect(&fleet.endpoints, Some(options)).await.unwrap();
    fleet.put(instance(&ns, "decode", 4)).await;
    router
        .fleet("a fourth worker", |view| ids(view).contains(&4))
        .await;
    router.stop().await;
}

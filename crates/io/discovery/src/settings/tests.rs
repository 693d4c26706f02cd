use continuum_config::{
    Secret,
    model::{EtcdAuth, EtcdTls},
    value::Endpoint,
};

use super::*;

fn config() -> Config {
    let mut config = Config::default();
    config.dynamo.enabled = true;
    config.dynamo.discovery.etcd.endpoints = vec![Endpoint::parse("http://etcd-0:2379").unwrap()];
    config
}

fn change(edit: impl FnOnce(&mut Config)) -> Option<(Reason, View)> {
    change_from(config(), edit)
}

fn change_from(old: Config, edit: impl FnOnce(&mut Config)) -> Option<(Reason, View)> {
    let mut new = old.clone();
    edit(&mut new);
    Settings::of(&old).unwrap().change(&Settings::of(&new).unwrap())
}

#[test]
fn each_change_has_its_reason_and_says_what_becomes_of_the_view() {
    let etcd = |edit: fn(&mut continuum_config::model::Etcd)| change(|c| edit(&mut c.dynamo.discovery.etcd));
    assert_eq!(etcd(|_| {}), None);
    assert_eq!(
        change(|c| c.dynamo.load.max_staleness = Duration::from_secs(1)),
        None
    );
    assert_eq!(
        etcd(|e| e.endpoints.push(Endpoint::parse("http://etcd-1:2379").unwrap())),
        Some((Reason::Connection, View::Clear))
    );
    assert_eq!(
        etcd(|e| e.auth = Some(EtcdAuth {
            username: "u".into(),
            password: Secret::new("p")
        })),
        Some((Reason::Connection, View::Keep))
    );
    assert_eq!(
        etcd(|e| e.tls = Some(EtcdTls::default())),
        Some((Reason::Connection, View::Keep))
    );
    assert_eq!(
        etcd(|e| e.namespace = "other".into()),
        Some((Reason::Namespace, View::Clear))
    );
    assert_eq!(
        etcd(|e| e.namespaces = vec!["dynamo".into(), "canary".into()]),
        Some((Reason::Namespaces, View::Prune))
    );
    assert_eq!(
        etcd(|e| e.watch_reconnect_backoff.max = Duration::from_secs(60)),
        Some((Reason::Backoff, View::Keep))
    );
    assert_eq!(
        change(|c| c.dynamo.discovery.source = DiscoverySource::File),
        Some((Reason::Source, View::Clear))
    );
    assert_eq!(
        change(|c| c.dynamo.discovery.namespace_match = ConfigMatch::Exact),
        Some((Reason::Namespace, View::Clear))
    );
    assert_eq!(
        change(|c| c.dynamo.discovery.limits.max_records_per_keyspace = 1),
        Some((Reason::Other, View::Clear))
    );
    assert_eq!(
        change(|c| c.dynamo.state_dir = Some("/s".into())),
        Some((Reason::Other, View::Keep))
    );
}

#[test]
fn settings_of_another_source_do_not_touch_the_watcher() {
    let file = {
        let mut config = config();
        config.dynamo.discovery.source = DiscoverySource::File;
        config.dynamo.discovery.file.path = Some("/a".into());
        config
    };
    assert_eq!(
        change_from(file.clone(), |c| c.dynamo.discovery.etcd.namespace = "x".into()),
        None
    );
    assert_eq!(
        change_from(file.clone(), |c| c.dynamo.discovery.file.path = Some("/b".into())),
        Some((Reason::Connection, View::Clear))
    );
    assert_eq!(
        change_from(file, |c| c.dynamo.discovery.file.namespaces =
            vec!["dynamo".into(), "b".into()]),
        Some((Reason::Namespaces, View::Prune))
    );
}

#[test]
fn https_endpoints_mean_tls_with_the_systems_roots() {
    let mut config = config();
    config.dynamo.discovery.etcd.endpoints = vec![Endpoint::parse("https://etcd:2379").unwrap()];
    let settings = Settings::of(&config).unwrap().etcd().unwrap();
    assert_eq!(settings.tls, Some(Tls::default()));
    assert_eq!(settings.endpoints, ["https://etcd:2379"]);
    config.dynamo.enabled = false;
    assert_eq!(Settings::of(&config), None);
}

use continuum_config::{Secret, model::EtcdAuth, value::Endpoint};

use continuum_config::model::NamespaceMatch as ConfigMatch;

use super::*;

fn config() -> Config {
    let mut config = Config::default();
    config.dynamo.enabled = true;
    config.dynamo.discovery.etcd.endpoints = vec![Endpoint::parse("http://etcd-0:2379").unwrap()];
    config
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

#[test]
fn every_setting_of_the_source_in_use_arrives() {
    let mut config = config();
    let etcd = &mut config.dynamo.discovery.etcd;
    etcd.namespaces = vec!["prod".into(), "canary".into()];
    etcd.auth = Some(EtcdAuth {
        username: "u".into(),
        password: Secret::new("p"),
    });
    etcd.watch_reconnect_backoff.max = Duration::from_secs(7);
    config.dynamo.discovery.namespace_match = ConfigMatch::Exact;
    config.dynamo.discovery.limits.max_records_per_keyspace = 9;
    let settings = Settings::of(&config).unwrap();
    assert_eq!(settings.scope(), "etcd http://etcd-0:2379 exact prod,canary");
    assert_eq!(settings.backoff.1, Duration::from_secs(7));
    let reducer = settings.reducer();
    assert_eq!(
        (
            reducer.settings().limits.records_per_keyspace,
            reducer.settings().namespace_match
        ),
        (9, NamespaceMatch::Exact)
    );
    assert_eq!(
        settings.etcd().unwrap().auth,
        Some(Auth {
            username: "u".into(),
            password: "p".into()
        })
    );

    config.dynamo.discovery.source = DiscoverySource::File;
    config.dynamo.discovery.file.path = Some("/store".into());
    let settings = Settings::of(&config).unwrap();
    assert_eq!(settings.scope(), "file /store exact dynamo");
    assert!(settings.supported() && settings.etcd().is_none());
    config.dynamo.discovery.source = DiscoverySource::KubernetesPods;
    let settings = Settings::of(&config).unwrap();
    assert_eq!(settings.supported(), cfg!(feature = "kubernetes"));
}

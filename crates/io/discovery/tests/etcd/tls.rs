//! TLS to etcd: the router checks the member, and shows its own certificate.

use std::path::{Path, PathBuf};

use continuum_config::{Config, model::EtcdTls, value::KeyFile};
use continuum_testkit::etcd::{Etcd, Options, ServerTls};
use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

use crate::support::{Router, config, instance, namespace};

/// An authority and what it has signed, as files.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: PathBuf,
}

impl Authority {
    fn new(dir: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let dir = dir.join(name);
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, dir }
    }

    fn ca(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// Signs a certificate for a name or address; certificate and key file.
    fn sign(&self, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let (cert_file, key_file) = (
            self.dir.join(format!("{name}.pem")),
            self.dir.join(format!("{name}-key.pem")),
        );
        std::fs::write(&cert_file, cert.pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        (cert_file, key_file)
    }
}

struct Setup {
    etcd: Etcd,
    ours: Authority,
    foreign: Authority,
    namespace: String,
    _dir: TempDir,
}

/// A member whose certificate is for `name`, with one worker registered; clients must show a certificate.
async fn setup(name: &str) -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let (ours, foreign) = (
        Authority::new(dir.path(), "ours"),
        Authority::new(dir.path(), "foreign"),
    );
    let (cert, key) = ours.sign(name);
    let tls = ServerTls {
        cert,
        key,
        client_ca: Some(ours.ca()),
    };
    let etcd = Etcd::start_with(&Options {
        tls: Some(tls),
        ..Options::default()
    });
    let (cert, key) = ours.sign("writer");
    let read = |path: &Path| std::fs::read(path).unwrap();
    let options = TlsOptions::new()
        .ca_certificate(Certificate::from_pem(read(&ours.ca())))
        .identity(Identity::from_pem(read(&cert), read(&key)))
        .domain_name(name);
    let mut writer = Client::connect([etcd.url()], Some(ConnectOptions::new().with_tls(options)))
        .await
        .unwrap();
    let namespace = namespace();
    let (key, value) = instance(&namespace, "decode", 1);
    writer.put(key, value.to_string(), None).await.unwrap();
    Setup {
        etcd,
        ours,
        foreign,
        namespace,
        _dir: dir,
    }
}

impl Setup {
    fn config(&self, ca: PathBuf, client: Option<(PathBuf, PathBuf)>) -> Config {
        let mut config = config(&[self.etcd.url().to_owned()], &self.namespace);
        let (client_cert, client_key) = client.unzip();
        config.dynamo.discovery.etcd.tls = Some(EtcdTls {
            ca_cert: Some(ca),
            client_cert,
            client_key: client_key.map(KeyFile::new),
            server_name: None,
        });
        config
    }
}

async fn fails(router: &Router) -> String {
    router
        .state("failing", |status| status.last_error.is_some())
        .await
        .last_error
        .clone()
        .unwrap()
}

#[tokio::test]
async fn both_sides_show_their_certificates() {
    let setup = setup("127.0.0.1").await;
    let client = setup.ours.sign("router");
    let router = Router::start(setup.config(setup.ours.ca(), Some(client.clone())));
    router.ids(&[1]).await;

    // A renewed pair at the same paths is read at the next pass, without a reload; a broken one says which file.
    std::fs::write(&client.0, "no certificate").unwrap();
    let mut setup = setup;
    setup.etcd.restart();
    let named = |error: &String| error.contains("router.pem") && error.contains("no PEM block");
    router
        .state("failing for the file", |status| {
            status.last_error.as_ref().is_some_and(named)
        })
        .await;
    assert_eq!(setup.ours.sign("router"), client);
    router.state("connected again", |status| status.connected).await;
    router.stop().await;
}

#[tokio::test]
async fn a_member_of_another_authority_is_not_trusted() {
    let setup = setup("127.0.0.1").await;
    let router = Router::start(setup.config(setup.foreign.ca(), Some(setup.ours.sign("router"))));
    let error = fails(&router).await;
    assert!(
        error.contains("UnknownIssuer") || error.contains("BadSignature"),
        "{error}"
    );
    router.stop().await;
}

#[tokio::test]
async fn a_router_without_a_certificate_is_refused() {
    let setup = setup("127.0.0.1").await;
    let router = Router::start(setup.config(setup.ours.ca(), None));
    let status = router.state("failing", |status| status.passes > 1).await;
    assert!(!status.connected && status.last_error.is_some());
    let router_pair = setup.ours.sign("router");
    let fixed = setup.config(setup.ours.ca(), Some(router_pair));
    router.reload(|config| *config = fixed);
    router.ids(&[1]).await;
    router.stop().await;
}

#[tokio::test]
async fn the_members_name_can_be_given() {
    let setup = setup("etcd.internal").await;
    let client = setup.ours.sign("router");
    let mut config = setup.config(setup.ours.ca(), Some(client));
    let router = Router::start(config.clone());
    let error = fails(&router).await;
    assert!(
        error.contains("NotValidForName") || error.contains("not valid for name"),
        "{error}"
    );
    if let Some(tls) = config.dynamo.discovery.etcd.tls.as_mut() {
        tls.server_name = Some("etcd.internal".into());
    }
    router.reload(|running| *running = config);
    router.ids(&[1]).await;
    router.stop().await;
}

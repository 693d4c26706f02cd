use std::{os::unix::fs::symlink, path::Path, time::Duration};

use prometheus::Registry;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::*;
use crate::certs::limits::{OVERLAP, SETTLE};

const HOST: &str = "push.operator.svc";

/// An authority of cert-manager.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// What is in the Secret of cert-manager.
#[derive(Clone)]
struct Secret([String; 3]);

fn authority(name: &str) -> Authority {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    Authority {
        pem,
        issuer: Issuer::new(params, key),
    }
}

impl Authority {
    fn secret(&self) -> Secret {
        self.secret_for(HOST, time::Duration::days(90))
    }

    fn secret_for(&self, host: &str, valid: time::Duration) -> Secret {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        let now = plan::offset(Timestamp::now());
        params.not_before = now - time::Duration::days(100);
        params.not_after = now + valid;
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        Secret([cert.pem(), key.serialize_pem(), self.pem.clone()])
    }
}

/// A Secret's volume, written as the kubelet does: a new folder, and a link to it that is replaced at once.
struct Volume {
    directory: TempDir,
    writes: u32,
}

impl Volume {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            writes: 0,
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn write(&mut self, Secret(files): &Secret) {
        self.write_some(
            files
                .iter()
                .enumerate()
                .map(|(at, text)| (NAMES[at], text.as_str())),
        );
    }

    fn write_some<'a>(&mut self, files: impl Iterator<Item = (&'a str, &'a str)>) {
        let before = std::fs::read_link(self.path().join(CURRENT)).ok();
        self.writes += 1;
        let name = format!("..2026_11_30_{}", self.writes);
        let folder = self.path().join(&name);
        std::fs::create_dir(&folder).unwrap();
        let mut there = Vec::new();
        for (file, text) in files {
            std::fs::write(folder.join(file), text).unwrap();
            there.push(file);
        }
        let link = self.path().join("..data_tmp");
        symlink(&name, &link).unwrap();
        std::fs::rename(&link, self.path().join(CURRENT)).unwrap();
        for file in NAMES {
            let shown = self.path().join(file);
            let _absent = std::fs::remove_file(&shown);
            if there.contains(&file) {
                symlink(Path::new(CURRENT).join(file), &shown).unwrap();
            }
        }
        if let Some(before) = before {
            std::fs::remove_dir_all(self.path().join(before)).unwrap();
        }
    }
}

/// One replica that serves from a volume.
struct Rig {
    seen: Certificates,
    registry: Registry,
    running: JoinHandle<()>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Rig {
    fn start(volume: &Volume) -> Self {
        let registry = Registry::new();
        let metrics = Metrics::register(&registry).unwrap();
        let (files, seen) = Files::new(volume.path().to_owned(), HOST, metrics);
        let running = tokio::spawn(files.run(CancellationToken::new()));
        Self {
            seen,
            registry,
            running,
        }
    }

    /// What routers are given.
    fn bundle(&self) -> Vec<CertificateDer<'static>> {
        let serving = self.seen.serving.borrow();
        let bundle = &serving.as_ref().unwrap().bundle;
        CertificateDer::pem_slice_iter(bundle.as_bytes())
            .map(Result::unwrap)
            .collect()
    }

    fn gives(&self, authorities: &[&Authority]) -> bool {
        let wanted: Vec<_> = authorities.iter().map(|one| der(&one.pem)).collect();
        self.bundle() == wanted
    }

    /// Whether a router that trusts this authority gets a connection.
    async fn accepts(&self, authority: &Authority) -> bool {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(der(&authority.pem)).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let server = Arc::clone(&self.seen.serving.borrow().as_ref().unwrap().tls);
        let (one, other) = tokio::io::duplex(1 << 16);
        let host = ServerName::try_from(HOST).unwrap();
        let connect = tokio_rustls::TlsConnector::from(Arc::new(client)).connect(host, one);
        let accept = tokio_rustls::TlsAcceptor::from(server).accept(other);
        tokio::join!(connect, accept).0.is_ok()
    }

    fn metric(&self, name: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name).unwrap();
        family.get_metric()[0].get_gauge().get_value()
    }

    fn failing(&self) -> bool {
        self.metric("continuum_controller_certificate_failing") == 1.0
    }

    fn trouble(&self) -> String {
        self.seen.trouble.borrow().clone().unwrap_or_default()
    }
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

/// Until the files have been looked at again.
async fn look() {
    sleep(FILES_EVERY + Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_replaced_authority_is_trusted_until_nobody_needs_it() {
    let (old, new) = (authority("old"), authority("new"));
    let mut volume = Volume::new();
    volume.write(&old.secret());
    let rig = Rig::start(&volume);
    look().await;
    assert!(rig.gives(&[&old]) && rig.accepts(&old).await);

    // The same authority renews: at once.
    let expiry = rig.metric("continuum_controller_certificate_expiry_seconds");
    volume.write(&old.secret_for(HOST, time::Duration::days(91)));
    look().await;
    assert!(rig.accepts(&old).await);
    let renewed = rig.metric("continuum_controller_certificate_expiry_seconds") - expiry;
    assert!((renewed - 86_400.0).abs() < 60.0, "{renewed}");

    // Another authority: routers are given both, and those that have only the old one still get in.
    volume.write(&new.secret());
    look().await;
    assert!(rig.gives(&[&new, &old]));
    assert!(rig.accepts(&old).await && !rig.accepts(&new).await);
    sleep(SETTLE - FILES_EVERY * 3).await;
    assert!(rig.accepts(&old).await && !rig.accepts(&new).await);
    // They have had the time to read it.
    sleep(FILES_EVERY * 4).await;
    assert!(rig.accepts(&new).await && !rig.accepts(&old).await);
    assert!(
        rig.gives(&[&new, &old]),
        "another replica may serve with it still"
    );
    sleep(OVERLAP - FILES_EVERY * 3).await;
    assert!(rig.gives(&[&new, &old]));
    sleep(FILES_EVERY * 5).await;
    assert!(rig.gives(&[&new]));
    assert!(!rig.failing() && rig.trouble().is_empty());
}

#[tokio::test(start_paused = true)]
async fn authorities_that_follow_each_other_soon_lose_nobody() {
    let all = [authority("a"), authority("b"), authority("c")];
    let mut volume = Volume::new();
    volume.write(&all[0].secret());
    let rig = Rig::start(&volume);
    look().await;
    for next in &all[1..] {
        volume.write(&next.secret());
        sleep(SETTLE / 2).await;
        assert!(rig.accepts(&all[0]).await);
    }
    assert!(rig.gives(&[&all[2], &all[1], &all[0]]));
    sleep(SETTLE).await;
    assert!(rig.accepts(&all[2]).await);
    sleep(OVERLAP + FILES_EVERY * 2).await;
    assert!(rig.gives(&[&all[2]]));
}

#[tokio::test(start_paused = true)]
async fn one_that_runs_out_meanwhile_is_not_held_on_to() {
    let (old, new) = (authority("old"), authority("new"));
    let mut volume = Volume::new();
    volume.write(&old.secret_for(HOST, time::Duration::seconds(2)));
    let rig = Rig::start(&volume);
    look().await;
    assert!(rig.gives(&[&old]));
    volume.write(&new.secret());
    // The clock of the tests is not that of certificates.
    let real = std::time::Instant::now();
    while !rig.accepts(&new).await {
        assert!(real.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(100));
        sleep(Duration::from_secs(1)).await;
    }
    assert!(rig.gives(&[&new, &old]));
}

#[tokio::test(start_paused = true)]
async fn what_routers_could_not_use_is_not_taken_over() {
    let (good, other) = (authority("good"), authority("other"));
    let mut volume = Volume::new();
    volume.write(&good.secret());
    let rig = Rig::start(&volume);
    look().await;
    let Secret(sound) = good.secret();
    let Secret([_, foreign_key, _]) = other.secret();
    let with = |at: usize, text: &str| {
        let mut files = sound.clone();
        text.clone_into(&mut files[at]);
        Secret(files)
    };
    let garbage = "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n";
    for (what, wrong) in [
        ("empty ca.crt", with(2, "")),
        ("ca.crt of another authority", with(2, &other.pem)),
        ("garbage in ca.crt", with(2, garbage)),
        ("too much in ca.crt", with(2, &"#".repeat(1 << 20))),
        ("no certificate", with(0, "")),
        ("garbage in tls.crt", with(0, garbage)),
        ("a key of another", with(1, &foreign_key)),
        ("no key", with(1, "")),
        (
            "another host",
            good.secret_for("elsewhere.svc", time::Duration::days(1)),
        ),
        ("run out", good.secret_for(HOST, time::Duration::days(-1))),
    ] {
        volume.write(&wrong);
        look().await;
        assert!(rig.failing() && !rig.trouble().is_empty(), "{what}");
        assert!(rig.gives(&[&good]) && rig.accepts(&good).await, "{what}");
    }
    // One is missing.
    let Secret([chain, key, _]) = &with(0, &sound[0]);
    volume.write_some([("tls.crt", chain.as_str()), ("tls.key", key.as_str())].into_iter());
    look().await;
    assert!(rig.failing() && rig.trouble().contains("ca.crt"));
    assert!(rig.gives(&[&good]) && rig.accepts(&good).await);

    volume.write(&good.secret());
    look().await;
    assert!(!rig.failing() && rig.trouble().is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_good_files_there_is_no_certificate_and_the_reason_is_known() {
    let good = authority("good");
    let mut volume = Volume::new();
    let Secret([chain, key, _]) = good.secret();
    volume.write(&Secret([chain, key, String::new()]));
    let rig = Rig::start(&volume);
    look().await;
    assert!(rig.seen.serving.borrow().is_none());
    assert!(rig.trouble().contains("ca.crt"), "{}", rig.trouble());
    volume.write(&good.secret());
    look().await;
    assert!(rig.gives(&[&good]));
}

#[tokio::test(start_paused = true)]
async fn a_key_beside_the_authority_goes_nowhere() {
    let good = authority("good");
    let mut volume = Volume::new();
    let Secret([chain, key, ca]) = good.secret();
    volume.write(&Secret([chain, key.clone(), format!("{key}{ca}")]));
    let rig = Rig::start(&volume);
    look().await;
    assert!(rig.gives(&[&good]));
    let serving = rig.seen.serving.borrow();
    assert!(!serving.as_ref().unwrap().bundle.contains("KEY"));
}

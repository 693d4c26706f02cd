//! Certificates of cert-manager instead of an authority of our own, and none at all.

use std::{os::unix::fs::symlink, path::Path};

use continuum_controller::certs::authority;
use jiff::Timestamp;
use rcgen::{CertificateParams, Issuer, KeyPair};

use crate::{
    router::connect,
    support::{Operator, cluster, condition, namespace, routerconfig, wait_for},
};

/// Writes a Secret's volume as the kubelet does; what routers are to trust.
fn write(volume: &Path, number: u32) -> String {
    let by = authority(Timestamp::now()).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&by.cert, KeyPair::from_pem(&by.key).unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let cert = params.signed_by(&key, &issuer).unwrap().pem();
    let name = format!("..{number}");
    std::fs::create_dir(volume.join(&name)).unwrap();
    for (file, text) in [
        ("tls.crt", &cert),
        ("tls.key", &key.serialize_pem()),
        ("ca.crt", &by.cert),
    ] {
        std::fs::write(volume.join(&name).join(file), text).unwrap();
        if number == 0 {
            symlink(Path::new("..data").join(file), volume.join(file)).unwrap();
        }
    }
    symlink(&name, volume.join("..data_tmp")).unwrap();
    std::fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    by.cert
}

#[tokio::test(flavor = "multi_thread")]
async fn another_authority_of_the_files_reaches_routers_before_it_is_needed() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = cluster.namespace("files").await;
    let volume = tempfile::tempdir().unwrap();
    let old = write(volume.path(), 0);
    let flag = format!("--tls-dir={}", volume.path().display());
    let operator = Operator::start(client.clone(), &ns, &[&flag]).await;
    cluster
        .apply(&routerconfig(&ns, "chat", &ns, "{replicas: 1}"))
        .await;
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    let lines = |pem: &str| pem.lines().map(str::to_owned).collect::<Vec<_>>().join("");
    let new = write(volume.path(), 1);
    let map = wait_for(&client, &ns, "ConfigMap", "chat-router", |map| {
        lines(map["data"]["ca.crt"].as_str().unwrap_or_default()).contains(&lines(&new))
    })
    .await;
    // Routers are given both, and one that has not read that yet still gets in.
    assert!(lines(map["data"]["ca.crt"].as_str().unwrap()).contains(&lines(&old)));
    connect(operator.port, &old).await.unwrap();
    assert!(connect(operator.port, &new).await.is_err());
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_certificate_the_status_says_so() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    // Without the Secret.
    let ns = cluster.namespace("no-certificate").await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    cluster.apply(&routerconfig(&ns, "chat", &ns, "{}")).await;
    let told = condition(&client, &ns, "chat", "ResourcesApplied", "NoCertificate").await;
    let told = told.status.unwrap().conditions;
    let message = told.iter().find(|one| one.type_ == "ResourcesApplied").unwrap();
    assert!(message.message.contains("Secret ca"), "{}", message.message);
    condition(&client, &ns, "chat", "Accepted", "Valid").await;
    condition(&client, &ns, "chat", "Ready", "ResourcesNotApplied").await;
    cluster
        .apply(&format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: ca, namespace: {ns}}}\n"
        ))
        .await;
    condition(&client, &ns, "chat", "ResourcesApplied", "Applied").await;
    operator.stop().await;

    let ns = namespace(cluster, "certificate").await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    cluster
        .apply(&routerconfig(&ns, "chat", &ns, "{replicas: 0}"))
        .await;
    condition(&client, &ns, "chat", "Ready", "NoRouterWanted").await;
    operator.stop().await;
}

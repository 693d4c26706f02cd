//! The files that prove who a test's API server is, and that sign ServiceAccount tokens.

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// Writes `ca.crt`, `server.crt`, `server.key`, `sa.key` and `sa.pub`; returns the authority's certificate as PEM.
pub(crate) fn write(dir: &Path) -> String {
    let authority_key = KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::default();
    authority
        .distinguished_name
        .push(DnType::CommonName, "continuum test authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority_cert = authority
        .self_signed(&authority_key)
        .expect("an authority signs itself");
    let issuer = Issuer::new(authority, authority_key);

    let server_key = KeyPair::generate().expect("a key");
    let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"];
    let mut server = CertificateParams::new(names.map(String::from).to_vec()).expect("names are valid");
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let server_cert = server
        .signed_by(&server_key, &issuer)
        .expect("an authority signs");

    let tokens = KeyPair::generate().expect("a key");
    for (name, text) in [
        ("ca.crt", authority_cert.pem()),
        ("server.crt", server_cert.pem()),
        ("server.key", server_key.serialize_pem()),
        ("sa.key", tokens.serialize_pem()),
        ("sa.pub", tokens.public_key_pem()),
    ] {
        std::fs::write(dir.join(name), text).expect("a certificate file is written");
    }
    authority_cert.pem()
}

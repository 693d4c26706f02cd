//! Certificates of the push port: an authority that the operator makes and rotates in one Secret, or files.
//!
//! The Secret holds authorities alone, the newest first. Every replica issues its own serving certificate from the
//! newest and keeps it in memory: no key of a server is ever stored.

mod files;
pub(crate) mod limits;
pub mod plan;
mod secret;
mod told;

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};

pub use files::Files;
pub use plan::Authority;
pub use secret::Keeper;
pub use told::{Certificates, Metrics, Trouble};

/// What the push port serves with, and what routers check it against.
#[derive(Clone, Debug)]
pub struct Serving {
    /// TLS of the push port.
    pub tls: Arc<ServerConfig>,
    /// Certificates of authorities, PEM: what routers get in their ConfigMap.
    pub bundle: String,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// A certificate cannot be served.
    #[error("the certificate cannot be served: {0}")]
    Tls(#[from] rustls::Error),
    /// The API server did not answer as needed.
    #[error("Secret {name}: {source}")]
    Secret {
        /// The Secret.
        name: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// No authority has been made yet: the leader makes it.
    #[error("Secret {0} holds no certificate authority yet")]
    NoAuthority(String),
    /// What is kept is no authority, and this replica may not replace it.
    #[error("Secret {0} holds no certificate authority that can be used, the leader makes a new one: {1}")]
    Unusable(String, String),
    /// A file cannot be read.
    #[error("{}: {why}", path.display())]
    File {
        /// Which.
        path: std::path::PathBuf,
        /// Why.
        why: String,
    },
}

/// Makes an authority that is valid from `now` on.
///
/// # Errors
/// [`Error::Make`].
pub fn authority(now: jiff::Timestamp) -> Result<Authority, Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "continuum-router-controller");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let not_after = plan::end_of(now, plan::AUTHORITY_DAYS);
    params.not_before = plan::offset(plan::start_of(now));
    params.not_after = plan::offset(not_after);
    let cert = params.self_signed(&key)?;
    Ok(Authority {
        cert: cert.pem(),
        key: key.serialize_pem(),
        not_after,
    })
}

/// Issues a serving certificate for `host` from an authority.
///
/// # Errors
/// The authority cannot be read, or the certificate not be made.
pub fn issue(authority: &Authority, host: &str, now: jiff::Timestamp) -> Result<Arc<ServerConfig>, Error> {
    let issuer = issuer(authority)?;
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![host.to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, host);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.not_before = plan::offset(plan::start_of(now));
    params.not_after = plan::offset(plan::end_of(now, plan::SERVING_DAYS).min(authority.not_after));
    let cert = params.signed_by(&key, &issuer)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Ok(crate::push::tls_config(vec![CertificateDer::from(cert)], key)?)
}

/// The authority, ready to sign.
fn issuer(authority: &Authority) -> Result<Issuer<'static, KeyPair>, rcgen::Error> {
    Issuer::from_ca_cert_pem(&authority.cert, KeyPair::from_pem(&authority.key)?)
}

#[cfg(test)]
mod tests;

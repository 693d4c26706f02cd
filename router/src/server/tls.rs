//! The certificate that clients see.

use std::{fs, path::Path, sync::Arc};

use continuum_config::model::ServerTls;
use rustls::{ServerConfig, crypto::ring};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio_rustls::TlsAcceptor;

use super::Error;

/// Reads the certificate and its key. TLS 1.2 and 1.3, HTTP/2 preferred.
pub(super) fn acceptor(tls: &ServerTls) -> Result<TlsAcceptor, Error> {
    let chain = CertificateDer::pem_slice_iter(&read(&tls.cert)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Error::Tls(format!("{}: {error}", tls.cert.display())))?;
    let key_path: &Path = tls.key.path();
    let key = PrivateKeyDer::from_pem_slice(&read(key_path)?)
        .map_err(|error| Error::Tls(format!("the private key: {error}")))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| Error::Tls(error.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| Error::Tls(format!("{}: {error}", path.display())))
}

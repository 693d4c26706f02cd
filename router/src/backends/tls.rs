//! What is trusted of an `https` backend.

use std::sync::{Arc, OnceLock};

use continuum_config::model::BackendTls;
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio_rustls::TlsConnector;

use super::Error;

/// A ready TLS client for one backend.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) connector: TlsConnector,
    pub(crate) name: ServerName<'static>,
}

impl Tls {
    /// Reads the certificate file of the settings, if they name one.
    ///
    /// # Errors
    /// The file cannot be read or holds no certificate, or the name can be in no certificate.
    pub(crate) fn new(
        backend: &str,
        host: &str,
        settings: Option<&BackendTls>,
        http2: bool,
    ) -> Result<Self, Error> {
        let failed = |reason: String| Error::Tls {
            backend: backend.to_owned(),
            reason,
        };
        let roots = match settings.and_then(|tls| tls.ca_cert.as_ref()) {
            None => system_roots(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                let certificates = CertificateDer::pem_file_iter(path)
                    .map_err(|error| failed(format!("cannot read {}: {error}", path.display())))?;
                for certificate in certificates {
                    let certificate =
                        certificate.map_err(|error| failed(format!("{}: {error}", path.display())))?;
                    roots
                        .add(certificate)
                        .map_err(|error| failed(format!("{}: {error}", path.display())))?;
                }
                if roots.is_empty() {
                    return Err(failed(format!("{} holds no certificate", path.display())));
                }
                Arc::new(roots)
            }
        };
        let name = settings
            .and_then(|tls| tls.server_name.as_deref())
            .unwrap_or(host);
        let name =
            ServerName::try_from(name.to_owned()).map_err(|error| failed(format!("`{name}`: {error}")))?;
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![if http2 {
            b"h2".to_vec()
        } else {
            b"http/1.1".to_vec()
        }];
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            name,
        })
    }
}

/// The system's roots, read once. A root that does not parse is left out: the rest still serves.
fn system_roots() -> Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let read = || {
        let mut roots = RootCertStore::empty();
        let (_added, ignored) =
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if ignored > 0 {
            tracing::debug!(ignored, "system roots that do not parse were left out");
        }
        Arc::new(roots)
    };
    Arc::clone(ROOTS.get_or_init(read))
}

//! Certificates and keys, read from their files at each pass.

use std::path::{Path, PathBuf};

use etcd_client::{Certificate, Identity, TlsOptions};
use tokio::io::AsyncReadExt as _;

use super::Tls;
use crate::{error::Error, limits::TLS_FILE_BYTES};

/// Reads the files. Their content is judged when the connection is made.
pub(super) async fn read(tls: &Tls) -> Result<TlsOptions, Error> {
    let mut options = TlsOptions::new();
    options = match &tls.ca_cert {
        Some(path) => options.ca_certificate(Certificate::from_pem(pem(path).await?)),
        None => options.with_enabled_roots(),
    };
    if let Some((cert, key)) = &tls.client {
        options = options.identity(Identity::from_pem(pem(cert).await?, pem(key).await?));
    }
    if let Some(name) = &tls.server_name {
        options = options.domain_name(name);
    }
    Ok(options)
}

async fn pem(path: &Path) -> Result<Vec<u8>, Error> {
    let refused = |why: String| Error::Tls {
        path: PathBuf::from(path),
        why,
    };
    let file = tokio::fs::File::open(path)
        .await
        .map_err(|error| refused(error.to_string()))?;
    let mut text = Vec::new();
    file.take(TLS_FILE_BYTES + 1)
        .read_to_end(&mut text)
        .await
        .map_err(|error| refused(error.to_string()))?;
    match u64::try_from(text.len()) {
        Ok(length) if length <= TLS_FILE_BYTES => {}
        Ok(_) | Err(_) => return Err(refused(format!("larger than {TLS_FILE_BYTES} bytes"))),
    }
    if !text.windows(10).any(|window| window == b"-----BEGIN") {
        return Err(refused("holds no PEM block".into()));
    }
    Ok(text)
}

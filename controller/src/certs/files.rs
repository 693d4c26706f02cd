//! Certificates that somebody else keeps, for instance cert-manager: read again when they change.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Error, Serving};

/// How often the files are compared: a Secret volume takes about a minute to follow anyway.
const BETWEEN: Duration = Duration::from_secs(10);
/// A larger file is no certificate.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A directory with `tls.crt`, `tls.key` and `ca.crt`.
pub struct Files {
    directory: PathBuf,
    serving: watch::Sender<Option<Serving>>,
    read: Option<[Vec<u8>; 3]>,
}

impl Files {
    /// Serves from `directory`.
    #[must_use]
    pub fn new(directory: PathBuf) -> (Self, watch::Receiver<Option<Serving>>) {
        let (serving, receiver) = watch::channel(None);
        (
            Self {
                directory,
                serving,
                read: None,
            },
            receiver,
        )
    }

    /// Runs until `stop`. Files that cannot be used leave what is served in place.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut said = false;
        loop {
            match self.once().await {
                Ok(()) => said = false,
                Err(error) if !std::mem::replace(&mut said, true) => {
                    tracing::warn!(%error, "the certificate of the push port cannot be used, what is served stays");
                }
                Err(_said) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(BETWEEN) => {}
            }
        }
    }

    async fn once(&mut self) -> Result<(), Error> {
        let mut files: [Vec<u8>; 3] = Default::default();
        for (file, name) in files.iter_mut().zip(["tls.crt", "tls.key", "ca.crt"]) {
            *file = read(&self.directory.join(name)).await?;
        }
        if self.read.as_ref() == Some(&files) {
            return Ok(());
        }
        let serving = serving(&self.directory, &files)?;
        self.serving.send_replace(Some(serving));
        self.read = Some(files);
        Ok(())
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let failed = |why: String| Error::File {
        path: path.to_owned(),
        why,
    };
    let meta = tokio::fs::metadata(path)
        .await
        .map_err(|error| failed(error.to_string()))?;
    if !meta.is_file() || meta.len() > MAX_FILE_BYTES {
        return Err(failed("is no certificate file".to_owned()));
    }
    tokio::fs::read(path)
        .await
        .map_err(|error| failed(error.to_string()))
}

fn serving(directory: &Path, [chain, key, bundle]: &[Vec<u8>; 3]) -> Result<Serving, Error> {
    let failed = |name: &str, why: String| Error::File {
        path: directory.join(name),
        why,
    };
    let chain = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| failed("tls.crt", error.to_string()))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| failed("tls.key", error.to_string()))?;
    let tls: Arc<ServerConfig> = crate::push::tls_config(chain, key)?;
    let bundle = String::from_utf8(bundle.clone()).map_err(|error| failed("ca.crt", error.to_string()))?;
    Ok(Serving { tls, bundle })
}

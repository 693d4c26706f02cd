//! Certificates that somebody else keeps, for instance cert-manager: read again when they change.
//!
//! What is served and what routers trust never part. Files are taken over only if a router that had their `ca.crt` would
//! accept their `tls.crt`. When the authority changes, routers are given the new one beside the old one first; the new
//! certificate is served when they have had the time to read it, and the old authority goes an hour later.

mod trusted;

use std::{path::PathBuf, sync::Arc};

use jiff::Timestamp;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use self::trusted::{Trusted, verifies};
use super::{
    Certificates, Error, Metrics, Serving,
    limits::{FILES_EVERY, MAX_FILE_BYTES},
    plan,
    told::Told,
};

const NAMES: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];
/// The link that a kubelet replaces when it writes a volume anew: what is behind it is of one write.
const CURRENT: &str = "..data";

/// A directory with `tls.crt`, `tls.key` and `ca.crt`.
pub struct Files {
    directory: PathBuf,
    host: Option<ServerName<'static>>,
    told: Told,
    /// As they were when they were last taken over.
    taken: Option<[Vec<u8>; 3]>,
    trusted: Trusted,
    served: Option<Pair>,
    /// Waits until routers have its authority.
    next: Option<Pair>,
}

/// A certificate with its key.
struct Pair {
    tls: Arc<ServerConfig>,
    chain: Vec<CertificateDer<'static>>,
    expiry: Timestamp,
}

impl Files {
    /// Serves from `directory` as `host`.
    #[must_use]
    pub fn new(directory: PathBuf, host: &str, metrics: Metrics) -> (Self, Certificates) {
        let (told, seen) = Told::new(metrics);
        let files = Self {
            directory,
            host: ServerName::try_from(host.to_owned()).ok(),
            told,
            taken: None,
            trusted: Trusted::default(),
            served: None,
            next: None,
        };
        (files, seen)
    }

    /// Runs until `stop`. Files that cannot be used leave what is served in place.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let read = self.read().await;
            let taken = read.and_then(|files| self.take(files, Instant::now()));
            match taken {
                Ok(()) => self.told.well(),
                Err(error) => self.told.failed(&error),
            }
            self.turn(Instant::now(), Timestamp::now());
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(FILES_EVERY) => {}
            }
        }
    }

    /// The three files, all of one write.
    async fn read(&self) -> Result<[Vec<u8>; 3], Error> {
        let link = self.directory.join(CURRENT);
        loop {
            let place = tokio::fs::canonicalize(&link).await.ok();
            let mut files: [Vec<u8>; 3] = Default::default();
            let mut failed = None;
            for (file, name) in files.iter_mut().zip(NAMES) {
                match read(place.as_ref().unwrap_or(&self.directory).join(name)).await {
                    Ok(bytes) => *file = bytes,
                    Err(why) => failed = Some(self.failed(name, why)),
                }
            }
            let Some(failed) = failed else { return Ok(files) };
            // Written anew meanwhile, and what was there before is gone.
            if tokio::fs::canonicalize(&link).await.ok() == place {
                return Err(failed);
            }
        }
    }

    /// Takes changed files over, if a router could.
    fn take(&mut self, files: [Vec<u8>; 3], now: Instant) -> Result<(), Error> {
        if self.taken.as_ref() == Some(&files) {
            return Ok(());
        }
        let [chain, key, bundle] = &files;
        let pair = self.pair(chain, key)?;
        let authorities = CertificateDer::pem_slice_iter(bundle)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| self.failed("ca.crt", error.to_string()))?;
        if authorities.is_empty() {
            let why = "it holds no certificate, so routers could trust nobody; the issuer must be one that gives its \
                       authority";
            return Err(self.failed("ca.crt", why.to_owned()));
        }
        let verified = match &self.host {
            Some(host) => verifies(&authorities, &pair.chain, host),
            None => Err("the push endpoint names no host".to_owned()),
        };
        verified.map_err(|why| {
            let why = format!("routers could not verify tls.crt with it: {why}");
            self.failed("ca.crt", why)
        })?;
        self.trusted.name(authorities, now);
        let same = self
            .served
            .as_ref()
            .is_some_and(|served| served.chain == pair.chain);
        if !same && self.served.is_some() {
            tracing::info!("the files hold a new certificate for the push port");
        }
        self.next = Some(pair);
        self.taken = Some(files);
        Ok(())
    }

    /// Serves what waits when it is time, lets go of authorities of before, and tells what has changed.
    fn turn(&mut self, now: Instant, today: Timestamp) {
        let due = match (&self.served, &self.next) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(served), Some(next)) => {
                // With one that has run out there is nothing to lose.
                served.expiry <= today || self.knows(next, now)
            }
        };
        if due {
            self.served = self.next.take();
        }
        if self.next.is_none() {
            self.trusted.let_go(now);
        }
        let Some(served) = &self.served else { return };
        let bundle = self.trusted.bundle();
        if due {
            let tls = Arc::clone(&served.tls);
            self.told.serve(Serving { tls, bundle }, served.expiry);
        } else {
            self.told.bundle(bundle);
        }
    }

    fn pair(&self, chain: &[u8], key: &[u8]) -> Result<Pair, Error> {
        let chain = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| self.failed("tls.crt", error.to_string()))?;
        let first = chain
            .first()
            .ok_or_else(|| self.failed("tls.crt", "it holds no certificate".to_owned()))?;
        let expiry = plan::expiry(first).ok_or_else(|| {
            let why = "its first certificate cannot be read";
            self.failed("tls.crt", why.to_owned())
        })?;
        let key =
            PrivateKeyDer::from_pem_slice(key).map_err(|error| self.failed("tls.key", error.to_string()))?;
        let tls = crate::push::tls_config(chain.clone(), key)?;
        Ok(Pair { tls, chain, expiry })
    }

    fn knows(&self, next: &Pair, now: Instant) -> bool {
        let host = self.host.as_ref();
        host.is_some_and(|host| self.trusted.knows(&next.chain, host, now))
    }

    fn failed(&self, name: &str, why: String) -> Error {
        Error::File {
            path: self.directory.join(name),
            why,
        }
    }
}

async fn read(path: PathBuf) -> Result<Vec<u8>, String> {
    let meta = tokio::fs::metadata(&path)
        .await
        .map_err(|error| error.to_string())?;
    if !meta.is_file() || meta.len() > MAX_FILE_BYTES {
        return Err(format!(
            "it is no file of at most {} KiB",
            MAX_FILE_BYTES.wrapping_shr(10)
        ));
    }
    tokio::fs::read(&path).await.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;

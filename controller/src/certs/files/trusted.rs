//! The authorities that routers are given: those of the files, and those of before for a while.

use std::sync::Arc;

use pem::{EncodeConfig, LineEnding, Pem};
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::time::Instant;

use crate::certs::limits::{MAX_AUTHORITIES, OVERLAP, SETTLE};

/// The authorities, those of the files first.
#[derive(Debug, Default)]
pub(super) struct Trusted(Vec<Authority>);

#[derive(Debug)]
struct Authority {
    cert: CertificateDer<'static>,
    /// Since when routers are given it; `None`: since this process began.
    since: Option<Instant>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The files name it.
    Named,
    /// They do not, and what it signed is perhaps served still.
    Replaced,
    /// Since then nothing that it signed is served here.
    Unused(Instant),
}

impl Trusted {
    /// The files name these from now on.
    pub(super) fn name(&mut self, authorities: Vec<CertificateDer<'static>>, now: Instant) {
        let first = self.0.is_empty();
        let mut next: Vec<Authority> = Vec::new();
        for cert in authorities {
            if next.iter().any(|known| known.cert == cert) {
                continue;
            }
            let known = self.0.iter().find(|known| known.cert == cert);
            next.push(Authority {
                since: match known {
                    Some(known) => known.since,
                    None => (!first).then_some(now),
                },
                state: State::Named,
                cert,
            });
        }
        for mut before in self.0.drain(..) {
            if !next.iter().any(|known| known.cert == before.cert) {
                if before.state == State::Named {
                    before.state = State::Replaced;
                }
                next.push(before);
            }
        }
        let named = next.iter().filter(|known| known.state == State::Named).count();
        // Those that were replaced first are the last.
        next.truncate(MAX_AUTHORITIES.max(named));
        self.0 = next;
    }

    /// Whether routers can be expected to accept this chain by now.
    pub(super) fn knows(
        &self,
        chain: &[CertificateDer<'static>],
        host: &ServerName<'_>,
        now: Instant,
    ) -> bool {
        let settled = |known: &&Authority| known.since.is_none_or(|since| now >= since + SETTLE);
        let settled = self.0.iter().filter(settled);
        let settled: Vec<_> = settled.map(|known| known.cert.clone()).collect();
        verifies(&settled, chain, host).is_ok()
    }

    /// What is served is of the files: those of before run out.
    pub(super) fn let_go(&mut self, now: Instant) {
        self.0.retain_mut(|known| match known.state {
            State::Named => true,
            State::Replaced => {
                known.state = State::Unused(now);
                true
            }
            State::Unused(since) => now < since + OVERLAP,
        });
    }

    /// All of them, PEM. Written anew, so that nothing but certificates goes out.
    pub(super) fn bundle(&self) -> String {
        let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
        let pems = self
            .0
            .iter()
            .map(|known| Pem::new("CERTIFICATE", known.cert.to_vec()));
        pems.map(|pem| pem::encode_config(&pem, config)).collect()
    }
}

/// Whether a router that trusts these authorities accepts the chain, as it would look at it.
pub(super) fn verifies(
    authorities: &[CertificateDer<'static>],
    chain: &[CertificateDer<'static>],
    host: &ServerName<'_>,
) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.clone()).map_err(|error| error.to_string())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| error.to_string())?;
    let (first, others) = chain.split_first().ok_or("there is no certificate")?;
    let verified = verifier.verify_server_cert(first, others, host, &[], UnixTime::now());
    verified.map(drop).map_err(|error| error.to_string())
}

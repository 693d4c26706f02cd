//! The controllers' addresses: every address behind their name.

use std::{future::Future, io, net::SocketAddr, pin::Pin, sync::Arc};

use tokio::time::timeout;

use crate::{error::Error, limits::RESOLVE_TIMEOUT};

/// Answers with every address behind a name.
pub type Lookup = Arc<
    dyn Fn(String, u16) -> Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>> + Send + Sync,
>;

/// The system's name service.
#[must_use]
pub fn system() -> Lookup {
    Arc::new(|host, port| {
        Box::pin(async move { Ok(tokio::net::lookup_host((host.as_str(), port)).await?.collect()) })
    })
}

/// Asks once, in time. The answer is sorted and has each address once.
pub(crate) async fn resolve(lookup: &Lookup, host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
    let answer = timeout(RESOLVE_TIMEOUT, lookup(host.to_owned(), port))
        .await
        .map_err(|_elapsed| Error::Resolve(io::ErrorKind::TimedOut.into()))?;
    let mut found = answer.map_err(Error::Resolve)?;
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

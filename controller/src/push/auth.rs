//! Whose session it is: a trait for who can tell, and a short memory of good tokens.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::BoxFuture;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use super::{
    Identity,
    limits::{MAX_CACHED_TOKENS, MAX_REVIEWS, REVIEW, TOKEN_CACHE},
    refusals::Refusals,
    strangers::Peer,
};

/// Tells whose token it is. The one of the controller asks the API server.
pub trait Authenticator: Send + Sync + 'static {
    /// The router pod that holds this token.
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Identity, AuthError>>;

    /// Whether it is worth asking: what a token says of itself proves nothing, but may show that it is for others.
    ///
    /// # Errors
    /// Why it cannot be the token of a router.
    fn plausible(&self, _token: &str) -> Result<(), AuthError> {
        Ok(())
    }
}

/// Why a token opens no session. The text is told to the router: it names no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// It is not the token of a router pod.
    #[error("{0}")]
    Refused(String),
    /// Nobody could tell.
    #[error("the token could not be checked: {0}")]
    Unavailable(String),
    /// There were too many bad tokens from there.
    #[error("too many tokens from this address were refused: try again later")]
    Pause,
}

/// Remembers good tokens for a while, by hash, and bounds the questions.
pub(super) struct Cached {
    inner: Arc<dyn Authenticator>,
    known: Mutex<BTreeMap<[u8; 32], (Identity, Instant)>>,
    reviews: Semaphore,
    refusals: Refusals,
}

impl Cached {
    pub(super) fn new(inner: Arc<dyn Authenticator>) -> Self {
        Self {
            inner,
            known: Mutex::default(),
            reviews: Semaphore::new(MAX_REVIEWS),
            refusals: Refusals::default(),
        }
    }

    pub(super) async fn authenticate(&self, token: &str, peer: Peer) -> Result<Identity, AuthError> {
        let hash = *blake3::hash(token.as_bytes()).as_bytes();
        if let Some(identity) = self.recall(&hash) {
            return Ok(identity);
        }
        self.inner.plausible(token)?;
        let turns = self.refusals.turns(peer);
        let ask = async {
            // First among those from there, then among all: who waits here holds up nobody else.
            let _turn = turns.acquire().await;
            if self.refusals.pauses(peer) {
                return Err(AuthError::Pause);
            }
            let _permit = self.reviews.acquire().await;
            // Another session of the same pod may have asked meanwhile.
            match self.recall(&hash) {
                Some(identity) => Ok(identity),
                None => {
                    let answer = self.inner.authenticate(token).await;
                    if matches!(answer, Err(AuthError::Refused(_))) {
                        self.refusals.refused(peer);
                    }
                    answer
                }
            }
        };
        let identity = timeout(REVIEW, ask)
            .await
            .map_err(|_elapsed| AuthError::Unavailable("no answer in time".to_owned()))??;
        self.remember(hash, &identity);
        Ok(identity)
    }

    fn recall(&self, hash: &[u8; 32]) -> Option<Identity> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (identity, since) = known.get(hash)?;
        (since.elapsed() < TOKEN_CACHE).then(|| identity.clone())
    }

    fn remember(&self, hash: [u8; 32], identity: &Identity) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_CACHED_TOKENS {
            known.retain(|_, (_, since)| since.elapsed() < TOKEN_CACHE);
        }
        if known.len() >= MAX_CACHED_TOKENS {
            let oldest = known
                .iter()
                .min_by_key(|(_, (_, since))| *since)
                .map(|(hash, _)| *hash);
            if let Some(oldest) = oldest {
                known.remove(&oldest);
            }
        }
        // The time of the answer stays the first one: a token is asked about again in the end.
        known
            .entry(hash)
            .and_modify(|entry| {
                if entry.1.elapsed() >= TOKEN_CACHE {
                    *entry = (identity.clone(), Instant::now());
                }
            })
            .or_insert_with(|| (identity.clone(), Instant::now()));
    }
}

#[cfg(test)]
mod tests;

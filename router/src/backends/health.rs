//! One task per backend: is it there, and which models does it list.
//!
//! A frontend answers its health check with 200 whatever its fleet does, and drops a model from its list when the
//! fleet cannot serve it. So the check alone says up or down, and the list alone says which models.

use std::{sync::Arc, time::Duration};

use continuum_config::model::Health;
use http::{Method, StatusCode, header::ACCEPT, uri::PathAndQuery};
use http_body_util::{BodyExt as _, Limited};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    Backend,
    listing::{LISTING_BYTES, Listing},
};
use crate::dispatch::send::{Outbound, exchange};

/// Bytes of a health answer that are read, so that its connection can be used again.
const HEALTH_BYTES: usize = 64 * 1024;

/// Checks of many backends must not fall on one moment: each pause is up to this share longer.
const JITTER: f64 = 0.1;

/// Up or down, from a row of checks. Pure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    up: bool,
    /// Checks in a row that contradict `up`.
    against: u32,
}

impl Row {
    pub(super) const fn new(up: bool) -> Self {
        Self { up, against: 0 }
    }

    /// Takes one check; tells when the state changes.
    pub(super) const fn check(&mut self, healthy: bool, settings: &Health) -> Option<bool> {
        if healthy == self.up {
            self.against = 0;
            return None;
        }
        self.against += 1;
        let needed = if self.up {
            settings.down_after
        } else {
            settings.up_after
        };
        if self.against < needed {
            return None;
        }
        *self = Self::new(healthy);
        Some(healthy)
    }
}

/// Checks the backend until told to stop.
pub(super) async fn watch(backend: Arc<Backend>, stop: CancellationToken) {
    let work = async {
        let mut row = Row::new(backend.is_up());
        loop {
            let health = &backend.settings().health;
            if health.enabled {
                let checked = check(&backend, health).await;
                if let Err(unwell) = &checked {
                    tracing::debug!(backend = %backend.name(), reason = %unwell, "health check failed");
                }
                if checked.is_ok() {
                    backend.set_answered();
                }
                if let Some(up) = row.check(checked.is_ok(), health) {
                    backend.set_up(up);
                    match checked {
                        Ok(()) => tracing::info!(backend = %backend.name(), "backend is up"),
                        Err(reason) => tracing::warn!(backend = %backend.name(), %reason, "backend is down"),
                    }
                }
            }
            read_listing(&backend).await;
            backend.prune_idle();
            let pause = health.interval.mul_f64(1.0 + JITTER * rand::random::<f64>());
            let next = sleep(pause);
            tokio::pin!(next);
            loop {
                tokio::select! {
                    () = &mut next => break,
                    () = backend.listing_wanted() => read_listing(&backend).await,
                }
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = work => {}
    }
}

/// Why a check failed.
#[derive(Debug, thiserror::Error)]
enum Unwell {
    #[error("answered {0}")]
    Status(StatusCode),
    #[error("took longer than {0:?}")]
    Late(Duration),
    #[error("{}", chain(&**.0))]
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

/// An error with what lies under it: "cannot connect" alone does not tell a wrong port from a wrong name.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

async fn check(backend: &Arc<Backend>, health: &Health) -> Result<(), Unwell> {
    let path = PathAndQuery::try_from(health.path.as_str()).map_err(|error| Unwell::Failed(error.into()))?;
    let (status, _body) = timeout(health.timeout, read(backend, path, HEALTH_BYTES))
        .await
        .map_err(|_| Unwell::Late(health.timeout))?
        .map_err(Unwell::Failed)?;
    if status.is_success() {
        Ok(())
    } else {
        Err(Unwell::Status(status))
    }
}

/// A list that cannot be read leaves the last one in place: it is the fleet's shape, not the server's health.
async fn read_listing(backend: &Arc<Backend>) {
    if !backend.wants_listing() || !backend.is_up() {
        return;
    }
    let path = PathAndQuery::from_static("/v1/models");
    let read = timeout(
        backend.settings().health.timeout,
        read(backend, path, LISTING_BYTES),
    )
    .await;
    match read {
        Ok(Ok((status, body))) if status.is_success() => match Listing::parse(&body) {
            Ok(listing) => backend.set_listing(listing),
            Err(error) => tracing::debug!(backend = %backend.name(), %error, "model list does not parse"),
        },
        Ok(Ok((status, _))) => tracing::debug!(backend = %backend.name(), %status, "no model list"),
        Ok(Err(error)) => tracing::debug!(backend = %backend.name(), error, "no model list"),
        Err(_) => tracing::debug!(backend = %backend.name(), "no model list in time"),
    }
}

async fn read(
    backend: &Arc<Backend>,
    path: PathAndQuery,
    most: usize,
) -> Result<(StatusCode, bytes::Bytes), Box<dyn std::error::Error + Send + Sync>> {
    let mut outbound = Outbound::new(Method::GET, path);
    outbound
        .headers
        .insert(ACCEPT, http::HeaderValue::from_static("application/json"));
    let answer = exchange(backend, &outbound, |_, _| {}).await?;
    let status = answer.head.status;
    let body = Limited::new(answer.body, most).collect().await?.to_bytes();
    answer.connection.finish();
    Ok((status, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn down_after_three_up_after_one() {
        let settings = Health::default();
        let mut row = Row::new(true);
        let changes: Vec<_> = [false, false, true, false, false, false, false, true, true]
            .into_iter()
            .map(|healthy| row.check(healthy, &settings))
            .collect();
        assert_eq!(
            changes,
            [None, None, None, None, None, Some(false), None, Some(true), None]
        );
    }

    #[test]
    fn up_again_takes_as_many_as_configured() {
        let settings = Health {
            up_after: 2,
            ..Health::default()
        };
        let mut row = Row::new(false);
        assert_eq!(
            [true, false, true, true].map(|healthy| row.check(healthy, &settings)),
            [None, None, None, Some(true)]
        );
    }
}

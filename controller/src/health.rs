//! Probes and metrics of the controller, for the kubelet and Prometheus.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use prometheus::{Encoder as _, Registry, TextEncoder};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::certs::Serving;

/// What the probes look at.
#[derive(Clone)]
pub struct Health {
    /// Metrics of this process.
    pub registry: Registry,
    /// Routers can be served.
    pub serving: watch::Receiver<Option<Serving>>,
    /// Every `RouterConfig` has been listed once.
    pub listed: watch::Receiver<bool>,
}

/// Serves `/livez`, `/readyz` and `/metrics` until `stop`.
///
/// # Errors
/// When the listener fails.
pub async fn serve(listener: TcpListener, health: Health, stop: CancellationToken) -> std::io::Result<()> {
    let router = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(health));
    axum::serve(listener, router)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}

/// A replica that is not ready is no address of the push Service: routers go to one that can serve them.
async fn ready(State(health): State<Arc<Health>>) -> impl IntoResponse {
    if health.serving.borrow().is_none() {
        return (StatusCode::SERVICE_UNAVAILABLE, "no certificate yet\n");
    }
    if !*health.listed.borrow() {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            "the RouterConfigs have not been listed yet\n",
        );
    }
    (StatusCode::OK, "ok\n")
}

async fn metrics(State(health): State<Arc<Health>>) -> impl IntoResponse {
    let mut text = Vec::new();
    let encoder = TextEncoder::new();
    let status = match encoder.encode(&health.registry.gather(), &mut text) {
        Ok(()) => StatusCode::OK,
        Err(error) => {
            tracing::warn!(%error, "metrics cannot be written");
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    (
        status,
        [(header::CONTENT_TYPE, "text/plain; version=0.0.4")],
        text,
    )
}

//! The operators' listener: status, the fleet, dry runs, reload, metrics.
//!
//! Answers are made of output types of this module, never of the model's own, so that what is not meant to be shown
//! (addresses of workers, cards, secrets) cannot slip in with a new field.

mod auth;
mod config;
mod endpoint;
#[cfg(feature = "dynamo")]
mod explain;
mod status;
#[cfg(feature = "dynamo")]
mod workers;

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use hyper::body::Incoming;
use jiff::Timestamp;
use prometheus::{Encoder as _, TextEncoder};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use self::endpoint::Endpoint;
use crate::{
    app::App,
    error::Error,
    proxy::{self, Body},
    reload::Reloader,
    server::Listener,
};

/// Serves operators and scrapers, also while the process drains: until the runtime ends.
pub fn serve(operators: Listener, scrapers: Option<Listener>, app: Arc<App>, reloader: Arc<Reloader>) {
    let admin = Arc::new(Admin {
        app,
        reloader,
        started: Timestamp::now(),
    });
    let listeners = [
        (Some(operators), Audience::Operators),
        (scrapers, Audience::Scrapers),
    ];
    for (listener, audience) in listeners {
        let Some(listener) = listener else { continue };
        let admin = admin.clone();
        let answer = move |request| {
            let admin = admin.clone();
            async move { Ok::<_, Infallible>(admin.answer(request, audience).await) }
        };
        // Not among the tasks that a drain waits for: who watches the drain must be answered to its end.
        tokio::spawn(listener.run(answer, CancellationToken::new()));
    }
}

/// Who connects to a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audience {
    /// Everything, for those who have the token.
    Operators,
    /// Metrics and probes alone, for everybody.
    Scrapers,
}

/// What the endpoints read.
struct Admin {
    app: Arc<App>,
    reloader: Arc<Reloader>,
    started: Timestamp,
}

impl Admin {
    async fn answer(self: &Arc<Self>, request: Request<Incoming>, audience: Audience) -> Response<Body> {
        let endpoint = match Endpoint::find(request.method(), request.uri().path(), audience) {
            Ok(endpoint) => endpoint,
            Err(error) => return refused(&error),
        };
        let live = self.app.live().clone();
        if audience == Audience::Operators
            && !endpoint.is_probe()
            && let Err(refusal) = auth::check(&live.config.admin, request.headers())
        {
            return refusal.response();
        }
        match endpoint {
            Endpoint::Health | Endpoint::Live => proxy::status(StatusCode::OK, "ok"),
            Endpoint::Ready => proxy::ready(&self.app),
            Endpoint::Metrics => self.aside(Self::metrics).await,
            Endpoint::Status => self.aside(|admin| json(&status::Status::of(admin))).await,
            Endpoint::Config => json(&*live.config),
            Endpoint::Reload => config::reload(&self.reloader).await,
            #[cfg(feature = "dynamo")]
            Endpoint::Workers => self.aside(|admin| json(&workers::Workers::of(&admin.app))).await,
            #[cfg(feature = "dynamo")]
            Endpoint::Explain => explain::answer(self, request)
                .await
                .unwrap_or_else(|error| refused(&error)),
        }
    }

    /// Makes an answer beside the threads that relay: walking a large fleet takes longer than a stream may stand
    /// still.
    async fn aside(
        self: &Arc<Self>,
        make: impl FnOnce(&Self) -> Response<Body> + Send + 'static,
    ) -> Response<Body> {
        let admin = self.clone();
        tokio::task::spawn_blocking(move || make(&admin))
            .await
            .unwrap_or_else(|_| refused(&Error::Internal("an answer to an operator was lost")))
    }

    fn metrics(&self) -> Response<Body> {
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.app.registry.gather(), &mut text) {
            tracing::warn!(%error, "metrics could not be written");
            return refused(&Error::Internal("metrics could not be written"));
        }
        let mut response = Response::new(Body::whole(Bytes::from(text)));
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(prometheus::TEXT_FORMAT));
        response
    }
}

fn json(value: &impl Serialize) -> Response<Body> {
    with_status(StatusCode::OK, value)
}

fn with_status(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(body) => proxy::json(status, Bytes::from(body)),
        Err(_) => refused(&Error::Internal("an answer could not be written as JSON")),
    }
}

fn refused(error: &Error) -> Response<Body> {
    if let Error::Internal(reason) = error {
        tracing::error!(reason, "a defect of this router failed an operator's request");
    }
    error.response().map(Body::whole)
}

/// RFC 3339 with a numeric offset and whole seconds.
fn moment(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S+00:00").to_string()
}

/// Whether a method may be used where `GET` is offered.
fn reads(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}

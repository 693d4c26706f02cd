//! Answers that need no backend: models, health, liveness, readiness.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Body, fleet};
use crate::{
    app::{App, NotReady},
    error::Error,
    ingress::{
        models::{Models, Offer, Owner},
        routes::{self, Route},
        strip::X_REQUEST_ID,
    },
};

/// Answers a local route of the data plane.
pub(super) fn answer(
    app: &App,
    route: Route,
    path: &str,
    request_id: &HeaderValue,
) -> Result<Response<Body>, Error> {
    let mut response = match route {
        Route::Models => json(StatusCode::OK, with_models(app, |models| models.list(created()))),
        Route::Model => model(app, path)?,
        Route::Health | Route::Live => status(StatusCode::OK, "ok"),
        Route::Ready => ready(app),
        Route::ChatCompletions
        | Route::Completions
        | Route::Embeddings
        | Route::Responses
        | Route::Moderations
        | Route::ImageGenerations
        | Route::AudioSpeech
        | Route::Rerank
        | Route::Score
        | Route::Classify
        | Route::Pooling => return Err(Error::Internal("a relayed route was asked for a local answer")),
    };
    response.headers_mut().insert(X_REQUEST_ID, request_id.clone());
    Ok(response)
}

/// Readiness, for probes on any listener.
pub(crate) fn ready(app: &App) -> Response<Body> {
    match app.not_ready() {
        None => status(StatusCode::OK, "ready"),
        Some(why) => status(
            StatusCode::SERVICE_UNAVAILABLE,
            match why {
                NotReady::Draining => "draining",
                NotReady::FirstSync => "waiting for the first list of the fleet",
            },
        ),
    }
}

/// `{"status": …}`.
pub(crate) fn status(code: StatusCode, word: &str) -> Response<Body> {
    json(
        code,
        Bytes::from(serde_json::json!({ "status": word }).to_string()),
    )
}

/// A JSON answer.
pub(crate) fn json(code: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::whole(body));
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn model(app: &App, path: &str) -> Result<Response<Body>, Error> {
    let id = routes::model_id(path).unwrap_or_default();
    with_models(app, |models| models.one(&id, created()))
        .map(|body| json(StatusCode::OK, body))
        .ok_or_else(|| Error::ModelNotFound { model: (*id).into() })
}

fn created() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// The names that can be served now: of the fleet, of the map, of backends.
fn with_models<T>(app: &App, then: impl FnOnce(&Models<'_>) -> T) -> T {
    let live = app.live();
    let set = app.backends.load();
    let served = fleet::served(app, &live);
    let mut offers = fleet::offers(&served, &live, &set);
    let listings: Vec<_> = set
        .iter()
        .filter(|backend| backend.is_usable() && !backend.is_shim() && !backend.settings().internal)
        .map(|backend| (backend, backend.listing()))
        .collect();
    for (backend, listing) in &listings {
        let configured = backend.settings().models.iter().map(String::as_str);
        let listed = listing
            .iter()
            .flat_map(|listing| listing.names())
            .filter(|_| backend.settings().models.is_empty());
        offers.extend(configured.chain(listed).map(|id| Offer {
            id,
            owner: Owner::Backend,
            max_model_len: None,
        }));
    }
    then(&Models::new(offers))
}

//! A direct-mode frontend: obeys pins, and refuses as `dynamo.frontend --router-mode direct` 1.6 does.

mod answer;
mod pins;

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited, combinators::BoxBody};
use hyper::{Method, Request, Response, StatusCode, body::Incoming, header::CONTENT_TYPE};

use self::pins::{Pins, Refusal};
use crate::{Fleet, Pace, worker::Worker};

/// Largest request body that the simulated frontend reads, in bytes: more than any test sends.
const BODY_LIMIT: usize = 64 << 20;
/// How long a frontend waits for a worker that does not answer, as observed on real ones.
const DEAD_WORKER_DELAY: Duration = Duration::from_millis(20);

pub(crate) type Body = BoxBody<Bytes, Infallible>;

/// Answers one request.
pub(crate) async fn serve(
    fleet: Arc<Fleet>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    Ok(match (request.method(), path.as_str()) {
        (&Method::GET, "/health") => json(StatusCode::OK, &answer::health(&fleet)),
        (&Method::GET, "/live") => json(StatusCode::OK, &serde_json::json!({"status": "live"})),
        (&Method::GET, "/v1/models") => json(StatusCode::OK, &answer::models(&fleet)),
        (&Method::POST, "/v1/chat/completions") => generate(&fleet, request, answer::Kind::Chat).await,
        (&Method::POST, "/v1/completions") => generate(&fleet, request, answer::Kind::Completion).await,
        _ => refuse(StatusCode::NOT_FOUND, "Route not found"),
    })
}

async fn generate(fleet: &Arc<Fleet>, request: Request<Incoming>, kind: answer::Kind) -> Response<Body> {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, BODY_LIMIT).collect().await else {
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, "Request body too large");
    };
    let Ok(asked) = serde_json::from_slice::<answer::Asked>(&body.to_bytes()) else {
        return refuse(StatusCode::BAD_REQUEST, "Invalid request");
    };
    match pins::resolve(fleet, &asked.model, &Pins::from_headers(&head.headers)) {
        Ok(pair) => answer_from(pair, asked, kind, fleet.pace()).await,
        Err(Refusal::Dead) => {
            tokio::time::sleep(DEAD_WORKER_DELAY).await;
            refuse(StatusCode::SERVICE_UNAVAILABLE, "Service temporarily unavailable")
        }
        Err(refusal) => refuse(refusal.status(), &refusal.message(&asked.model)),
    }
}

/// The workers that a request was pinned to.
pub(crate) struct Pair {
    pub(crate) prefill: Option<(Arc<Worker>, u32)>,
    pub(crate) decode: (Arc<Worker>, u32),
}

async fn answer_from(pair: Pair, asked: answer::Asked, kind: answer::Kind, pace: Pace) -> Response<Body> {
    let prompt_tokens = asked.prompt_tokens();
    if let Some((worker, rank)) = &pair.prefill {
        let _busy = worker.occupy(*rank, prompt_tokens);
        tokio::time::sleep(pace.prefill(prompt_tokens)).await;
    }
    let busy = pair.decode.0.occupy(pair.decode.1, prompt_tokens);
    let writer = answer::Writer::new(kind, asked, &pair, prompt_tokens);
    if writer.streams() {
        return answer::stream(writer, pair.decode.0.clone(), busy, pace.token);
    }
    tokio::time::sleep(pace.token.saturating_mul(writer.tokens())).await;
    drop(busy);
    if pair.decode.0.is_alive() {
        json(StatusCode::OK, &writer.whole())
    } else {
        refuse(StatusCode::SERVICE_UNAVAILABLE, "Service temporarily unavailable")
    }
}

fn refuse(status: StatusCode, message: &str) -> Response<Body> {
    let kind = status.canonical_reason().unwrap_or("Error");
    json(
        status,
        &serde_json::json!({"message": message, "type": kind, "code": status.as_u16()}),
    )
}

fn json(status: StatusCode, value: &serde_json::Value) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(value.to_string())).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(
        CONTENT_TYPE,
        hyper::header::HeaderValue::from_static("application/json"),
    );
    response
}

//! One request, from its head to the last byte of its answer.

mod body;
mod budget;
#[cfg_attr(not(feature = "dynamo"), path = "proxy/no_fleet.rs")]
mod fleet;
mod guard;
mod intake;
pub mod limits;
mod local;

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use continuum_fleet::ids::Namespace;
use http::{HeaderValue, Request, Response, request};
use hyper::body::Incoming;
use tokio::time::Instant;

pub use self::{body::Body, budget::Bodies, guard::InFlight};
use self::{fleet::Pin, guard::Guard};
pub(crate) use self::{
    intake::read_body,
    local::{json, ready, status},
};
use crate::{
    app::App,
    dispatch::{
        send::Outbound,
        serve::{self, Ask, Served},
    },
    error::Error,
    ingress::{
        answer::{self, Made, Rename, RoutingPath},
        body::{self as request_body, Inspected},
        pin_headers::Pinned,
        routes::{Route, Service},
        strip::{self, Accepted, Credentials, Disclosure},
    },
    metrics::Path,
};

/// Answers a request. Whatever goes wrong becomes an answer.
pub async fn handle(app: Arc<App>, mut request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let started = Instant::now();
    // First of all, on every path and in every configuration.
    let Accepted {
        disclosure,
        request_id,
    } = strip::accept(request.headers_mut(), rand::random());
    let waits = intake::waits(request.headers());
    let (head, mut body) = request.into_parts();
    let told = Told {
        request_id: &request_id,
        disclosure,
    };
    let response = match route(&app, head, &mut body, &told, started).await {
        Ok(response) => return Ok(response),
        Err(error) => refused(&error, &request_id),
    };
    intake::discard(body, waits);
    Ok(response)
}

async fn route(
    app: &Arc<App>,
    head: request::Parts,
    body: &mut Incoming,
    told: &Told<'_>,
    started: Instant,
) -> Result<Response<Body>, Error> {
    let route = Route::find(&head.method, head.uri.path())?;
    if route.service() == Service::Local {
        return local::answer(app, route, head.uri.path(), told.request_id);
    }
    let guard = Guard::enter(app, route, started)?;
    match relay(app, route, head, body, told, guard).await {
        Ok(response) => Ok(response),
        Err((error, guard)) => {
            guard.refused(error.answer().status);
            Err(error)
        }
    }
}

fn refused(error: &Error, request_id: &HeaderValue) -> Response<Body> {
    let id = request_id.to_str().unwrap_or_default();
    if let Error::Internal(reason) = error {
        tracing::error!(
            reason,
            request_id = id,
            "a defect of this router failed a request"
        );
    } else {
        tracing::debug!(%error, request_id = id, "request refused");
    }
    let mut response = error.response().map(Body::whole);
    response
        .headers_mut()
        .insert(strip::X_REQUEST_ID, request_id.clone());
    response
}

async fn relay(
    app: &Arc<App>,
    route: Route,
    head: request::Parts,
    body: &mut Incoming,
    told: &Told<'_>,
    mut guard: Guard,
) -> Result<Response<Body>, (Error, Guard)> {
    // The whole `Arc`: a guard of the cell is not for holding over a wait.
    let live = Arc::clone(&app.live());
    let until = live.config.server.timeouts.request;
    let until = until.and_then(|most| guard.started().checked_add(most));
    let read = async {
        strip::json_body(&head.headers)?;
        let room = app.bodies.room(&live);
        let body = read_body(body, &room, until).await?;
        let inspected = request_body::inspect(&body, told.disclosure)?;
        let outbound = if inspected.has_removals() {
            room.share(body.len())?.around(inspected.outbound(&body, None))
        } else {
            body.clone()
        };
        Ok((body, inspected, outbound))
    };
    let (body, inspected, outbound) = match read.await {
        Ok(read) => read,
        Err(error) => return Err((error, guard)),
    };
    let ask = ask(head, &inspected, outbound, guard.started());
    if route.service() == Service::Pinned {
        match fleet::answer(app, &live, route, &ask, &inspected, &body, &mut guard).await {
            Ok(Some(done)) => return Ok(finish(done, &inspected, told, guard)),
            Ok(None) => {}
            Err(error) => return Err((error, guard)),
        }
    }
    match serve::unpinned::<Pin>(&ask, &app.backends.load()).await {
        Ok(served) => {
            let done = Done {
                served,
                path: Path::Passthrough,
                renamed: None,
            };
            Ok(finish(done, &inspected, told, guard))
        }
        Err(error) => Err((error, guard)),
    }
}

/// An answered request.
struct Done {
    served: Served<Pin>,
    path: Path,
    /// The name that stands in the answer instead of the client's.
    renamed: Option<String>,
}

/// A pinned worker, as the head of an answer may tell it.
struct Worker {
    namespace: Namespace,
    pinned: Pinned,
}

impl Worker {
    fn told(&self) -> (&str, Pinned) {
        (self.namespace.as_str(), self.pinned)
    }
}

/// What is told to the client about the making of its answer.
struct Told<'a> {
    request_id: &'a HeaderValue,
    disclosure: Disclosure,
}

fn ask(mut head: request::Parts, inspected: &Inspected, body: Bytes, started: Instant) -> Ask {
    // A key for this router is none of a backend's business.
    strip::outbound(&mut head.headers, Credentials::Drop);
    let path = head.uri.into_parts().path_and_query;
    Ask {
        outbound: Outbound {
            method: head.method,
            path: path.unwrap_or_else(|| http::uri::PathAndQuery::from_static("/")),
            headers: head.headers,
            body,
        },
        model: inspected.model.clone(),
        buffered: !inspected.stream,
        started,
    }
}

fn finish(mut done: Done, inspected: &Inspected, told: &Told<'_>, guard: Guard) -> Response<Body> {
    let rename = done
        .renamed
        .as_deref()
        .and_then(|mapped| renaming(&done.served, mapped, inspected));
    let backend = done.served.backend.clone();
    let (decode, prefill) = fleet::pins(&done.served);
    let made = Made {
        path: routing_path(done.path),
        backend: backend.name(),
        decode: decode.as_ref().map(Worker::told),
        prefill: prefill.as_ref().map(Worker::told),
    };
    answer::head(
        &mut done.served.head.headers,
        &made,
        told.disclosure,
        told.request_id,
        rename.is_some(),
    );
    let status = done.served.head.status;
    let path = done.path;
    let response = done.served.into_response(|pin| guard.relayed(status, path, pin));
    response.map(|relay| Body::relay(relay, rename))
}

fn renaming(served: &Served<Pin>, mapped: &str, inspected: &Inspected) -> Option<Rename> {
    let headers = &served.head.headers;
    let framing = if answer::is_event_stream(headers) {
        answer::Framing::Events
    } else if answer::is_json(headers) {
        answer::Framing::Json
    } else {
        return None;
    };
    Some(Rename::new(framing, mapped, inspected.model.as_str()))
}

const fn routing_path(path: Path) -> RoutingPath {
    match path {
        Path::Disaggregated => RoutingPath::Disaggregated,
        Path::Aggregated | Path::Unified | Path::Passthrough | Path::None => RoutingPath::Unified,
    }
}

//! One request, from its head to the last byte of its answer.

mod body;
mod guard;
mod intake;
pub mod limits;
mod local;

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, request};
use hyper::body::Incoming;
use tokio::time::Instant;

use self::guard::Guard;
pub use self::{body::Body, guard::InFlight};
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
        routes::{Route, Service},
        strip::{self, Accepted, Credentials, Disclosure},
    },
    live::Live,
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
    tracing::debug!(%error, request_id = request_id.to_str().unwrap_or_default(), "request refused");
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
    let live = app.live();
    let read = async {
        strip::json_body(&head.headers)?;
        let body = read_body(body, live.body_limit).await?;
        let inspected = request_body::inspect(&body, told.disclosure)?;
        Ok((body, inspected))
    };
    let (body, inspected) = match read.await {
        Ok(read) => read,
        Err(error) => return Err((error, guard)),
    };
    let ask = ask(head, &inspected, inspected.outbound(&body, None), guard.started());
    #[cfg(feature = "dynamo")]
    if route.service() == Service::Pinned && live.pinning {
        guard.considered();
        match pinned(app, &live, &ask, &inspected, &body).await {
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

/// What the fleet pins; nothing in a build without fleets.
#[cfg(feature = "dynamo")]
type Pin = crate::select::Pin;
#[cfg(not(feature = "dynamo"))]
type Pin = Infallible;

/// An answered request.
struct Done {
    served: Served<Pin>,
    path: Path,
    /// The name that stands in the answer instead of the client's.
    renamed: Option<String>,
}

/// What is told to the client about the making of its answer.
struct Told<'a> {
    request_id: &'a HeaderValue,
    disclosure: Disclosure,
}

/// Serves a request by the fleet. `None`: no worker of the fleet serves the model, ordinary routing may.
#[cfg(feature = "dynamo")]
async fn pinned(
    app: &App,
    live: &Live,
    ask: &Ask,
    inspected: &Inspected,
    body: &Bytes,
) -> Result<Option<Done>, Error> {
    use crate::select::Selection;
    use continuum_routing::picker::NoPick;

    let set = app.backends.load();
    let may_fall_back = live.config.disaggregated_serving.fallback_to_unified;
    let mut selection = Selection::new(&app.fleet, live, &set, &app.selections, inspected, body);
    let first = match selection.pick() {
        Ok(pin) => pin,
        Err(NoPick::NoModel) => return Ok(None),
        Err(NoPick::NotReady | NoPick::NoCandidate)
            if may_fall_back && set.choose(ask.model.as_str(), &[]).is_some() =>
        {
            let served = serve::unpinned(ask, &set).await?;
            return Ok(Some(Done {
                served,
                path: Path::Unified,
                renamed: None,
            }));
        }
        Err(NoPick::NotReady) => {
            return Err(Error::ModelNotReady {
                model: ask.model.clone(),
            });
        }
        Err(NoPick::NoCandidate) => {
            return Err(Error::NoCandidate {
                model: ask.model.clone(),
            });
        }
    };
    let metrics = app.backends.metrics();
    let served = serve::pinned(ask, &set, &mut selection, first, may_fall_back, metrics).await?;
    let path = match &served.pin {
        None => Path::Unified,
        Some(pin) if pin.pick.prefill.is_some() => Path::Disaggregated,
        Some(_) => Path::Aggregated,
    };
    let renamed = selection
        .renamed()
        .filter(|_| served.pin.is_some())
        .map(ToString::to_string);
    Ok(Some(Done {
        served,
        path,
        renamed,
    }))
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
    let (decode, prefill) = pins(&done.served);
    let made = Made {
        path: routing_path(done.path),
        backend: backend.name(),
        decode: decode.as_ref().map(borrowed),
        prefill: prefill.as_ref().map(borrowed),
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

type Worker = (String, crate::ingress::pin_headers::Pinned);

fn borrowed((namespace, pinned): &Worker) -> (&str, crate::ingress::pin_headers::Pinned) {
    (namespace, *pinned)
}

/// The pinned workers, as the head of the answer may tell them: decode, then prefill.
#[cfg(feature = "dynamo")]
fn pins(served: &Served<Pin>) -> (Option<Worker>, Option<Worker>) {
    let Some(pin) = &served.pin else {
        return (None, None);
    };
    let tell = |chosen: &continuum_routing::picker::Chosen| {
        (
            chosen.worker.key.namespace.to_string(),
            crate::select::pinned(chosen),
        )
    };
    (Some(tell(&pin.pick.decode)), pin.pick.prefill.as_ref().map(tell))
}

#[cfg(not(feature = "dynamo"))]
fn pins(_: &Served<Pin>) -> (Option<Worker>, Option<Worker>) {
    (None, None)
}

const fn routing_path(path: Path) -> RoutingPath {
    match path {
        Path::Disaggregated => RoutingPath::Disaggregated,
        Path::Aggregated | Path::Unified | Path::Passthrough | Path::None => RoutingPath::Unified,
    }
}

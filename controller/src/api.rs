//! The connection to the API server: no request waits for ever, whatever becomes of the peer.

pub(crate) mod limits;

use std::{
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use http::{Request, Response, Uri};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
};
use tokio::time::timeout;
use tower::{BoxError, Service, layer::layer_fn};
use tower_http::timeout::TimeoutBody;

use self::limits::{SILENCE, WATCH_BEGINS, WATCH_SILENCE};

/// A client that gives up on an API server that is silent.
///
/// # Errors
/// When TLS or the credentials cannot be set up.
pub fn client(config: Config) -> Result<Client, kube::Error> {
    let builder = ClientBuilder::try_from(config)?;
    Ok(builder.with_layer(&layer_fn(Patient)).build())
}

/// The API server did not answer.
#[derive(Debug, thiserror::Error)]
#[error("the API server has not answered for {} s", .0.as_secs())]
struct Silent(Duration);

/// Waits for answers, and not for ever. A request that is given up takes its connection along: the next one is made on
/// another.
#[derive(Clone, Debug)]
struct Patient<S>(S);

impl<S, B> Service<Request<Body>> for Patient<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<TimeoutBody<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (head, silence) = if is_watch(request.uri()) {
            (WATCH_BEGINS, WATCH_SILENCE)
        } else {
            (SILENCE, SILENCE)
        };
        let answer = timeout(head, self.0.call(request));
        async move {
            match answer.await {
                Ok(Ok(answer)) => Ok(answer.map(|body| TimeoutBody::new(silence, body))),
                Ok(Err(error)) => Err(error.into()),
                Err(_elapsed) => Err(Silent(head).into()),
            }
        }
        .boxed()
    }
}

fn is_watch(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    query
        .split('&')
        .any(|pair| matches!(pair, "watch=true" | "watch=1"))
}

#[cfg(test)]
mod tests;

use std::convert::Infallible;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::WatchParams};
use tokio::time::Instant;

use super::*;

/// What an API server does after it has taken a request.
#[derive(Clone, Copy)]
enum Server {
    /// It is never heard of again.
    Vanishes,
    /// The same after the beginning of its answer.
    VanishesLater,
}

impl Server {
    fn api(self) -> Api<ConfigMap> {
        let service = tower::service_fn(move |_: Request<Body>| async move {
            if matches!(self, Self::Vanishes) {
                std::future::pending::<()>().await;
            }
            let begun = stream::iter([Ok::<_, Infallible>(http_body::Frame::data(bytes::Bytes::from(
                "{",
            )))]);
            let body = StreamBody::new(begun.chain(stream::pending()));
            Ok::<_, BoxError>(Response::new(body))
        });
        Api::namespaced(Client::new(Patient(service), "n"), "n")
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_to_an_api_server_that_vanished_is_given_up() {
    for server in [Server::Vanishes, Server::VanishesLater] {
        let begun = Instant::now();
        let error = server.api().get("a").await.unwrap_err();
        assert_eq!(begun.elapsed().as_secs(), SILENCE.as_secs(), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_may_be_silent_for_longer() {
    let begun = Instant::now();
    assert!(
        Server::Vanishes
            .api()
            .watch(&WatchParams::default(), "0")
            .await
            .is_err()
    );
    assert_eq!(begun.elapsed().as_secs(), WATCH_BEGINS.as_secs());

    let begun = Instant::now();
    let watch = Server::VanishesLater
        .api()
        .watch(&WatchParams::default(), "0")
        .await;
    let ended = watch.unwrap().boxed().try_next().await;
    assert_eq!(
        begun.elapsed().as_secs(),
        WATCH_SILENCE.as_secs(),
        "{}",
        ended.is_err()
    );
}

#[test]
fn a_watch_is_told_by_its_question() {
    for (uri, watch) in [
        ("/api/v1/pods?&watch=true&timeoutSeconds=290", true),
        ("/api/v1/pods?&limit=500", false),
        ("/api/v1/namespaces/n/pods/watch=true", false),
        ("/api/v1/pods?&labelSelector=a%3Dwatch%3Dtrue", false),
    ] {
        assert_eq!(is_watch(&uri.parse().unwrap()), watch, "{uri}");
    }
}

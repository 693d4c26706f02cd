//! Following the configuration, health, lists and choice, against scripted servers; HTTP/2 and TLS against hyper's.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Condvar,
        atomic::{AtomicBool, AtomicUsize},
    },
    time::Duration,
};

use bytes::Bytes;
use continuum_config::{
    BackendUrl,
    model::{self, BackendRole, BackendTls},
};
use continuum_fleet::ids::ModelName;
use continuum_runtime::{limits::ADDRESSES_FRESH, lookup::Service, tasks::Tasks};
use continuum_testkit::stub::{self, Act, Stub};
use http::{Method, Request, Response, StatusCode, Version, uri::PathAndQuery};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::{PrivateKeyDer, pem::PemObject as _};
use tokio::{net::TcpListener, time::Instant};

use super::{pool::ConnectError, *};
use crate::{
    dispatch::{
        metrics::{Outcome, Retry},
        send::Outbound,
        serve::{Ask, unpinned},
    },
    error::Error as RequestError,
};

struct World {
    config: Config,
    backends: Backends,
    metrics: Metrics,
    tasks: Tasks,
}

impl World {
    fn new(backends: Vec<model::Backend>) -> Self {
        Self::asking(Lookups::new(1), backends)
    }

    fn asking(lookups: Lookups, backends: Vec<model::Backend>) -> Self {
        let tasks = Tasks::new();
        let metrics = Metrics::new(&prometheus::Registry::new()).unwrap();
        let config = Config {
            backends,
            ..Config::default()
        };
        let backends = Backends::with_lookups(tasks.spawner(), metrics.clone(), lookups);
        backends.apply(&config).unwrap();
        Self {
            config,
            backends,
            metrics,
            tasks,
        }
    }

    fn apply(&mut self, change: impl FnOnce(&mut Config)) -> Result<(), Error> {
        change(&mut self.config);
        self.backends.apply(&self.config)
    }

    fn backend(&self, name: &str) -> Arc<Backend> {
        Arc::clone(self.backends.load().backend(name).unwrap())
    }

    async fn get(&self) -> Result<(StatusCode, Bytes), RequestError> {
        let mut outbound = Outbound::new(Method::POST, PathAndQuery::from_static("/v1/embeddings"));
        outbound.body = Bytes::from_static(b"{}");
        let ask = Ask {
            outbound,
            model: ModelName::from("m"),
            buffered: true,
            started: Instant::now(),
        };
        let served = unpinned::<()>(&ask, &self.backends.load()).await?;
        let answer = served.into_response(|_| ());
        let status = answer.status();
        Ok((status, answer.into_body().collect().await?.to_bytes()))
    }
}

fn backend(name: &str, url: &str) -> model::Backend {
    let mut backend = model::Backend::new(name, BackendUrl::parse(url).unwrap());
    backend.models = vec!["m".to_owned()];
    backend.health.enabled = false;
    backend
}

fn checked(name: &str, stub: &Stub) -> model::Backend {
    let mut backend = backend(name, stub.url());
    backend.health.enabled = true;
    backend.health.interval = Duration::from_millis(5);
    backend
}

/// Waits until it is true; looked at again with every request that the stub answers.
async fn until(stub: &Stub, condition: impl Fn() -> bool) {
    let mut served = stub.served();
    while !condition() {
        served.changed().await.unwrap();
    }
}

#[tokio::test]
async fn health_takes_a_backend_down_and_up() {
    let stub = Stub::tcp(|_| stub::json(200, "{}")).await.unwrap();
    let world = World::new(vec![checked("b", &stub)]);
    let checked = world.backend("b");
    assert!(checked.is_usable(), "up until a check says otherwise");
    assert_eq!(checked.offered(), 0, "a guess is no offer");
    until(&stub, || checked.offered() == 1).await;
    stub.set_health(503);
    until(&stub, || !checked.is_up()).await;
    assert_eq!(checked.offered(), 0);
    assert_eq!(
        world.get().await,
        Err(RequestError::ModelNotReady {
            model: ModelName::from("m")
        })
    );
    stub.set_health(204);
    until(&stub, || checked.is_up()).await;
    assert_eq!(world.get().await.unwrap().0, 200);
    assert_eq!(checked.count(Outcome::Ok), 1, "checks are not counted");
    assert!(
        world
            .tasks
            .drain(Duration::from_secs(5), std::future::pending())
            .await
    );
}

#[tokio::test]
async fn a_backend_without_models_serves_what_it_lists() {
    let stub = Stub::tcp(|_| stub::json(200, "{}")).await.unwrap();
    stub.list_models(&["other"]);
    let mut open = checked("b", &stub);
    open.models.clear();
    let world = World::new(vec![open]);
    let open = world.backend("b");
    assert!(open.serves("m"), "anything, until its list is read");
    until(&stub, || open.listing().is_some()).await;
    assert!(!open.serves("m") && open.serves("other"));
    assert_eq!(open.offered(), 1);
    stub.list_models(&["m", "other"]);
    open.refresh_listing();
    until(&stub, || open.serves("m")).await;
    assert_eq!(open.offered(), 2);
    assert_eq!(world.get().await.unwrap().0, 200);
}

#[tokio::test]
async fn a_configuration_that_cannot_be_followed_changes_nothing() {
    let stub = Stub::tcp(|_| stub::json(200, "{}")).await.unwrap();
    let mut world = World::new(vec![backend("b", stub.url())]);
    let before = world.backend("b");
    let broken = world.apply(|config| {
        config.backends[0].weight = 7;
        let mut broken = backend("tls", "https://127.0.0.1:1");
        broken.tls = Some(BackendTls {
            ca_cert: Some(PathBuf::from("/nowhere/ca.pem")),
            server_name: None,
        });
        config.backends.push(broken);
    });
    assert!(matches!(broken, Err(Error::Tls { .. })));
    assert!(Arc::ptr_eq(&before, &world.backend("b")));
    assert!(world.backends.load().backend("tls").is_none());
}

#[tokio::test]
async fn an_unchanged_backend_is_kept_and_a_changed_one_keeps_its_standing() {
    let stub = Stub::tcp(|_| stub::json(200, "{}")).await.unwrap();
    let mut world = World::new(vec![backend("kept", stub.url()), checked("changed", &stub)]);
    let (kept, changed) = (world.backend("kept"), world.backend("changed"));
    stub.set_health(500);
    until(&stub, || !changed.is_up()).await;
    let exchange = changed.begin();
    world.apply(|config| config.backends[1].weight = 2).unwrap();
    assert!(Arc::ptr_eq(&kept, &world.backend("kept")));
    let now = world.backend("changed");
    assert!(!Arc::ptr_eq(&changed, &now));
    assert_eq!((now.in_flight(), now.is_up()), (1, false));
    drop(exchange);
    assert_eq!(now.in_flight(), 0);
    world
        .apply(|config| config.backends[1].url = BackendUrl::parse("http://127.0.0.1:1").unwrap())
        .unwrap();
    assert!(
        world.backend("changed").is_up(),
        "nothing is known of another address"
    );
}

#[tokio::test]
async fn a_draw_follows_the_weights_and_leaves_out_what_may_not_serve() {
    let url = "http://127.0.0.1:1";
    let mut backends = vec![
        backend("one", url),
        backend("three", url),
        backend("internal", url),
    ];
    backends[1].weight = 3;
    backends[2].internal = true;
    for (name, change) in [
        (
            "disabled",
            (|it: &mut model::Backend| it.enabled = false) as fn(&mut model::Backend),
        ),
        ("prefill", |it| it.role = BackendRole::Prefill),
        ("foreign", |it| it.models = vec!["other".to_owned()]),
    ] {
        let mut other = backend(name, url);
        change(&mut other);
        backends.push(other);
    }
    let world = World::new(backends);
    let set = world.backends.load();
    let mut drawn = BTreeMap::<Arc<str>, u32>::new();
    for _ in 0..4000 {
        *drawn
            .entry(Arc::clone(set.choose("m", &[]).unwrap().name()))
            .or_default() += 1;
    }
    assert_eq!(drawn.len(), 2);
    assert!((900..1100).contains(&drawn["one"]), "{drawn:?}");
    assert_eq!(
        set.choose("m", &["one".into()]).map(|it| &**it.name()),
        Some("three")
    );
    assert!(set.choose("m", &["one".into(), "three".into()]).is_none());
    world.backend("three").cool_down(Duration::from_secs(60));
    assert!((0..100).all(|_| &**set.choose("m", &[]).unwrap().name() == "one"));
}

#[tokio::test]
async fn a_pool_prefers_replicas_that_are_idle_fit_and_list_the_model() {
    let stubs = [
        Stub::tcp(|_| vec![Act::Close]).await.unwrap(),
        Stub::tcp(|_| vec![Act::Close]).await.unwrap(),
    ];
    stubs[0].list_models(&["m"]);
    let mut world = World::new(vec![checked("a", &stubs[0]), checked("b", &stubs[1])]);
    world
        .apply(|config| config.dynamo.shim.backends = vec!["a".to_owned(), "b".to_owned()])
        .unwrap();
    let set = world.backends.load();
    let pool = set.pools().next().unwrap();
    let (a, b) = (world.backend("a"), world.backend("b"));
    let chosen = |model: &str, tried| {
        pool.choose(tried, |replica| replica.lists(model))
            .map(|(_, replica)| replica.name().to_string())
    };
    until(&stubs[0], || a.listing().is_some()).await;
    until(&stubs[1], || b.listing().is_some()).await;
    assert!(pool.lists("m") && !pool.lists("n"));
    // Both lack "n": ties go round.
    let round: BTreeSet<_> = (0..2).map(|_| chosen("n", Tried::default())).collect();
    assert_eq!(round.len(), 2);
    let busy = a.begin();
    assert_eq!(chosen("n", Tried::default()).as_deref(), Some("b"));
    assert_eq!(
        chosen("m", Tried::default()).as_deref(),
        Some("a"),
        "only a lists it"
    );
    drop(busy);
    a.cool_down(Duration::from_secs(60));
    assert_eq!(chosen("m", Tried::default()).as_deref(), Some("b"));
    let tried = Tried::default().and(1);
    assert!(pool.has_other(tried) && !pool.has_other(tried.and(0)));
    assert_eq!(chosen("m", tried).as_deref(), Some("a"));
    stubs[0].set_health(500);
    until(&stubs[0], || !a.is_up()).await;
    assert_eq!(chosen("m", tried), None);
    assert!(pool.is_usable() && a.is_shim() && !a.serves("m"));
    assert_eq!(b.offered(), 0, "a frontend of a fleet takes pinned requests only");
}

#[tokio::test]
async fn idle_connections_are_few_and_age() {
    let stub = Stub::tcp(|_| stub::json(200, "{}")).await.unwrap();
    let mut settings = backend("b", stub.url());
    settings.pool.max_idle = 1;
    let world = World::new(vec![settings]);
    assert!(tokio::try_join!(world.get(), world.get(), world.get()).is_ok());
    assert_eq!(world.backend("b").idle_connections(), 1);
    stub.until_open(|| 1).await;
    let mut settings = backend("c", stub.url());
    settings.pool.idle_timeout = Duration::ZERO;
    let world = World::new(vec![settings]);
    for _ in 0..2 {
        assert!(world.get().await.is_ok());
    }
    let seen = stub.seen();
    assert_ne!(seen[3].connection, seen[4].connection);
    assert_eq!(world.metrics.retries(Retry::IdleConnection), 0);
}

/// A name service that hangs, fails, or says that everything is on this host; and how often it was asked.
#[derive(Clone, Default)]
struct Names {
    hangs: Arc<(Mutex<bool>, Condvar)>,
    knows: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
}

impl Names {
    fn hang(&self, hangs: bool) {
        *self.hangs.0.lock().unwrap() = hangs;
        self.hangs.1.notify_all();
    }

    fn know(&self, knows: bool) {
        self.knows.store(knows, Relaxed);
    }

    fn asked(&self) -> usize {
        self.asked.load(Relaxed)
    }
}

impl Service for Names {
    fn look_up(&self, _host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        self.asked.fetch_add(1, Relaxed);
        let (hangs, moved) = &*self.hangs;
        drop(moved.wait_while(hangs.lock().unwrap(), |hangs| *hangs).unwrap());
        if !self.knows.load(Relaxed) {
            return Err(io::ErrorKind::NotFound.into());
        }
        // Nobody is behind the first one: addresses are tried in order.
        Ok(vec![([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], port).into()])
    }
}

/// A backend by name that keeps no connection, so that every request needs a new one.
fn named(stub: &Stub) -> model::Backend {
    let mut settings = backend("b", &stub.url().replace("127.0.0.1", "frontend.test"));
    settings.pool.max_idle = 0;
    settings
}

/// What is known of a backend gets old, without a wait.
async fn addresses_get_old() {
    tokio::time::pause();
    tokio::time::advance(ADDRESSES_FRESH).await;
    tokio::time::resume();
}

#[tokio::test]
async fn requests_go_on_while_the_name_service_is_away() {
    let stub = Stub::tcp(|_| stub::json(200, "{}")).await.unwrap();
    let names = Names::default();
    names.know(true);
    let mut world = World::asking(Lookups::with(names.clone(), 4), vec![named(&stub)]);
    for _ in 0..20 {
        assert_eq!(world.get().await.unwrap().0, 200);
    }
    assert_eq!(names.asked(), 1);
    addresses_get_old().await;
    names.hang(true);
    for round in 0..20 {
        assert_eq!(world.get().await.unwrap().0, 200, "{round}");
    }
    // Other settings of the same place know as much.
    world.apply(|config| config.backends[0].weight = 2).unwrap();
    let answers = futures_all((0..20).map(|_| world.get())).await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().0 == 200));
    assert_eq!(names.asked(), 2, "one look-up hangs, and no other is begun");
    names.know(false);
    names.hang(false);
    for _ in 0..20 {
        addresses_get_old().await;
        assert_eq!(world.get().await.unwrap().0, 200);
    }
    assert!(names.asked() > 2);
}

#[tokio::test]
async fn a_backend_that_nobody_can_find_costs_one_look_up() {
    let stub = Stub::tcp(|_| stub::json(200, "{}")).await.unwrap();
    let names = Names::default();
    names.hang(true);
    let mut lost = named(&stub);
    lost.connect_timeout = Duration::from_millis(5);
    lost.retries = 0;
    let mut by_address = backend("address", stub.url());
    by_address.models = vec!["other".to_owned()];
    let world = World::asking(Lookups::with(names.clone(), 4), vec![lost, by_address]);
    for _ in 0..100 {
        let refused = world.backend("b").connect().await.map(drop);
        assert!(matches!(refused, Err(ConnectError::Late)), "{refused:?}");
    }
    assert!(world.backend("address").connect().await.is_ok());
    assert_eq!(names.asked(), 1);
    names.know(true);
    names.hang(false);
    while world.backend("b").connect().await.is_err() {}
    assert_eq!(world.get().await.unwrap().0, 200);
}

/// Answers the version that it was asked in, and counts connections.
async fn serve(listener: TcpListener, tls: Option<tokio_rustls::TlsAcceptor>, h2: bool) {
    for connection in 0.. {
        let (socket, _) = listener.accept().await.unwrap();
        let tls = tls.clone();
        let answer = service_fn(move |request: Request<Incoming>| async move {
            let said = format!("{:?} {connection} {}", request.version(), request.uri());
            drop(request.into_body().collect().await);
            Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(said))))
        });
        tokio::spawn(async move {
            match tls {
                None => drop(converse(TokioIo::new(socket), answer, h2).await),
                Some(tls) => {
                    if let Ok(socket) = tls.accept(socket).await {
                        drop(converse(TokioIo::new(socket), answer, h2).await);
                    }
                }
            }
        });
    }
}

async fn converse<I, S>(io: I, service: S, h2: bool) -> hyper::Result<()>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    S: hyper::service::Service<
            Request<Incoming>,
            Response = Response<Full<Bytes>>,
            Error = std::convert::Infallible,
        >,
    S::Future: Send + 'static,
{
    if h2 {
        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(io, service)
            .await
    } else {
        hyper::server::conn::http1::Builder::new()
            .serve_connection(io, service)
            .await
    }
}

#[tokio::test]
async fn http2_shares_one_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(serve(listener, None, true));
    let mut settings = backend("b", &format!("http://{address}"));
    settings.http2 = true;
    let world = World::new(vec![settings]);
    let answers = futures_all((0..5).map(|_| world.get())).await;
    let expected = format!("{:?} 0 http://{address}/v1/embeddings", Version::HTTP_2);
    assert!(
        answers
            .iter()
            .all(|answer| answer.as_ref().is_ok_and(|(_, body)| *body == expected)),
        "{answers:?}"
    );
    server.abort();
}

#[tokio::test]
async fn tls_trusts_the_configured_certificates_alone() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["frontend.test".to_owned()]).unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, made.cert.pem()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes()).unwrap();
    for h2 in [false, true] {
        let mut config =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![made.cert.der().clone()], key.clone_key())
                .unwrap();
        config.alpn_protocols = vec![if h2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut settings = backend("b", &format!("https://{}", listener.local_addr().unwrap()));
        settings.http2 = h2;
        let server = tokio::spawn(serve(
            listener,
            Some(tokio_rustls::TlsAcceptor::from(Arc::new(config))),
            h2,
        ));
        let untrusting = World::new(vec![settings.clone()]);
        assert_eq!(
            untrusting.get().await,
            Err(RequestError::BackendFailed { first: None })
        );
        settings.tls = Some(BackendTls {
            ca_cert: Some(ca.clone()),
            server_name: Some("frontend.test".to_owned()),
        });
        let world = World::new(vec![settings]);
        let (status, body) = world.get().await.unwrap();
        let version = if h2 { Version::HTTP_2 } else { Version::HTTP_11 };
        assert_eq!(status, 200);
        assert!(body.starts_with(format!("{version:?}").as_bytes()), "{body:?}");
        server.abort();
    }
}

async fn futures_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut done = Vec::new();
    let mut pending: Vec<_> = futures.map(Box::pin).collect();
    std::future::poll_fn(|cx| {
        pending.retain_mut(|future| match future.as_mut().poll(cx) {
            std::task::Poll::Ready(output) => {
                done.push(output);
                false
            }
            std::task::Poll::Pending => true,
        });
        if pending.is_empty() {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    done
}

//! The rules of the sessions, against controllers that do what a test says.

use std::{net::SocketAddr, time::Duration};

use continuum_messages::{
    ConfigId, Digest, Epoch, Published, ViewId,
    push::{
        ConfigUpdate, FromController, FromRouter, Heartbeat, SourceState, ViewUpdate, Welcome,
        from_controller::Message as Told,
        from_router::Message as Said,
        push_server::{Push, PushServer},
    },
};
use continuum_runtime::tasks::Tasks;
use tempfile::TempDir;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request, Response, Status as Refusal, Streaming,
    transport::{Identity, Server, ServerTlsConfig},
};

use super::*;
use crate::{SessionState, testing::fleet};

const PATIENCE: Duration = Duration::from_secs(20);

/// A session as the controller has it.
struct Session {
    said: Streaming<FromRouter>,
    tell: mpsc::Sender<Result<FromController, Refusal>>,
}

/// Hands every session to the test.
struct Scripted(mpsc::Sender<Session>);

#[tonic::async_trait]
impl Push for Scripted {
    type SessionStream = ReceiverStream<Result<FromController, Refusal>>;

    async fn session(
        &self,
        request: Request<Streaming<FromRouter>>,
    ) -> Result<Response<Self::SessionStream>, Refusal> {
        let (tell, told) = mpsc::channel(4);
        let said = request.into_inner();
        let _test_has_ended = self.0.send(Session { said, tell }).await;
        Ok(Response::new(ReceiverStream::new(told)))
    }
}

impl Session {
    async fn tell(&self, told: Told) {
        let message = FromController { message: Some(told) };
        self.tell.send(Ok(message)).await.unwrap();
    }

    async fn welcome(&self, replica: &str) {
        let welcome = Welcome {
            replica: replica.to_owned(),
            epoch: Epoch::from_raw([9; 16]).to_wire(),
            leader: false,
            heartbeat_ms: 100,
        };
        self.tell(Told::Welcome(welcome)).await;
    }

    async fn beat(&self, view: Option<ViewId>) {
        let beat = Heartbeat {
            view: view.map(Into::into),
            ..Heartbeat::default()
        };
        self.tell(Told::Heartbeat(beat)).await;
    }

    async fn source(&self, origin: &str) {
        self.tell(Told::Source(SourceState {
            connected: true,
            synced: true,
            origins: vec![origin.to_owned()],
            ..SourceState::default()
        }))
        .await;
    }

    async fn view(&self, published: &Arc<Published>) {
        for part in published.full() {
            self.tell(Told::View(part)).await;
        }
    }

    /// The next thing that the router says and `pick` wants.
    async fn said<T>(&mut self, pick: impl Fn(Said) -> Option<T>) -> T {
        loop {
            let message = timeout(PATIENCE, self.said.message())
                .await
                .unwrap()
                .unwrap()
                .unwrap();
            if let Some(picked) = pick(message.message.unwrap()) {
                return picked;
            }
        }
    }

    async fn hello(&mut self) -> continuum_messages::push::Hello {
        self.said(|said| match said {
            Said::Hello(hello) => Some(hello),
            Said::Follow(_) | Said::Report(_) => None,
        })
        .await
    }

    async fn follow(&mut self) -> continuum_messages::push::Follow {
        self.said(|said| match said {
            Said::Follow(follow) => Some(follow),
            Said::Hello(_) | Said::Report(_) => None,
        })
        .await
    }
}

struct Rig {
    folder: TempDir,
    identity: Identity,
    port: u16,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["controllers".to_owned()]).unwrap();
        std::fs::write(folder.path().join("ca.crt"), made.cert.pem()).unwrap();
        std::fs::write(folder.path().join("token"), "t").unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .unwrap()
            .port();
        Self {
            identity: Identity::from_pem(made.cert.pem(), made.signing_key.serialize_pem()),
            folder,
            port,
        }
    }

    fn address(&self, host: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, host], self.port))
    }

    /// A controller on `127.0.0.<host>`.
    fn controller(&self, host: u8) -> mpsc::Receiver<Session> {
        let (sender, sessions) = mpsc::channel(4);
        let serving = Server::builder()
            .tls_config(ServerTlsConfig::new().identity(self.identity.clone()))
            .unwrap()
            .add_service(PushServer::new(Scripted(sender)))
            .serve(self.address(host));
        tokio::spawn(serving);
        sessions
    }

    fn settings(&self) -> Settings {
        Settings {
            host: "controllers".to_owned(),
            port: self.port,
            ca_file: self.folder.path().join("ca.crt"),
            token_file: self.folder.path().join("token"),
            views: true,
            state_dir: None,
            origins: vec!["here".to_owned()],
        }
    }

    fn client(&self, tasks: &Tasks, registry: &Registry, hosts: &[u8]) -> Client {
        self.client_with(tasks, registry, hosts, self.settings())
    }

    fn client_with(&self, tasks: &Tasks, registry: &Registry, hosts: &[u8], settings: Settings) -> Client {
        let addresses: Vec<SocketAddr> = hosts.iter().map(|host| self.address(*host)).collect();
        let lookup: Lookup = Arc::new(move |_, _| {
            let addresses = addresses.clone();
            Box::pin(async move { Ok(addresses) })
        });
        let (settings, wanted) = watch::channel(Some(settings));
        let (report, told) = watch::channel(Report::default());
        let client = Client::spawn_with(&tasks.spawner(), wanted, told, registry, lookup).unwrap();
        // For the life of the process: what changes nothing need not be held.
        std::mem::forget((settings, report));
        client
    }
}

async fn next(sessions: &mut mpsc::Receiver<Session>) -> Session {
    timeout(PATIENCE, sessions.recv()).await.unwrap().unwrap()
}

fn published(workers: u64) -> Arc<Published> {
    Arc::new(Published::first(fleet(workers), Epoch::from_raw([1; 16])))
}

fn count(registry: &Registry, family: &str, label: &str) -> f64 {
    let families = registry.gather();
    let found = families.iter().find(|found| found.name() == family).unwrap();
    let mut series = found.get_metric().iter();
    let of = series.find(|series| series.get_label().iter().any(|pair| pair.value() == label));
    of.unwrap().get_counter().get_value()
}

#[tokio::test]
async fn a_controller_that_falls_silent_is_left_for_another_and_its_session_stays() {
    let (rig, tasks, registry) = (Rig::new(), Tasks::new(), Registry::new());
    let (mut one, mut two) = (rig.controller(1), rig.controller(2));
    let client = rig.client(&tasks, &registry, &[1, 2]);
    let (mut one, mut two) = (next(&mut one).await, next(&mut two).await);
    let view = published(3);
    one.hello().await;
    one.welcome("one").await;
    assert!(one.follow().await.follow);
    one.view(&view).await;
    let first = client.pushed().wait_for(|pushed| pushed.id.is_some()).await;
    two.hello().await;
    two.welcome("two").await;
    let silent = Instant::now();
    // The second goes on speaking, the first says nothing more.
    let beating = async {
        loop {
            two.beat(Some(view.id)).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let left = async {
        client
            .status()
            .wait_for(|status| {
                status
                    .sessions
                    .iter()
                    .any(|session| session.followed && session.replica == "two")
            })
            .await
    };
    let status = tokio::select! {
        () = beating => panic!("it beats for ever"),
        status = left => status,
    };
    assert!(
        silent.elapsed() < Duration::from_secs(1),
        "{:?}",
        silent.elapsed()
    );
    let row = status
        .sessions
        .iter()
        .find(|session| session.replica == "one")
        .unwrap();
    assert_eq!(row.state, SessionState::Silent);
    let asked = two.follow().await;
    assert!(asked.follow && asked.view == Some(view.id.into()), "{asked:?}");
    assert!(!one.follow().await.follow);
    // What the first still says is not taken.
    one.view(&published(1)).await;
    two.beat(Some(view.id)).await;
    client
        .status()
        .wait_for(|status| {
            status
                .sessions
                .iter()
                .all(|session| session.state == SessionState::Up)
        })
        .await;
    let now = client.pushed().load();
    assert_eq!((now.number, now.view.workers.len()), (first.number, 3));
    tasks.drain(PATIENCE, std::future::pending()).await;
}

#[tokio::test]
async fn an_update_that_cannot_be_used_changes_nothing_and_a_whole_view_is_asked_for() {
    let (rig, tasks, registry) = (Rig::new(), Tasks::new(), Registry::new());
    let mut one = rig.controller(1);
    let client = rig.client(&tasks, &registry, &[1]);
    let mut one = next(&mut one).await;
    one.hello().await;
    one.welcome("one").await;
    one.follow().await;
    let view = published(3);
    one.view(&view).await;
    client
        .pushed()
        .wait_for(|pushed| pushed.id == Some(view.id))
        .await;

    let digest = |byte| ViewId {
        digest: Digest::from_raw([byte; 32]),
        ..view.id
    };
    for wrong in [
        // It says to be another content than it is.
        ViewUpdate {
            view: Some(digest(7).into()),
            last: true,
            ..ViewUpdate::default()
        },
        // The difference to what this router does not have.
        ViewUpdate {
            view: Some(digest(8).into()),
            base: Some(digest(9).into()),
            last: true,
            ..ViewUpdate::default()
        },
        ViewUpdate::default(),
    ] {
        one.tell(Told::View(wrong)).await;
        let asked = one.follow().await;
        assert!(asked.follow && asked.view.is_none(), "{asked:?}");
        let now = client.pushed().load();
        assert_eq!((now.id, now.view.workers.len()), (Some(view.id), 3));
        let again = published(3);
        one.view(&again).await;
        one.beat(Some(again.id)).await;
    }
    assert!(count(&registry, "continuum_controller_errors_total", "view") >= 3.0);
    tasks.drain(PATIENCE, std::future::pending()).await;
}

#[tokio::test]
async fn a_whole_view_that_can_never_be_used_is_asked_for_ever_more_rarely() {
    let (rig, tasks, registry) = (Rig::new(), Tasks::new(), Registry::new());
    let mut one = rig.controller(1);
    let _client = rig.client(&tasks, &registry, &[1]);
    let mut one = next(&mut one).await;
    one.hello().await;
    one.welcome("one").await;
    let mut asked = 0;
    let answering = async {
        loop {
            one.follow().await;
            asked += 1;
            one.tell(Told::View(ViewUpdate::default())).await;
        }
    };
    let _ = timeout(Duration::from_secs(2), answering).await;
    assert!((2..15).contains(&asked), "{asked}");
    tasks.drain(PATIENCE, std::future::pending()).await;
}

#[tokio::test]
async fn a_view_that_is_announced_and_does_not_come_is_asked_for() {
    let (rig, tasks, registry) = (Rig::new(), Tasks::new(), Registry::new());
    let mut one = rig.controller(1);
    let client = rig.client(&tasks, &registry, &[1]);
    let mut one = next(&mut one).await;
    one.hello().await;
    one.welcome("one").await;
    one.follow().await;
    one.view(&published(3)).await;
    client.pushed().wait_for(|pushed| pushed.id.is_some()).await;
    let newer = published(4);
    let beating = async {
        loop {
            one.beat(Some(newer.id)).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let _ = timeout(crate::limits::CATCH_UP + Duration::from_millis(500), beating).await;
    assert_eq!(one.follow().await.view, None);
    one.view(&newer).await;
    client
        .pushed()
        .wait_for(|pushed| pushed.view.workers.len() == 4)
        .await;
    tasks.drain(PATIENCE, std::future::pending()).await;
}

#[tokio::test]
async fn a_configuration_must_be_what_its_identity_says() {
    let (rig, tasks, registry) = (Rig::new(), Tasks::new(), Registry::new());
    let mut one = rig.controller(1);
    let client = rig.client(&tasks, &registry, &[1]);
    let mut updates = client.updates();
    let mut one = next(&mut one).await;
    one.hello().await;
    one.welcome("one").await;
    one.follow().await;
    for (id, text) in [(ConfigId::of(1, "b"), "a"), (ConfigId::of(2, "a"), "a")] {
        one.tell(Told::Config(ConfigUpdate {
            id: Some(id.into()),
            text: text.to_owned(),
            uid: "0-1".to_owned(),
        }))
        .await;
    }
    one.tell(Told::Source(SourceState {
        kind: "kubernetes".to_owned(),
        connected: true,
        synced: true,
        stale: false,
        last_error: "x".repeat(10_000),
        origins: Vec::new(),
    }))
    .await;
    let update = updates.wait_for(Option::is_some).await.unwrap().clone().unwrap();
    assert_eq!((update.id.generation, update.text.as_str()), (2, "a"));
    assert_eq!(update.uid.as_deref(), Some("0-1"));
    assert_eq!(
        count(&registry, "continuum_controller_errors_total", "protocol"),
        1.0
    );
    let told = client.pushed().wait_for(|pushed| pushed.source.is_some()).await;
    let error = told.source.clone().unwrap().last_error.unwrap();
    assert_eq!(error.len(), crate::limits::MAX_ERROR_BYTES);
    tasks.drain(PATIENCE, std::future::pending()).await;
}

#[tokio::test]
async fn a_view_is_of_what_its_controller_said_before_it() {
    let (rig, tasks, registry) = (Rig::new(), Tasks::new(), Registry::new());
    let (mut one, mut two) = (rig.controller(1), rig.controller(2));
    let client = rig.client(&tasks, &registry, &[1, 2]);
    let (mut one, mut two) = (next(&mut one).await, next(&mut two).await);
    let (pushed, view) = (client.pushed(), published(3));
    let of = |origin: &'static str| {
        let pushed = Arc::clone(&pushed);
        async move {
            pushed
                .wait_for(|pushed| *pushed.origins == [origin.to_owned()])
                .await
        }
    };
    one.hello().await;
    one.welcome("one").await;
    one.follow().await;
    one.source("there").await;
    one.view(&view).await;
    let first = of("there").await;
    assert_eq!(first.view.workers.len(), 3);

    // The next fleet has the same content: its view is not sent, the heartbeat says that it is that.
    one.source("here").await;
    one.beat(Some(view.id)).await;
    assert_eq!(of("here").await.number, first.number);
    // And another one.
    let other = published(5);
    one.source("elsewhere").await;
    one.view(&other).await;
    assert_eq!(of("elsewhere").await.view.workers.len(), 5);

    // Of a controller that is followed since now, nothing is known before it says it.
    two.hello().await;
    two.welcome("two").await;
    drop(one);
    two.follow().await;
    two.beat(Some(other.id)).await;
    // What is told in order is acted on in order.
    two.tell(Told::Config(ConfigUpdate {
        id: Some(ConfigId::of(1, "a").into()),
        text: "a".to_owned(),
        uid: String::new(),
    }))
    .await;
    client.updates().wait_for(Option::is_some).await.unwrap();
    assert_eq!(*pushed.load().origins, ["elsewhere".to_owned()]);
    two.source("here").await;
    two.beat(Some(other.id)).await;
    of("here").await;
    tasks.drain(PATIENCE, std::future::pending()).await;
}

#[tokio::test]
async fn a_process_does_not_begin_with_the_view_of_another_fleet() {
    let (rig, registry) = (Rig::new(), Registry::new());
    let settings = |origin: &str| Settings {
        state_dir: Some(rig.folder.path().join("state")),
        origins: vec![origin.to_owned()],
        ..rig.settings()
    };
    // Nobody listens: what there is comes from the file.
    let begin = |tasks: &Tasks, registry: &Registry, origin: &str| {
        let client = rig.client_with(tasks, registry, &[9], settings(origin));
        async move {
            client
                .status()
                .wait_for(|status| status.last_error.is_some())
                .await;
            client.pushed().load()
        }
    };
    let tasks = Tasks::new();
    let mut one = rig.controller(1);
    let client = rig.client_with(&tasks, &registry, &[1], settings("one"));
    let mut one = next(&mut one).await;
    one.hello().await;
    one.welcome("one").await;
    one.follow().await;
    one.source("one").await;
    one.view(&published(3)).await;
    client.pushed().wait_for(|pushed| pushed.id.is_some()).await;
    let file = rig.folder.path().join("state/pushed-view");
    let written = async {
        while !file.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, written).await.unwrap();
    tasks.drain(PATIENCE, std::future::pending()).await;
    for (origin, workers) in [("one", 3), ("two", 0), ("one", 3)] {
        let tasks = Tasks::new();
        let begun = begin(&tasks, &Registry::new(), origin).await;
        assert_eq!(
            (begun.view.workers.len(), begun.kept),
            (workers, workers > 0),
            "{origin}"
        );
        tasks.drain(PATIENCE, std::future::pending()).await;
    }
}

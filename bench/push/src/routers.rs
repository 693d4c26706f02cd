//! The routers' ends: all read what comes and report; some do with it what a router does.

use std::time::Duration;

use continuum_fleet::ids::{Graph, ModelName};
use continuum_messages::{
    Assembler,
    limits::{MAX_FROM_CONTROLLER_BYTES, PROTOCOL},
    push::{
        Follow, FromRouter, Hello, Report, ViewId, from_controller::Message, from_router,
        push_client::PushClient,
    },
};
use continuum_routing::{
    Millis,
    load::Store,
    picker::{Pool, Request, Settings, Table, pick},
};
use jiff::Timestamp;
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::process::now;

/// Routers that assemble, follow and pick; each would need a processor of its own.
const WHOLE: usize = 4;
/// How often a router reports, as it is told in the welcome.
const REPORT: Duration = Duration::from_millis(250);
/// Longer than any change may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connected routers.
pub struct Routers {
    count: usize,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
}

struct Arrival {
    number: u64,
    read: u64,
    picked: Option<u64>,
}

/// When a change was where, in milliseconds from its beginning.
pub struct Seen {
    pub read: Vec<f64>,
    pub picked: Vec<f64>,
}

impl Routers {
    /// Opens the sessions and waits until each has the first view.
    pub async fn connect(port: u16, ca: &str, count: usize) -> Self {
        let (sender, arrivals) = mpsc::unbounded_channel();
        for place in 0..count {
            let channel = channel(port, ca).await;
            let sender = sender.clone();
            tokio::spawn(async move { session(channel, place, sender).await });
        }
        let mut routers = Self { count, arrivals };
        routers.wait(1, now()).await;
        routers
    }

    /// Waits until every router has the view of this number.
    pub async fn wait(&mut self, number: u64, from: u64) -> Seen {
        let mut seen = Seen {
            read: Vec::with_capacity(self.count),
            picked: Vec::with_capacity(WHOLE),
        };
        let millis = |at: u64| at.saturating_sub(from) as f64 / 1e6;
        while seen.read.len() < self.count {
            let next = timeout(PATIENCE, self.arrivals.recv()).await;
            let arrival = next
                .expect("every router gets every change in time")
                .expect("routers stay");
            assert_eq!(
                arrival.number, number,
                "no change is skipped: the next waits for all"
            );
            seen.read.push(millis(arrival.read));
            seen.picked.extend(arrival.picked.map(millis));
        }
        seen
    }
}

async fn channel(port: u16, ca: &str) -> Channel {
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
    Endpoint::from_shared(format!("https://localhost:{port}"))
        .expect("an address")
        .tls_config(tls)
        .expect("TLS")
        .connect()
        .await
        .expect("a connection")
}

async fn session(channel: Channel, place: usize, arrivals: mpsc::UnboundedSender<Arrival>) {
    let mut client = PushClient::new(channel).max_decoding_message_size(MAX_FROM_CONTROLLER_BYTES);
    let (sender, outgoing) = mpsc::channel(16);
    let hello = from_router::Message::Hello(Hello {
        protocol: PROTOCOL,
        version: "bench".to_owned(),
        follow: Some(Follow {
            follow: true,
            ..Follow::default()
        }),
    });
    sender.send(message(hello)).await.expect("room");
    let mut request = tonic::Request::new(ReceiverStream::new(outgoing));
    let token = format!("Bearer router-{place}").parse().expect("a header");
    request.metadata_mut().insert("authorization", token);
    let mut incoming = client.session(request).await.expect("a session").into_inner();
    let mut router = (place < WHOLE).then(|| Router::new(place as u64));
    let mut tick = interval(REPORT);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut view: Option<ViewId> = None;
    loop {
        let came = tokio::select! {
            came = incoming.message() => came.expect("the session lives").expect("the session lives"),
            _ = tick.tick() => {
                sender.send(report(view.clone())).await.expect("the session lives");
                continue;
            }
        };
        let Some(Message::View(part)) = came.message else {
            continue;
        };
        let (id, last) = (part.view.clone().expect("a view has an identity"), part.last);
        let read = now();
        let whole = router.as_mut().and_then(|router| router.take(part));
        if !last {
            continue;
        }
        let arrival = Arrival {
            number: id.number,
            read,
            picked: whole.map(|()| now()),
        };
        view = Some(id);
        if arrivals.send(arrival).is_err() {
            return;
        }
        sender
            .send(report(view.clone()))
            .await
            .expect("the session lives");
        tick.reset();
    }
}

/// What a router does with a view before a request sees it.
struct Router {
    assembler: Assembler,
    store: Store,
    table: Table,
    model: ModelName,
    graph: Graph,
}

impl Router {
    fn new(seed: u64) -> Self {
        Self {
            assembler: Assembler::new(),
            store: Store::new(),
            table: Table::new(seed),
            model: "probe".into(),
            graph: "dynamo".into(),
        }
    }

    /// Takes a part; when a view is whole, a pick says what it must.
    fn take(&mut self, part: continuum_messages::push::ViewUpdate) -> Option<()> {
        let whole = self
            .assembler
            .push(part, Timestamp::UNIX_EPOCH)
            .expect("an update that fits")?;
        (self.table, _) = self.table.follow(&whole.view, &self.store);
        let pools = [Pool {
            graph: &self.graph,
            listed: true,
        }];
        let request = Request {
            model: &self.model,
            pools: &pools,
            prompt_tokens: 1_000,
            prompt: None,
            exclude: &[],
            settings: Settings::default(),
        };
        let picked = pick(&self.table, &self.store, &request, Millis(1_000));
        // The worker is there at first, and then each change takes it or brings it back.
        assert_eq!(
            picked.is_ok(),
            whole.id.number % 2 == 1,
            "the pick follows the view"
        );
        Some(())
    }
}

fn report(view: Option<ViewId>) -> FromRouter {
    message(from_router::Message::Report(Report {
        view,
        ready: true,
        ..Report::default()
    }))
}

fn message(message: from_router::Message) -> FromRouter {
    FromRouter {
        message: Some(message),
    }
}

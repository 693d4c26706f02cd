//! One session, and the loop that begins it again and again.

use std::{net::SocketAddr, sync::Arc};

use continuum_messages::{
    limits::{MAX_FROM_CONTROLLER_BYTES, MAX_FROM_ROUTER_BYTES, PROTOCOL},
    push::{
        FromController, FromRouter, Hello, Welcome, from_controller::Message as Told, from_router,
        push_client::PushClient,
    },
};
use continuum_runtime::backoff::Backoff;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Streaming};

use crate::{
    connect::connect,
    error::Error,
    hub::Shared,
    limits::{
        BACKOFF_INITIAL, BACKOFF_MAX, CONNECT_TIMEOUT, HEARTBEAT_INTERVALS, QUEUED_REPORTS, REPORT_SPACING,
        SESSION_SILENCE,
    },
    report::Report,
    settings::Settings,
};

/// What a session tells the hub.
#[derive(Debug)]
pub(crate) enum Event {
    /// It is up.
    Up(Welcome),
    /// A message.
    Told(Box<Told>),
    /// It ended, or could not begin.
    Down(Error),
}

/// What which session tells.
pub(crate) type Heard = (SocketAddr, Event);

/// What the hub asks of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    pub(crate) follow: bool,
    /// Send a whole view, whatever this router has.
    pub(crate) whole: bool,
    /// Moves on when the same is to be asked again.
    pub(crate) serial: u64,
}

/// What a session works with.
pub(crate) struct Wires {
    pub(crate) address: SocketAddr,
    pub(crate) settings: Arc<Settings>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) orders: watch::Receiver<Orders>,
    pub(crate) report: watch::Receiver<Report>,
    pub(crate) events: mpsc::Sender<Heard>,
}

/// Keeps a session until `stop`.
pub(crate) async fn keep(mut wires: Wires, stop: CancellationToken) {
    let mut backoff = Backoff::new(BACKOFF_INITIAL, BACKOFF_MAX);
    let work = async {
        loop {
            let began = Instant::now();
            let error = match wires.run().await {
                Ok(never) => match never {},
                Err(error) => error,
            };
            backoff.session_ended(began.elapsed());
            if wires.tell(Event::Down(error)).await.is_err() {
                return;
            }
            sleep(backoff.delay()).await;
        }
    };
    stop.run_until_cancelled(work).await;
}

enum Never {}

/// What is to be sent.
#[derive(Default)]
struct Due {
    follow: bool,
    report: bool,
}

impl Wires {
    async fn tell(&self, event: Event) -> Result<(), Error> {
        self.events
            .send((self.address, event))
            .await
            .map_err(|_stopping| Error::Closed)
    }

    async fn run(&mut self) -> Result<Never, Error> {
        let opening = timeout(CONNECT_TIMEOUT, self.open());
        let (mut inbound, outbound, welcome) = opening.await.map_err(|_elapsed| Error::Timeout)??;
        let every = heartbeat(&welcome);
        self.tell(Event::Up(welcome)).await?;
        let mut tick = interval_at(Instant::now(), every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut due, mut report_at) = (Due::default(), Instant::now());
        let mut silent_at = Instant::now() + SESSION_SILENCE;
        loop {
            let may_report = due.report && Instant::now() >= report_at;
            tokio::select! {
                permit = outbound.reserve(), if due.follow || may_report => {
                    let permit = permit.map_err(|_closed| Error::Closed)?;
                    if due.follow {
                        due.follow = false;
                        permit.send(from_router::Message::Follow(self.follow()).into_message());
                    } else {
                        due.report = false;
                        report_at = Instant::now() + REPORT_SPACING;
                        permit.send(from_router::Message::Report(self.report()).into_message());
                    }
                }
                () = sleep_until(report_at), if due.report && !may_report => {}
                changed = self.orders.changed() => {
                    changed.map_err(|_stopping| Error::Closed)?;
                    due.follow = true;
                }
                changed = self.report.changed() => {
                    changed.map_err(|_stopping| Error::Closed)?;
                    due.report = true;
                }
                _ = tick.tick() => due.report = true,
                message = inbound.message() => {
                    silent_at = Instant::now() + SESSION_SILENCE;
                    let told = message?.ok_or(Error::Closed)?.message;
                    let told = told.ok_or(Error::Protocol("an empty message"))?;
                    self.tell(Event::Told(Box::new(told))).await?;
                }
                () = sleep_until(silent_at) => return Err(Error::Silent),
            }
        }
    }

    /// Connects, says hello, and waits for the answer.
    async fn open(
        &mut self,
    ) -> Result<(Streaming<FromController>, mpsc::Sender<FromRouter>, Welcome), Error> {
        let connected = connect(&self.settings, self.address).await?;
        let mut client = PushClient::new(connected.channel)
            .max_decoding_message_size(MAX_FROM_CONTROLLER_BYTES)
            .max_encoding_message_size(MAX_FROM_ROUTER_BYTES);
        let (outbound, messages) = mpsc::channel(QUEUED_REPORTS);
        let hello = Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            follow: Some(self.follow()),
        };
        // The channel is empty: there is room.
        let _room = outbound.try_send(from_router::Message::Hello(hello).into_message());
        let mut request = Request::new(ReceiverStream::new(messages));
        request.metadata_mut().insert("authorization", connected.bearer);
        let mut inbound = client.session(request).await?.into_inner();
        match inbound.message().await?.ok_or(Error::Closed)?.message {
            Some(Told::Welcome(welcome)) => Ok((inbound, outbound, welcome)),
            Some(Told::Config(_) | Told::View(_) | Told::Source(_) | Told::Heartbeat(_)) | None => {
                Err(Error::Protocol("the first message is no welcome"))
            }
        }
    }

    fn follow(&mut self) -> continuum_messages::push::Follow {
        let orders = *self.orders.borrow_and_update();
        self.shared.follow(orders)
    }

    fn report(&mut self) -> continuum_messages::push::Report {
        let report = self.report.borrow_and_update();
        let (age_ms, stale) = self.shared.age();
        report.message(age_ms, stale)
    }
}

fn heartbeat(welcome: &Welcome) -> std::time::Duration {
    let (least, most) = HEARTBEAT_INTERVALS;
    std::time::Duration::from_millis(welcome.heartbeat_ms.into()).clamp(least, most)
}

trait IntoMessage {
    fn into_message(self) -> FromRouter;
}

impl IntoMessage for from_router::Message {
    fn into_message(self) -> FromRouter {
        FromRouter { message: Some(self) }
    }
}

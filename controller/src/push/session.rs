//! One session: what comes is read at a bounded rate, what goes is decided when there is room for it.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use continuum_messages::{
    ConfigId, ViewId,
    limits::{MAX_POOLS, MAX_REPORT_TEXT_BYTES, MAX_REPORT_TEXTS, PROTOCOL},
    push,
};
use futures::Stream;
use prost::Message as _;
use push::from_router::Message;
use rand::Rng as _;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout},
};
use tonic::{Status, Streaming};

use super::{
    End, Hub, Identity, Refusal,
    connection::InUse,
    hub::Feed,
    limits::{HEARTBEAT, HELLO, MESSAGE_SPACING, RENEW, SILENCE, SLOW},
    metrics::Kind,
    outgoing::Outgoing,
    sessions::Place,
    track::Seen,
};

/// What the router is sent, and why it ended.
#[derive(Debug)]
pub struct Replies {
    messages: mpsc::Receiver<push::FromController>,
    end: Arc<OnceLock<Status>>,
    ended: bool,
}

/// A session that may begin: its router is known.
pub(super) struct Begin {
    pub(super) hub: Arc<Hub>,
    pub(super) identity: Identity,
    pub(super) feed: watch::Receiver<Feed>,
    pub(super) inbound: Streaming<push::FromRouter>,
    /// Keeps the connection from being closed as idle.
    pub(super) in_use: InUse,
}

impl Begin {
    /// Runs the session in a task of its own.
    pub(super) fn spawn(self) -> Replies {
        // One message beside the one that is being written: a newer view replaces what has not been made yet.
        let (sender, messages) = mpsc::channel(1);
        let end = Arc::new(OnceLock::new());
        let replies = Replies {
            messages,
            end: Arc::clone(&end),
            ended: false,
        };
        tokio::spawn(async move {
            let status = self.run(&sender).await;
            // Set before the channel closes: whoever sees the one finds the other.
            let _first = end.set(status);
            drop(sender);
        });
        replies
    }

    async fn run(mut self, sender: &mpsc::Sender<push::FromController>) -> Status {
        let hub = Arc::clone(&self.hub);
        let hello = tokio::select! {
            hello = timeout(HELLO, self.inbound.message()) => hello,
            () = hub.stopping().cancelled() => return End::Stopping.status(),
        };
        let hello = match hello {
            Ok(Ok(Some(push::FromRouter {
                message: Some(Message::Hello(hello)),
            }))) if hello.protocol == PROTOCOL => hello,
            Ok(Ok(Some(push::FromRouter {
                message: Some(Message::Hello(hello)),
            }))) => {
                hub.metrics.refused(Refusal::Hello);
                return Status::failed_precondition(format!(
                    "this controller speaks version {PROTOCOL} of the session, the router version {}: use images of the same release",
                    hello.protocol
                ));
            }
            Ok(_) | Err(_) => {
                hub.metrics.refused(Refusal::Hello);
                return Status::invalid_argument("the first message must be a hello, at once");
            }
        };
        let version: String = hello.version.chars().take(64).collect();
        let Some(place) = Place::take(&hub, self.identity.clone(), &version) else {
            hub.metrics.refused(Refusal::Sessions);
            return Status::resource_exhausted("the RouterConfig has too many sessions");
        };
        self.in_use.begun();
        hub.metrics.sessions(hub.sessions.count());
        tracing::debug!(key = %self.identity.key, pod = %self.identity.pod.name, version, "router connected");
        let end = self.serve(sender, &place, hello.follow.unwrap_or_default()).await;
        drop(place);
        hub.metrics.sessions(hub.sessions.count());
        hub.metrics.ended(end);
        tracing::debug!(
            key = %self.identity.key,
            pod = %self.identity.pod.name,
            reason = end.as_str(),
            "router's session ended"
        );
        end.status()
    }

    async fn serve(
        &mut self,
        sender: &mpsc::Sender<push::FromController>,
        place: &Place,
        follow: push::Follow,
    ) -> End {
        let hub = &self.hub;
        let feed = self.feed.borrow_and_update().clone();
        let mut seen = follow_track(&feed);
        let mut out = Outgoing::new(feed, current(&mut seen));
        if follow_of(&mut out, place, &follow).is_err() {
            return End::Malformed;
        }
        hub.metrics.sessions(hub.sessions.count());

        let mut beat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let renew = Instant::now() + RENEW.mul_f64(1.0 - rand::rng().random_range(0.0..0.33));
        let mut silent = Instant::now() + SILENCE;
        let mut read_from = Instant::now();
        let mut slow: Option<Instant> = None;
        loop {
            let wants = out.wants();
            if !wants {
                slow = None;
            }
            let give_up = *slow.get_or_insert_with(|| Instant::now() + SLOW);
            tokio::select! {
                permit = sender.reserve(), if wants => {
                    let Ok(permit) = permit else { return End::Closed };
                    if let Some((kind, message)) = out.next(hub) {
                        hub.metrics.message(kind, message.encoded_len());
                        permit.send(message);
                    }
                    slow = None;
                }
                () = sleep_until(give_up), if wants => return End::Slow,
                message = next_message(&mut self.inbound, read_from) => {
                    match message {
                        Ok(Some(message)) => {
                            read_from = Instant::now() + MESSAGE_SPACING;
                            silent = Instant::now() + SILENCE;
                            if receive(hub, &mut out, place, message).is_err() {
                                return End::Malformed;
                            }
                        }
                        Ok(None) => return End::Closed,
                        Err(status) if is_malformed(&status) => return End::Malformed,
                        Err(_gone) => return End::Closed,
                    }
                }
                changed = self.feed.changed() => {
                    if changed.is_err() {
                        return End::Removed;
                    }
                    seen = take(&mut self.feed, &mut out);
                }
                // A config that was set before a view goes before it.
                () = next_seen(&mut seen) => match self.feed.has_changed() {
                    Ok(true) => seen = take(&mut self.feed, &mut out),
                    Ok(false) | Err(_) => out.seen(current(&mut seen)),
                },
                _ = beat.tick() => out.heartbeat(),
                () = sleep_until(silent) => return End::Silent,
                () = sleep_until(renew) => return End::Renew,
                () = place.replaced.cancelled() => return End::Replaced,
                () = hub.stopping().cancelled() => return End::Stopping,
            }
        }
    }
}

impl Stream for Replies {
    type Item = Result<push::FromController, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        match self.messages.poll_recv(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(message)) => Poll::Ready(Some(Ok(message))),
            Poll::Ready(None) => {
                self.ended = true;
                let lost = || Status::internal("the session was lost");
                Poll::Ready(Some(Err(self.end.get().cloned().unwrap_or_else(lost))))
            }
        }
    }
}

/// A message that cannot be used.
struct Malformed;

fn receive(hub: &Hub, out: &mut Outgoing, place: &Place, message: push::FromRouter) -> Result<(), Malformed> {
    let bytes = message.encoded_len();
    match message.message {
        Some(Message::Follow(follow)) => {
            hub.metrics.message(Kind::Follow, bytes);
            follow_of(out, place, &follow)?;
            hub.metrics.sessions(hub.sessions.count());
        }
        Some(Message::Report(mut report)) => {
            // Said by controllers alone, and not to be kept here.
            if let Some(source) = &mut report.local_source {
                source.origins = Vec::new();
            }
            hub.metrics.message(Kind::Report, bytes);
            let (view, config) = check(&report)?;
            if let Some(published) = out.reported(view) {
                hub.metrics.lag(published.elapsed());
            }
            place.report(report, view, config);
        }
        Some(Message::Hello(_)) => return Err(Malformed),
        // A newer router says something that this version does not know.
        None => {}
    }
    Ok(())
}

fn follow_of(out: &mut Outgoing, place: &Place, follow: &push::Follow) -> Result<(), Malformed> {
    let view = follow.view.as_ref().map(ViewId::try_from).transpose();
    let config = follow.config.as_ref().map(ConfigId::try_from).transpose();
    out.follow(
        follow.follow,
        view.map_err(|_length| Malformed)?,
        config.map_err(|_length| Malformed)?,
    );
    place.followed(follow.follow);
    Ok(())
}

/// The identities in a report, if all of it is within its caps.
fn check(report: &push::Report) -> Result<(Option<ViewId>, Option<ConfigId>), Malformed> {
    let view = report.view.as_ref().map(ViewId::try_from).transpose();
    let config = report.config.as_ref().map(ConfigId::try_from).transpose();
    let unpaired = report
        .local_fleet
        .as_ref()
        .map(|fleet| fleet.unpaired_models.as_slice());
    let texts = report
        .pending
        .iter()
        .chain(&report.unlisted_models)
        .chain(unpaired.unwrap_or_default());
    let longest = texts
        .chain(report.pools.iter().map(|pool| &pool.namespace))
        .chain(report.refused.iter().map(|refused| &refused.error))
        .chain(report.local_refused.iter().map(|refused| &refused.kind))
        .chain(
            report
                .local_source
                .iter()
                .flat_map(|source| [&source.kind, &source.last_error]),
        )
        .map(String::len)
        .max();
    if longest.unwrap_or(0) > MAX_REPORT_TEXT_BYTES
        || report.pools.len() > MAX_POOLS
        || report.pending.len() > MAX_REPORT_TEXTS
        || report.unlisted_models.len() > MAX_REPORT_TEXTS
        || report.local_refused.len() > MAX_REPORT_TEXTS
        || unpaired.unwrap_or_default().len() > MAX_REPORT_TEXTS
    {
        return Err(Malformed);
    }
    Ok((
        view.map_err(|_length| Malformed)?,
        config.map_err(|_length| Malformed)?,
    ))
}

/// Decoding errors have these codes; a stream that broke has others.
fn is_malformed(status: &Status) -> bool {
    matches!(
        status.code(),
        tonic::Code::Internal
            | tonic::Code::OutOfRange
            | tonic::Code::InvalidArgument
            | tonic::Code::Unimplemented
    )
}

async fn next_message(
    inbound: &mut Streaming<push::FromRouter>,
    from: Instant,
) -> Result<Option<push::FromRouter>, Status> {
    sleep_until(from).await;
    inbound.message().await
}

/// Takes over what the router is to be told of from now on.
fn take(feed: &mut watch::Receiver<Feed>, out: &mut Outgoing) -> Option<watch::Receiver<Seen>> {
    let feed = feed.borrow_and_update().clone();
    let mut seen = follow_track(&feed);
    out.feed(feed);
    out.seen(current(&mut seen));
    seen
}

fn follow_track(feed: &Feed) -> Option<watch::Receiver<Seen>> {
    feed.track.as_ref().map(|track| track.subscribe())
}

fn current(seen: &mut Option<watch::Receiver<Seen>>) -> Seen {
    seen.as_mut()
        .map(|seen| seen.borrow_and_update().clone())
        .unwrap_or_default()
}

async fn next_seen(seen: &mut Option<watch::Receiver<Seen>>) {
    let Some(receiver) = seen else {
        return std::future::pending().await;
    };
    if receiver.changed().await.is_err() {
        // The track lives in the feed that this session holds, so it does not close.
        std::future::pending().await
    }
}

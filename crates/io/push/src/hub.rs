//! The one task that acts on what the sessions tell: whom to follow, what becomes of a view and of a configuration.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use continuum_messages::{
    Assembler, ConfigId, ViewId,
    push::{self, Heartbeat, ViewUpdate, from_controller::Message as Told},
};
use continuum_runtime::{
    cell::Cell,
    said::Said,
    tasks::{Spawner, Task},
};
use jiff::Timestamp;
use tokio::{
    sync::{mpsc, watch},
    task::spawn_blocking,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    addresses::{Lookup, resolve},
    error::{Error, Reason, cut},
    kept::{self, Keep},
    limits::{
        ALONE, CATCH_UP, KEEP_INTERVAL, MAX_SESSIONS, QUEUED_MESSAGES, RESOLVE_INTERVAL,
        RESOLVE_INTERVAL_ALONE, SAID,
    },
    metrics::{Kind, Metrics},
    peers::{self, Peer},
    report::Report,
    session::{self, Event, Heard, Orders, Wires},
    settings::Settings,
    status::{SessionState, Status},
    view::{Pushed, Update},
};

/// Where the hub writes to.
pub(crate) struct Outlets {
    pub(crate) pushed: Arc<Cell<Pushed>>,
    pub(crate) status: Arc<Cell<Status>>,
    pub(crate) updates: watch::Sender<Option<Arc<Update>>>,
    pub(crate) metrics: Metrics,
}

/// What sessions read when they say what this router has.
#[derive(Debug, Default)]
pub(crate) struct Shared(Mutex<Have>);

#[derive(Debug, Default)]
struct Have {
    view: Option<ViewId>,
    config: Option<ConfigId>,
    /// When the view was last known to be the present one.
    current: Option<Instant>,
    stale: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Have> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn follow(&self, orders: Orders) -> push::Follow {
        let have = self.lock();
        push::Follow {
            follow: orders.follow,
            view: have.view.filter(|_| !orders.whole).map(Into::into),
            config: have.config.map(Into::into),
        }
    }

    /// Milliseconds since the view was known to be the present one, and whether it is a kept or unconfirmed one.
    pub(crate) fn age(&self) -> (u64, bool) {
        let have = self.lock();
        let age = have.current.map(|at| at.elapsed());
        let ms = age.map_or(u64::MAX, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        (if have.view.is_some() { ms } else { 0 }, have.stale)
    }
}

/// Acts on what sessions tell.
pub(crate) struct Hub {
    spawner: Spawner,
    report: watch::Receiver<Report>,
    lookup: Lookup,
    out: Outlets,
    shared: Arc<Shared>,
    settings: Option<Arc<Settings>>,
    assembler: Assembler,
    peers: BTreeMap<SocketAddr, (Peer, Session)>,
    followed: Option<SocketAddr>,
    /// The followed controller has announced another view than ours since then.
    behind: Option<Instant>,
    alone: Alone,
    said: Said<Reason>,
    to_events: mpsc::Sender<Heard>,
    events: mpsc::Receiver<Heard>,
}

/// Whether no controller is followed, and whether the log has it.
#[derive(Clone, Copy)]
enum Alone {
    No,
    Since(Instant),
    Said,
}

struct Session {
    orders: watch::Sender<Orders>,
    _task: Task,
}

impl Hub {
    pub(crate) fn new(
        spawner: Spawner,
        report: watch::Receiver<Report>,
        lookup: Lookup,
        out: Outlets,
    ) -> Self {
        let (to_events, events) = mpsc::channel(QUEUED_MESSAGES);
        Self {
            spawner,
            report,
            lookup,
            out,
            shared: Arc::default(),
            settings: None,
            assembler: Assembler::new(),
            peers: BTreeMap::new(),
            followed: None,
            behind: None,
            alone: Alone::No,
            said: Said::new(SAID),
            to_events,
            events,
        }
    }

    pub(crate) async fn run(
        mut self,
        mut settings: watch::Receiver<Option<Settings>>,
        stop: CancellationToken,
    ) {
        let wanted = settings.borrow_and_update().clone();
        self.become_like(wanted).await;
        let (to_found, mut found) = mpsc::channel::<Result<Vec<SocketAddr>, Error>>(1);
        let mut resolve_at = Instant::now();
        let mut resolving: Option<Task> = None;
        loop {
            let look = peers::next_look(&self.known(), self.followed, Instant::now());
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = settings.changed() => {
                    if changed.is_err() {
                        stop.cancelled().await;
                        return;
                    }
                    let wanted = settings.borrow_and_update().clone();
                    self.become_like(wanted).await;
                    // An answer about another name is not for these settings.
                    resolving = None;
                    while found.try_recv().is_ok() {}
                    resolve_at = Instant::now();
                }
                event = self.events.recv() => if let Some((address, event)) = event {
                    self.hear(address, event);
                },
                answer = found.recv() => {
                    resolving = None;
                    resolve_at = Instant::now() + self.resolve_interval();
                    match answer {
                        Some(Ok(addresses)) => self.addresses(&addresses),
                        Some(Err(error)) => self.failed(&error),
                        None => {}
                    }
                }
                () = sleep_until(resolve_at), if resolving.is_none() && self.settings.is_some() => {
                    resolving = self.look_up(to_found.clone());
                }
                () = sleep_until(look.unwrap_or_else(Instant::now)), if look.is_some() => {}
            }
            self.settle();
        }
    }

    /// Takes over what the configuration asks for.
    async fn become_like(&mut self, wanted: Option<Settings>) {
        let wanted = wanted.map(Arc::new);
        let same = match (&self.settings, &wanted) {
            (Some(now), Some(next)) => now.same_peers(next),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !same {
            self.peers.clear();
            self.followed = None;
            self.said.clear();
        }
        let first = self.settings.is_none();
        let views = |of: &Option<Arc<Settings>>| of.as_ref().is_some_and(|settings| settings.views);
        let had_views = views(&self.settings);
        self.settings = wanted;
        self.out.status.update(|status| {
            status.configured = self.settings.is_some();
            if self.settings.is_none() {
                *status = Status::default();
            } else if first {
                status.unreachable_since = Some(Timestamp::now());
            }
        });
        match (had_views, views(&self.settings)) {
            (false, true) => self.restore().await,
            (true, false) => {
                self.assembler = Assembler::new();
                {
                    let mut have = self.shared.lock();
                    let config = have.config;
                    *have = Have {
                        config,
                        ..Have::default()
                    };
                }
                let number = self.out.pushed.read().number.saturating_add(1);
                self.out.pushed.publish(Pushed {
                    number,
                    followed: self.followed.is_some(),
                    ..Pushed::default()
                });
            }
            (true, true) | (false, false) => {}
        }
    }

    /// Begins with the view that an earlier process kept.
    async fn restore(&mut self) {
        let Some(keep) = self.settings.as_deref().and_then(keep_of) else {
            return;
        };
        let read = spawn_blocking({
            let keep = keep.clone();
            move || kept::read(&keep)
        });
        match read.await {
            Ok(Ok(Some(assembler))) => {
                tracing::info!(
                    workers = assembler.view().workers.len(),
                    "began with the kept view of the fleet, stale until a controller confirms it"
                );
                let (id, view) = (assembler.id(), assembler.view().clone());
                self.assembler = assembler;
                {
                    let mut have = self.shared.lock();
                    have.view = id;
                    have.stale = true;
                }
                self.out.pushed.update(|pushed| {
                    pushed.number = pushed.number.saturating_add(1);
                    pushed.id = id;
                    pushed.view = view;
                    pushed.kept = true;
                });
            }
            Ok(Ok(None)) | Err(_) => {}
            Ok(Err(error)) => {
                tracing::warn!(dir = %keep.dir.display(), %error, "the kept view of the fleet cannot be used");
            }
        }
    }

    fn resolve_interval(&self) -> Duration {
        let alone = self.peers.values().all(|(peer, _)| peer.heard.is_none());
        let interval = if alone {
            RESOLVE_INTERVAL_ALONE
        } else {
            RESOLVE_INTERVAL
        };
        interval.mul_f64(0.75 + 0.5 * rand::random::<f64>())
    }

    fn look_up(&self, found: mpsc::Sender<Result<Vec<SocketAddr>, Error>>) -> Option<Task> {
        let settings = self.settings.clone()?;
        let lookup = Arc::clone(&self.lookup);
        Some(self.spawner.spawn("controller addresses", |stop| async move {
            let work = async {
                let answer = resolve(&lookup, &settings.host, settings.port).await;
                let _stopping = found.send(answer).await;
            };
            stop.run_until_cancelled(work).await;
        }))
    }

    /// Begins sessions with new addresses, and ends those whose address is gone and that are not up: a controller that
    /// is about to stop leaves the name first.
    fn addresses(&mut self, found: &[SocketAddr]) {
        let Some(settings) = self.settings.clone() else {
            return;
        };
        self.peers
            .retain(|address, (peer, _)| found.contains(address) || peer.heard.is_some());
        for address in found {
            if self.peers.len() >= MAX_SESSIONS {
                break;
            }
            if self.peers.contains_key(address) {
                continue;
            }
            let (orders, asked) = watch::channel(Orders::default());
            let wires = Wires {
                address: *address,
                settings: Arc::clone(&settings),
                shared: Arc::clone(&self.shared),
                orders: asked,
                report: self.report.clone(),
                events: self.to_events.clone(),
            };
            let task = self
                .spawner
                .spawn("controller session", |stop| session::keep(wires, stop));
            let session = Session { orders, _task: task };
            self.peers.insert(*address, (Peer::new(rand::random()), session));
        }
    }

    fn hear(&mut self, address: SocketAddr, event: Event) {
        // What a session said before it was ended is passed over.
        let Some((peer, _)) = self.peers.get_mut(&address) else {
            return;
        };
        let followed = self.followed == Some(address);
        match event {
            Event::Up(welcome) => {
                peer.heard = Some(Instant::now());
                peer.replica = cut(&welcome.replica);
                peer.leader = welcome.leader;
                peer.has_view = false;
                tracing::info!(
                    replica = peer.replica,
                    leader = peer.leader,
                    "a session with a controller is up"
                );
                self.said.clear();
            }
            Event::Down(error) => {
                let lost = peer.heard.take().is_some();
                if lost {
                    tracing::info!(replica = peer.replica, %error, "a session with a controller has ended");
                }
                if lost {
                    self.out.metrics.error(error.reason());
                    self.out
                        .status
                        .update(|status| status.last_error = Some(error.to_string()));
                } else {
                    self.failed(&error);
                }
            }
            Event::Told(told) => {
                peer.heard = Some(Instant::now());
                peer.has_view |= matches!(*told, Told::View(_));
                match *told {
                    Told::Heartbeat(heartbeat) => self.heartbeat(address, &heartbeat),
                    Told::View(part) if followed => self.view(part),
                    Told::Config(update) if followed => self.config(update),
                    Told::Source(state) if followed => {
                        self.out
                            .pushed
                            .update(|pushed| pushed.source = Some(state.into()));
                    }
                    // Sent before the controller knew that another is followed.
                    Told::View(_) | Told::Config(_) | Told::Source(_) => {}
                    Told::Welcome(_) => self.failed(&Error::Protocol("a second welcome")),
                }
            }
        }
    }

    fn heartbeat(&mut self, address: SocketAddr, heartbeat: &Heartbeat) {
        let announced = heartbeat.view.as_ref().and_then(|id| ViewId::try_from(id).ok());
        if let Some((peer, _)) = self.peers.get_mut(&address) {
            peer.leader = heartbeat.leader;
            peer.has_view = announced.is_some();
        }
        if self.followed != Some(address) || !self.wants_views() {
            return;
        }
        let Some(announced) = announced else { return };
        if self.assembler.id() == Some(announced) {
            self.confirmed(announced);
        } else if self.assembler.rename(announced) {
            self.out.metrics.update(Kind::Resumed);
            self.confirmed(announced);
        } else {
            // An update is on its way, as a rule.
            let since = *self.behind.get_or_insert_with(Instant::now);
            if since.elapsed() >= CATCH_UP {
                self.behind = None;
                self.ask(true);
            }
        }
    }

    /// The view that this router has is the present one.
    fn confirmed(&mut self, id: ViewId) {
        self.behind = None;
        {
            let mut have = self.shared.lock();
            have.view = Some(id);
            have.current = Some(Instant::now());
            have.stale = false;
        }
        let pushed = self.out.pushed.read();
        if pushed.id != Some(id) || pushed.kept {
            drop(pushed);
            self.out.pushed.update(|pushed| {
                pushed.id = Some(id);
                pushed.kept = false;
            });
        }
    }

    fn view(&mut self, part: ViewUpdate) {
        if !self.wants_views() {
            return;
        }
        match self.assembler.push(part, Timestamp::now()) {
            Ok(None) => {}
            Ok(Some(whole)) => {
                self.out
                    .metrics
                    .update(if whole.full { Kind::Full } else { Kind::Delta });
                let same = self
                    .out
                    .pushed
                    .read()
                    .id
                    .is_some_and(|id| id.digest == whole.id.digest);
                if !same {
                    self.out.pushed.update(|pushed| {
                        pushed.number = pushed.number.saturating_add(1);
                        pushed.view = whole.view;
                        pushed.id = Some(whole.id);
                        pushed.kept = false;
                    });
                }
                self.confirmed(whole.id);
            }
            Err(error) => {
                self.failed(&Error::View(error));
                self.ask(true);
            }
        }
    }

    fn config(&mut self, update: push::ConfigUpdate) {
        let id = update.id.as_ref().and_then(|id| ConfigId::try_from(id).ok());
        let Some(id) = id.filter(|id| ConfigId::of(id.generation, &update.text) == *id) else {
            self.failed(&Error::Protocol(
                "a configuration whose identity is not that of its text",
            ));
            return;
        };
        self.out.metrics.update(Kind::Config);
        self.shared.lock().config = Some(id);
        self.out.updates.send_replace(Some(Arc::new(Update {
            id,
            text: update.text,
        })));
    }

    fn failed(&mut self, error: &Error) {
        let reason = error.reason();
        self.out.metrics.error(reason);
        let text = error.to_string();
        if self.said.first_time(reason) {
            tracing::warn!(
                reason = reason.as_str(),
                error = text,
                "a controller cannot be used"
            );
        } else {
            tracing::debug!(
                reason = reason.as_str(),
                error = text,
                "a controller still cannot be used"
            );
        }
        self.out.status.update(|status| status.last_error = Some(text));
    }

    /// After everything that may have changed whom to follow.
    fn settle(&mut self) {
        let now = Instant::now();
        let known = self.known();
        let chosen = peers::choose(&known, self.followed, self.wants_views(), now);
        if chosen != self.followed {
            let before = self.followed.take();
            self.order(before, Orders::default());
            self.followed = chosen;
            self.behind = None;
            self.assembler.interrupt();
            self.ask(false);
            let name = chosen.and_then(|address| known.get(&address));
            match name {
                Some(peer) => tracing::info!(replica = peer.replica, "a controller is followed"),
                None => tracing::debug!("no controller is followed"),
            }
        }
        match (self.followed, self.alone) {
            (Some(_), Alone::No) | (None, Alone::Said) => {}
            (Some(_), Alone::Since(_)) => self.alone = Alone::No,
            (Some(_), Alone::Said) => {
                self.alone = Alone::No;
                tracing::info!("a controller is reached again");
            }
            (None, Alone::No) => self.alone = Alone::Since(now),
            (None, Alone::Since(since)) if self.settings.is_some() && now - since >= ALONE => {
                self.alone = Alone::Said;
                tracing::warn!("no controller is reached; the last view and configuration stay in force");
            }
            (None, Alone::Since(_)) => {}
        }
        if self.out.pushed.read().followed != self.followed.is_some() {
            let followed = self.followed.is_some();
            self.out.pushed.update(|pushed| pushed.followed = followed);
        }
        let rows = peers::rows(&known, self.followed, now);
        for state in SessionState::ALL {
            let count = rows.iter().filter(|row| row.state == state).count();
            self.out.metrics.sessions(state, count);
        }
        self.out.metrics.followed.set(i64::from(self.followed.is_some()));
        let (age_ms, _) = self.shared.age();
        if age_ms != u64::MAX {
            self.out
                .metrics
                .view_age
                .set(Duration::from_millis(age_ms).as_secs_f64());
        }
        let shown = self.out.status.read();
        let outdated = shown.sessions != rows || (shown.last_error.is_some() && self.followed.is_some());
        drop(shown);
        if outdated {
            let followed = self.followed.is_some();
            self.out.status.update(|status| {
                status.sessions = rows;
                if followed {
                    status.unreachable_since = None;
                    status.last_error = None;
                } else if status.unreachable_since.is_none() {
                    status.unreachable_since = Some(Timestamp::now());
                }
            });
        }
    }

    /// Asks the followed controller for what is newer than what this router has.
    fn ask(&mut self, whole: bool) {
        self.order(
            self.followed,
            Orders {
                follow: true,
                whole,
                serial: 0,
            },
        );
    }

    fn order(&self, to: Option<SocketAddr>, orders: Orders) {
        let Some((_, session)) = to.and_then(|address| self.peers.get(&address)) else {
            return;
        };
        session.orders.send_modify(|now| {
            *now = Orders {
                serial: now.serial.wrapping_add(1),
                ..orders
            };
        });
    }

    fn wants_views(&self) -> bool {
        self.settings.as_ref().is_some_and(|settings| settings.views)
    }

    fn known(&self) -> BTreeMap<SocketAddr, Peer> {
        self.peers
            .iter()
            .map(|(address, (peer, _))| (*address, peer.clone()))
            .collect()
    }
}

fn keep_of(settings: &Settings) -> Option<Keep> {
    Some(Keep {
        dir: settings.state_dir.clone().filter(|_| settings.views)?,
        scope: settings.scope.clone(),
    })
}

/// Writes the view after it has changed, now and then.
pub(crate) async fn keep_views(
    pushed: Arc<Cell<Pushed>>,
    mut settings: watch::Receiver<Option<Settings>>,
    stop: CancellationToken,
) {
    let mut changes = pushed.subscribe();
    let mut kept: Option<(u64, Keep)> = None;
    let mut failing = false;
    let work = async {
        loop {
            changes.borrow_and_update();
            let keep = settings.borrow_and_update().as_ref().and_then(keep_of);
            let now = pushed.load();
            if let Some(keep) = keep.filter(|_| now.id.is_some() && !now.kept)
                && kept.as_ref() != Some(&(now.number, keep.clone()))
            {
                let (to, view) = (keep.clone(), now.view.clone());
                let written = spawn_blocking(move || kept::write(&to, view)).await;
                match written {
                    Ok(Err(error)) if !failing => {
                        failing = true;
                        tracing::warn!(dir = %keep.dir.display(), %error, "the view of the fleet cannot be kept");
                    }
                    Ok(Ok(())) => failing = false,
                    Ok(Err(_)) | Err(_) => {}
                }
                kept = Some((now.number, keep));
                sleep(KEEP_INTERVAL).await;
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                changed = settings.changed() => if changed.is_err() { return },
            }
        }
    };
    if stop.run_until_cancelled(work).await.is_some() {
        stop.cancelled().await;
    }
}

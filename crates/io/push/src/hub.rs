//! The one task that acts on what the sessions tell: whom to follow, what becomes of a view and of a configuration.

mod asking;
mod keeping;
mod settle;
mod shared;
mod told;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use continuum_messages::Assembler;
use continuum_runtime::{
    cell::Cell,
    said::Said,
    tasks::{Spawner, Task},
};
use jiff::Timestamp;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use self::{asking::Asking, shared::Have};
pub(crate) use self::{keeping::keep_views, shared::Shared};
use crate::{
    addresses::{Lookup, resolve},
    error::{Error, Reason},
    limits::{MAX_SESSIONS, QUEUED_MESSAGES, RESOLVE_INTERVAL, RESOLVE_INTERVAL_ALONE, SAID},
    metrics::Metrics,
    peers::{self, Peer},
    report::Report,
    session::{self, Heard, Orders, Wires},
    settings::Settings,
    status::Status,
    view::{Pushed, Update},
};

/// Where the hub writes to.
pub(crate) struct Outlets {
    pub(crate) pushed: Arc<Cell<Pushed>>,
    pub(crate) status: Arc<Cell<Status>>,
    pub(crate) updates: watch::Sender<Option<Arc<Update>>>,
    pub(crate) metrics: Metrics,
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
    /// The followed controller has told what its views are of since then.
    origins_told: bool,
    /// The followed controller has announced another view than ours since then.
    behind: Option<Instant>,
    /// When a whole view is asked for again.
    asking: Asking,
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
            origins_told: false,
            behind: None,
            asking: Asking::default(),
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
            let ask_at = self.asking.due();
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
                () = sleep_until(ask_at.unwrap_or_else(Instant::now)), if ask_at.is_some() => {
                    self.asking.asked();
                    self.ask(true);
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

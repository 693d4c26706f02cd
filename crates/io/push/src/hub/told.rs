//! What sessions tell: whose view is the present one, parts of views, configurations, failures.

use std::{net::SocketAddr, sync::Arc};

use continuum_messages::{
    ConfigId, ViewId,
    push::{self, Heartbeat, ViewUpdate, from_controller::Message as Told},
};
use jiff::Timestamp;
use tokio::time::Instant;

use super::Hub;
use crate::{
    error::{Error, cut},
    limits::CATCH_UP,
    metrics::Kind,
    peers::compare,
    session::Event,
    view::Update,
};

impl Hub {
    pub(super) fn hear(&mut self, address: SocketAddr, event: Event) {
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
                (peer.config, peer.outdated) = (None, None);
                peer.origins = Arc::default();
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
                if let Told::Source(state) = &*told {
                    // Of an unfollowed one as well: an update that is under way there is of this.
                    peer.origins = state.origins.as_slice().into();
                    self.origins_told |= followed;
                }
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
            peer.config = heartbeat.config.as_ref().map(|id| id.generation);
        }
        let mut peers: Vec<_> = self.peers.values_mut().map(|(peer, _)| peer).collect();
        compare(&mut peers, Instant::now());
        if self.followed != Some(address) || !self.wants_views() {
            return;
        }
        let Some(announced) = announced else { return };
        // Until it has told what its views are of, an equal content only says that what is there is the present one.
        let origins = self.origins_told.then(|| self.origins_of(address));
        if self.assembler.id() == Some(announced) {
            self.confirmed(announced, origins);
        } else if self.assembler.rename(announced) {
            self.out.metrics.update(Kind::Resumed);
            self.confirmed(announced, origins);
        } else {
            // An update is on its way, as a rule.
            let since = *self.behind.get_or_insert_with(Instant::now);
            if since.elapsed() >= CATCH_UP && self.asking.due().is_none() {
                self.behind = None;
                self.ask(true);
            }
        }
    }

    fn origins_of(&self, address: SocketAddr) -> Arc<[String]> {
        self.peers
            .get(&address)
            .map(|(peer, _)| Arc::clone(&peer.origins))
            .unwrap_or_default()
    }

    /// The view that this router has is the present one, of these origins if they are known.
    fn confirmed(&mut self, id: ViewId, origins: Option<Arc<[String]>>) {
        self.behind = None;
        {
            let mut have = self.shared.lock();
            have.view = Some(id);
            have.current = Some(Instant::now());
            have.stale = false;
        }
        let pushed = self.out.pushed.read();
        let elsewhere = origins.filter(|origins| *origins != pushed.origins);
        if pushed.id != Some(id) || pushed.kept || elsewhere.is_some() {
            drop(pushed);
            self.out.pushed.update(|pushed| {
                pushed.id = Some(id);
                pushed.kept = false;
                if let Some(origins) = elsewhere {
                    pushed.origins = origins;
                }
            });
        }
    }

    fn view(&mut self, part: ViewUpdate) {
        if !self.wants_views() {
            return;
        }
        let whole = part.base.is_none();
        match self.assembler.push(part, Timestamp::now()) {
            Ok(None) => {}
            Ok(Some(whole)) => {
                self.asking.used();
                self.out
                    .metrics
                    .update(if whole.full { Kind::Full } else { Kind::Delta });
                let origins = self
                    .followed
                    .map(|address| self.origins_of(address))
                    .unwrap_or_default();
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
                        pushed.origins = Arc::clone(&origins);
                    });
                }
                self.confirmed(whole.id, Some(origins));
            }
            Err(error) => {
                self.failed(&Error::View(error));
                if self.asking.failed(whole, Instant::now()) {
                    self.ask(true);
                }
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
            uid: Some(update.uid).filter(|uid| !uid.is_empty()),
            text: update.text,
        })));
    }

    pub(super) fn failed(&mut self, error: &Error) {
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
}

//! What one router is sent next: always the newest that there is when it can take something.
//!
//! No clock and no socket: the session asks when there is room, so nothing queues up behind a slow router.

use std::sync::Arc;

use continuum_messages::{ConfigId, Digest, Parts, ViewId, push};
use push::from_controller::Message;
use tokio::time::Instant;

use super::{
    hub::{Config, Feed, Hub},
    limits::HEARTBEAT,
    metrics::{Kind, Sending},
    track::{Seen, Version},
};

/// The state of one session's sending side.
#[derive(Debug)]
pub(super) struct Outgoing {
    feed: Feed,
    seen: Seen,
    following: bool,
    welcome: bool,
    heartbeat: bool,
    /// The config that the router has, or was sent.
    config: Option<ConfigId>,
    /// The source state that it was sent.
    source: Option<Arc<push::SourceState>>,
    /// The view that it has, or will have when it has taken what was sent.
    has: Option<Has>,
    /// An update that is under way. It is always finished, so that the router knows where the next one begins.
    update: Option<Update>,
    /// What the router said to have while an update was under way.
    said: Option<Option<ViewId>>,
    /// The view that was sent last, until the router reports that it is in force.
    awaited: Option<(Digest, Instant)>,
}

/// A view that a router has.
#[derive(Debug)]
enum Has {
    /// One that we can make a difference to.
    Version(Arc<Version>),
    /// One that only its digest tells of.
    Digest(Digest),
}

#[derive(Debug)]
struct Update {
    to: Arc<Version>,
    parts: UpdateParts,
}

#[derive(Debug)]
enum UpdateParts {
    Full(Parts),
    Difference(Arc<[push::ViewUpdate]>, usize),
}

/// What comes next, by urgency.
enum Next {
    Welcome,
    Config(Arc<Config>),
    Part,
    Source(Arc<push::SourceState>),
    View(Arc<Version>),
    Heartbeat,
}

impl Outgoing {
    pub(super) fn new(feed: Feed, seen: Seen) -> Self {
        Self {
            feed,
            seen,
            following: false,
            welcome: true,
            heartbeat: false,
            config: None,
            source: None,
            has: None,
            update: None,
            said: None,
            awaited: None,
        }
    }

    /// The router follows this replica or not, and has this.
    pub(super) fn follow(&mut self, follow: bool, view: Option<ViewId>, config: Option<ConfigId>) {
        self.following = follow;
        self.config = config;
        // Told again: what it was sent before may have been for another life of it.
        self.source = None;
        self.said = Some(view);
    }

    pub(super) fn feed(&mut self, feed: Feed) {
        self.feed = feed;
    }

    pub(super) fn seen(&mut self, seen: Seen) {
        self.seen = seen;
    }

    pub(super) const fn heartbeat(&mut self) {
        self.heartbeat = true;
    }

    /// The router has this view in force. Says when the view was published, if it was waited for.
    pub(super) fn reported(&mut self, view: Option<ViewId>) -> Option<Instant> {
        let (digest, at) = self.awaited?;
        if view?.digest != digest {
            return None;
        }
        self.awaited = None;
        Some(at)
    }

    /// Whether there is something to send.
    pub(super) fn wants(&self) -> bool {
        self.said.is_some() || self.choose().is_some()
    }

    /// The next message, made when there is room for it.
    pub(super) fn next(&mut self, hub: &Hub) -> Option<(Kind, push::FromController)> {
        if self.update.is_none()
            && let Some(said) = self.said.take()
        {
            self.settle(said, hub);
        }
        let (kind, message) = match self.choose()? {
            Next::Welcome => {
                self.welcome = false;
                (Kind::Welcome, Message::Welcome(welcome(hub)))
            }
            Next::Config(config) => {
                self.config = Some(config.id);
                let update = push::ConfigUpdate {
                    id: Some(config.id.into()),
                    text: config.text.clone(),
                    uid: config.uid.clone(),
                };
                (Kind::Config, Message::Config(update))
            }
            Next::Source(state) => {
                let message = Message::Source(push::SourceState::clone(&state));
                self.source = Some(state);
                (Kind::Source, message)
            }
            Next::View(to) => {
                self.begin(to, hub);
                (Kind::View, Message::View(self.part()?))
            }
            Next::Part => (Kind::View, Message::View(self.part()?)),
            Next::Heartbeat => (Kind::Heartbeat, Message::Heartbeat(self.beat(hub))),
        };
        // Whatever is sent says that this replica lives.
        self.heartbeat = false;
        Some((
            kind,
            push::FromController {
                message: Some(message),
            },
        ))
    }

    fn choose(&self) -> Option<Next> {
        if self.welcome {
            return Some(Next::Welcome);
        }
        if self.following {
            if let Some(config) = &self.feed.config
                && self.config != Some(config.id)
            {
                return Some(Next::Config(Arc::clone(config)));
            }
            if self.update.is_some() {
                return Some(Next::Part);
            }
            if let Some(source) = &self.seen.source
                && self.source.as_ref() != Some(source)
            {
                return Some(Next::Source(Arc::clone(source)));
            }
            if let Some(newest) = &self.seen.newest
                && self.has.as_ref().map(Has::digest) != Some(newest.digest())
            {
                return Some(Next::View(Arc::clone(newest)));
            }
        } else if self.update.is_some() {
            return Some(Next::Part);
        }
        self.heartbeat.then_some(Next::Heartbeat)
    }

    /// Takes over what the router said to have.
    fn settle(&mut self, view: Option<ViewId>, hub: &Hub) {
        self.awaited = None;
        self.has = view.map(|view| {
            self.feed
                .track
                .as_ref()
                .and_then(|track| track.find(view.digest))
                .map_or(Has::Digest(view.digest), Has::Version)
        });
        let newest = self.seen.newest.as_ref().map(|newest| newest.digest());
        if self.following && newest.is_some() && newest == self.has.as_ref().map(Has::digest) {
            hub.metrics.view(Sending::Equal);
        }
    }

    fn begin(&mut self, to: Arc<Version>, hub: &Hub) {
        let parts = match &self.has {
            Some(Has::Version(base)) => {
                let (newest, before) = (to.published.id, base.published.id);
                let skipped = newest.number.saturating_sub(before.number).saturating_sub(1);
                hub.metrics.skipped(skipped);
                hub.metrics.view(Sending::Delta);
                UpdateParts::Difference(to.since(base), 0)
            }
            Some(Has::Digest(_)) | None => {
                hub.metrics.view(Sending::Full);
                UpdateParts::Full(to.published.full())
            }
        };
        self.update = Some(Update { to, parts });
    }

    fn part(&mut self) -> Option<push::ViewUpdate> {
        let update = self.update.as_mut()?;
        let part = match &mut update.parts {
            UpdateParts::Full(parts) => parts.next(),
            UpdateParts::Difference(parts, at) => {
                let part = parts.get(*at).cloned();
                *at = at.saturating_add(1);
                part
            }
        };
        if part.as_ref().is_none_or(|part| part.last) {
            let update = self.update.take()?;
            self.awaited = Some((update.to.digest(), update.to.at));
            self.has = Some(Has::Version(update.to));
        }
        part
    }

    /// The newest view, while its source is connected here: another replica may know a newer one then.
    fn confirmed(&self) -> Option<&Arc<Version>> {
        let connected = self.seen.source.as_ref().is_none_or(|source| source.connected);
        self.seen.newest.as_ref().filter(|_| connected)
    }

    fn beat(&self, hub: &Hub) -> push::Heartbeat {
        push::Heartbeat {
            leader: hub.leads(),
            view: self.confirmed().map(|newest| newest.published.id.into()),
            config: self.feed.config.as_ref().map(|config| config.id.into()),
        }
    }
}

impl Has {
    fn digest(&self) -> Digest {
        match self {
            Self::Version(version) => version.digest(),
            Self::Digest(digest) => *digest,
        }
    }
}

fn welcome(hub: &Hub) -> push::Welcome {
    push::Welcome {
        replica: hub.replica().to_owned(),
        epoch: hub.epoch().to_wire(),
        leader: hub.leads(),
        heartbeat_ms: u32::try_from(HEARTBEAT.as_millis()).unwrap_or(u32::MAX),
    }
}

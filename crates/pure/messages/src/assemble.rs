//! The router's side: parts of an update become a view, or a refusal.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use continuum_fleet::{
    ids::WorkerKey,
    limits::MAX_KEY_BYTES,
    view::{Capped, Card, FleetView, Seen, Worker},
};
use imbl::OrdMap;
use jiff::Timestamp;

use crate::{
    decode::{self, Malformed, PublisherPlace},
    ids::{Digest, ViewId},
    limits::{MAX_PUBLISHERS, MAX_UPDATE_BYTES, MAX_WORKERS},
    publish::root,
    push,
};

/// Takes the parts of updates, in order, and gives a view when one is whole.
///
/// After an error the view before stays; the caller asks for a full view (a `Follow` without one) and goes on
/// pushing: what was under way for the old state is passed over until a whole view comes.
#[derive(Debug, Default)]
pub struct Assembler {
    now: State,
    pending: Option<Pending>,
    /// An error has been told and no update has succeeded since.
    lost: bool,
    /// The rest of this update is passed over.
    skipping: Option<push::ViewId>,
}

/// A view that is whole.
#[derive(Clone, Debug)]
pub struct Assembled {
    /// What names it.
    pub id: ViewId,
    /// The view; it shares what did not change with the one before.
    pub view: FleetView,
    /// It came whole, not as a difference.
    pub full: bool,
}

/// Why an update was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A message of it cannot be used.
    #[error("a part of the view is malformed: {0}")]
    Malformed(#[from] Malformed),
    /// It is the difference to a view that is not the present one.
    #[error("the difference is to another view than the present one")]
    Base,
    /// Another update began before its last part.
    #[error("an update began before the one before it had ended")]
    Interleaved,
    /// A worker names a card that was not sent.
    #[error("a worker names a card that was not sent")]
    Card,
    /// More than a view may hold.
    #[error("the view has more {0} than a router takes")]
    Cap(&'static str),
    /// The whole has not the digest that it should have.
    #[error("the view does not have the digest that was announced")]
    Digest,
}

#[derive(Clone, Debug, Default)]
struct State {
    id: Option<ViewId>,
    view: FleetView,
    workers: OrdMap<WorkerKey, Entry>,
    /// Those of unknown topics as well: they are a part of the digest.
    publishers: OrdMap<PublisherPlace, Digest>,
    cards: OrdMap<Digest, Held>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    digest: Digest,
    card: Option<Digest>,
}

#[derive(Clone, Debug)]
struct Held {
    card: Arc<Card>,
    uses: usize,
}

#[derive(Debug)]
struct Pending {
    id: ViewId,
    base: Option<ViewId>,
    next: State,
    /// Cards of this update that no worker has named yet.
    cards: BTreeMap<Digest, Arc<Card>>,
    bytes: usize,
}

impl Assembler {
    /// An assembler that has no view.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What names the present view; `None` before the first.
    #[must_use]
    pub const fn id(&self) -> Option<ViewId> {
        self.now.id
    }

    /// The present view.
    #[must_use]
    pub const fn view(&self) -> &FleetView {
        &self.now.view
    }

    /// Another replica numbers the present content otherwise: its name from now on. Says whether the content is
    /// the same; nothing changes if not.
    pub fn rename(&mut self, id: ViewId) -> bool {
        let same = self.now.id.is_some_and(|now| now.digest == id.digest);
        if same {
            self.now.id = Some(id);
        }
        same
    }

    /// The session has ended: an update under way will not be finished.
    pub fn interrupt(&mut self) {
        self.pending = None;
        self.skipping = None;
        self.lost = false;
    }

    /// Takes one part, `Some` when it was the last of an update. `now` is the time that new workers are seen.
    ///
    /// # Errors
    /// When the update cannot be applied. The present view stays.
    pub fn push(&mut self, part: push::ViewUpdate, now: Timestamp) -> Result<Option<Assembled>, Error> {
        if let Some(skipping) = &self.skipping {
            if part.view.as_ref() == Some(skipping) {
                if part.last {
                    self.skipping = None;
                }
                return Ok(None);
            }
            self.skipping = None;
        }
        let (name, last) = (part.view.clone(), part.last);
        let outcome = self.take(part, now);
        match &outcome {
            Ok(Some(_)) => self.lost = false,
            Ok(None) => {}
            Err(error) => {
                self.pending = None;
                if !last {
                    self.skipping = name;
                }
                // Differences go on coming until the controller has read that a full view is wanted.
                if self.lost && *error == Error::Base {
                    return Ok(None);
                }
                self.lost = true;
            }
        }
        outcome
    }

    fn take(&mut self, part: push::ViewUpdate, now: Timestamp) -> Result<Option<Assembled>, Error> {
        let id = ViewId::try_from(part.view.as_ref().ok_or(Malformed::Missing("view"))?)
            .map_err(Malformed::from)?;
        let base = part.base.as_ref().map(ViewId::try_from);
        let base = base.transpose().map_err(Malformed::from)?;
        let mut pending = match self.pending.take() {
            Some(pending) if pending.id == id && pending.base == base => pending,
            Some(_) => return Err(Error::Interleaved),
            None => self.begin(id, base)?,
        };
        pending.charge(&part)?;
        for bytes in &part.cards {
            pending.card(bytes)?;
        }
        for bytes in &part.workers {
            pending.worker(bytes, &self.now.view, now)?;
        }
        for bytes in &part.publishers {
            pending.publisher(bytes)?;
        }
        for key in part.removed_workers {
            pending.remove_worker(&decode::worker_key(key)?);
        }
        for key in part.removed_publishers {
            let (place, key) = decode::publisher_key(key)?;
            if let Some(key) = key {
                pending.next.view.publishers.remove(&key);
            }
            pending.next.publishers.remove(&place);
        }
        if !part.last {
            self.pending = Some(pending);
            return Ok(None);
        }
        let capped = part.capped.unwrap_or_default();
        pending.next.view.capped = Capped {
            records: capped.records,
            cards: capped.cards,
        };
        if pending.next.digest() != id.digest {
            return Err(Error::Digest);
        }
        self.now = pending.next;
        Ok(Some(Assembled {
            id,
            view: self.now.view.clone(),
            full: base.is_none(),
        }))
    }

    fn begin(&self, id: ViewId, base: Option<ViewId>) -> Result<Pending, Error> {
        let next = match base {
            None => State::default(),
            Some(base) if self.now.id.is_some_and(|now| now.digest == base.digest) => self.now.clone(),
            Some(_) => return Err(Error::Base),
        };
        Ok(Pending {
            id,
            base,
            next: State { id: Some(id), ..next },
            cards: BTreeMap::new(),
            bytes: 0,
        })
    }
}

impl Pending {
    /// Counts a part against the update's budget, before anything of it is decoded.
    fn charge(&mut self, part: &push::ViewUpdate) -> Result<(), Error> {
        let entries = part.cards.iter().chain(&part.workers).chain(&part.publishers);
        // Removed keys count with the longest name that they may have.
        let removed = part
            .removed_workers
            .len()
            .saturating_add(part.removed_publishers.len());
        let bytes = entries
            .map(|entry| entry.len().saturating_add(1))
            .fold(removed.saturating_mul(MAX_KEY_BYTES), usize::saturating_add);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_UPDATE_BYTES {
            return Err(Error::Cap("bytes"));
        }
        if bytes == 0 && !part.last {
            return Err(Malformed::Missing("content of a part").into());
        }
        Ok(())
    }

    fn card(&mut self, bytes: &Bytes) -> Result<(), Error> {
        let digest = Digest::of(bytes);
        if !self.next.cards.contains_key(&digest) {
            self.cards.insert(digest, Arc::new(decode::card(bytes)?));
        }
        Ok(())
    }

    fn worker(&mut self, bytes: &Bytes, before: &FleetView, now: Timestamp) -> Result<(), Error> {
        let worker = decode::worker(bytes)?;
        let card = match worker.card {
            None => None,
            Some(digest) => Some(self.use_card(digest)?),
        };
        let first = before
            .workers
            .get(&worker.key)
            .map_or(now, |known| known.seen.first);
        let entry = Entry {
            digest: Digest::of(bytes),
            card: worker.card,
        };
        if let Some(before) = self.next.workers.insert(worker.key.clone(), entry) {
            self.release_card(before.card);
        }
        let worker = Arc::new(Worker {
            key: worker.key,
            graph: worker.graph,
            component: worker.component,
            endpoint: worker.endpoint,
            generation: worker.generation,
            role: worker.role,
            names: worker.names,
            card,
            seen: Seen { first, updated: now },
        });
        self.next.view.workers.insert(worker.key.clone(), worker);
        if self.next.workers.len() > MAX_WORKERS {
            return Err(Error::Cap("workers"));
        }
        Ok(())
    }

    fn publisher(&mut self, bytes: &Bytes) -> Result<(), Error> {
        let (place, publisher) = decode::publisher(bytes)?;
        self.next.publishers.insert(place, Digest::of(bytes));
        if let Some(publisher) = publisher {
            let publishers = &mut self.next.view.publishers;
            publishers.insert(publisher.key, Arc::new(publisher));
        }
        if self.next.publishers.len() > MAX_PUBLISHERS {
            return Err(Error::Cap("publishers"));
        }
        Ok(())
    }

    fn use_card(&mut self, digest: Digest) -> Result<Arc<Card>, Error> {
        if let Some(held) = self.next.cards.get_mut(&digest) {
            held.uses = held.uses.saturating_add(1);
            return Ok(Arc::clone(&held.card));
        }
        let card = self.cards.remove(&digest).ok_or(Error::Card)?;
        let held = Held {
            card: Arc::clone(&card),
            uses: 1,
        };
        self.next.cards.insert(digest, held);
        Ok(card)
    }

    fn remove_worker(&mut self, key: &WorkerKey) {
        self.next.view.workers.remove(key);
        if let Some(entry) = self.next.workers.remove(key) {
            self.release_card(entry.card);
        }
    }

    /// A card that nobody uses any more stays until the update ends: a later worker of it may use it again, and
    /// it is not sent twice.
    fn release_card(&mut self, digest: Option<Digest>) {
        let Some(digest) = digest else { return };
        match self.next.cards.get_mut(&digest) {
            Some(held) if held.uses > 1 => held.uses -= 1,
            Some(_) | None => {
                if let Some(held) = self.next.cards.remove(&digest) {
                    self.cards.insert(digest, held.card);
                }
            }
        }
    }
}

impl State {
    fn digest(&self) -> Digest {
        root(
            self.workers.values().map(|entry| &entry.digest),
            self.publishers.values(),
            self.view.capped,
        )
    }
}

#[cfg(test)]
mod tests;

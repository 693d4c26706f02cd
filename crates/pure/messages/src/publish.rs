//! A view with an identity, ready to be sent whole or as a difference.
//!
//! Every entry is encoded and hashed once, when it changes; views share the entries that are equal, and sessions
//! share the bytes.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use continuum_fleet::{
    ids::WorkerKey,
    view::{Capped, Card, FleetView, PublisherKey},
};
use imbl::{OrdMap, ordmap::DiffItem};

use crate::{
    encode,
    ids::{Digest, Epoch, ViewId},
    push,
};

mod parts;

pub use parts::Parts;

/// A view, what names it, and its entries as they travel.
#[derive(Clone, Debug)]
pub struct Published {
    /// What names it.
    pub id: ViewId,
    /// The view itself.
    pub view: FleetView,
    content: Content,
}

/// The entries of a view as they travel.
#[derive(Clone, Debug, Default)]
struct Content {
    workers: OrdMap<WorkerKey, Sent>,
    publishers: OrdMap<PublisherKey, Sent>,
    cards: OrdMap<Digest, SharedCard>,
}

/// One worker or publisher. Equal when the content is.
#[derive(Clone, Debug)]
struct Sent {
    digest: Digest,
    bytes: Bytes,
    card: Option<Digest>,
}

/// A card and the number of workers that have it.
#[derive(Clone, Debug)]
struct SharedCard {
    bytes: Bytes,
    uses: usize,
}

impl Published {
    /// The first view of an epoch, number 1.
    #[must_use]
    pub fn first(view: FleetView, epoch: Epoch) -> Self {
        let mut content = Content::default();
        content.follow(&FleetView::default(), &view);
        Self {
            id: ViewId {
                epoch,
                number: 1,
                digest: content.digest(view.capped),
            },
            view,
            content,
        }
    }

    /// The view that follows this one. It keeps the identity when a router could not tell the two apart; the work
    /// is that of the difference, and a digest of the entries' digests.
    #[must_use]
    pub fn next(&self, view: FleetView) -> Self {
        let mut content = self.content.clone();
        content.follow(&self.view, &view);
        let digest = content.digest(view.capped);
        let moved = u64::from(digest != self.id.digest);
        Self {
            id: ViewId {
                epoch: self.id.epoch,
                number: self.id.number.saturating_add(moved),
                digest,
            },
            view,
            content,
        }
    }

    /// The whole view in parts, made one by one as they are asked for.
    #[must_use]
    pub fn full(self: &Arc<Self>) -> Parts {
        Parts::full(Arc::clone(self))
    }

    /// What makes this view of `base`, all of it at once: the caller shares it among sessions.
    #[must_use]
    pub fn since(&self, base: &Self) -> Vec<push::ViewUpdate> {
        parts::difference(self, base)
    }
}

/// The digest of a content: of its entries' digests in the order of their keys.
pub(crate) fn root<'a>(
    workers: impl ExactSizeIterator<Item = &'a Digest>,
    publishers: impl ExactSizeIterator<Item = &'a Digest>,
    capped: Capped,
) -> Digest {
    // Gathered first: the hash is several times faster over one long input.
    let mut input = Vec::with_capacity(
        (workers.len().saturating_add(publishers.len()).saturating_add(1)).saturating_mul(32),
    );
    for count in [workers.len(), publishers.len()] {
        input.extend_from_slice(&u64::try_from(count).unwrap_or(u64::MAX).to_le_bytes());
    }
    input.extend_from_slice(&capped.records.to_le_bytes());
    input.extend_from_slice(&capped.cards.to_le_bytes());
    for digest in workers.chain(publishers) {
        input.extend_from_slice(digest.as_bytes());
    }
    Digest::of(&input)
}

impl Content {
    fn digest(&self, capped: Capped) -> Digest {
        root(
            self.workers.values().map(|sent| &sent.digest),
            self.publishers.values().map(|sent| &sent.digest),
            capped,
        )
    }

    /// Takes over what differs between two views; `self` is the content of `old`.
    fn follow(&mut self, old: &FleetView, new: &FleetView) {
        // A card that many workers share is encoded once in a pass. The pointers stand for values that `old` and
        // `new` keep alive.
        let mut cards: BTreeMap<*const Card, (Digest, Bytes)> = BTreeMap::new();
        for item in old.workers.diff(&new.workers) {
            match item {
                DiffItem::Add(key, worker)
                | DiffItem::Update {
                    new: (key, worker), ..
                } => {
                    let card = worker.card.as_ref().map(|card| {
                        let (digest, bytes) = cards.entry(Arc::as_ptr(card)).or_insert_with(|| {
                            let bytes = encode::card(card);
                            (Digest::of(&bytes), bytes)
                        });
                        (*digest, bytes.clone())
                    });
                    let digest = card.as_ref().map(|(digest, _)| *digest);
                    let sent = Sent::new(encode::worker(worker, digest), digest);
                    if let Some((digest, bytes)) = card {
                        self.take_card(digest, bytes);
                    }
                    if let Some(before) = self.workers.insert(key.clone(), sent) {
                        self.drop_card(before.card);
                    }
                }
                DiffItem::Remove(key, _) => {
                    if let Some(before) = self.workers.remove(key) {
                        self.drop_card(before.card);
                    }
                }
            }
        }
        for item in old.publishers.diff(&new.publishers) {
            match item {
                DiffItem::Add(key, publisher)
                | DiffItem::Update {
                    new: (key, publisher),
                    ..
                } => {
                    let sent = Sent::new(encode::publisher(publisher), None);
                    self.publishers.insert(*key, sent);
                }
                DiffItem::Remove(key, _) => {
                    self.publishers.remove(key);
                }
            }
        }
    }

    fn take_card(&mut self, digest: Digest, bytes: Bytes) {
        let uses = self
            .cards
            .get(&digest)
            .map_or(0, |card| card.uses)
            .saturating_add(1);
        self.cards.insert(digest, SharedCard { bytes, uses });
    }

    fn drop_card(&mut self, digest: Option<Digest>) {
        let Some(digest) = digest else { return };
        match self.cards.get_mut(&digest) {
            Some(card) if card.uses > 1 => card.uses -= 1,
            Some(_) | None => {
                self.cards.remove(&digest);
            }
        }
    }
}

impl Sent {
    fn new(bytes: Bytes, card: Option<Digest>) -> Self {
        Self {
            digest: Digest::of(&bytes),
            bytes,
            card,
        }
    }
}

impl PartialEq for Sent {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl PartialEq for SharedCard {
    /// By the digest under which it is kept: how many use it is no difference.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

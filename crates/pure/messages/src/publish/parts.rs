//! Updates in parts of a bounded size.

use std::{ops::Bound, sync::Arc};

use bytes::Bytes;
use continuum_fleet::{ids::WorkerKey, view::PublisherKey};
use imbl::{OrdMap, ordmap::DiffItem};

use super::{Published, Sent};
use crate::{encode, ids::Digest, limits::PART_BYTES, push};

/// Bytes that a field of the message costs beside its content.
const OVERHEAD: usize = 8;

/// The parts of a whole view, made one by one, so that a router that reads slowly holds one part in memory.
#[derive(Debug)]
pub struct Parts {
    of: Arc<Published>,
    next: Option<At>,
}

/// How far the parts have come: what was written last.
#[derive(Debug)]
enum At {
    Cards(Option<Digest>),
    Workers(Option<WorkerKey>),
    Publishers(Option<PublisherKey>),
}

impl Parts {
    pub(super) const fn full(of: Arc<Published>) -> Self {
        Self {
            of,
            next: Some(At::Cards(None)),
        }
    }
}

impl Iterator for Parts {
    type Item = push::ViewUpdate;

    fn next(&mut self) -> Option<push::ViewUpdate> {
        let mut at = self.next.take()?;
        let content = &self.of.content;
        let mut part = Part::new(&self.of, None);
        loop {
            at = match at {
                At::Cards(after) => {
                    match fill(&content.cards, after.as_ref(), |card| part.card(&card.bytes)) {
                        None => At::Workers(None),
                        last => At::Cards(last),
                    }
                }
                At::Workers(after) => {
                    match fill(&content.workers, after.as_ref(), |worker| {
                        part.worker(&worker.bytes)
                    }) {
                        None => At::Publishers(None),
                        last => At::Workers(last),
                    }
                }
                At::Publishers(after) => {
                    let add = |publisher: &Sent| part.publisher(&publisher.bytes);
                    match fill(&content.publishers, after.as_ref(), add) {
                        None => return Some(part.last(&self.of)),
                        last => At::Publishers(last),
                    }
                }
            };
            if part.full() {
                self.next = Some(at);
                return Some(part.update);
            }
        }
    }
}

/// Adds the entries beyond `after` until `add` says that the part is full: then the key that was added last.
fn fill<K: Ord + Clone, V>(
    map: &OrdMap<K, V>,
    after: Option<&K>,
    mut add: impl FnMut(&V) -> bool,
) -> Option<K> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    map.range::<_, K>((from, Bound::Unbounded))
        .find_map(|(key, value)| add(value).then(|| key.clone()))
}

/// What makes `new` of `base`.
pub(super) fn difference(new: &Published, base: &Published) -> Vec<push::ViewUpdate> {
    let mut parts = Vec::new();
    let mut part = Part::new(new, Some(base));
    let mut close = |part: &mut Part, full: bool| {
        if full {
            parts.push(std::mem::replace(part, Part::new(new, Some(base))).update);
        }
    };
    for item in base.content.cards.diff(&new.content.cards) {
        // A card that is gone is forgotten with its last worker.
        if let DiffItem::Add(_, card) = item {
            let full = part.card(&card.bytes);
            close(&mut part, full);
        }
    }
    for item in base.content.workers.diff(&new.content.workers) {
        let full = match item {
            DiffItem::Add(_, sent) | DiffItem::Update { new: (_, sent), .. } => part.worker(&sent.bytes),
            DiffItem::Remove(key, _) => part.removed_worker(encode::worker_key(key)),
        };
        close(&mut part, full);
    }
    for item in base.content.publishers.diff(&new.content.publishers) {
        let full = match item {
            DiffItem::Add(_, sent) | DiffItem::Update { new: (_, sent), .. } => part.publisher(&sent.bytes),
            DiffItem::Remove(key, _) => part.removed_publisher(encode::publisher_key(key)),
        };
        close(&mut part, full);
    }
    parts.push(part.last(new));
    parts
}

/// A part in the making.
struct Part {
    update: push::ViewUpdate,
    bytes: usize,
}

impl Part {
    fn new(of: &Published, base: Option<&Published>) -> Self {
        Self {
            update: push::ViewUpdate {
                view: Some(of.id.into()),
                base: base.map(|base| base.id.into()),
                ..push::ViewUpdate::default()
            },
            bytes: 0,
        }
    }

    const fn full(&self) -> bool {
        self.bytes >= PART_BYTES
    }

    const fn grow(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes).saturating_add(OVERHEAD);
    }

    fn card(&mut self, bytes: &Bytes) -> bool {
        self.grow(bytes.len());
        self.update.cards.push(bytes.clone());
        self.full()
    }

    fn worker(&mut self, bytes: &Bytes) -> bool {
        self.grow(bytes.len());
        self.update.workers.push(bytes.clone());
        self.full()
    }

    fn publisher(&mut self, bytes: &Bytes) -> bool {
        self.grow(bytes.len());
        self.update.publishers.push(bytes.clone());
        self.full()
    }

    fn removed_worker(&mut self, key: push::WorkerKey) -> bool {
        self.grow(key.namespace.len().saturating_add(OVERHEAD));
        self.update.removed_workers.push(key);
        self.full()
    }

    fn removed_publisher(&mut self, key: push::PublisherKey) -> bool {
        self.grow(OVERHEAD);
        self.update.removed_publishers.push(key);
        self.full()
    }

    fn last(mut self, of: &Published) -> push::ViewUpdate {
        self.update.last = true;
        self.update.capped = Some(push::Capped {
            records: of.view.capped.records,
            cards: of.view.capped.cards,
        });
        self.update
    }
}

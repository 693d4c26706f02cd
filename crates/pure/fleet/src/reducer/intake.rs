//! Taking records in and out, before anything is joined.

use std::sync::Arc;

use super::{Reducer, Touched};
use crate::{
    claims::{Claims, Full, Taken},
    ids::{Namespace, WorkerKey},
    join::{CardRecord, ChannelRecord, SourceRecord},
    keys::{Bucket, Key, Place, Subject},
    limits::MAX_SAID,
    notes::{EventKind, Malformed, Note, Notes},
    records::{self, GENERATE, Refusal},
    said::mark,
    view::PublisherKey,
};

impl Reducer {
    /// Takes one record in, without joining.
    pub(super) fn put(&mut self, key: &str, value: &[u8], notes: &mut Notes) -> Result<Touched, Skipped> {
        if !self.unread.is_empty() {
            self.unread.remove(&mark([key.as_bytes()]));
        }
        let parsed = Key::parse(key).map_err(|why| self.refuse(key, why.into(), notes))?;
        if self.graphs.graph_of(parsed.namespace()).is_none() || !is_ours(&parsed) {
            return Err(Skipped);
        }
        let text = match std::str::from_utf8(value) {
            _ if value.len() > self.settings.limits.record_bytes => {
                return Err(self.refuse(key, Malformed::TooLarge.into(), notes));
            }
            Ok(text) => text,
            Err(_) => return Err(self.refuse(key, Malformed::Json.into(), notes)),
        };
        let bucket = parsed.bucket();
        let cap = self.settings.limits.keys_in(bucket);
        let (taken, touched) = match &parsed {
            Key::Instance { at } => {
                records::instance(at, text).map_err(|why| self.refuse(key, why, notes))?;
                let id = worker_key(at);
                (
                    self.claims.put_instance(&id, key, at.component, cap),
                    Touched::Worker(id),
                )
            }
            Key::Card { at, suffix } => {
                let id = worker_key(at);
                let model = records::model(at, *suffix, text).map_err(|why| self.refuse(key, why, notes))?;
                let Some(model) = model else {
                    let known = self.claims.remove_card(&id, key, &mut self.cards);
                    return Ok(if known {
                        Touched::Worker(id)
                    } else {
                        Touched::Nothing
                    });
                };
                let card = self.cards.take(model.card);
                if card.dropped
                    && self
                        .said
                        .first_time([b"dropped".as_slice(), key.as_bytes(), &card.digest])
                {
                    notes.add(EventKind::OverCapacity);
                    notes.say(Note::CardDropped {
                        key: readable(key),
                        bytes: model.card.len(),
                    });
                }
                let record = CardRecord {
                    slot: model.slot,
                    digest: card.digest,
                    info: card.info,
                };
                (
                    self.claims.put_card(&id, key, record, cap, &mut self.cards),
                    Touched::Worker(id),
                )
            }
            Key::Channel { on } => {
                let transport = records::channel(on, text).map_err(|why| self.refuse(key, why, notes))?;
                if transport.is_none() {
                    notes.add(EventKind::Unsupported);
                    if self.said.first_time([b"unsupported".as_slice(), key.as_bytes()]) {
                        notes.say(Note::Unsupported { key: readable(key) });
                    }
                }
                let ids = publisher_keys(on);
                let record = ChannelRecord {
                    namespace: Namespace::new(&*on.namespace),
                    component: on.component.as_deref().map(Arc::from),
                    transport,
                };
                (
                    self.claims.put_channel(&ids, key, &record, cap),
                    Touched::Publishers(ids),
                )
            }
            Key::Source { on } => {
                let feeds = records::source(on, text).map_err(|why| self.refuse(key, why, notes))?;
                let ids = publisher_keys(on);
                let record = SourceRecord {
                    namespace: Namespace::new(&*on.namespace),
                    feeds,
                };
                (
                    self.claims.put_source(&ids, key, &record, cap),
                    Touched::Publishers(ids),
                )
            }
        };
        match taken {
            Ok(Taken::Changed) => Ok(touched),
            Ok(Taken::Same) => Ok(Touched::Nothing),
            Err(full) => Err(self.over_capacity(bucket, full, notes)),
        }
    }

    /// Forgets one record, without joining.
    pub(super) fn delete(&mut self, key: &str, notes: &mut Notes) -> Touched {
        if !self.unread.is_empty() {
            self.unread.remove(&mark([key.as_bytes()]));
        }
        let Ok(parsed) = Key::parse(key) else {
            return Touched::Nothing;
        };
        let (known, touched) = match &parsed {
            Key::Instance { at } => {
                let id = worker_key(at);
                (self.claims.remove_instance(&id, key), Touched::Worker(id))
            }
            Key::Card { at, .. } => {
                let id = worker_key(at);
                (
                    self.claims.remove_card(&id, key, &mut self.cards),
                    Touched::Worker(id),
                )
            }
            Key::Channel { on } => {
                let ids = publisher_keys(on);
                (self.claims.remove_channel(&ids, key), Touched::Publishers(ids))
            }
            Key::Source { on } => {
                let ids = publisher_keys(on);
                (self.claims.remove_source(&ids, key), Touched::Publishers(ids))
            }
        };
        if !known {
            return Touched::Nothing;
        }
        notes.add(EventKind::Delete);
        touched
    }

    /// Keeps what a key said before a full list in which its value cannot be read.
    pub(super) fn carry_over(&mut self, key: &str, old: &Claims) {
        let Ok(parsed) = Key::parse(key) else { return };
        let cap = self.settings.limits.keys_in(parsed.bucket());
        // A refusal was counted when the record was put; here it only means that there is no room.
        let _: Option<Result<Taken, Full>> = match &parsed {
            Key::Instance { at } => {
                let id = worker_key(at);
                let known = old.workers.get(&id).and_then(|claims| claims.instances.get(key));
                known.map(|component| self.claims.put_instance(&id, key, component, cap))
            }
            Key::Card { at, .. } => {
                let id = worker_key(at);
                let known = old.workers.get(&id).and_then(|claims| claims.cards.get(key));
                known.map(|record| {
                    self.cards.keep(&record.digest);
                    self.claims
                        .put_card(&id, key, record.clone(), cap, &mut self.cards)
                })
            }
            Key::Channel { on } => {
                let ids = publisher_keys(on);
                let known = ids
                    .first()
                    .and_then(|id| old.publishers.get(id)?.channels.get(key));
                known.map(|record| self.claims.put_channel(&ids, key, record, cap))
            }
            Key::Source { on } => {
                let ids = publisher_keys(on);
                let known = ids
                    .first()
                    .and_then(|id| old.publishers.get(id)?.sources.get(key));
                known.map(|record| self.claims.put_source(&ids, key, record, cap))
            }
        };
    }

    fn refuse(&mut self, key: &str, why: Refusal, notes: &mut Notes) -> Skipped {
        let (kind, word, note) = match why {
            Refusal::Malformed(why) => (
                EventKind::Malformed,
                why.as_str(),
                Note::Malformed {
                    key: readable(key),
                    why,
                },
            ),
            Refusal::Mismatch(what) => (
                EventKind::Mismatch,
                what.as_str(),
                Note::Mismatch {
                    key: readable(key),
                    what,
                },
            ),
        };
        notes.add(kind);
        if self.unread.len() < MAX_SAID {
            self.unread.insert(mark([key.as_bytes()]), kind);
        }
        if self.said.first_time([word.as_bytes(), key.as_bytes()]) {
            notes.say(note);
        }
        Skipped
    }

    fn over_capacity(&mut self, bucket: Bucket, full: Full, notes: &mut Notes) -> Skipped {
        notes.add(EventKind::OverCapacity);
        self.full.refused = self.full.refused.saturating_add(1);
        if full == Full::KeySpace
            && let Some(refused) = self.full.buckets.get_mut(bucket as usize)
            && let Some(said) = self.full.said.get_mut(bucket as usize)
        {
            *refused = true;
            if !std::mem::replace(said, true) {
                notes.say(Note::KeySpaceFull {
                    bucket,
                    cap: self.settings.limits.keys_in(bucket),
                });
            }
        }
        Skipped
    }
}

/// A record was not taken in; what there is to say of it was said.
pub(super) struct Skipped;

/// Whether a record of this key can matter: other endpoints and topics are none of our business, and do not
/// count against a cap.
fn is_ours(key: &Key<'_>) -> bool {
    match key {
        Key::Instance { at } => at.endpoint == GENERATE,
        Key::Card { at, .. } => at.endpoint.is_empty() || at.endpoint == GENERATE,
        Key::Channel { on } | Key::Source { on } => !records::topics(&on.topic).is_empty(),
    }
}

fn worker_key(at: &Place<'_>) -> WorkerKey {
    WorkerKey {
        namespace: Namespace::from(at.namespace),
        instance: at.id,
    }
}

fn publisher_keys(on: &Subject<'_>) -> Vec<PublisherKey> {
    records::topics(&on.topic)
        .iter()
        .map(|topic| PublisherKey {
            topic: *topic,
            id: on.id,
        })
        .collect()
}

/// The beginning of a key, for the log; nothing in it can end a line.
fn readable(key: &str) -> Arc<str> {
    /// Keys of real fleets fit.
    const BYTES: usize = 256;
    let key = key.get(..key.floor_char_boundary(BYTES)).unwrap_or_default();
    if key.contains(char::is_control) {
        key.escape_default().to_string().into()
    } else {
        key.into()
    }
}

//! Records grouped by whom they are about, and how many there are.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use crate::{
    cards::Cards,
    ids::{Namespace, WorkerKey},
    join::{CardRecord, ChannelRecord, Conflict, SourceRecord},
    keys::Bucket,
    limits::{MAX_CARDS_PER_WORKER, MAX_CLAIMS_PER_IDENTITY},
    view::{PublisherKey, Seen, Topic},
};

/// Records of one worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerClaims {
    /// Key to component.
    pub(crate) instances: BTreeMap<Arc<str>, Arc<str>>,
    /// Key to card.
    pub(crate) cards: BTreeMap<Arc<str>, CardRecord>,
    /// Since an instance record exists.
    pub(crate) seen: Option<Seen>,
    pub(crate) conflicts: Vec<Reported>,
    /// Component and card name different roles: the worker is left out.
    pub(crate) role_conflict: bool,
    pub(crate) release_said: bool,
}

impl WorkerClaims {
    pub(crate) fn is_empty(&self) -> bool {
        self.instances.is_empty() && self.cards.is_empty()
    }

    pub(crate) fn same_records(&self, other: &Self) -> bool {
        self.instances == other.instances && self.cards == other.cards
    }
}

/// Records of one publisher.
#[derive(Debug, Default)]
pub(crate) struct PublisherClaims {
    /// Key to channel.
    pub(crate) channels: BTreeMap<Arc<str>, ChannelRecord>,
    /// Key to source.
    pub(crate) sources: BTreeMap<Arc<str>, SourceRecord>,
    pub(crate) conflicts: Vec<Reported>,
}

impl PublisherClaims {
    pub(crate) fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.sources.is_empty()
    }
}

/// A conflict and whether the log has it.
#[derive(Clone, Debug)]
pub(crate) struct Reported {
    pub(crate) conflict: Conflict,
    pub(crate) said: bool,
}

/// Why a new key is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The key space has its cap of keys.
    KeySpace,
    /// The identity has its cap of keys.
    Identity,
}

/// What taking a record in did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It says what it said before.
    Same,
    /// It is new, or says something else.
    Changed,
}

/// All records.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    pub(crate) workers: BTreeMap<WorkerKey, WorkerClaims>,
    pub(crate) publishers: BTreeMap<PublisherKey, PublisherClaims>,
    counts: [usize; Bucket::ALL.len()],
}

impl Claims {
    /// Keys kept in a bucket.
    pub(crate) fn count(&self, bucket: Bucket) -> usize {
        self.counts.get(bucket as usize).copied().unwrap_or_default()
    }

    pub(crate) fn put_instance(
        &mut self,
        id: &WorkerKey,
        key: &str,
        component: &str,
        cap: usize,
    ) -> Result<Taken, Full> {
        let claims = self.workers.get(id).map(|claims| &claims.instances);
        let known = claims.is_some_and(|claims| claims.contains_key(key));
        let crowded = claims.is_some_and(|claims| claims.len() >= MAX_CLAIMS_PER_IDENTITY);
        self.admit(Bucket::Instances, known, crowded, cap)?;
        if known {
            // All that the record says stands in its key.
            return Ok(Taken::Same);
        }
        self.workers
            .entry(id.clone())
            .or_default()
            .instances
            .insert(key.into(), component.into());
        Ok(Taken::Changed)
    }

    /// Puts a card whose content was taken from `cards`; a content that is not kept is released again.
    pub(crate) fn put_card(
        &mut self,
        id: &WorkerKey,
        key: &str,
        record: CardRecord,
        cap: usize,
        cards: &mut Cards,
    ) -> Result<Taken, Full> {
        let claims = self.workers.get(id).map(|claims| &claims.cards);
        let known = claims.is_some_and(|claims| claims.contains_key(key));
        let crowded = claims.is_some_and(|claims| claims.len() >= MAX_CARDS_PER_WORKER);
        if let Err(full) = self.admit(Bucket::Cards, known, crowded, cap) {
            cards.release(&record.digest);
            return Err(full);
        }
        match self
            .workers
            .entry(id.clone())
            .or_default()
            .cards
            .entry(key.into())
        {
            Entry::Vacant(free) => {
                free.insert(record);
                Ok(Taken::Changed)
            }
            Entry::Occupied(mut known) => {
                let same = *known.get() == record;
                let old = known.insert(record);
                cards.release(&old.digest);
                Ok(if same { Taken::Same } else { Taken::Changed })
            }
        }
    }

    /// Puts a channel under each topic that it carries; its key counts once.
    pub(crate) fn put_channel(
        &mut self,
        ids: &[PublisherKey],
        key: &str,
        record: &ChannelRecord,
        cap: usize,
    ) -> Result<Taken, Full> {
        let mut claims = ids
            .iter()
            .filter_map(|id| self.publishers.get(id))
            .map(|claims| &claims.channels);
        let known = claims.clone().any(|claims| claims.contains_key(key));
        let crowded = claims.any(|claims| claims.len() >= MAX_CLAIMS_PER_IDENTITY);
        self.admit(Bucket::EventChannels, known, crowded, cap)?;
        let mut taken = Taken::Same;
        for id in ids {
            let channels = &mut self.publishers.entry(*id).or_default().channels;
            if channels.get(key) != Some(record) {
                channels.insert(key.into(), record.clone());
                taken = Taken::Changed;
            }
        }
        Ok(taken)
    }

    /// Puts a source under each topic that it is about; its key counts once.
    pub(crate) fn put_source(
        &mut self,
        ids: &[PublisherKey],
        key: &str,
        record: &SourceRecord,
        cap: usize,
    ) -> Result<Taken, Full> {
        let mut claims = ids
            .iter()
            .filter_map(|id| self.publishers.get(id))
            .map(|claims| &claims.sources);
        let known = claims.clone().any(|claims| claims.contains_key(key));
        let crowded = claims.any(|claims| claims.len() >= MAX_CLAIMS_PER_IDENTITY);
        self.admit(Bucket::EventSources, known, crowded, cap)?;
        let mut taken = Taken::Same;
        for id in ids {
            let sources = &mut self.publishers.entry(*id).or_default().sources;
            if sources.get(key) != Some(record) {
                sources.insert(key.into(), record.clone());
                taken = Taken::Changed;
            }
        }
        Ok(taken)
    }

    /// Forgets an instance key; whether it was known.
    pub(crate) fn remove_instance(&mut self, id: &WorkerKey, key: &str) -> bool {
        let known = self
            .workers
            .get_mut(id)
            .is_some_and(|claims| claims.instances.remove(key).is_some());
        self.removed(Bucket::Instances, known)
    }

    /// Forgets a card key; whether it was known.
    pub(crate) fn remove_card(&mut self, id: &WorkerKey, key: &str, cards: &mut Cards) -> bool {
        let old = self
            .workers
            .get_mut(id)
            .and_then(|claims| claims.cards.remove(key));
        if let Some(old) = &old {
            cards.release(&old.digest);
        }
        self.removed(Bucket::Cards, old.is_some())
    }

    /// Forgets a channel key; whether it was known.
    pub(crate) fn remove_channel(&mut self, ids: &[PublisherKey], key: &str) -> bool {
        let mut known = false;
        for id in ids {
            known |= self
                .publishers
                .get_mut(id)
                .is_some_and(|claims| claims.channels.remove(key).is_some());
        }
        self.removed(Bucket::EventChannels, known)
    }

    /// Forgets a source key; whether it was known.
    pub(crate) fn remove_source(&mut self, ids: &[PublisherKey], key: &str) -> bool {
        let mut known = false;
        for id in ids {
            known |= self
                .publishers
                .get_mut(id)
                .is_some_and(|claims| claims.sources.remove(key).is_some());
        }
        self.removed(Bucket::EventSources, known)
    }

    /// Forgets every record of a worker, conflicts and times aside.
    pub(crate) fn remove_worker(&mut self, id: &WorkerKey, cards: &mut Cards) {
        let Some(claims) = self.workers.get_mut(id) else {
            return;
        };
        let instances = std::mem::take(&mut claims.instances);
        let gone = std::mem::take(&mut claims.cards);
        instances.keys().for_each(|_| self.uncount(Bucket::Instances));
        for card in gone.values() {
            cards.release(&card.digest);
            self.uncount(Bucket::Cards);
        }
    }

    /// Forgets the records of a publisher whose namespace is not kept.
    pub(crate) fn retain_publisher(&mut self, id: PublisherKey, kept: impl Fn(&Namespace) -> bool) {
        let Some(claims) = self.publishers.get(&id) else {
            return;
        };
        let channels: Vec<Arc<str>> = claims
            .channels
            .iter()
            .filter(|(_, channel)| !kept(&channel.namespace))
            .map(|(k, _)| k.clone())
            .collect();
        let sources: Vec<Arc<str>> = claims
            .sources
            .iter()
            .filter(|(_, source)| !kept(&source.namespace))
            .map(|(k, _)| k.clone())
            .collect();
        // The key of a broker stands under every topic; whichever comes first takes it out of all.
        let ids = Topic::ALL.map(|topic| PublisherKey { topic, id: id.id });
        for key in channels {
            self.remove_channel(&ids, &key);
        }
        for key in sources {
            self.remove_source(&ids, &key);
        }
    }

    /// Counts a new key. The caps of the bucket and of the identity bind new keys only.
    fn admit(&mut self, bucket: Bucket, known: bool, crowded: bool, cap: usize) -> Result<(), Full> {
        if known {
            return Ok(());
        }
        let Some(count) = self.counts.get_mut(bucket as usize).filter(|count| **count < cap) else {
            return Err(Full::KeySpace);
        };
        if crowded {
            return Err(Full::Identity);
        }
        *count += 1;
        Ok(())
    }

    fn removed(&mut self, bucket: Bucket, known: bool) -> bool {
        if known {
            self.uncount(bucket);
        }
        known
    }

    fn uncount(&mut self, bucket: Bucket) {
        if let Some(count) = self.counts.get_mut(bucket as usize) {
            *count = count.saturating_sub(1);
        }
    }
}

//! Ids of parts of earlier prompts.
//!
//! Found by a keyed hash of the text, and then by the text itself: what a client sends can never stand for what another
//! client sent. Two generations within one budget of bytes; what was not asked for while one filled up is forgotten.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, Mutex, PoisonError},
};

#[derive(Debug)]
pub(crate) struct Cache {
    hasher: RandomState,
    budget: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    young: HashMap<u64, Entry>,
    young_bytes: usize,
    old: HashMap<u64, Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    tokenizer: u64,
    text: Arc<str>,
    ids: Arc<[u32]>,
}

/// What an entry costs beside its text and ids, in bytes: its place in the table and the counts of its two parts.
const ENTRY_BYTES: usize = 160;

impl Entry {
    fn bytes(&self) -> usize {
        self.text.len() + self.ids.len() * size_of::<u32>() + ENTRY_BYTES
    }
}

impl Cache {
    pub(crate) fn new(budget: usize) -> Self {
        Self {
            hasher: RandomState::new(),
            budget,
            kept: Mutex::default(),
        }
    }

    pub(super) fn find(&self, tokenizer: u64, text: &str) -> Option<Arc<[u32]>> {
        let hash = self.hasher.hash_one((tokenizer, text));
        let is_it = |entry: &Entry| entry.tokenizer == tokenizer && *entry.text == *text;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = kept.young.get(&hash) {
            return is_it(entry).then(|| entry.ids.clone());
        }
        let entry = kept.old.get(&hash).filter(|entry| is_it(entry)).cloned()?;
        let ids = entry.ids.clone();
        kept.keep(hash, entry, self.budget);
        Some(ids)
    }

    pub(super) fn keep(&self, tokenizer: u64, text: &str, ids: Vec<u32>) {
        let hash = self.hasher.hash_one((tokenizer, text));
        let entry = Entry {
            tokenizer,
            text: text.into(),
            ids: ids.into(),
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.keep(hash, entry, self.budget);
    }

    /// Bytes that are kept.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.young
            .values()
            .chain(kept.old.values())
            .map(Entry::bytes)
            .sum()
    }
}

impl Kept {
    fn keep(&mut self, hash: u64, entry: Entry, budget: usize) {
        let bytes = entry.bytes();
        if bytes > budget / 2 {
            return;
        }
        if self.young_bytes + bytes > budget / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        } else {
            self.old.remove(&hash);
        }
        self.young_bytes += bytes;
        if let Some(before) = self.young.insert(hash, entry) {
            self.young_bytes = self.young_bytes.saturating_sub(before.bytes());
        }
    }
}

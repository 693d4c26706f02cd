//! Cards shared by content. Most workers of a model carry the same card; it is parsed and kept once.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    limits::Limits,
    records::card::{self, Claim},
    view::Card,
};

/// Hash of a card's text.
pub(crate) type Digest = [u8; 32];

/// A card and what was read beside it.
#[derive(Debug, PartialEq)]
pub(crate) struct CardInfo {
    pub(crate) card: Arc<Card>,
    pub(crate) claim: Claim,
    pub(crate) release: Option<(&'static str, Arc<str>)>,
    pub(crate) ranks_cut: bool,
}

#[derive(Debug)]
struct Entry {
    info: Arc<CardInfo>,
    /// Records that carry this card.
    records: usize,
    /// Length of the kept JSON; `None` when it was dropped.
    json_bytes: Option<usize>,
}

/// Every card of the fleet, by content.
#[derive(Debug)]
pub(crate) struct Cards {
    by_digest: BTreeMap<Digest, Entry>,
    json_bytes: usize,
    dropped: u64,
    each: usize,
    total: usize,
}

/// One more record carries this card.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) digest: Digest,
    pub(crate) info: Arc<CardInfo>,
    /// Its opaque JSON is not kept.
    pub(crate) dropped: bool,
}

impl Cards {
    pub(crate) const fn new(limits: &Limits) -> Self {
        Self {
            by_digest: BTreeMap::new(),
            json_bytes: 0,
            dropped: 0,
            each: limits.retained_card_bytes,
            total: limits.retained_cards_total_bytes,
        }
    }

    /// Takes a card in for one record.
    pub(crate) fn take(&mut self, json: &str) -> Taken {
        let digest: Digest = blake3::hash(json.as_bytes()).into();
        if let Some(entry) = self.by_digest.get_mut(&digest) {
            entry.records += 1;
            return Taken {
                digest,
                info: Arc::clone(&entry.info),
                dropped: entry.json_bytes.is_none(),
            };
        }
        let mut parsed = card::parse(json);
        let fits = json.len() <= self.each && json.len() <= self.total.saturating_sub(self.json_bytes);
        let json_bytes = fits.then_some(json.len());
        if fits {
            parsed.card.json = Some(json.into());
            self.json_bytes += json.len();
        } else {
            self.dropped += 1;
        }
        let info = Arc::new(CardInfo {
            card: Arc::new(parsed.card),
            claim: parsed.claim,
            release: parsed.release,
            ranks_cut: parsed.ranks_cut,
        });
        self.by_digest.insert(
            digest,
            Entry {
                info: Arc::clone(&info),
                records: 1,
                json_bytes,
            },
        );
        Taken {
            digest,
            info,
            dropped: !fits,
        }
    }

    /// One more record carries a card that is known.
    pub(crate) fn keep(&mut self, digest: &Digest) {
        if let Some(entry) = self.by_digest.get_mut(digest) {
            entry.records += 1;
        }
    }

    /// One record less carries the card; the last one takes it along.
    pub(crate) fn release(&mut self, digest: &Digest) {
        let Some(entry) = self.by_digest.get_mut(digest) else {
            return;
        };
        entry.records = entry.records.saturating_sub(1);
        if entry.records == 0 {
            match entry.json_bytes {
                Some(bytes) => self.json_bytes = self.json_bytes.saturating_sub(bytes),
                None => self.dropped = self.dropped.saturating_sub(1),
            }
            self.by_digest.remove(digest);
        }
    }

    /// Different cards whose opaque JSON is not kept.
    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Bytes of opaque JSON kept.
    #[cfg(test)]
    pub(crate) const fn json_bytes(&self) -> usize {
        self.json_bytes
    }

    /// Different cards.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_digest.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cards(each: usize, total: usize) -> Cards {
        Cards::new(&Limits {
            retained_card_bytes: each,
            retained_cards_total_bytes: total,
            ..Limits::default()
        })
    }

    #[test]
    fn equal_cards_are_one_card_until_the_last_record_goes() {
        let mut cards = cards(100, 1000);
        let first = cards.take(r#"{"display_name":"m"}"#);
        let second = cards.take(r#"{"display_name":"m"}"#);
        assert!(Arc::ptr_eq(&first.info.card, &second.info.card));
        assert_eq!((cards.len(), cards.json_bytes()), (1, 20));
        cards.release(&first.digest);
        assert_eq!((cards.len(), cards.json_bytes()), (1, 20));
        cards.release(&second.digest);
        assert_eq!((cards.len(), cards.json_bytes()), (0, 0));
    }

    #[test]
    fn beyond_a_budget_the_json_alone_is_dropped() {
        let mut cards = cards(30, 40);
        let file = r#"{"hf_tokenizer_json":{"path":"/t"}}"#;
        let long = cards.take(&format!(
            r#"{{"display_name":"long","tokenizer":{file},"prompt_formatter":{file},"chat_template_file":{file}}}"#
        ));
        assert!(long.dropped && long.info.card.json.is_none());
        assert_eq!(long.info.card.display_name, Some("long".into()));
        let artifacts = &long.info.card.artifacts;
        for slot in [
            &artifacts.tokenizer,
            &artifacts.prompt_formatter,
            &artifacts.chat_template_file,
        ] {
            assert_eq!(slot.as_deref(), Some(file), "small, and needed for prompts");
        }

        let fits = cards.take(r#"{"display_name":"one1"}"#);
        assert!(fits.info.card.json.is_some());
        let no_room = cards.take(r#"{"display_name":"two2"}"#);
        assert!(no_room.dropped && no_room.info.card.json.is_none());
        assert_eq!(cards.dropped(), 2);

        cards.release(&fits.digest);
        cards.release(&no_room.digest);
        assert_eq!(cards.dropped(), 1);
        assert!(
            !cards.take(r#"{"display_name":"two2"}"#).dropped,
            "room came back"
        );
    }
}

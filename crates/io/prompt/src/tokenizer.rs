//! Tokenizers: text into the ids that the model reads.
//!
//! The library reads and runs them; what it must not be given is refused before (`check.rs`). Parts of earlier prompts
//! are not encoded again (`cuts.rs`, `cache.rs`).

mod cache;
mod check;
mod cuts;

#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use serde_json::Value;
use tokenizers::pipeline::{EncodeOptions, PipelineTokenizer};

pub(crate) use cache::Cache;
use cuts::Cuts;

/// A loaded tokenizer.
pub(crate) struct Tokenizer {
    library: PipelineTokenizer,
    cuts: Option<Cuts>,
    /// Tells it from others, and its parts in the cache from theirs.
    serial: u64,
    cache: Arc<Cache>,
}

/// Why a file is no tokenizer, or a text was not encoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("not a tokenizer: {0}")]
    Json(#[from] serde_json::Error),
    #[error("not a tokenizer: {0}")]
    Refused(&'static str),
    #[error("not a tokenizer that is supported: {0}")]
    Unsupported(String),
    #[error("the text could not be encoded")]
    Encode,
    #[error("over {0} tokens")]
    TooLong(usize),
    #[error("out of time")]
    Late,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("serial", &self.serial)
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    pub(crate) fn load(file: &[u8], cache: Arc<Cache>) -> Result<Self, Error> {
        static SERIALS: AtomicU64 = AtomicU64::new(0);
        let mut json: Value = serde_json::from_slice(file)?;
        check::file(&json).map_err(Error::Refused)?;
        tokenizers::canonicalize_value(&mut json).map_err(|error| Error::Unsupported(error.to_string()))?;
        let canonical = serde_json::to_string(&json)?;
        drop(json);
        let library =
            tokenizers::from_json(&canonical).map_err(|error| Error::Unsupported(error.to_string()))?;
        Ok(Self {
            cuts: Cuts::of(&library),
            library,
            serial: SERIALS.fetch_add(1, Relaxed),
            cache,
        })
    }

    pub(crate) const fn serial(&self) -> u64 {
        self.serial
    }

    /// The ids of a text, without the special ones that a model puts around it: those are the template's business.
    pub(crate) fn encode(&self, text: &str, cap: usize, until: Instant) -> Result<Vec<u32>, Error> {
        // The frontend takes these out.
        let without;
        let text = if text.contains('\0') {
            without = text.replace('\0', "");
            without.as_str()
        } else {
            text
        };
        let Some(cuts) = &self.cuts else {
            return self.encode_part(text).and_then(|ids| within(ids, cap));
        };
        let mut ids = Vec::with_capacity(text.len() / 4);
        for part in cuts.parts(text) {
            if Instant::now() > until {
                return Err(Error::Late);
            }
            match self.cache.find(self.serial, part.text).filter(|_| part.keep) {
                Some(known) => ids.extend_from_slice(&known),
                None => {
                    let found = self.encode_part(part.text)?;
                    ids.extend_from_slice(&found);
                    if part.keep {
                        self.cache.keep(self.serial, part.text, found);
                    }
                }
            }
            if ids.len() > cap {
                return Err(Error::TooLong(cap));
            }
        }
        Ok(ids)
    }

    fn encode_part(&self, text: &str) -> Result<Vec<u32>, Error> {
        let mut out = Vec::with_capacity(text.len() / 4);
        self.library
            .encode_into(text, &EncodeOptions::no_specials(), &mut out)
            .map_err(|_| Error::Encode)?;
        Ok(out.into_iter().map(|token| token.id()).collect())
    }
}

fn within(ids: Vec<u32>, cap: usize) -> Result<Vec<u32>, Error> {
    if ids.len() > cap {
        Err(Error::TooLong(cap))
    } else {
        Ok(ids)
    }
}

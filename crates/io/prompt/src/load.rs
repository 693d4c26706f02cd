//! Getting one model's files and making a model of them.

use std::{io, sync::Arc};

use bytes::Bytes;

use crate::{
    artifact::{Checksum, File, Files, Form, Slot},
    fetch::{self, Rules},
    limits::LOAD_STACK_BYTES,
    metrics::Outcome,
    model::{self, Model, TemplateFile},
    settings::Settings,
    store::Store,
    tokenizer::Cache,
};

/// A loaded model, and how much its files were.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) model: Arc<Model>,
    pub(crate) bytes: u64,
}

/// Why a model's files are not in use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// It could not be fetched from any of the workers that offer it.
    #[error("{slot}: {source}", slot = .0.as_str(), source = .1)]
    Fetch(Slot, #[source] fetch::Error),
    /// The content is not what the cards say.
    #[error("{slot}: the content's checksum is not the card's", slot = .0.as_str())]
    Checksum(Slot),
    /// The files are no model.
    #[error("{0}")]
    Model(
        String,
        /** The library knows this kind of file, but not this one. */ bool,
    ),
    /// All files together are too many bytes.
    #[error("the files are larger than {0} bytes together")]
    Total(u64),
    /// No thread could be started.
    #[error("{0}")]
    Thread(#[from] io::Error),
}

impl Error {
    /// The metric's word.
    #[must_use]
    pub(crate) const fn outcome(&self) -> Outcome {
        match self {
            Self::Checksum(_) => Outcome::ChecksumMismatch,
            Self::Model(_, true) => Outcome::Unsupported,
            Self::Model(_, false) => Outcome::ParseFailed,
            Self::Total(_) => Outcome::OverCapacity,
            Self::Thread(_) => Outcome::FetchFailed,
            Self::Fetch(_, error) => match error {
                fetch::Error::Disabled(_) => Outcome::Disabled,
                fetch::Error::Unsupported => Outcome::Unsupported,
                fetch::Error::TooLarge(_) => Outcome::TooLarge,
                fetch::Error::NoFile
                | fetch::Error::Io(_)
                | fetch::Error::Address
                | fetch::Error::Status(_)
                | fetch::Error::Tls(_)
                | fetch::Error::Http(_)
                | fetch::Error::Late => Outcome::FetchFailed,
            },
        }
    }
}

/// Fetches and loads. `offers` are the same content at different places. The caller has checked the pins.
pub(crate) async fn load(
    offers: Vec<Files>,
    settings: Arc<Settings>,
    cache: Arc<Cache>,
) -> Result<Loaded, Error> {
    let first = offers.first().map(|files| files.0.clone()).unwrap_or_default();
    let mut contents: Vec<(Form, Bytes)> = Vec::new();
    let mut total = 0_u64;
    for (index, file) in first.iter().enumerate() {
        let places = offers.iter().filter_map(|offer| offer.0.get(index));
        let content = obtain(places, file.slot, file.checksum, &settings).await?;
        total = total.saturating_add(u64::try_from(content.len()).unwrap_or(u64::MAX));
        if total > settings.max_total_bytes {
            return Err(Error::Total(settings.max_total_bytes));
        }
        contents.push((file.form, content));
    }
    let model = tokio::task::spawn_blocking(move || on_a_deep_stack(move || read(&contents, cache))).await;
    let model = model.map_err(io::Error::other)??;
    Ok(Loaded {
        model: Arc::new(model?),
        bytes: total,
    })
}

/// The content of a file: from the store, else from one of its places.
pub(crate) async fn obtain<'a>(
    places: impl Iterator<Item = &'a File>,
    slot: Slot,
    checksum: Checksum,
    settings: &Settings,
) -> Result<Bytes, Error> {
    let cap = settings.rules.cap;
    let store = settings.cache_dir.as_deref().map(Store::new);
    if let Some(store) = store.clone() {
        let found = tokio::task::spawn_blocking(move || store.find(checksum, cap)).await;
        if let Ok(Some(content)) = found {
            return Ok(content);
        }
    }
    let mut error = Error::Fetch(slot, fetch::Error::Unsupported);
    for file in places {
        match from(file, &settings.rules, settings).await {
            Ok(content) => {
                if let (Some(store), false) =
                    (store, matches!(file.origin, crate::artifact::Origin::Local(_)))
                {
                    let kept = content.clone();
                    let kept = tokio::task::spawn_blocking(move || store.keep(checksum, &kept)).await;
                    if let Ok(Err(error)) = kept {
                        tracing::warn!(%error, "a fetched file was not kept");
                    }
                }
                return Ok(content);
            }
            Err(found) => error = found,
        }
    }
    Err(error)
}

async fn from(file: &File, rules: &Rules, settings: &Settings) -> Result<Bytes, Error> {
    if file.size.is_some_and(|size| size > rules.cap) {
        return Err(Error::Fetch(file.slot, fetch::Error::TooLarge(rules.cap)));
    }
    let content = fetch::fetch(&file.origin, rules, &settings.hub)
        .await
        .map_err(|error| Error::Fetch(file.slot, error))?;
    let hashed = content.clone();
    let found = tokio::task::spawn_blocking(move || Checksum::of(&hashed))
        .await
        .map_err(io::Error::other)?;
    if found == file.checksum {
        Ok(content)
    } else {
        Err(Error::Checksum(file.slot))
    }
}

fn read(contents: &[(Form, Bytes)], cache: Arc<Cache>) -> Result<Model, Error> {
    let of = |form| {
        contents
            .iter()
            .find(|(found, _)| *found == form)
            .map(|(_, content)| &**content)
    };
    let template = of(Form::Jinja)
        .map(TemplateFile::Jinja)
        .or(of(Form::TemplateJson).map(TemplateFile::Json));
    let files = model::Files {
        tokenizer: of(Form::TokenizerJson).unwrap_or_default(),
        config: of(Form::TokenizerConfig),
        template,
    };
    Model::load(files, cache).map_err(|error| Error::Model(error.to_string(), error.is_unsupported()))
}

/// Readers and compilers recurse into what they read: not on the small stack of a pool's thread.
fn on_a_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("prompt load".to_owned())
            .stack_size(LOAD_STACK_BYTES)
            .spawn_scoped(scope, work)?;
        thread.join().map_err(|_| io::Error::other("it panicked"))
    })
}

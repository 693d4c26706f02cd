//! What a fleet offers, for an operator who decides what to pin.

use std::collections::BTreeMap;

use bytes::Bytes;
use continuum_fleet::{ids::ModelName, view::FleetView};

use crate::{
    artifact::{Checksum, File, Files, Form, Slot, Unusable},
    catalog,
    limits::MAX_ORIGINS,
    load,
    settings::Settings,
};

/// A file that workers of a model name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Where it lies, at some of the workers.
    pub places: Vec<File>,
    /// How many workers name it.
    pub workers: usize,
}

/// What the workers of one model offer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// Files, by what they are for and what is in them. More than one of a slot: the workers do not agree.
    pub files: BTreeMap<(Slot, Form, Checksum), Offered>,
    /// How many workers serve it.
    pub workers: usize,
    /// Workers whose cards name no files that can be used, by why.
    pub unusable: BTreeMap<Unusable, usize>,
}

/// Why a file could not be obtained.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] load::Error);

/// The files of every base model of a fleet.
#[must_use]
pub fn of(view: &FleetView) -> BTreeMap<ModelName, Model> {
    let mut models: BTreeMap<ModelName, Model> = BTreeMap::new();
    for worker in view
        .workers
        .values()
        .filter(|worker| catalog::serves(worker.role))
    {
        let Some(name) = worker.model() else {
            continue;
        };
        let model = models.entry(name.clone()).or_default();
        model.workers += 1;
        let files = worker
            .card
            .as_ref()
            .map_or(Err(Unusable::NoTokenizer), |card| Files::of(&card.artifacts));
        match files {
            Err(why) => *model.unusable.entry(why).or_default() += 1,
            Ok(files) => {
                for file in files.0.iter() {
                    let offered = model
                        .files
                        .entry((file.slot, file.form, file.checksum))
                        .or_insert_with(|| Offered {
                            places: Vec::new(),
                            workers: 0,
                        });
                    offered.workers += 1;
                    if offered.places.len() < MAX_ORIGINS && !offered.places.contains(file) {
                        offered.places.push(file.clone());
                    }
                }
            }
        }
    }
    models
}

impl Offered {
    /// Its content, pinned or not: for review. It is compared with the checksum, and kept nowhere.
    ///
    /// # Errors
    /// It could not be fetched from any of its places, or is something else there.
    pub async fn content(&self, settings: &Settings) -> Result<Bytes, Error> {
        let settings = Settings {
            cache_dir: None,
            ..settings.clone()
        };
        let Some(file) = self.places.first() else {
            return Ok(Bytes::new());
        };
        Ok(load::obtain(self.places.iter(), file.slot, file.checksum, &settings).await?)
    }

    /// The kinds of places that it lies at.
    #[must_use]
    pub fn kinds(&self) -> Vec<&'static str> {
        let mut kinds: Vec<_> = self.places.iter().map(|file| file.origin.kind()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    /// Its declared length in bytes.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.places.iter().find_map(|file| file.size)
    }
}

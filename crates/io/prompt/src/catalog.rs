//! What the fleet offers: each served name, with the files that all of its workers agree on.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use continuum_fleet::{
    ids::{ModelName, WorkerKey},
    view::{Card, FleetView, NameKind, Role, Worker},
};

use crate::{
    artifact::{Files, Key, Unusable},
    limits::{MAX_MODELS, MAX_ORIGINS},
};

/// Files by served name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Catalog {
    pub(crate) models: BTreeMap<ModelName, Offer>,
}

/// What the workers of a name offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) files: Agreed,
    /// The name is an adapter's.
    pub(crate) adapter: bool,
    /// A worker's block size is one that has no blocks.
    pub(crate) no_blocks: bool,
}

/// Whether the workers of a name offer the same files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Agreed {
    /// They do. Where the files lie differs from worker to worker; a few are kept.
    On(Key, Vec<Files>),
    /// They do not: an upgrade is under way, or somebody lies.
    No,
    /// A worker's card has no files that can be used.
    Unusable(Unusable),
}

/// The slots of one card, read.
type Slots = Result<(Key, Files), Unusable>;

/// Reads the slots of cards, each card once.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    known: BTreeMap<WorkerKey, (Arc<Card>, Slots)>,
}

impl Reader {
    pub(crate) fn read(&mut self, view: &FleetView) -> Catalog {
        let mut known = std::mem::take(&mut self.known);
        let mut models = BTreeMap::new();
        for (key, worker) in &view.workers {
            let Some(card) = worker.card.as_ref().filter(|_| serves(worker.role)) else {
                continue;
            };
            let read = match known.remove(key) {
                Some((before, read)) if Arc::ptr_eq(&before, card) => read,
                Some(_) | None => Files::of(&card.artifacts).map(|files| (files.key(), files)),
            };
            add(&mut models, worker, card, &read);
            self.known.insert(key.clone(), (card.clone(), read));
        }
        Catalog { models }
    }
}

/// Whether a worker of this role answers prompts.
pub(crate) const fn serves(role: Role) -> bool {
    match role {
        Role::Prefill | Role::Decode | Role::Aggregated => true,
        Role::Encode | Role::Unknown => false,
    }
}

fn add(models: &mut BTreeMap<ModelName, Offer>, worker: &Worker, card: &Card, read: &Slots) {
    let full = models.len() >= MAX_MODELS;
    for served in worker.names.iter() {
        let offer = match models.entry(served.name.clone()) {
            Entry::Vacant(_) if full => continue,
            Entry::Vacant(vacant) => vacant.insert(Offer {
                files: match read {
                    Ok((key, files)) => Agreed::On(key.clone(), vec![files.clone()]),
                    Err(why) => Agreed::Unusable(*why),
                },
                adapter: false,
                no_blocks: false,
            }),
            Entry::Occupied(known) => {
                let offer = known.into_mut();
                match (&mut offer.files, read) {
                    (Agreed::On(key, all), Ok((other, files))) if key == other => {
                        if all.len() < MAX_ORIGINS && !all.contains(files) {
                            all.push(files.clone());
                        }
                    }
                    (Agreed::On(..), Ok(_)) => offer.files = Agreed::No,
                    (_, Err(why)) => offer.files = Agreed::Unusable(*why),
                    (Agreed::No | Agreed::Unusable(_), Ok(_)) => {}
                }
                offer
            }
        };
        offer.adapter |= served.kind == NameKind::Adapter;
        offer.no_blocks |= card.block_size.is_none();
    }
}

//! What the fleet offers: each served name, with the files that its prompts are made with.
//!
//! A card says what it likes, and must cost nobody but itself by it. So what a name is, and which files it has, is what
//! most of the workers that serve it say, among the files that the operator has pinned.

use std::{collections::BTreeMap, sync::Arc};

use continuum_fleet::{
    ids::{ModelName, WorkerKey},
    view::{Card, FleetView, NameKind, Role},
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
    /// Some workers say something else of the name than what counts.
    pub(crate) others: bool,
}

/// Which files a name's prompts are made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Agreed {
    /// These. Where they lie differs from worker to worker; a few places are kept.
    On(Key, Vec<Files>),
    /// No more than half of its workers name the same: an upgrade is under way, or somebody lies.
    No,
    /// No worker's card has files that can be used.
    Unusable(Unusable),
}

/// The slots of one card, read.
type Slots = Result<(Key, Files), Unusable>;

/// Reads the slots of cards, each card once.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    known: BTreeMap<WorkerKey, (Arc<Card>, Slots)>,
    /// How often other workers than before were to be asked for files.
    round: usize,
}

impl Reader {
    /// Files could not be had where they were asked for: the next catalog names the places of other workers.
    pub(crate) fn ask_others(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    pub(crate) fn read(&mut self, view: &FleetView, pinned: impl Fn(&Key) -> bool) -> Catalog {
        let mut known = std::mem::take(&mut self.known);
        for (key, worker) in &view.workers {
            let Some(card) = worker.card.as_ref().filter(|_| serves(worker.role)) else {
                continue;
            };
            let read = match known.remove(key) {
                Some((before, read)) if Arc::ptr_eq(&before, card) => read,
                Some(_) | None => Files::of(&card.artifacts).map(|files| (files.key(), files)),
            };
            self.known.insert(key.clone(), (card.clone(), read));
        }
        let mut claims: BTreeMap<&ModelName, Claims<'_>> = BTreeMap::new();
        // A worker has one name of its own, and may have many others: those get what room is left.
        for kind in [NameKind::Base, NameKind::Adapter, NameKind::Alias] {
            for (key, (card, read)) in &self.known {
                let names = view.workers.get(key).map(|worker| worker.names.iter());
                for served in names.into_iter().flatten().filter(|served| served.kind == kind) {
                    if claims.len() < MAX_MODELS || claims.contains_key(&served.name) {
                        let claims = claims.entry(&served.name).or_default();
                        claims.of(kind).add(card, read);
                    }
                }
            }
        }
        let offers = claims
            .into_iter()
            .map(|(name, claims)| (name.clone(), claims.offer(&pinned, self.round)));
        Catalog {
            models: offers.collect(),
        }
    }
}

/// Whether a worker of this role answers prompts.
pub(crate) const fn serves(role: Role) -> bool {
    match role {
        Role::Prefill | Role::Decode | Role::Aggregated => true,
        Role::Encode | Role::Unknown => false,
    }
}

/// What workers say of a name.
#[derive(Default)]
struct Claims<'a> {
    model: Claim<'a>,
    adapter: Claim<'a>,
}

/// The workers that serve a name as a model, or as an adapter.
#[derive(Default)]
struct Claim<'a> {
    workers: usize,
    files: BTreeMap<&'a Key, Group<'a>>,
    unusable: Option<Unusable>,
    no_blocks: bool,
}

/// The workers that name the same files.
#[derive(Default)]
struct Group<'a> {
    /// Of each worker.
    places: Vec<&'a Files>,
}

impl<'a> Claims<'a> {
    fn of(&mut self, kind: NameKind) -> &mut Claim<'a> {
        match kind {
            NameKind::Base | NameKind::Alias => &mut self.model,
            NameKind::Adapter => &mut self.adapter,
        }
    }

    fn offer(self, pinned: impl Fn(&Key) -> bool, round: usize) -> Offer {
        let adapter = self.adapter.workers > self.model.workers;
        let (claim, rest) = if adapter {
            (self.adapter, self.model)
        } else {
            (self.model, self.adapter)
        };
        let (workers, no_blocks) = (claim.workers, claim.no_blocks);
        let (files, count) = claim.decide(pinned, round);
        Offer {
            files,
            adapter,
            no_blocks,
            others: rest.workers > 0 || count < workers,
        }
    }
}

impl<'a> Claim<'a> {
    fn add(&mut self, card: &Card, read: &'a Slots) {
        self.workers += 1;
        self.no_blocks |= card.block_size.is_none();
        match read {
            Ok((key, files)) => {
                self.files.entry(key).or_default().places.push(files);
            }
            Err(why) => self.unusable = Some(*why),
        }
    }

    /// The files that count, and how many workers name them.
    fn decide(self, pinned: impl Fn(&Key) -> bool, round: usize) -> (Agreed, usize) {
        let any_pinned = self.files.keys().any(|key| pinned(key));
        let mut groups: Vec<(&Key, Group<'_>)> = self
            .files
            .into_iter()
            .filter(|(key, _)| !any_pinned || pinned(key))
            .collect();
        let voters: usize = groups.iter().map(|(_, group)| group.places.len()).sum();
        groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.places.len()));
        match groups.into_iter().next() {
            None => (
                Agreed::Unusable(self.unusable.unwrap_or(Unusable::NoTokenizer)),
                self.workers,
            ),
            Some((key, group)) if group.places.len() > voters / 2 => {
                (Agreed::On(key.clone(), group.some(round)), group.places.len())
            }
            Some(_) => (Agreed::No, self.workers),
        }
    }
}

impl Group<'_> {
    /// Some different places: in each round those of other workers, so that a few that lie cannot stand for all.
    fn some(&self, round: usize) -> Vec<Files> {
        let mut some: Vec<Files> = Vec::new();
        let first = round.wrapping_mul(MAX_ORIGINS) % self.places.len().max(1);
        let (before, from) = self.places.split_at_checked(first).unwrap_or_default();
        for place in from.iter().chain(before) {
            if !some.contains(place) {
                some.push((*place).clone());
            }
            if some.len() == MAX_ORIGINS {
                break;
            }
        }
        some
    }
}

#[cfg(test)]
mod tests;

//! The candidates of every model, kept up to date with the fleet view.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use continuum_fleet::{
    ids::{Graph, InstanceId, ModelName, Namespace, WorkerKey},
    view::{Blocks, FleetView, NameKind, Worker},
};
use imbl::{OrdMap, ordmap::DiffItem};

use self::serving::{Place, Roles, Rollout, rollouts_of, serving};
use super::{Served, cursor::Cursors, group::Member, kv::most_common};
use crate::{
    limits::CANDIDATES,
    load::{Followed, Store, index::wanted},
};

mod serving;

/// The candidates of every model, built from one view. Immutable; cheap to clone.
#[derive(Clone, Debug)]
pub struct Table {
    seed: u64,
    workers: OrdMap<WorkerKey, Arc<Worker>>,
    /// Those of them that serve a name, with their slots.
    members: OrdMap<WorkerKey, Member>,
    models: OrdMap<ModelName, Arc<Model>>,
    /// Roles that serve each base model, by namespace.
    roles: OrdMap<Namespace, Roles>,
    /// Workers with fewer slots than ranks: the store was full.
    short: BTreeSet<WorkerKey>,
    /// Entries of all groups, and how many there may be.
    entries: usize,
    capacity: usize,
    /// (namespace, name) pairs that did not fit.
    refused: BTreeSet<(Namespace, ModelName)>,
    /// [`Self::served`], laid out when it is first asked for.
    served: OnceLock<Arc<[Served]>>,
}

/// Everyone who serves one name.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) cursors: Arc<Cursors>,
    pub(super) pools: BTreeMap<Graph, BTreeMap<Place, Rollout>>,
}

impl Table {
    /// A table of no fleet. `seed` decides where the cursors start, so that routers do not agree on one worker.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            workers: OrdMap::new(),
            members: OrdMap::new(),
            models: OrdMap::new(),
            roles: OrdMap::new(),
            short: BTreeSet::new(),
            entries: 0,
            capacity: CANDIDATES,
            refused: BTreeSet::new(),
            served: OnceLock::new(),
        }
    }

    /// Follows a view: `store` takes over its set of live ranks, and the candidates of models and namespaces that
    /// changed are laid out anew. One chain of tables per store, from one caller.
    #[must_use]
    pub fn follow(&self, view: &FleetView, store: &Store) -> (Self, Followed) {
        let followed = store.follow(view);
        let mut next = self.clone();
        next.served = OnceLock::new();
        let mut affected = BTreeMap::<Namespace, BTreeSet<ModelName>>::new();
        for change in self.workers.diff(&view.workers) {
            match change {
                DiffItem::Add(_, new) => {
                    touch(&mut affected, new);
                    next.join(new, store);
                }
                DiffItem::Remove(key, old) => {
                    touch(&mut affected, old);
                    next.members.remove(key);
                    next.short.remove(key);
                }
                DiffItem::Update {
                    old: (_, old),
                    new: (_, new),
                } => {
                    touch(&mut affected, old);
                    touch(&mut affected, new);
                    next.join(new, store);
                }
            }
        }
        next.workers = view.workers.clone();
        for worker in self.short.iter().filter_map(|key| view.workers.get(key)) {
            touch(&mut affected, worker);
            next.join(worker, store);
        }
        for (namespace, name) in &self.refused {
            affected
                .entry(namespace.clone())
                .or_default()
                .insert(name.clone());
        }
        for (namespace, mut names) in affected {
            let roles = next.roles_in(&namespace);
            next.spread(&namespace, &roles, &mut names);
            next.rebuild(&namespace, &names, &roles);
            if roles.is_empty() {
                next.roles.remove(&namespace);
            } else {
                next.roles.insert(namespace, roles);
            }
        }
        (next, followed)
    }

    /// Names that the fleet serves, by name, then graph.
    #[must_use]
    pub fn served(&self) -> Arc<[Served]> {
        Arc::clone(self.served.get_or_init(|| self.list().into()))
    }

    /// Whether a worker is in the view.
    #[must_use]
    pub fn is_live(&self, worker: &WorkerKey) -> bool {
        self.workers.contains_key(worker)
    }

    /// Whether a graph has a prefill worker for a name now.
    #[must_use]
    pub fn has_prefill(&self, model: &ModelName, graph: &Graph) -> bool {
        self.rollouts(model, graph).any(|rollout| rollout.all.has_prefill)
    }

    /// Whether every worker of the name in the graph carries a `router_config`, so that unpinned requests may be
    /// sent to its frontends.
    #[must_use]
    pub fn serves_unpinned(&self, model: &ModelName, graph: &Graph) -> bool {
        let mut workers = self
            .rollouts(model, graph)
            .flat_map(|rollout| &rollout.all.workers)
            .peekable();
        workers.peek().is_some()
            && workers.all(|worker| worker.card.as_ref().is_some_and(|card| card.has_router_config))
    }

    /// Kinds of blocks of the workers that serve a name, the most common first.
    #[must_use]
    pub fn blocks(&self, model: &ModelName) -> Vec<Blocks> {
        let rollouts = self
            .model(model)
            .into_iter()
            .flat_map(|model| model.pools.values().flat_map(BTreeMap::values));
        most_common(rollouts.map(|rollout| rollout.all.blocks.as_slice()))
    }

    /// Names that are not served because the table is full.
    #[must_use]
    pub fn refused_names(&self) -> usize {
        self.refused.len()
    }

    /// Everyone who serves a name.
    pub(super) fn model(&self, name: &ModelName) -> Option<&Model> {
        self.models.get(name).map(Arc::as_ref)
    }

    fn list(&self) -> Vec<Served> {
        let mut served = Vec::new();
        for (name, model) in &self.models {
            for (graph, rollouts) in &model.pools {
                let groups = || rollouts.values().map(|rollout| &rollout.all);
                let contexts = groups().flat_map(|group| &group.workers);
                let contexts = contexts.filter_map(|worker| worker.card.as_ref()?.context_length);
                served.push(Served {
                    name: name.clone(),
                    graph: graph.clone(),
                    kind: rollouts
                        .values()
                        .map(|rollout| rollout.kind)
                        .min()
                        .unwrap_or(NameKind::Adapter),
                    max_model_len: contexts.min(),
                    ready: groups().any(|group| !group.decode.is_empty()),
                });
            }
        }
        served
    }

    fn rollouts(&self, model: &ModelName, graph: &Graph) -> impl Iterator<Item = &Rollout> {
        self.model(model)
            .and_then(|model| model.pools.get(graph))
            .into_iter()
            .flat_map(BTreeMap::values)
    }

    /// Takes a worker in, with the slots that it has now.
    fn join(&mut self, worker: &Arc<Worker>, store: &Store) {
        let slots: Arc<[_]> = store.slots_of(&worker.key).into();
        if slots.len() < worker.ranks().map_or(1, wanted) {
            self.short.insert(worker.key.clone());
        } else {
            self.short.remove(&worker.key);
        }
        if worker.names.is_empty() {
            self.members.remove(&worker.key);
        } else {
            self.members.insert(
                worker.key.clone(),
                Member {
                    worker: Arc::clone(worker),
                    slots,
                },
            );
        }
    }

    /// The members of a namespace, in order.
    fn members_in<'a>(&'a self, namespace: &'a Namespace) -> impl Iterator<Item = &'a Member> {
        let first = WorkerKey {
            namespace: namespace.clone(),
            instance: InstanceId::new(0),
        };
        let members = self
            .members
            .range(first..)
            .take_while(move |(key, _)| key.namespace == *namespace);
        members.map(|(_, member)| member)
    }

    fn roles_in(&self, namespace: &Namespace) -> Roles {
        let mut roles = Roles::new();
        let mut last = None;
        for Member { worker, .. } in self.members_in(namespace) {
            let Some(base) = worker.model() else { continue };
            let this = (&worker.generation, base, worker.role);
            if last.replace(this) != Some(this) {
                roles
                    .entry((worker.generation.clone(), base.clone()))
                    .or_default()
                    .insert(worker.role);
            }
        }
        roles
    }

    /// Adds every name of a base model whose set of roles has changed: it decides whether peers are ready.
    fn spread(&self, namespace: &Namespace, roles: &Roles, names: &mut BTreeSet<ModelName>) {
        let before = self.roles.get(namespace);
        if before == Some(roles) {
            return;
        }
        for Member { worker, .. } in self.members_in(namespace) {
            let base = worker
                .model()
                .map(|base| (worker.generation.clone(), base.clone()));
            if base.is_some_and(|base| before.and_then(|before| before.get(&base)) != roles.get(&base)) {
                names.extend(worker.names.iter().map(|served| served.name.clone()));
            }
        }
    }

    /// Lays out some names of one namespace anew.
    fn rebuild(&mut self, namespace: &Namespace, names: &BTreeSet<ModelName>, roles: &Roles) {
        let members = self.members.clone();
        let mut by_name = serving(&members, namespace, names, roles);
        for name in names {
            let rollouts = rollouts_of(&by_name.remove(name).unwrap_or_default());
            let mut model = self.models.get(name).map_or_else(
                || Model {
                    cursors: Arc::new(Cursors::new(self.seed, name.as_str())),
                    pools: BTreeMap::new(),
                },
                |model| model.as_ref().clone(),
            );
            for rollouts in model.pools.values_mut() {
                rollouts.retain(|place, old| {
                    let stays = place.0 != *namespace;
                    if !stays {
                        self.entries = self.entries.saturating_sub(old.entries());
                    }
                    stays
                });
            }
            let refusal = (namespace.clone(), name.clone());
            self.refused.remove(&refusal);
            for (graph, generation, rollout) in rollouts {
                if self.entries.saturating_add(rollout.entries()) > self.capacity {
                    self.refused.insert(refusal.clone());
                    continue;
                }
                self.entries += rollout.entries();
                model
                    .pools
                    .entry(graph)
                    .or_default()
                    .insert((namespace.clone(), generation), rollout);
            }
            model.pools.retain(|_, rollouts| !rollouts.is_empty());
            if model.pools.is_empty() {
                self.models.remove(name);
            } else {
                self.models.insert(name.clone(), Arc::new(model));
            }
        }
    }
}

fn touch(affected: &mut BTreeMap<Namespace, BTreeSet<ModelName>>, worker: &Worker) {
    let names = affected.entry(worker.key.namespace.clone()).or_default();
    names.extend(worker.names.iter().map(|served| served.name.clone()));
}

#[cfg(test)]
mod tests;

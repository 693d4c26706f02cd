//! The candidates of every model, kept up to date with the fleet view.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use continuum_fleet::{
    graphs::Generation,
    ids::{Graph, InstanceId, ModelName, Namespace, WorkerKey},
    view::{Card, FleetView, NameKind, Role, Worker},
};
use imbl::{OrdMap, ordmap::DiffItem};

use super::{
    Served,
    cursor::Cursors,
    group::{Group, Member, Serves},
};
use crate::{
    limits::CANDIDATES,
    load::{Followed, Store, index::wanted},
};

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
    /// Entries of all groups.
    entries: usize,
    /// (namespace, name) pairs that did not fit.
    refused: BTreeSet<(Namespace, ModelName)>,
}

/// Everyone who serves one name.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) cursors: Arc<Cursors>,
    pub(super) pools: BTreeMap<Graph, BTreeMap<Place, Rollout>>,
}

/// Those of one generation in one namespace: a pair never mixes two.
#[derive(Clone, Debug)]
pub(super) struct Rollout {
    /// Workers whose base name it is.
    pub(super) base: Arc<Group>,
    /// And those for whom it is an alias or an adapter; the same group when there are none.
    pub(super) all: Arc<Group>,
    kind: NameKind,
}

impl Rollout {
    /// The candidates, depending on whether the pool's frontends list the name.
    pub(super) fn group(&self, listed: bool) -> &Group {
        if listed { &self.all } else { &self.base }
    }

    fn entries(&self) -> usize {
        if Arc::ptr_eq(&self.base, &self.all) {
            self.all.len()
        } else {
            self.all.len() + self.base.len()
        }
    }
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
            refused: BTreeSet::new(),
        }
    }

    /// Follows a view: `store` takes over its set of live ranks, and the candidates of models and namespaces that
    /// changed are laid out anew. One chain of tables per store, from one caller.
    #[must_use]
    pub fn follow(&self, view: &FleetView, store: &Store) -> (Self, Followed) {
        let followed = store.follow(view);
        let mut next = self.clone();
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
    pub fn served(&self) -> Vec<Served> {
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

    /// Names that are not served because the table is full.
    #[must_use]
    pub fn refused_names(&self) -> usize {
        self.refused.len()
    }

    /// Everyone who serves a name.
    pub(super) fn model(&self, name: &ModelName) -> Option<&Model> {
        self.models.get(name).map(Arc::as_ref)
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
                if self.entries.saturating_add(rollout.entries()) > CANDIDATES {
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

/// A generation in a namespace.
type Place = (Namespace, Generation);
/// Roles that serve a base model in one generation.
type Roles = BTreeMap<(Generation, ModelName), BTreeSet<Role>>;
type ByName<'a> = BTreeMap<&'a ModelName, Vec<Serves<'a>>>;

/// The members of a namespace that serve one of `names`.
fn serving<'a>(
    members: &'a OrdMap<WorkerKey, Member>,
    namespace: &Namespace,
    names: &'a BTreeSet<ModelName>,
    roles: &Roles,
) -> ByName<'a> {
    let mut by_name = ByName::new();
    let mut readiness = Readiness { roles, last: None };
    let first = WorkerKey {
        namespace: namespace.clone(),
        instance: InstanceId::new(0),
    };
    for (_, member) in members
        .range(first..)
        .take_while(|(key, _)| key.namespace == *namespace)
    {
        for served in member.worker.names.iter() {
            if let Some(name) = names.get(&served.name) {
                let ready = readiness.of(&member.worker);
                by_name.entry(name).or_default().push(Serves {
                    member,
                    kind: served.kind,
                    ready,
                });
            }
        }
    }
    by_name
}

fn touch(affected: &mut BTreeMap<Namespace, BTreeSet<ModelName>>, worker: &Worker) {
    let names = affected.entry(worker.key.namespace.clone()).or_default();
    names.extend(worker.names.iter().map(|served| served.name.clone()));
}

/// Whether workers find the peers that their cards name.
struct Readiness<'a> {
    roles: &'a Roles,
    /// The answer for the card seen last: most neighbours share one.
    last: Option<(*const Card, Generation, ModelName, bool)>,
}

impl Readiness<'_> {
    fn of(&mut self, worker: &Worker) -> bool {
        let Some(card) = worker.card.as_ref().filter(|card| !card.needs.is_empty()) else {
            return true;
        };
        let Some(base) = worker.model() else { return false };
        match &self.last {
            Some((last, generation, model, ready))
                if *last == Arc::as_ptr(card) && *generation == worker.generation && model == base =>
            {
                *ready
            }
            _ => {
                let place = (worker.generation.clone(), base.clone());
                let there = self.roles.get(&place);
                let is_there = |role: &Role| there.is_some_and(|there| there.contains(role));
                let ready = card.needs.iter().any(|all| all.iter().all(is_there));
                self.last = Some((Arc::as_ptr(card), place.0, place.1, ready));
                ready
            }
        }
    }
}

fn rollouts_of(serving: &[Serves<'_>]) -> Vec<(Graph, Generation, Rollout)> {
    let mut places = BTreeMap::<(&Graph, &Generation), Vec<Serves<'_>>>::new();
    for serves in serving {
        let worker = &serves.member.worker;
        places
            .entry((&worker.graph, &worker.generation))
            .or_default()
            .push(*serves);
    }
    let rollout = |serving: &[Serves<'_>]| {
        let is_base = |kind: NameKind| kind == NameKind::Base;
        let all = Arc::new(Group::new(serving, |_| true));
        let same = serving.iter().all(|serves| is_base(serves.kind));
        let base = if same {
            Arc::clone(&all)
        } else {
            Arc::new(Group::new(serving, is_base))
        };
        let kind = serving
            .iter()
            .map(|serves| serves.kind)
            .min()
            .unwrap_or(NameKind::Adapter);
        Rollout { base, all, kind }
    };
    let places = places.into_iter();
    places
        .map(|((graph, generation), serving)| (graph.clone(), generation.clone(), rollout(&serving)))
        .collect()
}

#[cfg(test)]
mod tests;

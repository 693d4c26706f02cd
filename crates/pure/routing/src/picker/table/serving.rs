//! Who serves a name in one namespace, by generation, and whether their peers are there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use continuum_fleet::{
    graphs::Generation,
    ids::{Graph, InstanceId, ModelName, Namespace, WorkerKey},
    view::{Card, NameKind, Role, Worker},
};
use imbl::OrdMap;

use crate::picker::group::{Group, Member, Serves};

/// Those of one generation in one namespace: a pair never mixes two.
#[derive(Clone, Debug)]
pub(in crate::picker) struct Rollout {
    /// Workers whose base name it is.
    pub(in crate::picker) base: Arc<Group>,
    /// And those for whom it is an alias or an adapter; the same group when there are none.
    pub(in crate::picker) all: Arc<Group>,
    /// The strongest kind of the name here.
    pub(super) kind: NameKind,
}

impl Rollout {
    /// The candidates, depending on whether the pool's frontends list the name.
    pub(in crate::picker) fn group(&self, listed: bool) -> &Group {
        if listed { &self.all } else { &self.base }
    }

    pub(super) fn entries(&self) -> usize {
        if Arc::ptr_eq(&self.base, &self.all) {
            self.all.len()
        } else {
            self.all.len() + self.base.len()
        }
    }
}

/// A generation in a namespace.
pub(super) type Place = (Namespace, Generation);
/// Roles that serve a base model in one generation.
pub(super) type Roles = BTreeMap<(Generation, ModelName), BTreeSet<Role>>;
pub(super) type ByName<'a> = BTreeMap<&'a ModelName, Vec<Serves<'a>>>;

/// The members of a namespace that serve one of `names`.
pub(super) fn serving<'a>(
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

pub(super) fn rollouts_of(serving: &[Serves<'_>]) -> Vec<(Graph, Generation, Rollout)> {
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

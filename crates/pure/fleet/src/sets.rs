//! Worker sets that a direct-mode frontend chooses between at random.
//!
//! A frontend draws one set (namespace, component, role) of a model, and looks the pin up in it alone, so with
//! more than one set correct pins fail by chance. An operator has to know: of namespaces that mix roles, and of
//! pools with several sets of one role (two generations, two components). Once each while it lasts, and a flood of
//! model names must not become a flood of lines.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    ids::{Graph, ModelName, Namespace},
    limits::MAX_MIXED_REPORTS,
    notes::{Note, Notes},
    view::{FleetView, Role, Worker},
};

type Pool = (Graph, ModelName);

/// A model whose frontends draw one worker set out of several: correct pins may fail by chance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lottery {
    /// The pool.
    pub graph: Graph,
    /// The model's base name.
    pub model: ModelName,
    /// Namespaces that serve it.
    pub namespaces: usize,
    /// Worker sets (namespace, component, role) that serve it.
    pub sets: usize,
    /// Namespaces that mix aggregated with split workers: their frontends cannot serve every pin.
    pub mixed: Vec<Namespace>,
}

/// The lotteries of a view, by pool.
#[must_use]
pub fn lotteries(view: &FleetView) -> Vec<Lottery> {
    let mut sets = Sets::default();
    for worker in view.workers.values() {
        sets.replaced(None, Some(worker));
    }
    let lottery = |((graph, model), members): (&Pool, &Members)| {
        let mixed: Vec<Namespace> = members.mixing().into_keys().cloned().collect();
        (members.are_several() || !mixed.is_empty()).then(|| Lottery {
            graph: graph.clone(),
            model: model.clone(),
            namespaces: members.namespaces().len(),
            sets: members.sets.len(),
            mixed,
        })
    };
    sets.pools.iter().filter_map(lottery).collect()
}

/// Workers of one set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Set {
    namespace: Namespace,
    role: Role,
    component: Arc<str>,
}

/// What is known and said of one model in one pool.
#[derive(Debug, Default)]
struct Members {
    sets: BTreeMap<Set, usize>,
    /// Namespaces that were reported as mixed and still are.
    mixed: BTreeSet<Namespace>,
    /// Whether several sets were reported and still are there.
    several: bool,
}

/// Worker sets of every model that is served under its base name.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    pools: BTreeMap<Pool, Members>,
    touched: BTreeSet<Pool>,
}

impl Sets {
    /// A worker of the view was replaced.
    pub(crate) fn replaced(&mut self, old: Option<&Worker>, new: Option<&Worker>) {
        for (worker, comes) in [(old, false), (new, true)] {
            let Some((worker, model)) = worker.and_then(|worker| Some((worker, worker.model()?))) else {
                continue;
            };
            if matches!(worker.role, Role::Encode | Role::Unknown) {
                continue;
            }
            let pool = (worker.graph.clone(), model.clone());
            let set = Set {
                namespace: worker.key.namespace.clone(),
                role: worker.role,
                component: Arc::clone(&worker.component),
            };
            let sets = &mut self.pools.entry(pool.clone()).or_default().sets;
            let count = sets.entry(set.clone()).or_default();
            *count = if comes {
                *count + 1
            } else {
                count.saturating_sub(1)
            };
            if *count == 0 {
                sets.remove(&set);
            }
            self.touched.insert(pool);
        }
    }

    /// Ends a pass: says what became mixed, or several, in it.
    pub(crate) fn settle(&mut self, notes: &mut Notes) {
        let mut found = Vec::new();
        for pool in std::mem::take(&mut self.touched) {
            let Some(members) = self.pools.get_mut(&pool) else {
                continue;
            };
            if members.sets.is_empty() {
                self.pools.remove(&pool);
                continue;
            }
            members.review(&pool, &mut found);
        }
        // Mixed namespaces first: they cannot be served well, several sets can.
        found.sort_by_key(|note| !matches!(note, Note::MixedNamespace { .. }));
        let omitted = found.len().saturating_sub(MAX_MIXED_REPORTS);
        let reported = found.len() - omitted;
        found
            .into_iter()
            .take(MAX_MIXED_REPORTS)
            .for_each(|note| notes.say(note));
        if omitted > 0 {
            notes.say(Note::MixedNamespacesOmitted { reported, omitted });
        }
    }
}

impl Members {
    fn namespaces(&self) -> BTreeSet<&Namespace> {
        self.sets.keys().map(|set| &set.namespace).collect()
    }

    /// Workers by role (prefill, decode, aggregated) of each namespace that mixes aggregated with split ones.
    fn mixing(&self) -> BTreeMap<&Namespace, (usize, usize, usize)> {
        let mut counts = BTreeMap::<&Namespace, (usize, usize, usize)>::new();
        for (set, workers) in &self.sets {
            let (prefill, decode, aggregated) = counts.entry(&set.namespace).or_default();
            match set.role {
                Role::Prefill => *prefill += workers,
                Role::Decode => *decode += workers,
                Role::Aggregated => *aggregated += workers,
                Role::Encode | Role::Unknown => {}
            }
        }
        counts.retain(|_, (prefill, decode, aggregated)| *aggregated > 0 && *prefill + *decode > 0);
        counts
    }

    /// Two roles of one namespace are a pair, or mixed; one role twice is a choice.
    fn are_several(&self) -> bool {
        let roles: BTreeSet<(&Namespace, Role)> =
            self.sets.keys().map(|set| (&set.namespace, set.role)).collect();
        self.namespaces().len() > 1 || roles.len() < self.sets.len()
    }

    fn review(&mut self, (graph, model): &Pool, found: &mut Vec<Note>) {
        let mut mixed = BTreeSet::new();
        for (namespace, (prefill, decode, aggregated)) in self.mixing() {
            mixed.insert(namespace.clone());
            if !self.mixed.contains(namespace) {
                found.push(Note::MixedNamespace {
                    graph: graph.clone(),
                    namespace: namespace.clone(),
                    model: model.clone(),
                    prefill,
                    decode,
                    aggregated,
                });
            }
        }
        let several = self.are_several();
        if several && !self.several {
            found.push(Note::SeveralSets {
                graph: graph.clone(),
                model: model.clone(),
                namespaces: self.namespaces().len(),
                sets: self.sets.len(),
            });
        }
        self.several = several;
        self.mixed = mixed;
    }
}

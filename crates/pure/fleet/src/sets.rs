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
    view::{Role, Worker},
};

type Pool = (Graph, ModelName);

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
    fn review(&mut self, (graph, model): &Pool, found: &mut Vec<Note>) {
        let namespaces: BTreeSet<&Namespace> = self.sets.keys().map(|set| &set.namespace).collect();
        let mut mixed = BTreeSet::new();
        for namespace in &namespaces {
            let of = |role: Role| -> usize {
                let sets = self
                    .sets
                    .iter()
                    .filter(|(set, _)| set.namespace == **namespace && set.role == role);
                sets.map(|(_, count)| count).sum()
            };
            let (prefill, decode, aggregated) = (of(Role::Prefill), of(Role::Decode), of(Role::Aggregated));
            if aggregated == 0 || prefill + decode == 0 {
                continue;
            }
            mixed.insert((*namespace).clone());
            if !self.mixed.contains(*namespace) {
                found.push(Note::MixedNamespace {
                    graph: graph.clone(),
                    namespace: (*namespace).clone(),
                    model: model.clone(),
                    prefill,
                    decode,
                    aggregated,
                });
            }
        }
        // Two roles of one namespace are a pair, or mixed; one role twice is a choice.
        let roles: BTreeSet<(&Namespace, Role)> =
            self.sets.keys().map(|set| (&set.namespace, set.role)).collect();
        let several = namespaces.len() > 1 || roles.len() < self.sets.len();
        if several && !self.several {
            found.push(Note::SeveralSets {
                graph: graph.clone(),
                model: model.clone(),
                namespaces: namespaces.len(),
                sets: self.sets.len(),
            });
        }
        self.several = several;
        self.mixed = mixed;
    }
}

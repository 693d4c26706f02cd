//! Namespaces that serve one model both with prefill or decode workers and with aggregated ones.
//!
//! A direct-mode frontend picks one of the two sets at random and refuses pins of the other, so an operator has
//! to know; once per pair, and a flood of model names must not become a flood of lines.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    graphs::Graphs,
    ids::{ModelName, Namespace},
    limits::MAX_MIXED_REPORTS,
    notes::{Note, Notes},
    view::{Role, Worker},
};

type Pair = (Namespace, ModelName);

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    prefill: usize,
    decode: usize,
    aggregated: usize,
    said: bool,
}

impl Count {
    fn of(&mut self, role: Role) -> Option<&mut usize> {
        match role {
            Role::Prefill => Some(&mut self.prefill),
            Role::Decode => Some(&mut self.decode),
            Role::Aggregated => Some(&mut self.aggregated),
            Role::Encode | Role::Unknown => None,
        }
    }

    const fn is_mixed(&self) -> bool {
        self.aggregated > 0 && self.prefill + self.decode > 0
    }

    const fn is_empty(&self) -> bool {
        self.prefill + self.decode + self.aggregated == 0
    }
}

/// Workers by role of every (namespace, base model).
#[derive(Debug, Default)]
pub(crate) struct Mixed {
    counts: BTreeMap<Pair, Count>,
    touched: BTreeSet<Pair>,
}

impl Mixed {
    /// A worker of the view was replaced.
    pub(crate) fn replaced(&mut self, old: Option<&Worker>, new: Option<&Worker>) {
        for (worker, comes) in [(old, false), (new, true)] {
            let Some((worker, model)) = worker.and_then(|worker| Some((worker, worker.model()?))) else {
                continue;
            };
            let pair = (worker.key.namespace.clone(), model.clone());
            let count = self.counts.entry(pair.clone()).or_default();
            let Some(count) = count.of(worker.role) else {
                continue;
            };
            *count = if comes {
                *count + 1
            } else {
                count.saturating_sub(1)
            };
            self.touched.insert(pair);
        }
    }

    /// Ends a pass: says which pairs became mixed in it.
    pub(crate) fn settle(&mut self, graphs: &Graphs, notes: &mut Notes) {
        let mut reported = 0;
        let mut omitted = 0;
        for pair in std::mem::take(&mut self.touched) {
            let Some(count) = self.counts.get_mut(&pair) else {
                continue;
            };
            if count.is_empty() {
                self.counts.remove(&pair);
                continue;
            }
            let newly = count.is_mixed() && !count.said;
            count.said = count.is_mixed();
            if !newly {
                continue;
            }
            if reported == MAX_MIXED_REPORTS {
                omitted += 1;
                continue;
            }
            let (namespace, model) = pair;
            let Some((graph, _)) = graphs.graph_of(namespace.as_str()) else {
                continue;
            };
            reported += 1;
            notes.say(Note::MixedNamespace {
                graph,
                namespace,
                model,
                prefill: count.prefill,
                decode: count.decode,
                aggregated: count.aggregated,
            });
        }
        if omitted > 0 {
            notes.say(Note::MixedNamespacesOmitted { reported, omitted });
        }
    }
}

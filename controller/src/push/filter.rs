//! The part of a source's view that a `RouterConfig` sees: its own Dynamo namespaces.

use std::sync::Arc;

use continuum_fleet::{
    Graphs,
    view::{FleetView, Publisher, Worker},
};
use imbl::ordmap::DiffItem;

/// Follows a source's view with the work of its changes.
#[derive(Debug)]
pub(super) struct Filter {
    graphs: Graphs,
    seen: FleetView,
    part: FleetView,
}

impl Filter {
    pub(super) fn new(graphs: Graphs) -> Self {
        Self {
            graphs,
            seen: FleetView::default(),
            part: FleetView::default(),
        }
    }

    /// The part of `view`; what did not change is shared with the part before.
    pub(super) fn apply(&mut self, view: &FleetView) -> FleetView {
        for item in self.seen.workers.diff(&view.workers) {
            match item {
                DiffItem::Add(key, worker)
                | DiffItem::Update {
                    new: (key, worker), ..
                } => {
                    match worker_of(&self.graphs, worker) {
                        Some(worker) => self.part.workers.insert(key.clone(), worker),
                        None => self.part.workers.remove(key),
                    };
                }
                DiffItem::Remove(key, _) => {
                    self.part.workers.remove(key);
                }
            }
        }
        for item in self.seen.publishers.diff(&view.publishers) {
            match item {
                DiffItem::Add(key, publisher)
                | DiffItem::Update {
                    new: (key, publisher),
                    ..
                } => {
                    match publisher_of(&self.graphs, publisher) {
                        Some(publisher) => self.part.publishers.insert(*key, publisher),
                        None => self.part.publishers.remove(key),
                    };
                }
                DiffItem::Remove(key, _) => {
                    self.part.publishers.remove(key);
                }
            }
        }
        self.part.capped = view.capped;
        self.seen = view.clone();
        self.part.clone()
    }
}

/// The worker as these names see it. The source matched it with the names of all `RouterConfig`s; one that fits a
/// name of ours fits it best for us too, one that was taken by a name of others may still fit a wider one of ours.
fn worker_of(graphs: &Graphs, worker: &Arc<Worker>) -> Option<Arc<Worker>> {
    if graphs.names().contains(&worker.graph) {
        return Some(Arc::clone(worker));
    }
    let (graph, generation) = graphs.graph_of(worker.key.namespace.as_str())?;
    Some(Arc::new(Worker {
        graph,
        generation,
        ..Worker::clone(worker)
    }))
}

fn publisher_of(graphs: &Graphs, publisher: &Arc<Publisher>) -> Option<Arc<Publisher>> {
    if graphs.names().contains(&publisher.graph) {
        return Some(Arc::clone(publisher));
    }
    let (graph, _) = graphs.graph_of(publisher.namespace.as_str())?;
    Some(Arc::new(Publisher {
        graph,
        ..Publisher::clone(publisher)
    }))
}

#[cfg(test)]
mod tests;

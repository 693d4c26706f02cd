//! Workers as a view has them, for tests that need no registry.

use std::sync::Arc;

use continuum_fleet::{
    Generation,
    ids::{Graph, InstanceId, ModelName, Namespace, WorkerKey},
    view::{Card, NameKind, Role, Seen, ServedName, Worker},
};
use jiff::Timestamp;

/// A worker without a card that serves `model`, of a graph that is called as its namespace.
#[must_use]
pub fn worker(namespace: &str, id: u64, role: Role) -> Arc<Worker> {
    Arc::new(Worker {
        key: WorkerKey {
            namespace: Namespace::from(namespace),
            instance: InstanceId::new(id),
        },
        graph: Graph::from(namespace),
        component: "decode".into(),
        endpoint: "generate".into(),
        generation: Generation::Base,
        role,
        names: [ServedName {
            name: ModelName::from("model"),
            kind: NameKind::Base,
        }]
        .into(),
        card: None,
        seen: Seen {
            first: Timestamp::UNIX_EPOCH,
            updated: Timestamp::UNIX_EPOCH,
        },
    })
}

/// A card that says nothing but that blocks have 16 tokens; rank 0 alone.
#[must_use]
pub fn card() -> Card {
    Card {
        block_size: Some(16),
        ..Card::default()
    }
}

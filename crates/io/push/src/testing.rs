//! Fleets for the tests of this crate.

use std::sync::Arc;

use continuum_fleet::{
    Generation,
    ids::{Graph, InstanceId, ModelName, Namespace, WorkerKey},
    view::{FleetView, NameKind, Role, Seen, ServedName, Worker},
};
use jiff::Timestamp;

/// So many decode workers.
pub(crate) fn fleet(workers: u64) -> FleetView {
    let mut view = FleetView::default();
    for id in 0..workers {
        let key = WorkerKey {
            namespace: Namespace::from("dynamo"),
            instance: InstanceId::new(id),
        };
        let worker = Worker {
            key: key.clone(),
            graph: Graph::from("dynamo"),
            component: "decode".into(),
            endpoint: "generate".into(),
            generation: Generation::Base,
            role: Role::Decode,
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
        };
        view.workers.insert(key, Arc::new(worker));
    }
    view
}

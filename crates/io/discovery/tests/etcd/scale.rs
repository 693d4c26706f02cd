//! Five thousand workers: many pages, one revision, one view.

use etcd_client::{Txn, TxnOp};

use crate::support::{Registrar, Router, card, channel, instance};

const WORKERS: u64 = 5_000;
/// etcd's default limit of operations in a transaction.
const OPS: usize = 128;

#[tokio::test]
async fn five_thousand_workers_are_one_list_and_one_view() {
    let mut fleet = Registrar::shared().await;
    let ns = fleet.namespace.clone();
    let records = (1..=WORKERS).flat_map(|id| {
        [
            card(&ns, "decode", id),
            instance(&ns, "decode", id),
            channel(&ns, "decode", id),
        ]
    });
    let puts: Vec<TxnOp> = records
        .map(|(key, value)| TxnOp::put(key, value.to_string(), None))
        .collect();
    for chunk in puts.chunks(OPS) {
        fleet.client.txn(Txn::new().and_then(chunk)).await.unwrap();
    }
    let router = Router::start(fleet.config());
    let view = router.fleet("all workers", |view| !view.workers.is_empty()).await;
    assert_eq!(view.workers.len() as u64, WORKERS);
    assert!(view.workers.values().all(|worker| worker.card.is_some()));
    assert_eq!(view.publishers.len() as u64, WORKERS);
    assert_eq!(router.discovery.fleet().generation(), 1);
    assert_eq!(router.status().passes, 1);

    fleet.put(instance(&ns, "decode", WORKERS + 1)).await;
    router
        .fleet("one more", |view| view.workers.len() as u64 == WORKERS + 1)
        .await;
    router.stop().await;
    fleet.clean().await;
}

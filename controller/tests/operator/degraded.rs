//! What users would notice of a fleet, told while it lasts.

use continuum_testkit::kube::fleet::{Worker, records};

use crate::support::{Operator, cluster, condition, namespace, routerconfig};

#[tokio::test(flavor = "multi_thread")]
async fn a_fleets_troubles_are_told_while_they_last() {
    let cluster = cluster().await;
    let client = cluster.client().await;
    let ns = namespace(cluster, "degraded").await;
    let operator = Operator::start(client.clone(), &ns, &[]).await;
    cluster
        .apply(&routerconfig(&ns, "chat", &ns, "{replicas: 0}"))
        .await;
    condition(&client, &ns, "chat", "Degraded", "NoModels").await;

    let prefill = Worker::new(&ns, "p-0", "prefill", "m");
    cluster.write_worker(&prefill).await;
    let told = condition(&client, &ns, "chat", "Degraded", "ModelsWithoutPair").await;
    assert!(message(&told, "Degraded").ends_with(" m"));

    // Records of another worker's id: the resource is refused as a whole.
    let mut decode = Worker::new(&ns, "d-0", "decode", "m");
    decode.data = Some(records("dynamo", "backend", "somebody-else", "decode", "m"));
    cluster.write_worker(&decode).await;
    let told = condition(&client, &ns, "chat", "Degraded", "RecordsRefused").await;
    let text = message(&told, "Degraded");
    assert!(
        text.contains("1 that contradict themselves") && text.contains("pair for m"),
        "{text}"
    );

    decode.data = Worker::new(&ns, "d-0", "decode", "m").data;
    cluster.write_worker(&decode).await;
    condition(&client, &ns, "chat", "Degraded", "AsExpected").await;
    operator.stop().await;
}

fn message(of: &continuum_crds::RouterConfig, type_: &str) -> String {
    let conditions = of.status.clone().unwrap().conditions;
    let one = conditions.iter().find(|one| one.type_ == type_);
    one.unwrap().message.clone()
}

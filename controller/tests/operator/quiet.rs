//! What an operator with nothing to do costs the API server.

use std::{collections::BTreeMap, time::Duration};

use continuum_crds::RouterConfig;
use continuum_testkit::kube::{Cluster, Options, eventually};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::support::{LIMIT, Operator, condition, namespace, prepare, routerconfig};

const POLICY: &str =
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";
const OPERATOR: &str = "system:serviceaccount:operators:quiet";

/// Finished requests of the operator, by verb and resource; watches are none.
fn requests(log: &std::path::Path) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for line in std::fs::read_to_string(log).unwrap_or_default().lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let who = &event["impersonatedUser"]["username"];
        let (verb, resource) = (&event["verb"], &event["objectRef"]["resource"]);
        let what = format!(
            "{} {}",
            verb.as_str().unwrap_or_default(),
            resource.as_str().unwrap_or_default()
        );
        if who == OPERATOR && verb != "watch" && resource != "leases" && event["stage"] == "ResponseComplete"
        {
            *counts.entry(what).or_default() += 1;
        }
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn looking_again_at_what_is_as_it_should_be_asks_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (policy, log) = (dir.path().join("policy.yaml"), dir.path().join("audit.log"));
    std::fs::write(&policy, POLICY).unwrap();
    // Of its own, for the log.
    let cluster = Cluster::start_with(Options {
        flags: vec![
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", log.display()),
        ],
        ..Options::default()
    })
    .await;
    prepare(&cluster).await;
    cluster
        .apply(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: quiet}\n\
             roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\n\
             subjects: [{kind: ServiceAccount, name: quiet, namespace: operators}]\n",
        )
        .await;
    let admin = cluster.client().await;
    let ns = namespace(&cluster, "quiet").await;
    let client = cluster.impersonating("operators", "quiet").await;
    let operator = Operator::of(&cluster, client, &ns, "controller-0", &[]).await;
    let router = "{replicas: 0, autoscaling: {maxReplicas: 3}, podDisruptionBudget: {minAvailable: 1}}";
    cluster.apply(&routerconfig(&ns, "chat", &ns, router)).await;
    condition(&admin, &ns, "chat", "FleetSynced", "Synced").await;
    condition(&admin, &ns, "chat", "ResourcesApplied", "Applied").await;
    let begun = eventually("no more requests", LIMIT, || async {
        let before = requests(&log);
        tokio::time::sleep(Duration::from_secs(4)).await;
        (requests(&log) == before).then_some(before)
    })
    .await;
    assert!(begun["patch routerconfigs"] >= 1, "{begun:?}");

    // As resyncs do, an annotation makes the operator look again.
    let api: Api<RouterConfig> = Api::namespaced(admin.clone(), &ns);
    for number in 0..10 {
        let patch = json!({ "metadata": { "annotations": { "look": number.to_string() } } });
        api.patch("chat", &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    let mut more = requests(&log);
    more.retain(|what, count| {
        *count -= begun.get(what).copied().unwrap_or_default();
        *count > 0
    });
    assert!(more.values().sum::<u32>() <= 2, "{more:#?}");
    operator.stop().await;
}

//! What the API server says to the rights that chart and overlays give: each that is needed, and none beside.

use std::time::{Duration, Instant};

use continuum_testkit::kube::Cluster;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};
use serde_json::Value;

use crate::{
    cluster::for_grants,
    render::{STANDALONE, helm, kustomize, yaml},
};

/// Who may do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
}
use Answer::{No, Yes};

/// Namespace (empty: the whole cluster), verbs, `resource[/subresource][.group]`, name (empty: any).
type Question = (&'static str, &'static str, &'static str, &'static str);

/// How long a grant may take to be heard of.
const PATIENCE: Duration = Duration::from_secs(20);

/// Applies the RBAC of a render, and nothing else of it.
async fn grant(cluster: &Cluster, objects: &[Value]) {
    let kinds = ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];
    let rbac: Vec<Value> = objects
        .iter()
        .filter(|object| kinds.iter().any(|kind| object["kind"] == *kind))
        .cloned()
        .collect();
    cluster.apply(&yaml(&rbac)).await;
}

async fn allowed(client: &Client, namespace: &str, verb: &str, resource: &str, name: &str) -> bool {
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                namespace: text(namespace),
                verb: text(verb),
                group: text(group),
                resource: text(resource),
                subresource: text(subresource),
                name: text(name),
                ..ResourceAttributes::default()
            }),
            non_resource_attributes: None,
        },
        ..SelfSubjectAccessReview::default()
    };
    let answer = Api::all(client.clone())
        .create(&PostParams::default(), &review)
        .await
        .unwrap();
    answer.status.unwrap().allowed
}

/// Asks everything as a ServiceAccount; tells all wrong answers at once. The API server hears of a grant a moment after it was
/// written: what is wrong is asked again for a while.
async fn ask(cluster: &Cluster, account: (&str, &str), questions: &[(Answer, Question)]) {
    let client = cluster.impersonating(account.0, account.1).await;
    let each = |&(expected, (namespace, verbs, resource, name)): &(Answer, Question)| {
        let verbs = verbs.split(' ');
        verbs.map(move |verb| (expected, namespace, verb, resource, name))
    };
    let mut wrong: Vec<_> = questions.iter().flat_map(each).collect();
    let begun = Instant::now();
    loop {
        let asked = std::mem::take(&mut wrong);
        for question in asked {
            let (expected, namespace, verb, resource, name) = question;
            if allowed(&client, namespace, verb, resource, name).await != (expected == Yes) {
                wrong.push(question);
            }
        }
        if wrong.is_empty() {
            return;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{account:?}: not as expected: {wrong:#?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

const READ: &str = "get list watch";
const OWN: &str = "get list watch create patch delete";
const WRITE: &str = "create update patch delete deletecollection";
const ALL: &str = "get list watch create update patch delete deletecollection";

/// What everybody who is nobody may not do, and our processes neither.
fn never(namespace: &'static str) -> Vec<(Answer, Question)> {
    [
        (ALL, "secrets"),
        (ALL, "nodes"),
        (ALL, "namespaces"),
        (ALL, "persistentvolumeclaims"),
        (ALL, "replicationcontrollers"),
        (WRITE, "pods"),
        ("get create", "pods/exec"),
        ("get create", "pods/attach"),
        ("get create", "pods/portforward"),
        ("get", "pods/log"),
        ("create", "pods/eviction"),
        ("create", "serviceaccounts/token"),
        ("impersonate", "serviceaccounts"),
        (WRITE, "endpointslices.discovery.k8s.io"),
        (WRITE, "dynamoworkermetadatas.nvidia.com"),
        (ALL, "dynamographdeployments.nvidia.com"),
        (ALL, "daemonsets.apps"),
        (ALL, "statefulsets.apps"),
        (ALL, "jobs.batch"),
        (ALL, "clusterroles.rbac.authorization.k8s.io"),
        (ALL, "clusterrolebindings.rbac.authorization.k8s.io"),
        ("bind escalate", "roles.rbac.authorization.k8s.io"),
        (ALL, "customresourcedefinitions.apiextensions.k8s.io"),
        (
            ALL,
            "validatingwebhookconfigurations.admissionregistration.k8s.io",
        ),
        ("create", "subjectaccessreviews.authorization.k8s.io"),
        ("create", "certificatesigningrequests.certificates.k8s.io"),
    ]
    .map(|(verbs, resource)| (No, (namespace, verbs, resource, "")))
    .to_vec()
}

/// The kinds that the operator makes.
const CHILDREN: [&str; 10] = [
    "configmaps",
    "serviceaccounts",
    "services",
    "deployments.apps",
    "horizontalpodautoscalers.autoscaling",
    "poddisruptionbudgets.policy",
    "networkpolicies.networking.k8s.io",
    "podmonitors.monitoring.coreos.com",
    "roles.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
];

const FLEET: [&str; 3] = [
    "pods",
    "endpointslices.discovery.k8s.io",
    "dynamoworkermetadatas.nvidia.com",
];

/// Rights in a namespace where RouterConfigs are served.
fn served(namespace: &'static str) -> Vec<(Answer, Question)> {
    let mut questions = vec![
        (
            Yes,
            (
                namespace,
                "get list watch patch",
                "routerconfigs.router.continuum.dev",
                "",
            ),
        ),
        (
            No,
            (
                namespace,
                "create delete deletecollection",
                "routerconfigs.router.continuum.dev",
                "",
            ),
        ),
        (
            Yes,
            (
                namespace,
                "get patch update",
                "routerconfigs/status.router.continuum.dev",
                "",
            ),
        ),
        (
            Yes,
            (
                namespace,
                "update",
                "routerconfigs/finalizers.router.continuum.dev",
                "",
            ),
        ),
        (Yes, (namespace, "create patch", "events.events.k8s.io", "")),
        (
            No,
            (namespace, "get list watch delete", "events.events.k8s.io", ""),
        ),
        (No, (namespace, "deletecollection", "deployments.apps", "")),
    ];
    questions.extend(CHILDREN.map(|kind| (Yes, (namespace, OWN, kind, ""))));
    questions.extend(FLEET.map(|kind| (Yes, (namespace, READ, kind, ""))));
    questions.extend(never(namespace));
    questions
}

/// Rights in a namespace whose fleet may be named from elsewhere.
fn fleet(namespace: &'static str) -> Vec<(Answer, Question)> {
    let mut questions: Vec<_> = FLEET.map(|kind| (Yes, (namespace, READ, kind, ""))).to_vec();
    for kind in CHILDREN {
        let answer = if kind.contains("rbac") { Yes } else { No };
        questions.push((answer, (namespace, OWN, kind, "")));
    }
    questions.push((No, (namespace, READ, "routerconfigs.router.continuum.dev", "")));
    questions.extend(never(namespace));
    questions
}

/// Nothing at all.
fn nothing(namespace: &'static str) -> Vec<(Answer, Question)> {
    let mut questions: Vec<_> = FLEET.map(|kind| (No, (namespace, READ, kind, ""))).to_vec();
    questions.extend(CHILDREN.map(|kind| (No, (namespace, OWN, kind, ""))));
    questions.push((No, (namespace, ALL, "routerconfigs.router.continuum.dev", "")));
    questions.extend(never(namespace));
    questions
}

#[tokio::test]
async fn the_operator_holds_what_it_needs_and_no_more() {
    let (cluster, _grants) = for_grants().await;
    for namespace in ["rights-ops", "rights-team", "rights-fleet"] {
        cluster
            .apply(&format!(
                "{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}"
            ))
            .await;
    }
    let objects = helm(
        "c",
        "rights-ops",
        &["--set=watchNamespaces={rights-team},fleetNamespaces={rights-fleet},crds.install=false"],
    );
    grant(cluster, &objects).await;

    let mut questions = served("rights-team");
    questions.extend(fleet("rights-fleet"));
    questions.extend(nothing("default"));
    questions.extend(nothing("kube-system"));
    // Its own namespace is not served here: who leads, and its certificates.
    questions.extend(nothing("rights-ops"));
    questions.extend([
        (Yes, ("", "create", "tokenreviews.authentication.k8s.io", "")),
        (Yes, ("rights-ops", "create", "leases.coordination.k8s.io", "")),
        (
            Yes,
            (
                "rights-ops",
                "get update",
                "leases.coordination.k8s.io",
                "c-controller",
            ),
        ),
        (
            No,
            (
                "rights-ops",
                "get update delete",
                "leases.coordination.k8s.io",
                "other",
            ),
        ),
        (Yes, ("rights-ops", "get update", "secrets", "c-controller-ca")),
        (
            No,
            (
                "rights-ops",
                "list watch create patch delete",
                "secrets",
                "c-controller-ca",
            ),
        ),
        (No, ("rights-ops", "get update", "secrets", "other")),
        (No, ("rights-team", "get", "secrets", "c-controller-ca")),
        (No, ("", READ, "pods", "")),
        (No, ("", READ, "routerconfigs.router.continuum.dev", "")),
    ]);
    ask(cluster, ("rights-ops", "c-controller"), &questions).await;
}

#[tokio::test]
async fn an_operator_of_every_namespace_still_reads_no_secret() {
    let (cluster, _grants) = for_grants().await;
    cluster
        .apply("{apiVersion: v1, kind: Namespace, metadata: {name: rights-all}}")
        .await;
    let objects = helm(
        "c",
        "rights-all",
        &[
            "--set=watchNamespaces={*},crds.install=false",
            "--set=tls.existingSecret=given",
        ],
    );
    grant(cluster, &objects).await;
    let mut questions = served("default");
    questions.extend(served(""));
    // Certificates are given: not even its own Secret.
    questions.push((No, ("rights-all", "get update", "secrets", "c-controller-ca")));
    ask(cluster, ("rights-all", "c-controller"), &questions).await;
}

/// The operator gives a router that reads for itself a Role in its fleet's namespace: the API server lets it give what it holds.
#[tokio::test]
async fn the_operator_grants_reading_and_nothing_else() {
    let (cluster, _grants) = for_grants().await;
    for namespace in ["grant-ops", "grant-fleet"] {
        cluster
            .apply(&format!(
                "{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}"
            ))
            .await;
    }
    let objects = helm(
        "g",
        "grant-ops",
        &["--set=fleetNamespaces={grant-fleet},crds.install=false"],
    );
    grant(cluster, &objects).await;
    let client = cluster.impersonating("grant-ops", "g-controller").await;
    let roles: Api<k8s_openapi::api::rbac::v1::Role> = Api::namespaced(client, "grant-fleet");
    for (name, group, resource, verb, expected) in [
        ("reader", "", "pods", "list", true),
        ("metadata", "nvidia.com", "dynamoworkermetadatas", "watch", true),
        ("slices", "discovery.k8s.io", "endpointslices", "get", true),
        ("deleter", "", "pods", "delete", false),
        ("secrets", "", "secrets", "get", false),
        ("writer", "nvidia.com", "dynamoworkermetadatas", "patch", false),
    ] {
        let role = serde_json::json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name},
            "rules": [{"apiGroups": [group], "resources": [resource], "verbs": [verb]}],
        });
        let parameters = kube::api::PatchParams::apply("continuum-controller");
        let granted = roles
            .patch(name, &parameters, &kube::api::Patch::Apply(&role))
            .await;
        assert_eq!(granted.is_ok(), expected, "{name}: {granted:?}");
    }
}

/// A router that is told its view by the operator has no binding: the API server refuses it everything.
#[tokio::test]
async fn a_router_with_pushed_views_holds_nothing() {
    let (cluster, _grants) = for_grants().await;
    ask(cluster, ("default", "llm-router"), &nothing("default")).await;
}

#[tokio::test]
async fn a_router_without_the_operator_reads_its_fleet_alone() {
    let (cluster, _grants) = for_grants().await;
    for namespace in ["dynamo", "continuum-system", "rights-router"] {
        cluster
            .apply(&format!(
                "{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}"
            ))
            .await;
    }
    let expected = |metadata: bool| {
        let mut questions = vec![(Yes, ("dynamo", READ, "pods", ""))];
        let more = if metadata { Yes } else { No };
        questions.extend(FLEET[1..].iter().map(|&kind| (more, ("dynamo", READ, kind, ""))));
        questions.extend(CHILDREN.map(|kind| (No, ("dynamo", ALL, kind, ""))));
        questions.extend(never("dynamo"));
        questions.extend(nothing("default"));
        questions.extend(nothing("continuum-system"));
        questions
    };
    for metadata in [false, true] {
        let flag = format!("--set=dynamoPodDiscovery.metadata={metadata}");
        let arguments: Vec<&str> = STANDALONE.into_iter().chain([flag.as_str()]).collect();
        grant(cluster, &helm("x", "rights-router", &arguments)).await;
        ask(
            cluster,
            ("rights-router", "x-continuum-router"),
            &expected(metadata),
        )
        .await;
    }
    for (overlay, metadata) in [
        ("dynamo-pod-discovery", false),
        ("dynamo-metadata-discovery", true),
    ] {
        grant(cluster, &kustomize(overlay)).await;
        ask(
            cluster,
            ("continuum-system", "continuum-router"),
            &expected(metadata),
        )
        .await;
    }
}

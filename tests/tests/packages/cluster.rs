//! A real API server takes what is rendered, and keeps what an upgrade must not touch.

use std::process::Command;

use continuum_testkit::kube::{Cluster, binary};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use tokio::sync::{OnceCell, RwLock, RwLockReadGuard};

use crate::render::{STANDALONE, chart, helm, kustomize, said, template, yaml};

static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();

/// Renders have the same names in every test: who asks what a grant brings holds this, and who writes all of them
/// waits for those.
static GRANTS: RwLock<()> = RwLock::const_new(());

async fn cluster() -> &'static Cluster {
    CLUSTER.get_or_init(Cluster::start).await
}

/// The cluster, and the promise that nobody else writes grants of the same names meanwhile.
pub(crate) async fn for_grants() -> (&'static Cluster, RwLockReadGuard<'static, ()>) {
    (cluster().await, GRANTS.read().await)
}

/// A command with the administrator's rights, in this cluster and no other.
fn command(cluster: &Cluster, name: &str) -> Command {
    let mut command = Command::new(binary(name));
    command
        .env("KUBECONFIG", cluster.kubeconfig())
        .env_remove("HTTPS_PROXY")
        .env_remove("https_proxy");
    command
}

/// No unknown field, no refused value: what a user would be told by `kubectl apply`.
#[tokio::test]
async fn every_render_is_taken_strictly() {
    let cluster = cluster().await;
    let _alone = GRANTS.write().await;
    for namespace in ["continuum-system", "dynamo", "taken"] {
        cluster
            .apply(&format!(
                "{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}"
            ))
            .await;
    }
    let renders = [
        template("x", "taken", &[]).unwrap(),
        template("x", "taken", &STANDALONE).unwrap(),
        yaml(&helm(
            "other",
            "taken",
            &["--set=watchNamespaces={*},tls.existingSecret=given"],
        )),
        yaml(&kustomize("dynamo-pod-discovery")),
        yaml(&kustomize("dynamo-metadata-discovery")),
        yaml(&kustomize("operator")),
    ];
    for text in renders {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let mut kubectl = command(cluster, "kubectl");
        kubectl
            .args([
                "apply",
                "--server-side",
                "--force-conflicts",
                "--validate=strict",
                "-f",
            ])
            .arg(file.path());
        said(&mut kubectl).unwrap();
    }
}

/// Install, let the operator write its authority, upgrade twice, uninstall: the authority stays as long as the release does.
#[tokio::test]
async fn an_upgrade_keeps_the_certificate_authority() {
    let cluster = cluster().await;
    let release = |verb: &str, more: &[&str]| {
        let mut helm = command(cluster, "helm");
        helm.args([verb, "keep", "--namespace", "upgrades"]);
        if verb != "uninstall" {
            helm.arg(chart()).arg("--set=crds.install=false");
        }
        said(helm.args(more)).unwrap_or_else(|error| panic!("helm {verb}: {error}"))
    };
    let notes = release("install", &["--create-namespace"]);
    assert!(
        notes.contains("kubectl apply -f examples/routerconfig.yaml"),
        "{notes}"
    );

    // As the operator does: it may update this Secret, and nothing else.
    let client = cluster.impersonating("upgrades", "keep-controller").await;
    let secrets: Api<Secret> = Api::namespaced(client, "upgrades");
    let mut secret = secrets.get("keep-controller-ca").await.unwrap();
    assert_eq!(secret.data, None);
    secret.data = Some([("ca.crt".to_owned(), ByteString(b"authority".to_vec()))].into());
    secrets
        .replace("keep-controller-ca", &kube::api::PostParams::default(), &secret)
        .await
        .unwrap();
    let refused = secrets
        .patch(
            "keep-controller-ca",
            &PatchParams::default(),
            &Patch::Merge(&secret),
        )
        .await;
    assert!(refused.is_err());

    for more in [
        ["--set=controller.replicas=3"],
        ["--set=controller.log.level=debug"],
    ] {
        release("upgrade", &more);
        assert_eq!(
            secrets.get("keep-controller-ca").await.unwrap().data,
            secret.data,
            "{more:?}"
        );
    }
    release("uninstall", &[]);
    let client = cluster.client().await;
    let left: Api<Secret> = Api::namespaced(client, "upgrades");
    assert!(left.get_opt("keep-controller-ca").await.unwrap().is_none());
}

/// An older chart, then this one: the kind is this one's, what users wrote stays; also after an uninstall, and for the
/// next install.
#[tokio::test]
async fn an_upgrade_changes_the_kind_and_loses_no_routerconfig() {
    let cluster = Cluster::start().await;
    let older = tempfile::tempdir().unwrap();
    said(Command::new("cp").arg("-r").arg(chart()).arg(older.path())).unwrap();
    let older = older.path().join(chart().file_name().unwrap());
    let kind = older.join("files/crds/routerconfigs.yaml");
    let text = std::fs::read_to_string(&kind).unwrap();
    let changed = text.replacen("    shortNames:\n    - rc\n", "    shortNames:\n    - older\n", 1);
    assert_ne!(changed, text);
    std::fs::write(&kind, changed).unwrap();

    let release = |verb: &str, more: &[&str], chart: Option<&std::path::Path>| {
        let mut helm = command(&cluster, "helm");
        helm.args([verb, "kinds", "--namespace", "kinds"])
            .args(more)
            .args(chart);
        said(&mut helm).unwrap_or_else(|error| panic!("helm {verb}: {error}"))
    };
    let kubectl = |arguments: &[&str]| said(command(&cluster, "kubectl").args(arguments)).unwrap();
    let short_name = || {
        let crd = "crd/routerconfigs.router.continuum.dev";
        kubectl(&["get", crd, "-o", "jsonpath={.spec.names.shortNames[0]}"])
    };
    let identity = || {
        kubectl(&[
            "get",
            "routerconfigs",
            "chat",
            "-n",
            "kinds",
            "-o",
            "jsonpath={.metadata.uid}",
        ])
    };

    release("install", &["--create-namespace"], Some(&older));
    assert_eq!(short_name(), "older");
    let example = std::fs::read_to_string(crate::render::root().join("examples/routerconfig.yaml")).unwrap();
    let mine = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        mine.path(),
        example.replace("namespace: dynamo\n", "namespace: kinds\n"),
    )
    .unwrap();
    kubectl(&["apply", "-n", "kinds", "-f", &mine.path().display().to_string()]);
    let before = identity();

    release("upgrade", &[], Some(&chart()));
    assert_eq!(short_name(), "rc");
    assert_eq!(identity(), before);
    release("uninstall", &[], None);
    assert_eq!((short_name().as_str(), identity()), ("rc", before.clone()));
    release("install", &[], Some(&chart()));
    assert_eq!(identity(), before);
}

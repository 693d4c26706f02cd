//! A cluster for all tests of this file, and operators in it.

use std::{sync::Arc, time::Duration};

use clap::Parser as _;
use continuum_controller::{app, cli::Cli, push::Hub};
use continuum_crds::RouterConfig;
use continuum_runtime::tasks::Tasks;
use continuum_testkit::kube::{Cluster, eventually};
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::Value;
use tokio::sync::OnceCell;

static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();

/// How long anything may take on a loaded machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The cluster, with the definitions that the operator needs.
pub(crate) async fn cluster() -> &'static Cluster {
    CLUSTER
        .get_or_init(|| async {
            let cluster = Cluster::start_with_controllers().await;
            prepare(&cluster).await;
            cluster
        })
        .await
}

/// Installs the definitions that the operator needs.
pub(crate) async fn prepare(cluster: &Cluster) {
    cluster.apply(&continuum_crds::yaml()).await;
    cluster.install_worker_metadata().await;
}

/// One replica of an operator.
pub(crate) struct Operator {
    pub(crate) hub: Arc<Hub>,
    /// Where routers reach it.
    pub(crate) port: u16,
    tasks: Option<Tasks>,
}

impl Operator {
    pub(crate) async fn start(client: Client, namespace: &str, more: &[&str]) -> Self {
        Self::replica(client, namespace, "controller-0", more).await
    }

    pub(crate) async fn replica(client: Client, namespace: &str, pod: &str, more: &[&str]) -> Self {
        Self::of(cluster().await, client, namespace, pod, more).await
    }

    pub(crate) async fn of(
        cluster: &Cluster,
        client: Client,
        namespace: &str,
        pod: &str,
        more: &[&str],
    ) -> Self {
        let pod = format!("--pod-name={pod}");
        let own = format!("--pod-namespace={namespace}");
        let kubeconfig = format!("--kubeconfig={}", cluster.kubeconfig().display());
        let port = continuum_testkit::etcd::free_ports(1)[0];
        let push = format!("--push-address=127.0.0.1:{port}");
        let fixed = [
            "continuum-controller",
            kubeconfig.as_str(),
            "--router-image=localhost/continuum/router:dev",
            "--push-endpoint=https://localhost:9443",
            push.as_str(),
            "--health-address=127.0.0.1:0",
            pod.as_str(),
            own.as_str(),
        ];
        let files = more.iter().any(|flag| flag.starts_with("--tls-dir"));
        let secret: &[&str] = if files { &[] } else { &["--ca-secret=ca"] };
        let cli = Cli::parse_from(fixed.iter().chain(secret).chain(more));
        let tasks = Tasks::new();
        let hub = app::start(&cli, client, &tasks.spawner()).await.unwrap();
        Self {
            hub,
            port,
            tasks: Some(tasks),
        }
    }

    /// As SIGTERM does.
    pub(crate) async fn stop(mut self) {
        let tasks = self.tasks.take().unwrap();
        self.hub.stop();
        tasks.drain(Duration::from_secs(10), std::future::pending()).await;
    }
}

/// One replica that can be killed.
pub(crate) struct Mortal {
    _operator: Operator,
    runtime: tokio::runtime::Runtime,
}

impl Mortal {
    pub(crate) async fn replica(namespace: &str, pod: &str) -> Self {
        let cluster = cluster().await;
        let (namespace, pod) = (namespace.to_owned(), pod.to_owned());
        // Of its own, so that it can end in the middle of anything.
        let started = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            let operator = runtime.block_on(async {
                let client = cluster.client().await;
                Operator::of(cluster, client, &namespace, &pod, &[]).await
            });
            Self {
                _operator: operator,
                runtime,
            }
        });
        started.await.unwrap()
    }

    /// As SIGKILL does: nothing is given up, nobody is told.
    pub(crate) fn kill(self) {
        self.runtime.shutdown_background();
    }
}

/// A namespace with the empty Secret that the chart makes.
pub(crate) async fn namespace(cluster: &Cluster, prefix: &str) -> String {
    let namespace = cluster.namespace(prefix).await;
    cluster
        .apply(&format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: ca, namespace: {namespace}}}\n"
        ))
        .await;
    namespace
}

/// A RouterConfig over a fleet in `fleet`.
pub(crate) fn routerconfig(namespace: &str, name: &str, fleet: &str, router: &str) -> String {
    format!(
        r"
apiVersion: router.continuum.dev/v1alpha1
kind: RouterConfig
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  config:
    backends:
      - name: frontend
        url: http://127.0.0.1:9
    dynamo:
      enabled: true
      discovery:
        source: kubernetes
        kubernetes:
          namespace: {fleet}
          dynamo_namespace: dynamo
      load:
        direct_allow_cidrs: [127.0.0.0/8]
      shim:
        backends: [frontend]
  router: {router}
"
    )
}

pub(crate) async fn object(
    client: &Client,
    namespace: &str,
    kind: &str,
    name: &str,
) -> Option<DynamicObject> {
    let (group, version) = match kind {
        "Deployment" => ("apps", "v1"),
        "PodDisruptionBudget" => ("policy", "v1"),
        "HorizontalPodAutoscaler" => ("autoscaling", "v2"),
        "NetworkPolicy" => ("networking.k8s.io", "v1"),
        "Role" | "RoleBinding" => ("rbac.authorization.k8s.io", "v1"),
        "Lease" => ("coordination.k8s.io", "v1"),
        "Event" => ("events.k8s.io", "v1"),
        "RouterConfig" => ("router.continuum.dev", "v1alpha1"),
        _ => ("", "v1"),
    };
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    api.get_opt(name).await.unwrap()
}

/// Waits for an object that is as wanted.
pub(crate) async fn wait_for(
    client: &Client,
    namespace: &str,
    kind: &str,
    name: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    let what = format!("{kind} {namespace}/{name}");
    let wanted = &wanted;
    eventually(&what, LIMIT, || async move {
        let found = serde_json::to_value(object(client, namespace, kind, name).await?).unwrap();
        wanted(&found).then_some(found)
    })
    .await
}

/// Waits until an object is gone.
pub(crate) async fn gone(client: &Client, namespace: &str, kind: &str, name: &str) {
    eventually(&format!("{kind} {name} is gone"), LIMIT, || async move {
        object(client, namespace, kind, name)
            .await
            .is_none()
            .then_some(())
    })
    .await;
}

/// Waits for a condition with this reason.
pub(crate) async fn condition(
    client: &Client,
    namespace: &str,
    name: &str,
    type_: &str,
    reason: &str,
) -> RouterConfig {
    let api: Api<RouterConfig> = Api::namespaced(client.clone(), namespace);
    let api = &api;
    let last = std::sync::Mutex::new(String::new());
    let last = &last;
    let looked = eventually_or(LIMIT, || async move {
        let found = api.get_opt(name).await.unwrap()?;
        let conditions = found.status.clone().unwrap_or_default().conditions;
        *last.lock().unwrap() = format!("{conditions:#?}");
        let generation = found.metadata.generation;
        conditions
            .iter()
            .any(|one| one.type_ == type_ && one.reason == reason && one.observed_generation == generation)
            .then_some(found)
    })
    .await;
    looked.unwrap_or_else(|| panic!("{type_} is not {reason}: {}", last.lock().unwrap()))
}

async fn eventually_or<T, F: Future<Output = Option<T>>>(
    limit: Duration,
    mut look: impl FnMut() -> F,
) -> Option<T> {
    let begun = std::time::Instant::now();
    while begun.elapsed() < limit {
        if let Some(found) = look().await {
            return Some(found);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    None
}

//! The process as one picture: what is started, and what knows of what.
//!
//! ```text
//! Lease ── leader ─┬→ certs ──→ push server ←── router pods
//!                  │                ↑ hub
//! RouterConfigs ── reconcile ──→ fleets (one watch set per source)
//!                  └→ children and status (the leader alone)
//! ```

use std::{process::ExitCode, sync::Arc, time::Duration};

use continuum_discovery::k8s::Credentials;
use continuum_messages::Epoch;
use continuum_runtime::{
    tasks::{Spawner, Tasks},
    telemetry,
};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use prometheus::IntGauge;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::{Mutex, watch},
};

use crate::{
    api,
    auth::Reviewer,
    certs::{self, Certificates, Files, Keeper, Serving},
    cli::{Cli, LogFormat},
    fleet::Fleets,
    health::{self, Health},
    leader::Election,
    metrics::Metrics,
    push::{Hub, Server},
    routerconfig::{
        Settings,
        reconcile::{self, Context},
    },
};

/// Sessions are told at once, the lease is given up: this is more than both take.
const GRACE: Duration = Duration::from_secs(10);

/// Why the controller cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log cannot be set up.
    #[error(transparent)]
    Telemetry(#[from] telemetry::Error),
    /// The runtime, a signal or a listener.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
    /// There is no cluster.
    #[error("no Kubernetes cluster: run in a pod with a ServiceAccount, or set KUBECONFIG: {0}")]
    Cluster(#[from] kube::Error),
    /// A family of metrics was registered twice.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The push endpoint is no URL.
    #[error("--push-endpoint {0}: write https://<service>.<namespace>.svc:<port>")]
    Endpoint(String),
}

/// Runs the controller until it is told to stop.
///
/// # Errors
/// It could not start.
pub fn run(cli: Cli) -> Result<ExitCode, Error> {
    let format = match cli.log_format {
        LogFormat::Text => telemetry::Format::Text,
        LogFormat::Json => telemetry::Format::Json,
    };
    let _level = telemetry::init(format, &cli.log_level)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|source| Error::Io {
        what: "cannot start the runtime",
        source,
    })?;
    runtime.block_on(serve(cli))
}

async fn serve(cli: Cli) -> Result<ExitCode, Error> {
    let io = |what| move |source| Error::Io { what, source };
    let mut terminate = signal(SignalKind::terminate()).map_err(io("signals"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(io("signals"))?;
    let tasks = Tasks::new();
    let client = client(&cli).await?;
    let hub = start(&cli, client, &tasks.spawner()).await?;
    let signal = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: routers go to another replica");
        hub.stop();
    };
    let exit = tasks.run(signal, || GRACE, std::future::pending()).await;
    let Some(ended) = exit.first else {
        return Ok(ExitCode::SUCCESS);
    };
    tracing::error!(
        task = ended.name,
        why = %ended.how,
        "stopped, because a task ended that everything depends on"
    );
    Ok(ExitCode::FAILURE)
}

async fn client(cli: &Cli) -> Result<Client, Error> {
    let Some(path) = &cli.kubeconfig else {
        let config = Config::infer().await.map_err(kube::Error::InferConfig)?;
        return Ok(api::client(config)?);
    };
    let refused = |error: kube::config::KubeconfigError| kube::Error::InferKubeconfig(error);
    let file = Kubeconfig::read_from(path).map_err(refused)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    Ok(api::client(config.map_err(refused)?)?)
}

/// Starts everything; what it returns ends the sessions of routers.
///
/// # Errors
/// See [`Error`].
pub async fn start(cli: &Cli, client: Client, spawner: &Spawner) -> Result<Arc<Hub>, Error> {
    let io = |what| move |source| Error::Io { what, source };
    let host = host(&cli.push_endpoint).ok_or_else(|| Error::Endpoint(cli.push_endpoint.clone()))?;
    let metrics = Metrics::new()?;
    let listener = TcpListener::bind(cli.push_address)
        .await
        .map_err(io("--push-address"))?;
    let probes = TcpListener::bind(cli.health_address)
        .await
        .map_err(io("--health-address"))?;
    let epoch = Epoch::from_raw(rand::random());
    let hub = Hub::new(&*cli.pod_name, epoch, metrics.push);

    let (election, leads) = Election::new(client.clone(), &cli.pod_namespace, &cli.lease, &cli.pod_name);
    spawner.essential("leader election", |stop| async move {
        election.run(stop).await;
        Ok(())
    });
    follow_leadership(spawner, leads.clone(), &hub, metrics.leader);
    let Certificates { serving, trouble } =
        certificates(cli, &client, &host, leads.clone(), metrics.certificates, spawner);
    push_server(spawner, listener, &hub, client.clone(), serving.clone());

    let (listed, listed_once) = watch::channel(false);
    let credentials = match &cli.kubeconfig {
        Some(path) => Credentials::Kubeconfig(path.clone()),
        None => Credentials::Found,
    };
    let context = Context {
        client,
        hub: Arc::clone(&hub),
        fleets: Arc::new(Mutex::new(Fleets::new(
            Arc::clone(&hub),
            credentials,
            metrics.sources,
        ))),
        settings: Settings::of(cli),
        served: cli.served(),
        leads,
        serving: serving.clone(),
        trouble,
        listed,
        metrics: metrics.reconcile,
        instance: cli.pod_name.clone(),
    };
    spawner.essential("reconcile", |stop| async move {
        reconcile::run(context, stop).await;
        Ok(())
    });
    let health = Health {
        registry: metrics.registry,
        serving,
        listed: listed_once,
    };
    spawner.essential("probes", |stop| async move {
        Ok(health::serve(probes, health, stop).await?)
    });
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        served = ?cli.served(),
        foreign_fleets = ?cli.foreign_fleets(),
        push = cli.push_endpoint,
        "continuum-controller starts"
    );
    Ok(hub)
}

fn follow_leadership(spawner: &Spawner, mut leads: watch::Receiver<bool>, hub: &Arc<Hub>, gauge: IntGauge) {
    let hub = Arc::clone(hub);
    spawner.essential("leadership", |stop| async move {
        stop.run_until_cancelled(async {
            loop {
                let leader = *leads.borrow_and_update();
                gauge.set(i64::from(leader));
                hub.set_leader(leader);
                if leads.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        })
        .await;
        Ok(())
    });
}

fn certificates(
    cli: &Cli,
    client: &Client,
    host: &str,
    leads: watch::Receiver<bool>,
    metrics: certs::Metrics,
    spawner: &Spawner,
) -> Certificates {
    if let Some(directory) = &cli.tls_dir {
        let (files, seen) = Files::new(directory.clone(), host, metrics);
        spawner.essential("certificates", |stop| async move {
            files.run(stop).await;
            Ok(())
        });
        return seen;
    }
    let secret = cli.ca_secret.as_deref().unwrap_or_default();
    let (keeper, seen) = Keeper::new(client.clone(), &cli.pod_namespace, secret, host, leads, metrics);
    spawner.essential("certificates", |stop| async move {
        keeper.run(stop).await;
        Ok(())
    });
    seen
}

/// Waits for the first certificate, then serves; later ones are taken over by new sessions.
fn push_server(
    spawner: &Spawner,
    listener: TcpListener,
    hub: &Arc<Hub>,
    client: Client,
    mut serving: watch::Receiver<Option<Serving>>,
) {
    let server = Server::new(Arc::clone(hub), Arc::new(Reviewer::new(client)));
    spawner.essential("push server", |stop| async move {
        let first = async {
            serving
                .wait_for(Option::is_some)
                .await
                .ok()?
                .as_ref()
                .map(|first| first.tls.clone())
        };
        let Some(Some(first)) = stop.run_until_cancelled(first).await else {
            stop.cancelled().await;
            return Ok(());
        };
        let (tls, receiver) = watch::channel(first);
        let renewed = async {
            while serving.changed().await.is_ok() {
                if let Some(next) = serving.borrow_and_update().as_ref() {
                    tls.send_replace(next.tls.clone());
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = renewed => {}
            ended = server.run(listener, receiver, stop.clone()) => ended?,
        }
        Ok(())
    });
}

/// The name that routers check the certificate against.
fn host(endpoint: &str) -> Option<String> {
    let rest = endpoint.strip_prefix("https://")?;
    let host = rest.split(['/', ':']).next()?;
    (!host.is_empty()).then(|| host.to_owned())
}

//! `fleet-sim`: a Dynamo fleet without GPUs, etcd or Kubernetes, for trying the router.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;
use continuum_fleet_sim::{Pace, Settings, Sim};
use tracing::info;

/// Simulates a Dynamo fleet in one process: workers in a file store, load over ZMTP, direct-mode frontends.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Args {
    /// Folder of the file store to register in; point the router's `dynamo.discovery.file.path` at it.
    #[arg(long)]
    store: PathBuf,
    /// Address of a frontend; repeat it for more replicas.
    #[arg(
        long = "frontend",
        default_value = "127.0.0.1:8001",
        conflicts_with = "no_frontends"
    )]
    frontends: Vec<SocketAddr>,
    /// Only workers: something else stands where the frontends would.
    #[arg(long)]
    no_frontends: bool,
    /// Dynamo namespace.
    #[arg(long, default_value = "dynamo")]
    namespace: String,
    /// Served model.
    #[arg(long, default_value = "sim/tiny-chat")]
    model: String,
    /// Prefill workers.
    #[arg(long, default_value_t = 2)]
    prefill: u32,
    /// Decode workers.
    #[arg(long, default_value_t = 2)]
    decode: u32,
    /// Aggregated workers (use them instead of prefill and decode workers, not beside them).
    #[arg(long, default_value_t = 0)]
    aggregated: u32,
    /// Data-parallel ranks of each worker.
    #[arg(long, default_value_t = 1)]
    ranks: u32,
    /// Milliseconds between two tokens.
    #[arg(long, default_value_t = 30)]
    token_ms: u64,
    /// Prompt tokens read per second.
    #[arg(long, default_value_t = 20_000)]
    prefill_rate: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the simulated fleet could not run");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> std::io::Result<()> {
    let sim = Sim::start(Settings {
        namespace: args.namespace,
        model: args.model,
        prefill: args.prefill,
        decode: args.decode,
        aggregated: args.aggregated,
        ranks: args.ranks,
        store: args.store,
        frontends: if args.no_frontends {
            Vec::new()
        } else {
            args.frontends
        },
        pace: Pace {
            prefill_tokens_per_second: args.prefill_rate,
            token: Duration::from_millis(args.token_ms),
        },
    })
    .await?;
    for worker in sim.fleet().workers() {
        info!(
            role = worker.role.as_str(),
            instance = worker.instance,
            namespace = worker.namespace,
            "worker registered"
        );
    }
    info!(frontends = ?sim.frontends(), "simulated fleet is up");
    wait_for_signal().await?;
    sim.stop().await;
    Ok(())
}

async fn wait_for_signal() -> std::io::Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result,
        _ = terminate.recv() => Ok(()),
    }
}

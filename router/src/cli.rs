//! The command line: what can be asked of the program, and the commands about a configuration.
//!
//! Running the router itself is not here: [`Cli::command`] tells whether a command was asked for, and
//! [`config::run`] does those that end by themselves.

#[cfg(feature = "dynamo-kv")]
pub mod artifacts;
pub mod config;
pub mod probe;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use continuum_config::Build;

/// What this program can do, as its features and its state have it.
pub const BUILD: Build = Build {
    dynamo: cfg!(feature = "dynamo"),
    kubernetes: cfg!(feature = "dynamo"),
    dynamo_kv: cfg!(feature = "dynamo-kv"),
    // Parsed and validated, not served yet, whatever the features say.
    dynamo_event_bus: false,
};

/// An open LLM router for NVIDIA Dynamo fleets.
///
/// Finds the workers of a fleet, follows their load, picks a prefill and a decode worker for each request and
/// sends it, pinned, to a Dynamo frontend in direct mode. Other servers that speak the OpenAI protocol are routed
/// to by model and weight.
#[derive(Debug, Parser)]
#[command(
    name = "continuum-router",
    version,
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    after_help = "\
SIGHUP reads the configuration again (as does a change of the file). SIGTERM drains: no new requests, those in
flight may finish within server.graceful_period; a second signal ends at once.

Examples:
  continuum-router config validate router.yaml
  continuum-router --config router.yaml"
)]
pub struct Cli {
    /// Run the router with this configuration (YAML)
    #[arg(long, short, value_name = "FILE", env = "CONTINUUM_ROUTER_CONFIG")]
    pub config: Option<PathBuf>,

    /// Something else than running the router
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What can be asked for beside running.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check, show or describe configurations
    #[command(subcommand)]
    Config(ConfigCommand),
    /// The tokenizers and chat templates that a fleet offers: what to review and pin
    #[cfg(feature = "dynamo-kv")]
    #[command(subcommand)]
    Artifacts(ArtifactsCommand),
    /// Ask an HTTP address once; exits 0 when it answers with a status of 2xx
    ///
    /// For health checks in images that hold no other program.
    Probe {
        /// For instance http://127.0.0.1:9091/readyz
        url: http::Uri,
    },
}

/// The commands about configurations. None of them connects to anything.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration: every error with its place, then what may not be meant
    ///
    /// Prints a line `file:line:column: path: message` for each error and exits 1 if there is one. Warnings follow in
    /// the same form; they do not change the exit code. Certificates and keys are not read.
    Validate {
        /// The configuration; "-" is standard input
        file: PathBuf,
        /// Exit 1 on warnings, too
        #[arg(long)]
        strict: bool,
    },
    /// Print the effective configuration: all fields with their values, secrets masked
    Show {
        /// The configuration; "-" is standard input. Without it: the defaults
        file: Option<PathBuf>,
    },
    /// Print the JSON Schema of configurations, for editors
    Schema,
}

/// The commands about a fleet's files. They find the fleet as a router with this configuration does, and end.
#[cfg(feature = "dynamo-kv")]
#[derive(Debug, Subcommand)]
pub enum ArtifactsCommand {
    /// Show the files of each model: what for, where, how large, which checksum, and whether it is pinned
    List {
        /// Which fleet
        #[command(flatten)]
        fleet: FleetArgs,
    },
    /// Save the files for review and print what to add to dynamo.kv.pinned_artifacts
    ///
    /// Each file is compared with the checksum of its card. Files from http and hf places are fetched as far as
    /// dynamo.kv.allow_http_artifacts and allow_hf_artifacts say. Exits 1 when a file could not be had.
    Fetch {
        /// Which fleet
        #[command(flatten)]
        fleet: FleetArgs,
        /// This model alone
        #[arg(long)]
        model: Option<String>,
        /// The directory to save them in; one for each model is made there
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
    },
}

/// Which fleet.
#[cfg(feature = "dynamo-kv")]
#[derive(Debug, clap::Args)]
pub struct FleetArgs {
    /// The router's configuration (YAML)
    #[arg(long, short, value_name = "FILE", env = "CONTINUUM_ROUTER_CONFIG")]
    pub config: PathBuf,
    /// Seconds to wait for the first list of the fleet
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub wait: u64,
}

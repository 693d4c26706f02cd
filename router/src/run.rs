//! The life of the process: start, listen, reload, drain.

use std::{path::Path, process::ExitCode, sync::Arc, time::Duration};

use continuum_config::{Config, Loaded, model::LogFormat};
use continuum_runtime::{
    tasks::{Spawner, Tasks},
    telemetry::{self, LevelHandle},
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    admin,
    app::{self, App},
    cli::{self, BUILD},
    proxy,
    reload::{self, Reloader},
    server::{self, Listener},
};

/// What blocking work gets to end by itself when everything else has ended.
const LEFT_BEHIND: Duration = Duration::from_secs(1);

/// Why the router could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// Which file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// The configuration is wrong; every problem on a line of its own.
    #[error("{0}")]
    Config(String),
    /// The log cannot be set up.
    #[error(transparent)]
    Telemetry(#[from] telemetry::Error),
    /// The runtime cannot be started.
    #[error("cannot start the runtime: {0}")]
    Runtime(std::io::Error),
    /// Something that works in the background cannot be started.
    #[error(transparent)]
    App(#[from] app::Error),
    /// A listener cannot be started.
    #[error(transparent)]
    Server(#[from] server::Error),
    /// The configuration file cannot be watched.
    #[error(transparent)]
    Reload(#[from] reload::Error),
}

/// Runs the router until it is told to stop. The exit code is 0 after a drain that let everything finish.
///
/// # Errors
/// It could not start.
pub fn router(file: &Path) -> Result<ExitCode, Error> {
    let loaded = load(file)?;
    let log = &loaded.config.logging;
    let format = match log.format {
        LogFormat::Text => telemetry::Format::Text,
        LogFormat::Json => telemetry::Format::Json,
    };
    let level = telemetry::init(format, log.level.as_str())?;
    for warning in &loaded.warnings {
        tracing::warn!(path = warning.path, line = warning.line, "{}", warning.message);
    }
    raise_file_limit();
    picture(&loaded.config);
    let runtime = runtime(&loaded.config).map_err(Error::Runtime)?;
    let ended = runtime.block_on(run(file, loaded.config, level));
    // Nobody waits for what is still at work: a look-up in a name service that is away can block a thread for minutes.
    runtime.shutdown_timeout(LEFT_BEHIND);
    ended
}

fn load(file: &Path) -> Result<Loaded, Error> {
    let name = file.display().to_string();
    let text = cli::config::read(file).map_err(|source| Error::Read {
        file: name.clone(),
        source,
    })?;
    continuum_config::parse(&text, &environment, BUILD).map_err(|error| {
        let lines: Vec<String> = error
            .problems
            .iter()
            .map(|problem| format!("{name}:{problem}"))
            .collect();
        Error::Config(lines.join("\n"))
    })
}

/// The process environment, for `${NAME}` in the configuration.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Every client, every pooled connection and every subscription is an open file, and the usual soft limit of 1,024
/// is for programs that still use `select`: it is raised to the hard limit.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    match setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    ) {
        Ok(()) => tracing::debug!(from = current, to = maximum, "raised the limit of open files"),
        Err(error) => tracing::warn!(%error, limit = current, "cannot raise the limit of open files"),
    }
}

/// What this process is about to be, in one line; what is missing for it was said in warnings.
fn picture(config: &Config) {
    let dynamo = &config.dynamo;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        threads = threads(config),
        backends = config.backends.len(),
        discovery = if dynamo.enabled {
            dynamo.discovery.source.as_str()
        } else {
            "off"
        },
        namespaces = ?if dynamo.enabled { dynamo.discovery.namespaces() } else { Vec::new() },
        pinning = BUILD.dynamo && dynamo.enabled && config.disaggregated(),
        fallback = config.disaggregated_serving.fallback_to_unified,
        "continuum-router starts"
    );
}

fn threads(config: &Config) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    config.server.threads.map_or(cores, usize::from)
}

/// One thread where there is one core: it then needs no locks between threads and wakes nobody.
fn runtime(config: &Config) -> std::io::Result<tokio::runtime::Runtime> {
    let threads = threads(config);
    let mut builder = if threads == 1 {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    builder.worker_threads(threads).enable_all().build()
}

/// A router that serves, and where.
pub struct Serving {
    /// What it serves with.
    pub app: Arc<App>,
    /// Takes new configurations over.
    pub reloader: Arc<Reloader>,
    /// Addresses for clients, in configured order.
    pub clients: Vec<String>,
    /// Address for operators.
    pub operators: String,
    /// Address for scrapers.
    pub scrapers: Option<String>,
}

/// Binds every listener, then starts what works in the background, then serves: a router that cannot listen does
/// nothing.
///
/// # Errors
/// See [`Error`].
pub async fn start(
    file: &Path,
    config: Config,
    level: LevelHandle,
    spawner: &Spawner,
) -> Result<Serving, Error> {
    let listeners = Listener::bind_all(&config.server).await?;
    let operators = Listener::bind(&config.admin.bind_address, None).await?;
    let scrapers = match &config.telemetry.metrics_bind_address {
        Some(address) => Some(Listener::bind(address, None).await?),
        None => None,
    };
    let app = App::start(config, spawner)?;
    let reloader = Reloader::start(file, app.clone(), level, spawner)?;
    let serving = Serving {
        app: app.clone(),
        reloader: reloader.clone(),
        clients: listeners.iter().map(Listener::address).collect(),
        operators: operators.address(),
        scrapers: scrapers.as_ref().map(Listener::address),
    };
    for listener in listeners {
        let app = app.clone();
        spawner.essential("server", |stop| async move {
            listener
                .run(move |request| proxy::handle(app.clone(), request), stop)
                .await;
            Ok(())
        });
    }
    #[cfg(feature = "dynamo")]
    {
        let (app, reloader) = (app.clone(), reloader.clone());
        spawner.essential("report to controllers", |stop| async move {
            stop.run_until_cancelled(crate::controllers::keep_report(app, reloader))
                .await;
            Ok(())
        });
    }
    admin::serve(operators, scrapers, app, reloader);
    Ok(serving)
}

async fn run(file: &Path, config: Config, level: LevelHandle) -> Result<ExitCode, Error> {
    // Before anybody can reach the listeners: a signal without a receiver kills at once.
    let signals = Signals::receive().map_err(Error::Runtime)?;
    let tasks = Tasks::new();
    let serving = start(file, config, level, &tasks.spawner()).await?;
    stop(tasks, &serving.app, signals).await
}

/// What asks the process to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn receive() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Waits for the signal, then lets the requests in flight finish; a second signal ends them.
async fn stop(tasks: Tasks, app: &Arc<App>, signals: Signals) -> Result<ExitCode, Error> {
    let signals = tokio::sync::Mutex::new(signals);
    let told = || async { signals.lock().await.next().await };
    // As it is when the stop comes: it may have been changed since the start.
    let grace = || app.live().config.server.graceful_period;
    let first = async {
        told().await;
        app.drain();
        tracing::info!(
            in_flight = app.in_flight.count(),
            grace = ?grace(),
            "draining: no new requests, those in flight may finish"
        );
    };
    let exit = tasks.run(first, grace, told()).await;
    if let Some(ended) = exit.first {
        tracing::error!(
            task = ended.name,
            why = %ended.how,
            "stopped, because a task ended that everything depends on"
        );
        return Ok(ExitCode::FAILURE);
    }
    let in_flight = app.in_flight.count();
    if exit.drained {
        tracing::info!("stopped");
        Ok(ExitCode::SUCCESS)
    } else if in_flight == 0 {
        // Nobody waited for an answer: what was still at work serves this process alone.
        tracing::info!("stopped in the middle of background work");
        Ok(ExitCode::SUCCESS)
    } else {
        tracing::warn!(in_flight, "stopped before every request had finished");
        Ok(ExitCode::FAILURE)
    }
}

//! A new configuration while the process runs: when the file changes, at SIGHUP, and when an operator asks.
//!
//! A file that cannot be used changes nothing; it is said once, counted, and shown to operators until a good one
//! comes. One that is good and cannot be followed, because a file that it names is not there, is tried again.

#[cfg(feature = "dynamo")]
mod newest;
mod watch_file;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use continuum_config::{Config, plan, plan::Class};
#[cfg(feature = "dynamo")]
use continuum_push::{ConfigId, Update};
use continuum_runtime::{tasks::Spawner, telemetry::LevelHandle};
use jiff::Timestamp;
use prometheus::{IntCounterVec, IntGauge, Opts};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Notify,
};

#[cfg(feature = "dynamo")]
use tokio::sync::watch;

#[cfg(feature = "dynamo")]
use self::newest::{File, Newest};
use crate::{
    app::App,
    cli::{self, BUILD},
    run,
};

/// Why reloads cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file's folder cannot be watched.
    #[error("cannot watch {folder} for changes of the configuration: {source}")]
    Watch {
        /// The folder.
        folder: String,
        /// Why.
        source: notify::Error,
    },
    /// SIGHUP cannot be received.
    #[error("cannot receive SIGHUP: {0}")]
    Signal(io::Error),
    /// A family of metrics was registered twice.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// What a reload came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// In force.
    Applied,
    /// Not usable; nothing has changed.
    Rejected,
    /// The same as before.
    Unchanged,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 3] = [Self::Applied, Self::Rejected, Self::Unchanged];

    /// The label value, and the word for operators.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Rejected => "rejected",
            Self::Unchanged => "unchanged",
        }
    }
}

/// The last reload.
#[derive(Clone, Debug)]
pub struct Report {
    /// What it came to.
    pub outcome: Outcome,
    /// When.
    pub at: Timestamp,
    /// Why it was rejected: `line:column: path: message` each.
    pub problems: Vec<String>,
    /// Changed fields.
    pub changed: Vec<&'static str>,
}

/// Takes new configurations over.
pub struct Reloader {
    file: PathBuf,
    app: Arc<App>,
    level: LevelHandle,
    /// The configuration that the process was started with: what a reload cannot change still has its values.
    at_start: Arc<Config>,
    last: Mutex<Last>,
    results: IntCounterVec,
    valid: IntGauge,
    #[cfg(feature = "dynamo")]
    versions: watch::Sender<Versions>,
}

/// Which configuration of the operator is in force, and which one could not be taken over.
#[cfg(feature = "dynamo")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// In force; `None` for a router that no operator started.
    pub in_force: Option<ConfigId>,
    /// The newest one, if it was rejected, and why.
    pub refused: Option<(ConfigId, String)>,
}

#[derive(Default)]
struct Last {
    /// What controllers sent. While it is newer than the file, it is the configuration, and the file is not.
    #[cfg(feature = "dynamo")]
    newest: Newest,
    /// The text of the file.
    text: Option<String>,
    /// The text that the last reload was about.
    judged: Option<String>,
    report: Option<Report>,
    /// The text was good and could not be followed none the less: what it names outside of itself, such as a
    /// certificate, may come later.
    waits: bool,
}

impl Last {
    /// Whether this is the rejection that was told last. `judged`: the text that that one was about.
    fn knows(&self, report: &Report, judged: Option<&str>) -> bool {
        self.judged.as_deref() == judged
            && self.report.as_ref().is_some_and(|before| {
                before.outcome == Outcome::Rejected
                    && report.outcome == Outcome::Rejected
                    && before.problems == report.problems
            })
    }
}

impl Reloader {
    /// Watches the file and SIGHUP from now on.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn start(
        file: &Path,
        app: Arc<App>,
        level: LevelHandle,
        spawner: &Spawner,
    ) -> Result<Arc<Self>, Error> {
        let results = IntCounterVec::new(
            Opts::new(
                "continuum_config_reloads_total",
                "Reloads of the configuration, by what they came to.",
            ),
            &["result"],
        )?;
        let valid = IntGauge::new(
            "continuum_config_valid",
            "1 while the configuration file is the one in force.",
        )?;
        app.registry.register(Box::new(results.clone()))?;
        app.registry.register(Box::new(valid.clone()))?;
        valid.set(1);
        for outcome in Outcome::ALL {
            let _zero = results.with_label_values(&[outcome.as_str()]);
        }
        let text = text_of(file).ok();
        let this = Arc::new(Self {
            file: file.to_owned(),
            at_start: app.live().config.clone(),
            last: Mutex::new(Last {
                text: text.clone(),
                ..Last::default()
            }),
            #[cfg(feature = "dynamo")]
            versions: watch::Sender::new(Versions {
                in_force: text.and_then(|text| id_of(&app.live().config, &text)),
                refused: None,
            }),
            app,
            level,
            results,
            valid,
        });
        let changed = Arc::new(Notify::new());
        let watcher = watch_file::start(file, changed.clone())?;
        let mut hangup = signal(SignalKind::hangup()).map_err(Error::Signal)?;
        let reloader = this.clone();
        spawner.essential("config reload", |stop| async move {
            let _watching = watcher;
            loop {
                tokio::select! {
                    () = stop.cancelled() => return Ok(()),
                    () = watch_file::settled(&changed) => aside(&reloader, Self::if_changed).await,
                    _ = hangup.recv() => aside(&reloader, |reloader| drop(reloader.reload())).await,
                }
            }
        });
        #[cfg(feature = "dynamo")]
        {
            let (reloader, mut updates) = (this.clone(), this.app.controllers.updates());
            spawner.essential("config of controllers", |stop| async move {
                loop {
                    let update = updates.borrow_and_update().clone();
                    if let Some(update) = update {
                        aside(&reloader, |reloader| reloader.take_sent(update)).await;
                    }
                    tokio::select! {
                        () = stop.cancelled() => return Ok(()),
                        changed = updates.changed() => changed?,
                    }
                }
            });
        }
        Ok(this)
    }

    /// Reads the file and takes it over, changed or not: certificates behind the same path may be new.
    pub fn reload(&self) -> Report {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.take(&mut last)
    }

    /// The last reload, if there was one.
    #[must_use]
    pub fn last(&self) -> Option<Report> {
        self.last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .report
            .clone()
    }

    /// Fields that differ from what the process was started with and that only a new process takes.
    #[must_use]
    pub fn restart_needed(&self) -> Vec<&'static str> {
        plan(&self.at_start, &self.app.live().config)
            .paths(Class::Process)
            .collect()
    }

    /// Which configuration of the operator is in force.
    #[cfg(feature = "dynamo")]
    #[must_use]
    pub fn versions(&self) -> watch::Receiver<Versions> {
        self.versions.subscribe()
    }

    /// Takes over what a controller sent; the file stays in force where it is newer.
    #[cfg(feature = "dynamo")]
    fn take_sent(&self, update: Arc<Update>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.newest.came(update) {
            self.take(&mut last);
        }
    }

    fn if_changed(&self) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if text_of(&self.file).ok() != last.text {
            self.take(&mut last);
        } else if last.waits {
            self.take_again(&mut last);
        }
    }

    /// Tries a text once more that could not be followed. While nothing about that changes, nothing is said or counted.
    fn take_again(&self, last: &mut Last) {
        let judged = last.judged.clone();
        let (report, id) = self.attempt(last);
        if !last.knows(&report, judged.as_deref()) {
            self.conclude(last, report, id, judged.as_deref());
        }
    }

    fn take(&self, last: &mut Last) -> Report {
        let judged = last.judged.clone();
        let (report, id) = self.attempt(last);
        self.conclude(last, report, id, judged.as_deref())
    }

    /// Judges what is to be in force, and follows it.
    fn attempt(&self, last: &mut Last) -> (Report, Option<ConfigId>) {
        let candidate = self.candidate(last);
        last.judged = candidate.as_ref().ok().map(|candidate| candidate.text.clone());
        last.waits = false;
        match candidate {
            Ok(Candidate {
                id,
                config: Ok(config),
                ..
            }) => {
                let report = self.apply(config);
                last.waits = report.outcome == Outcome::Rejected;
                (report, id)
            }
            Ok(Candidate {
                id,
                config: Err(problems),
                ..
            }) => (rejected(problems), id),
            Err(unreadable) => (rejected(vec![unreadable.to_string()]), None),
        }
    }

    /// Tells everybody. `judged`: the text that the reload before was about.
    fn conclude(
        &self,
        last: &mut Last,
        report: Report,
        _id: Option<ConfigId>,
        judged: Option<&str>,
    ) -> Report {
        #[cfg(feature = "dynamo")]
        self.settle(_id, &report);
        match report.outcome {
            Outcome::Rejected if !last.knows(&report, judged) => {
                tracing::error!(problems = ?report.problems, "the new configuration is rejected, the running one stays");
            }
            Outcome::Applied => {
                tracing::info!(changed = ?report.changed, "the new configuration is in force")
            }
            Outcome::Rejected | Outcome::Unchanged => {}
        }
        self.results.with_label_values(&[report.outcome.as_str()]).inc();
        self.valid.set(i64::from(report.outcome != Outcome::Rejected));
        last.report = Some(report.clone());
        report
    }

    /// What is to be in force: what the file says, or what controllers sent where that is at least as new.
    fn candidate(&self, last: &mut Last) -> io::Result<Candidate> {
        let file = text_of(&self.file);
        last.text = file.as_ref().ok().cloned();
        let file = file.map(|text| Candidate::of(text, None));
        #[cfg(feature = "dynamo")]
        if let Some(sent) = last.newest.over(file.as_ref().ok().and_then(Candidate::file)) {
            return Ok(Candidate::of(sent.text.clone(), Some(sent.id)));
        }
        file
    }

    /// Remembers what the operator's controllers want to know of a reload.
    #[cfg(feature = "dynamo")]
    fn settle(&self, id: Option<ConfigId>, report: &Report) {
        self.versions.send_modify(|versions| match report.outcome {
            Outcome::Applied | Outcome::Unchanged => {
                *versions = Versions {
                    in_force: id,
                    refused: None,
                };
            }
            Outcome::Rejected => versions.refused = id.map(|id| (id, report.problems.join("\n"))),
        });
    }

    fn apply(&self, config: Config) -> Report {
        let reload = plan(&self.app.live().config, &config);
        let at = Timestamp::now();
        if reload.is_nothing() {
            let problems = match self.app.backends.apply(&config) {
                Ok(()) => {
                    return Report {
                        outcome: Outcome::Unchanged,
                        at,
                        problems: Vec::new(),
                        changed: Vec::new(),
                    };
                }
                Err(error) => vec![error.to_string()],
            };
            return rejected(problems);
        }
        let level = config.logging.level;
        if let Err(error) = self.app.apply(config) {
            return rejected(vec![error.to_string()]);
        }
        if let Err(error) = self.level.set(level.as_str()) {
            tracing::warn!(%error, "the log level stays as it was");
        }
        let needs_restart: Vec<_> = reload.paths(Class::Process).collect();
        if !needs_restart.is_empty() {
            tracing::warn!(fields = ?needs_restart, "these fields take effect at the next start only");
        }
        Report {
            outcome: Outcome::Applied,
            at,
            problems: Vec::new(),
            changed: reload.changed.iter().map(|(path, _)| *path).collect(),
        }
    }
}

/// A text, and what it is.
struct Candidate {
    text: String,
    /// What names it; `None` for a router that no operator started.
    id: Option<ConfigId>,
    config: Result<Config, Vec<String>>,
}

impl Candidate {
    /// Judges a text. `sent`: what names it, where controllers sent it.
    fn of(text: String, sent: Option<ConfigId>) -> Self {
        let config = match continuum_config::parse(&text, &run::environment, BUILD) {
            // It would be the last thing that this process heard from them.
            Ok(loaded) if sent.is_some() && loaded.config.controller.is_none() => {
                Err(vec!["the section controller is missing".to_owned()])
            }
            Ok(loaded) => Ok(loaded.config),
            Err(error) => Err(error.problems.iter().map(ToString::to_string).collect()),
        };
        let id = sent.or_else(|| id_of(config.as_ref().ok()?, &text));
        Self { text, id, config }
    }

    /// What a file with this text says of itself.
    #[cfg(feature = "dynamo")]
    fn file(&self) -> Option<File<'_>> {
        let controller = self.config.as_ref().ok()?.controller.as_ref()?;
        Some(File {
            uid: controller.uid.as_deref(),
            generation: controller.generation,
        })
    }
}

#[cfg(not(feature = "dynamo"))]
type ConfigId = std::convert::Infallible;

/// What names the configuration of an operator.
#[cfg(feature = "dynamo")]
fn id_of(config: &Config, text: &str) -> Option<ConfigId> {
    let controller = config.controller.as_ref()?;
    Some(ConfigId::of(controller.generation, text))
}

#[cfg(not(feature = "dynamo"))]
const fn id_of(_: &Config, _: &str) -> Option<ConfigId> {
    None
}

/// The text of the file, if it is one: to open anything else can block for good, and with it those whom this thread
/// serves.
fn text_of(file: &Path) -> io::Result<String> {
    if !fs::metadata(file)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is not a file"));
    }
    cli::config::read(file)
}

/// Reads and checks beside the threads that relay: files may be slow, and certificates take time.
async fn aside(reloader: &Arc<Reloader>, what: impl FnOnce(&Reloader) + Send + 'static) {
    let reloader = reloader.clone();
    // It cannot fail but by a panic, which ends the process.
    let _done = tokio::task::spawn_blocking(move || what(&reloader)).await;
}

fn rejected(problems: Vec<String>) -> Report {
    Report {
        outcome: Outcome::Rejected,
        at: Timestamp::now(),
        problems,
        changed: Vec::new(),
    }
}

//! `artifacts list`, `artifacts fetch`: what a fleet offers, so that pinning takes a review and a line to paste.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use continuum_config::{Config, Environment};
use continuum_discovery::Discovery;
use continuum_fleet::view::FleetView;
use continuum_prompt::{
    Hub, Settings,
    artifact::{Checksum, Form},
    offers::{self, Model},
};
use continuum_runtime::tasks::Tasks;
use prometheus::Registry;
use tokio::{sync::watch, time::timeout};

use super::{ArtifactsCommand, BUILD, FleetArgs};
use crate::controllers::Controllers;

/// How long background work gets to end.
const GRACE: Duration = Duration::from_secs(5);

/// Longest part of a model's name in the name of a directory, in bytes.
const MAX_DIR_NAME_BYTES: usize = 120;

/// Why the fleet's files cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration cannot be read.
    #[error("{}: cannot be read: {source}", file.display())]
    Read {
        /// Its file.
        file: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// The configuration has errors.
    #[error("{}: {problem}", file.display())]
    Config {
        /// Its file.
        file: PathBuf,
        /// The first of them.
        problem: String,
    },
    /// There is no fleet to look at.
    #[error("{}: dynamo.enabled is off, there is no fleet to look at", .0.display())]
    NoFleet(PathBuf),
    /// The fleet could not be listed.
    #[error("the fleet was not listed within {seconds} seconds{why}")]
    NotListed {
        /// How long it was waited for.
        seconds: u64,
        /// What discovery said last.
        why: String,
    },
    /// Metrics, or the runtime.
    #[error("{0}")]
    Start(String),
    /// Output, or a file that was to be saved.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Does a command: its result on `out`, complaints on `err`.
///
/// # Errors
/// See [`Error`]. A file that could not be had is no error here: the exit code is 1 then.
pub fn run(
    command: &ArtifactsCommand,
    environment: Environment<'_>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<ExitCode, Error> {
    let (ArtifactsCommand::List { fleet } | ArtifactsCommand::Fetch { fleet, .. }) = command;
    let config = load(&fleet.config, environment)?;
    let settings = Settings::new(&config.dynamo.kv, Hub::of(environment));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Error::Start(error.to_string()))?;
    runtime.block_on(async {
        let view = find(config, fleet).await?;
        let models: Vec<(String, Model)> = offers::of(&view)
            .into_iter()
            .map(|(name, model)| (name.to_string(), model))
            .collect();
        match command {
            ArtifactsCommand::List { .. } => {
                list(&models, &settings, out)?;
                Ok(ExitCode::SUCCESS)
            }
            ArtifactsCommand::Fetch { model, to, .. } => {
                let wanted: Vec<_> = models
                    .into_iter()
                    .filter(|(name, _)| model.as_ref().is_none_or(|model| model == name))
                    .collect();
                if wanted.is_empty() {
                    writeln!(err, "the fleet offers no such model")?;
                    return Ok(ExitCode::FAILURE);
                }
                fetch(&wanted, &settings, to, out, err).await
            }
        }
    })
}

fn load(file: &Path, environment: Environment<'_>) -> Result<Config, Error> {
    let text = super::config::read(file).map_err(|source| Error::Read {
        file: file.to_owned(),
        source,
    })?;
    let loaded = continuum_config::parse(&text, environment, BUILD).map_err(|error| Error::Config {
        file: file.to_owned(),
        problem: error
            .problems
            .first()
            .map(ToString::to_string)
            .unwrap_or_default(),
    })?;
    let mut config = loaded.config;
    if !config.dynamo.enabled {
        return Err(Error::NoFleet(file.to_owned()));
    }
    // A view that a router keeps there is not this command's to touch.
    config.dynamo.state_dir = None;
    Ok(config)
}

/// The fleet, once it has been listed.
async fn find(config: Config, args: &FleetArgs) -> Result<Arc<FleetView>, Error> {
    let (tasks, registry) = (Tasks::new(), Registry::new());
    let started = |error: prometheus::Error| Error::Start(error.to_string());
    let (_sender, config) = watch::channel(Arc::new(config));
    let first = config.borrow().clone();
    let (_controllers, pushed) = Controllers::start(&tasks.spawner(), &first, &registry).map_err(started)?;
    let discovery =
        Discovery::spawn_with(&tasks.spawner(), config, &registry, Some(pushed)).map_err(started)?;
    let status = discovery.status();
    let listed = timeout(
        Duration::from_secs(args.wait),
        status.wait_for(|status| status.first_sync),
    )
    .await;
    let view = discovery.fleet().load();
    tasks.drain(GRACE, std::future::pending()).await;
    if listed.is_err() {
        let why = status
            .load()
            .last_error
            .as_ref()
            .map(|why| format!(": {why}"))
            .unwrap_or_default();
        return Err(Error::NotListed {
            seconds: args.wait,
            why,
        });
    }
    Ok(view)
}

fn list(models: &[(String, Model)], settings: &Settings, out: &mut dyn Write) -> io::Result<()> {
    let mut rows =
        vec![["MODEL", "SLOT", "URI", "BYTES", "PINNED", "WORKERS", "CHECKSUM"].map(str::to_owned)];
    for (name, model) in models {
        for ((slot, _, checksum), offered) in &model.files {
            rows.push([
                shown(name),
                slot.as_str().to_owned(),
                offered.kinds().join(","),
                offered
                    .size()
                    .map_or_else(|| "-".to_owned(), |size| size.to_string()),
                if settings.pinned.contains(checksum) {
                    "yes"
                } else {
                    "no"
                }
                .to_owned(),
                format!("{}/{}", offered.workers, model.workers),
                checksum.to_string(),
            ]);
        }
    }
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..6).map(width).collect();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths.iter().chain([&0])) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    for (name, model) in models {
        for (why, workers) in &model.unusable {
            writeln!(
                out,
                "{}: {workers} of {} workers: {why}",
                shown(name),
                model.workers
            )?;
        }
        if disagree(model) {
            writeln!(
                out,
                "{}: its workers do not agree, and are chosen by load until they do",
                shown(name)
            )?;
        }
    }
    Ok(())
}

fn disagree(model: &Model) -> bool {
    model
        .files
        .values()
        .any(|offered| offered.workers != model.workers)
}

async fn fetch(
    models: &[(String, Model)],
    settings: &Settings,
    to: &Path,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<ExitCode, Error> {
    let mut lines = Vec::new();
    let mut all = true;
    for (name, model) in models {
        for ((slot, form, checksum), offered) in &model.files {
            let several = model.files.keys().filter(|(other, ..)| other == slot).count() > 1;
            let dir = to.join(dir_name(name));
            match offered.content(settings).await {
                Ok(content) => {
                    let path = save(&dir, &file_name(*form, *checksum, several), *checksum, &content)?;
                    lines.push((*checksum, format!("{} {}", shown(name), slot.as_str())));
                    writeln!(err, "{}: {} bytes", path.display(), content.len())?;
                }
                Err(error) => {
                    all = false;
                    writeln!(err, "{}: {error}", shown(name))?;
                }
            }
        }
        for (why, workers) in &model.unusable {
            writeln!(
                err,
                "{}: {workers} of {} workers: {why}",
                shown(name),
                model.workers
            )?;
        }
    }
    pins(&mut lines, settings, out)?;
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Saves a file, and tells where. A file that is there is never written over: names of models that the fleet chose may
/// lead to one path, and then the file that is reviewed would not be the one whose checksum is pasted. The second one is
/// called by its whole checksum.
fn save(dir: &Path, name: &str, checksum: Checksum, content: &[u8]) -> io::Result<PathBuf> {
    std::fs::create_dir_all(dir)?;
    let plain = dir.join(name);
    let by_content = dir.join(format!("{}.{name}", checksum.hex()));
    for path in [plain, by_content.clone()] {
        match File::create_new(&path) {
            Ok(mut file) => {
                file.write_all(content)?;
                return Ok(path);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if holds(&path, content)? {
                    return Ok(path);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!("{}: is there already with another content", by_content.display()),
    ))
}

/// Whether a path is a file with this content.
fn holds(path: &Path, content: &[u8]) -> io::Result<bool> {
    let about = std::fs::symlink_metadata(path)?;
    let length = u64::try_from(content.len()).unwrap_or(u64::MAX);
    Ok(about.is_file() && about.len() == length && std::fs::read(path)? == content)
}

/// What to paste; each checksum once, with all that it is for.
fn pins(lines: &mut Vec<(Checksum, String)>, settings: &Settings, out: &mut dyn Write) -> io::Result<()> {
    lines.retain(|(checksum, _)| !settings.pinned.contains(checksum));
    if lines.is_empty() {
        return writeln!(out, "# everything that was saved is pinned already");
    }
    lines.sort();
    writeln!(out, "# review the files, then add to dynamo.kv.pinned_artifacts:")?;
    for same in lines.chunk_by(|(one, _), (other, _)| one == other) {
        let uses: Vec<&str> = same.iter().map(|(_, what)| what.as_str()).collect();
        if let Some((checksum, _)) = same.first() {
            writeln!(out, "- \"{checksum}\"  # {}", uses.join(", "))?;
        }
    }
    Ok(())
}

/// A model's name on a terminal and in a comment: the fleet chose it.
fn shown(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

fn dir_name(model: &str) -> String {
    let plain: String = model
        .chars()
        .flat_map(|c| match c {
            '/' => vec!['-', '-'],
            c if c.is_ascii_alphanumeric() || "-_.".contains(c) => vec![c],
            _ => vec!['_'],
        })
        .take(MAX_DIR_NAME_BYTES)
        .collect();
    if plain.starts_with('.') || plain.is_empty() {
        format!("_{plain}")
    } else {
        plain
    }
}

fn file_name(form: Form, checksum: Checksum, several: bool) -> String {
    let name = form.file_name();
    if several {
        format!("{}.{name}", checksum.hex().chars().take(8).collect::<String>())
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_fleet_chose_stay_in_their_directory_and_on_their_line() {
        for (model, expected) in [
            ("Qwen/Qwen3-0.6B", "Qwen--Qwen3-0.6B"),
            ("../../etc", "_..--..--etc"),
            ("..", "_.."),
            ("", "_"),
            ("a b\nc", "a_b_c"),
            ("한글", "__"),
        ] {
            assert_eq!(dir_name(model), expected, "{model:?}");
        }
        assert_eq!(dir_name(&"x".repeat(1000)).len(), MAX_DIR_NAME_BYTES);
        assert_eq!(
            shown("a\n- \"blake3:evil\"\u{1b}[1m"),
            "a\u{fffd}- \"blake3:evil\"\u{fffd}[1m"
        );
    }

    /// Two models of one directory name, each with a tokenizer of its own: both are there to be reviewed.
    #[test]
    fn no_file_is_written_over_by_another() {
        let to = tempfile::tempdir().unwrap();
        let dirs = ["Qwen/Qwen3-0.6B", "Qwen--Qwen3-0.6B"].map(|model| to.path().join(dir_name(model)));
        assert_eq!(dirs[0], dirs[1]);
        let save = |content: &str| {
            let checksum = Checksum::of(content.as_bytes());
            save(&dirs[0], "tokenizer.json", checksum, content.as_bytes())
        };
        let (one, other) = (save("reviewed").unwrap(), save("another").unwrap());
        assert_ne!(one, other);
        assert_eq!(one, dirs[0].join("tokenizer.json"));
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!((read(&one), read(&other)), ("reviewed".into(), "another".into()));
        // Asked again, they are where they were.
        assert_eq!(
            (save("another").unwrap(), save("reviewed").unwrap()),
            (other.clone(), one.clone())
        );
        std::fs::write(&other, "changed").unwrap();
        let error = save("another").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!((read(&one), read(&other)), ("reviewed".into(), "changed".into()));
    }

    #[test]
    fn each_checksum_is_to_be_pasted_once_and_only_where_it_is_missing() {
        let (one, two) = (Checksum::of(b"1"), Checksum::of(b"2"));
        let mut settings = Settings::new(&continuum_config::model::Kv::default(), Hub::default());
        settings.pinned.insert(two);
        let mut lines = vec![
            (one, "b tokenizer".to_owned()),
            (two, "a x".to_owned()),
            (one, "a tokenizer".to_owned()),
        ];
        let mut out = Vec::new();
        pins(&mut lines, &settings, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text.lines().nth(1).unwrap(),
            format!("- \"{one}\"  # a tokenizer, b tokenizer")
        );
        assert_eq!(text.lines().count(), 2);
        settings.pinned.insert(one);
        let mut out = Vec::new();
        pins(&mut lines, &settings, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap().lines().count(), 1);
    }
}

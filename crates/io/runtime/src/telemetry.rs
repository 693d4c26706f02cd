//! The log of a process: text or JSON lines on stderr, with a level that can change while it runs.

use std::str::FromStr;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::{
    EnvFilter, Registry, fmt, layer::SubscriberExt as _, reload, util::SubscriberInitExt as _,
};

/// The HTTP/2 library warns of what a peer does wrong: each hostile client would write a line for each connection. The
/// Kubernetes client tells each request and each watch that fails, and whoever made it does so too, once.
const NOT_TOLD: [&str; 3] = [
    "h2=error",
    "kube_client::client::builder=off",
    "kube_runtime::watcher=error",
];

/// How a log line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Why the log could not be set up or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The level is neither a word nor a list of `target=level`.
    #[error(
        "`{level}` is not a log level; use error, warn, info, debug, trace, or a list such as `info,continuum_discovery=debug`"
    )]
    Level {
        /// As given.
        level: String,
    },
    /// The process has a log already.
    #[error("a log has been set up before in this process")]
    Twice,
    /// The log is gone.
    #[error("the log has been shut down")]
    Gone,
}

/// Changes the level of the running log.
#[derive(Clone, Debug)]
pub struct LevelHandle(reload::Handle<EnvFilter, Registry>);

impl LevelHandle {
    /// Uses `level` from now on; an error leaves the level as it was.
    ///
    /// # Errors
    /// [`Error::Level`] when it cannot be read.
    pub fn set(&self, level: &str) -> Result<(), Error> {
        self.0.reload(filter(level)?).map_err(|_gone| Error::Gone)
    }
}

/// Sets up the log of this process.
///
/// # Errors
/// [`Error::Level`] when the level cannot be read, [`Error::Twice`] at a second call.
pub fn init(format: Format, level: &str) -> Result<LevelHandle, Error> {
    let (filter, handle) = reload::Layer::new(filter(level)?);
    let lines = fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        Format::Text => {
            let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
            registry.with(lines.with_ansi(ansi)).try_init()
        }
        Format::Json => registry
            .with(lines.json().flatten_event(true).with_span_list(false))
            .try_init(),
    }
    .map_err(|_set| Error::Twice)?;
    Ok(LevelHandle(handle))
}

/// Whether `level` can be used: for the validation of a config.
#[must_use]
pub fn is_level(level: &str) -> bool {
    filter(level).is_ok()
}

fn filter(level: &str) -> Result<EnvFilter, Error> {
    let refused = || Error::Level {
        level: level.to_owned(),
    };
    // `EnvFilter` reads an unknown bare word as a target: a misspelt level would silence the log.
    let parts: Vec<&str> = level.split(',').map(str::trim).collect();
    for part in &parts {
        let word = part.rsplit_once('=').map_or(*part, |(_target, word)| word);
        if word.is_empty() || LevelFilter::from_str(word).is_err() {
            return Err(refused());
        }
    }
    let mut level = parts.join(",");
    for quiet in NOT_TOLD {
        let library = quiet.split([':', '=']).next().unwrap_or_default();
        let asked = |part: &str| part.split([':', '=']).next() == Some(library);
        if level != "off" && !parts.iter().any(|part| asked(part)) {
            level.push(',');
            level.push_str(quiet);
        }
    }
    EnvFilter::from_str(&level).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_words_or_lists_of_targets() {
        for good in [
            "info",
            "debug",
            "off",
            "info,continuum_discovery=debug",
            "warn, hyper=error",
        ] {
            assert!(is_level(good), "{good}");
        }
        for bad in ["", "verbose", "info,", "info,continuum_discovery", "a=b"] {
            assert!(!is_level(bad), "{bad}");
        }
    }

    #[test]
    fn the_level_changes_while_the_log_runs() {
        let handle = init(Format::Json, "warn").unwrap();
        assert!(!tracing::enabled!(tracing::Level::INFO));
        // Clients write no lines through libraries, unless that is asked for.
        assert!(!tracing::enabled!(target: "h2::proto", tracing::Level::WARN));
        assert!(!tracing::enabled!(target: "kube_client::client::builder", tracing::Level::ERROR));
        assert!(tracing::enabled!(target: "kube_client::client::auth", tracing::Level::ERROR));
        handle.set("warn,kube_client=info").unwrap();
        assert!(tracing::enabled!(target: "kube_client::client::builder", tracing::Level::ERROR));
        handle.set("warn,h2=trace").unwrap();
        assert!(tracing::enabled!(target: "h2::proto", tracing::Level::WARN));
        handle.set("debug").unwrap();
        assert!(tracing::enabled!(tracing::Level::DEBUG));
        assert!(matches!(handle.set("loud"), Err(Error::Level { .. })));
        assert!(tracing::enabled!(tracing::Level::DEBUG));
        assert!(matches!(init(Format::Text, "info"), Err(Error::Twice)));
    }
}

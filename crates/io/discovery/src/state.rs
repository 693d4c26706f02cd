//! The last view kept on disk, so that a router can start while its source is down.
//!
//! Raw records are kept, not the view: what a newer version of this router makes of them may differ. The file is
//! written beside itself and renamed into place, at most every few seconds, never above a fixed size, and readable
//! by its owner alone, since records hold internal addresses.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead as _, BufReader, ErrorKind, Read as _},
    path::PathBuf,
    sync::Arc,
};

use continuum_fleet::{Change, ids::Graph};
use continuum_runtime::files;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::{
    feed::SharedFeed,
    limits::{STATE_BYTES, STATE_INTERVAL},
    source::Entries,
};

/// The file in the state directory.
const FILE: &str = "fleet.jsonl";
/// First line of the file, before the scope.
const FORMAT: &str = "continuum-fleet-records/1";

/// The records behind the present view. Until a full list of its namespaces has come it holds none and writes none: what
/// a watch tells before would replace a whole fleet on disk by a piece of one.
#[derive(Debug)]
pub(crate) struct Mirror {
    keep: Keep,
    listed: bool,
    records: BTreeMap<Arc<str>, Arc<[u8]>>,
    bytes: usize,
    dirty: bool,
    full: bool,
}

/// Where records are kept and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keep {
    /// The directory.
    pub(crate) dir: PathBuf,
    /// Source, place and namespaces in words: records of another scope are not used.
    pub(crate) scope: String,
    /// The Dynamo namespaces of the scope.
    pub(crate) namespaces: Vec<Graph>,
}

type Records = Vec<(Arc<str>, Arc<[u8]>)>;

impl Mirror {
    pub(crate) const fn new(keep: Keep) -> Self {
        Self {
            keep,
            listed: false,
            records: BTreeMap::new(),
            bytes: 0,
            dirty: false,
            full: false,
        }
    }

    /// A full list of these namespaces.
    pub(crate) fn reset(&mut self, entries: Entries, names: &[Graph]) {
        if !self.keep.namespaces.iter().all(|name| names.contains(name)) {
            // It began before others were wanted; the next one looks for all of them.
            return;
        }
        self.listed = true;
        self.records.clear();
        self.bytes = 0;
        self.full = false;
        for (key, value) in entries {
            self.put(key.into(), value.into());
        }
        self.dirty = true;
    }

    /// One change.
    pub(crate) fn apply(&mut self, change: &Change) {
        if !self.listed {
            return;
        }
        match change {
            Change::Put { key, value } => self.put(key.as_str().into(), value.as_slice().into()),
            Change::Delete { key } => {
                if let Some(value) = self.records.remove(key.as_str()) {
                    self.bytes = self.bytes.saturating_sub(weight(key, &value));
                }
            }
        }
        self.dirty = true;
    }

    fn put(&mut self, key: Arc<str>, value: Arc<[u8]>) {
        if let Some(old) = self.records.remove(&key) {
            self.bytes = self.bytes.saturating_sub(weight(&key, &old));
        }
        let weight = weight(&key, &value);
        if self.bytes.saturating_add(weight) > STATE_BYTES {
            if !self.full {
                tracing::warn!(
                    limit = STATE_BYTES,
                    "the fleet is larger than the kept state; the rest is not kept"
                );
            }
            self.full = true;
            return;
        }
        self.bytes += weight;
        self.records.insert(key, value);
    }

    /// What to write, if anything changed since the last time.
    fn take(&mut self) -> Option<(Keep, Records)> {
        if !std::mem::take(&mut self.dirty) {
            return None;
        }
        Some((
            self.keep.clone(),
            self.records
                .iter()
                .map(|(k, v)| (Arc::clone(k), Arc::clone(v)))
                .collect(),
        ))
    }
}

/// Bytes of a record in the file, without escapes.
const fn weight(key: &str, value: &[u8]) -> usize {
    key.len().saturating_add(value.len()).saturating_add(8)
}

/// Writes the mirror of `feed` whenever it has changed, until `stop`, and then once more.
pub(crate) async fn keep(feed: SharedFeed, stop: CancellationToken) {
    let mut tick = interval(STATE_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.reset();
    let mut failing = false;
    loop {
        let last = tokio::select! {
            biased;
            () = stop.cancelled() => true,
            _ = tick.tick() => false,
        };
        let taken = feed.lock().mirror().and_then(Mirror::take);
        if let Some((keep, records)) = taken {
            let dir = keep.dir.clone();
            let written = tokio::task::spawn_blocking(move || write(&keep, &records)).await;
            let error = match written {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_lost) => Some("the writer was lost".to_owned()),
            };
            if let Some(error) = &error
                && !failing
            {
                tracing::warn!(dir = %dir.display(), error, "cannot keep the fleet's state");
            }
            failing = error.is_some();
        }
        if last {
            return;
        }
    }
}

/// Reads kept records; `None` when there are none for this scope or they cannot be used, which is logged.
pub(crate) async fn load(keep: Keep) -> Option<Entries> {
    let dir = keep.dir.clone();
    let read = tokio::task::spawn_blocking(move || read(&keep)).await;
    match read {
        Ok(Ok(entries)) => entries,
        Ok(Err(error)) => {
            tracing::warn!(dir = %dir.display(), %error, "the kept state of the fleet cannot be used");
            None
        }
        Err(_lost) => None,
    }
}

fn write(keep: &Keep, records: &Records) -> io::Result<()> {
    files::replace(&keep.dir, FILE, |file| {
        line(file, &(FORMAT, &keep.scope, records.len()))?;
        for (key, value) in records {
            // A value that is no text is no record either: the reducer has refused it.
            if let Ok(value) = std::str::from_utf8(value) {
                line(file, &(key, value))?;
            }
        }
        Ok(())
    })
}

fn line(file: &mut impl io::Write, value: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *file, value)?;
    file.write_all(b"\n")
}

fn read(keep: &Keep) -> io::Result<Option<Entries>> {
    let file = match File::open(keep.dir.join(FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // Escapes can double a text; nothing that we wrote is larger.
    let most = u64::try_from(STATE_BYTES).unwrap_or(u64::MAX).saturating_mul(2);
    if file.metadata()?.len() > most {
        return Err(io::Error::new(
            ErrorKind::FileTooLarge,
            "larger than what is ever written",
        ));
    }
    let mut lines = BufReader::new(file.take(most)).lines();
    let header = lines.next().transpose()?.unwrap_or_default();
    let (format, scope, count): (String, String, usize) = serde_json::from_str(&header)?;
    if format != FORMAT || scope != keep.scope {
        return Ok(None);
    }
    let mut entries = Vec::new();
    for line in lines {
        let (key, value): (String, String) = serde_json::from_str(&line?)?;
        entries.push((key, value.into_bytes()));
    }
    if entries.len() > count {
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            "it holds more records than it says",
        ));
    }
    Ok(Some(entries))
}

#[cfg(test)]
mod tests;

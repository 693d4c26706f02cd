//! Dynamo's file store: one file per record, live while its writer touches it.
//!
//! The layout is `<root>/v1/<bucket>/<percent-encoded rest of the key>`. Writers touch their files every few
//! seconds; any Dynamo process deletes the expired. We only read, so an expired file counts as deleted while it
//! lies there, and as put when it is touched again.

mod scan;

use std::path::PathBuf;

use tokio::{
    task::JoinHandle,
    time::{Interval, MissedTickBehavior, interval},
};

use self::scan::Scanner;
use crate::{
    error::Error,
    limits::{FILE_POLL, FILE_TTL},
    source::{Batch, Lost, Seed, Source, Watch},
};

/// The file source.
#[derive(Clone, Debug)]
pub struct FileStore {
    root: PathBuf,
    record_bytes: u64,
}

impl FileStore {
    /// Reads the store at `root` (the workers' `DYN_FILE_KV`), records up to `record_bytes`.
    #[must_use]
    pub const fn new(root: PathBuf, record_bytes: u64) -> Self {
        Self { root, record_bytes }
    }
}

impl Source for FileStore {
    type Watch = FileWatch;

    async fn open(&mut self) -> Result<(Seed, FileWatch), Error> {
        let mut watch = FileWatch::new(Scanner::new(self.root.clone(), FILE_TTL, self.record_bytes));
        let batch = watch.scan().await?;
        let entries = batch
            .changes
            .into_iter()
            .filter_map(|change| match change {
                continuum_fleet::Change::Put { key, value } => Some((key, value)),
                continuum_fleet::Change::Delete { .. } => None,
            })
            .collect();
        Ok((
            Seed {
                entries,
                lost: batch.lost,
                ..Seed::default()
            },
            watch,
        ))
    }
}

/// Polls the store.
#[derive(Debug)]
pub struct FileWatch {
    tick: Interval,
    /// At rest here, or busy in `scan`.
    scanner: Option<Scanner>,
    busy: Option<JoinHandle<(Scanner, Result<Batch, Error>)>>,
}

impl FileWatch {
    fn new(scanner: Scanner) -> Self {
        let mut tick = interval(FILE_POLL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick.reset();
        Self {
            tick,
            scanner: Some(scanner),
            busy: None,
        }
    }

    /// One look at the store, off the async threads. Cancel-safe: the next call takes up the same look.
    async fn scan(&mut self) -> Result<Batch, Error> {
        if let Some(mut scanner) = self.scanner.take() {
            self.busy = Some(tokio::task::spawn_blocking(move || {
                let batch = scanner.scan(std::time::SystemTime::now());
                (scanner, batch)
            }));
        }
        let Some(busy) = self.busy.as_mut() else {
            return Err(Error::Closed {
                why: "the scan of the file store was lost".into(),
            });
        };
        let ended = busy.await;
        self.busy = None;
        let (scanner, batch) = ended.map_err(|_lost| Error::Closed {
            why: "the scan of the file store was lost".into(),
        })?;
        self.scanner = Some(scanner);
        batch
    }
}

impl Watch for FileWatch {
    async fn next(&mut self) -> Result<Batch, Error> {
        loop {
            if self.busy.is_none() {
                self.tick.tick().await;
            }
            let batch = self.scan().await?;
            if !batch.changes.is_empty() || batch.lost != Lost::default() {
                return Ok(batch);
            }
        }
    }
}

#[cfg(test)]
mod tests;

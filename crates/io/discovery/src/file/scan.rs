//! One look at a file store, compared with the look before. Blocking; the time is an argument.

use std::{
    collections::BTreeMap,
    fs::{self, File, Metadata},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, ErrorKind, Read as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use continuum_fleet::{Change, keys::Bucket};
use percent_encoding::percent_decode_str;

use crate::{
    error::Error,
    limits::{FILE_MAX_ENTRIES, MAX_SEED_BYTES},
    source::{Batch, Lost},
};

/// Names that writers use before they rename a finished record into place.
const UNFINISHED: &str = ".tmp_";

/// What is known of the store.
#[derive(Debug)]
pub(super) struct Scanner {
    root: PathBuf,
    ttl: Duration,
    record_bytes: u64,
    known: BTreeMap<String, Known>,
    /// Losses of the look before: a lasting one is told once.
    lost: Lost,
}

/// A live record.
#[derive(Clone, Copy, Debug)]
struct Known {
    touched: SystemTime,
    length: u64,
    content: u64,
}

/// State of one look.
struct Look<'a> {
    before: &'a BTreeMap<String, Known>,
    live: BTreeMap<String, Known>,
    batch: Batch,
    bytes: usize,
}

impl Scanner {
    pub(super) const fn new(root: PathBuf, ttl: Duration, record_bytes: u64) -> Self {
        Self {
            root,
            ttl,
            record_bytes,
            known: BTreeMap::new(),
            lost: Lost {
                malformed: 0,
                over_capacity: 0,
            },
        }
    }

    /// Changes since the look before. An error leaves what is known as it was.
    pub(super) fn scan(&mut self, now: SystemTime) -> Result<Batch, Error> {
        if !self.root.is_dir() {
            return Err(Error::Store {
                path: self.root.clone(),
                why: "there is no such directory".into(),
            });
        }
        let mut look = Look {
            before: &self.known,
            live: BTreeMap::new(),
            batch: Batch::default(),
            bytes: 0,
        };
        for bucket in Bucket::ALL {
            let folder = self.root.join(bucket.as_str());
            self.scan_bucket(bucket, &folder, now, &mut look)
                .map_err(|error| Error::Store {
                    path: folder,
                    why: error.to_string(),
                })?;
        }
        let Look { live, mut batch, .. } = look;
        for key in self.known.keys().filter(|key| !live.contains_key(*key)) {
            batch.changes.push(Change::Delete { key: key.clone() });
        }
        self.known = live;
        let lost = std::mem::replace(&mut self.lost, batch.lost);
        batch.lost.malformed = batch.lost.malformed.saturating_sub(lost.malformed);
        batch.lost.over_capacity = batch.lost.over_capacity.saturating_sub(lost.over_capacity);
        Ok(batch)
    }

    fn scan_bucket(
        &self,
        bucket: Bucket,
        folder: &Path,
        now: SystemTime,
        look: &mut Look<'_>,
    ) -> io::Result<()> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            // Made by the first writer; an old fleet has no event sources.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for (index, entry) in entries.enumerate() {
            if index >= FILE_MAX_ENTRIES {
                look.batch.lost.over_capacity += 1;
                break;
            }
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                look.batch.lost.malformed += 1;
                continue;
            };
            if name.starts_with(UNFINISHED) {
                continue;
            }
            let Ok(rest) = percent_decode_str(name).decode_utf8() else {
                look.batch.lost.malformed += 1;
                continue;
            };
            let key = format!("{}/{rest}", bucket.as_str());
            match entry.metadata() {
                Ok(metadata) => self.scan_record(key, &entry.path(), &metadata, now, look),
                // Deleted under our eyes.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(_) => look.batch.lost.malformed += 1,
            }
        }
        Ok(())
    }

    /// `metadata` is of the entry itself: a link or a pipe is no record.
    fn scan_record(
        &self,
        key: String,
        path: &Path,
        metadata: &Metadata,
        now: SystemTime,
        look: &mut Look<'_>,
    ) {
        let Ok(touched) = metadata.modified() else { return };
        // A time ahead of ours is a clock that differs, not an expired record.
        let expired = now.duration_since(touched).is_ok_and(|age| age >= self.ttl);
        if !metadata.is_file() || expired {
            return;
        }
        let before = look.before.get(&key).copied();
        if let Some(known) = before.filter(|k| k.touched == touched && k.length == metadata.len()) {
            look.live.insert(key, known);
            return;
        }
        if metadata.len() > self.record_bytes {
            look.batch.lost.over_capacity += 1;
            return;
        }
        let value = match read(path, self.record_bytes) {
            Ok(value) => value,
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(_) => {
                look.batch.lost.malformed += 1;
                return;
            }
        };
        let content = content(&value);
        let known = Known {
            touched,
            length: metadata.len(),
            content,
        };
        let changed = before.is_none_or(|before| before.content != content);
        if changed {
            look.bytes = look.bytes.saturating_add(value.len());
            if look.bytes > MAX_SEED_BYTES {
                look.batch.lost.over_capacity += 1;
                return;
            }
            look.batch.changes.push(Change::Put {
                key: key.clone(),
                value,
            });
        }
        look.live.insert(key, known);
    }
}

fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut value = Vec::new();
    File::open(path)?
        .take(most.saturating_add(1))
        .read_to_end(&mut value)?;
    // It grew since its length was taken; the next look judges it again.
    if u64::try_from(value.len()).is_ok_and(|length| length <= most) {
        Ok(value)
    } else {
        Err(ErrorKind::FileTooLarge.into())
    }
}

/// Tells whether a touched file also changed. Not a secret: who can write here can change the record anyway.
fn content(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

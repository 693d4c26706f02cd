//! The full list: every prefix, page by page, all at one revision.

use std::collections::BTreeSet;

use continuum_fleet::keys::Bucket;

use super::{
    client::{Member, Read, ReadError, prefix_end},
    ranges::{Ranges, covered},
};
use crate::{error::Error, limits::MAX_SEED_BYTES, source::Seed};

/// What a pass starts from.
pub(super) struct Listed {
    /// All records.
    pub(super) seed: Seed,
    /// The prefixes that could be read and so are to be watched.
    pub(super) prefixes: Vec<String>,
    /// The revision that all of it was read at.
    pub(super) revision: i64,
}

/// State of one list.
struct Lister<'a> {
    member: &'a mut Member,
    page_keys: i64,
    revision: Option<i64>,
    bytes: usize,
    seed: Seed,
}

/// Lists every bucket. `said` remembers what has been logged about permissions.
pub(super) async fn list(
    member: &mut Member,
    ranges: &Ranges,
    page_keys: i64,
    said: &mut BTreeSet<(Bucket, String)>,
) -> Result<Listed, Error> {
    let mut lister = Lister {
        member,
        page_keys: page_keys.max(1),
        revision: None,
        bytes: 0,
        seed: Seed::default(),
    };
    let mut prefixes = Vec::new();
    for bucket in Bucket::ALL {
        let mut granted = Vec::new();
        for candidate in ranges.candidates(bucket) {
            let mut tries = vec![candidate.wide];
            if tries.first() != Some(&candidate.narrow) {
                tries.push(candidate.narrow);
            }
            lister.first_permitted(bucket, tries, &mut granted, said).await?;
        }
        prefixes.append(&mut granted);
    }
    Ok(Listed {
        seed: lister.seed,
        prefixes,
        revision: lister.revision.unwrap_or_default(),
    })
}

impl Lister<'_> {
    /// Reads the first of `tries` that is permitted and adds it to `granted`.
    async fn first_permitted(
        &mut self,
        bucket: Bucket,
        tries: Vec<String>,
        granted: &mut Vec<String>,
        said: &mut BTreeSet<(Bucket, String)>,
    ) -> Result<(), Error> {
        let mut denied = None;
        for prefix in tries {
            if covered(granted, &prefix) {
                return Ok(());
            }
            match self.read_all(&prefix).await {
                Ok(()) => {
                    if let Some(wide) = denied.take()
                        && said.insert((bucket, wide))
                    {
                        tracing::warn!(
                            bucket = bucket.as_str(),
                            prefix,
                            "etcd permits the exact namespace only; worker generations with a suffix stay unseen"
                        );
                    }
                    granted.push(prefix);
                    return Ok(());
                }
                Err(ReadError::Denied) => denied = Some(prefix),
                Err(error) => return Err(error.into()),
            }
        }
        let Some(prefix) = denied else { return Ok(()) };
        match bucket {
            Bucket::EventSources => {
                if said.insert((bucket, prefix.clone())) {
                    tracing::warn!(
                        bucket = bucket.as_str(),
                        prefix,
                        "etcd does not permit reading event sources; publishers are told apart by their messages"
                    );
                }
                Ok(())
            }
            Bucket::Instances | Bucket::Cards | Bucket::EventChannels => Err(Error::Denied { prefix }),
        }
    }

    /// Reads every page of a prefix.
    async fn read_all(&mut self, prefix: &str) -> Result<(), ReadError> {
        let end = prefix_end(prefix.as_bytes());
        let mut from = prefix.as_bytes().to_vec();
        let mut limit = self.page_keys;
        loop {
            let read = Read {
                from: &from,
                end: &end,
                limit,
                revision: self.revision,
                keys_only: false,
            };
            let page = match self.member.read(read).await {
                Ok(page) => page,
                Err(ReadError::TooLarge) if limit > 1 => {
                    limit /= 2;
                    continue;
                }
                Err(ReadError::TooLarge) => match self.skip_one(&from, &end).await? {
                    Some(next) => {
                        from = next;
                        continue;
                    }
                    None => return Ok(()),
                },
                Err(error) => return Err(error),
            };
            self.revision.get_or_insert(page.revision);
            if let Some((last, _)) = page.entries.last() {
                from = after(last);
            }
            let more = page.more && !page.entries.is_empty();
            for (key, value) in page.entries {
                self.take(key, value);
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Steps over a record that is too large to read; the key after it, or `None` at the end of the range.
    async fn skip_one(&mut self, from: &[u8], end: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        let read = Read {
            from,
            end,
            limit: 1,
            revision: self.revision,
            keys_only: true,
        };
        let page = self.member.read(read).await?;
        let Some((key, _)) = page.entries.into_iter().next() else {
            return Ok(None);
        };
        self.seed.lost.over_capacity += 1;
        Ok(Some(after(&key)))
    }

    fn take(&mut self, key: Vec<u8>, value: Vec<u8>) {
        let Ok(key) = String::from_utf8(key) else {
            self.seed.lost.malformed += 1;
            return;
        };
        self.bytes = self.bytes.saturating_add(key.len()).saturating_add(value.len());
        if self.bytes > MAX_SEED_BYTES {
            self.seed.lost.over_capacity += 1;
            return;
        }
        self.seed.entries.push((key, value));
    }
}

/// The key right after `key`.
fn after(key: &[u8]) -> Vec<u8> {
    let mut next = key.to_vec();
    next.push(0);
    next
}

//! The watches of one pass, all on one stream, from one revision.

use continuum_fleet::Change;
use etcd_client::{WatchResponse, WatchStream};
use tokio::time::{Instant, timeout_at};

use super::client::{Member, read_error, watch_options};
use crate::{
    error::{Error, peer_text},
    limits::{PROGRESS_INTERVAL, PROGRESS_TIMEOUT},
    source::{Batch, Watch},
};

/// The open watches of a pass.
pub struct EtcdWatch {
    stream: Option<WatchStream>,
    /// What came while the watches were being opened.
    early: Batch,
    /// When the stream last said something.
    heard: Instant,
    /// Whether we have asked for progress since then.
    asked: bool,
}

impl EtcdWatch {
    /// Opens one watch per prefix, all from `revision`, and waits until the server has created every one.
    pub(super) async fn open(member: &Member, prefixes: &[String], revision: i64) -> Result<Self, Error> {
        let mut this = Self {
            stream: None,
            early: Batch::default(),
            heard: Instant::now(),
            asked: false,
        };
        let Some((first, others)) = prefixes.split_first() else {
            return Ok(this);
        };
        let mut stream = member.watch(first, revision).await?;
        for prefix in others {
            stream
                .watch(prefix.as_str(), Some(watch_options(revision)))
                .await
                .map_err(|error| Error::from(read_error(error)))?;
        }
        let mut missing = prefixes.len();
        while missing > 0 {
            let answer = message(&mut stream).await?;
            if answer.created() {
                missing -= 1;
            }
            read(&answer, &mut this.early)?;
        }
        this.heard = Instant::now();
        this.stream = Some(stream);
        Ok(this)
    }
}

impl Watch for EtcdWatch {
    async fn next(&mut self) -> Result<Batch, Error> {
        if !self.early.changes.is_empty() {
            return Ok(std::mem::take(&mut self.early));
        }
        let Some(stream) = self.stream.as_mut() else {
            // Nothing may be read, so nothing can change.
            return std::future::pending().await;
        };
        loop {
            let patience = if self.asked {
                PROGRESS_TIMEOUT
            } else {
                PROGRESS_INTERVAL
            };
            match timeout_at(self.heard + patience, message(stream)).await {
                Ok(answer) => {
                    let answer = answer?;
                    self.heard = Instant::now();
                    self.asked = false;
                    let mut batch = Batch::default();
                    read(&answer, &mut batch)?;
                    if !batch.changes.is_empty() || batch.lost != crate::source::Lost::default() {
                        return Ok(batch);
                    }
                }
                Err(_elapsed) if self.asked => return Err(Error::Silent),
                Err(_elapsed) => {
                    self.asked = true;
                    stream
                        .request_progress()
                        .await
                        .map_err(|error| Error::from(read_error(error)))?;
                }
            }
        }
    }
}

async fn message(stream: &mut WatchStream) -> Result<WatchResponse, Error> {
    match stream.message().await {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(Error::Closed {
            why: "the server ended the stream".into(),
        }),
        Err(error) => Err(read_error(error).into()),
    }
}

/// Adds the events of an answer to `batch`; an answer that ends a watch is an error.
fn read(answer: &WatchResponse, batch: &mut Batch) -> Result<(), Error> {
    if answer.compact_revision() > 0 {
        return Err(Error::Compacted);
    }
    if answer.canceled() {
        let reason = answer.cancel_reason();
        return Err(match reason {
            _ if reason.contains("compacted") => Error::Compacted,
            _ if reason.contains("no leader") => Error::LostLeader,
            _ => Error::Canceled {
                reason: peer_text(reason),
            },
        });
    }
    for event in answer.events() {
        let Some(kv) = event.kv() else { continue };
        let Ok(key) = std::str::from_utf8(kv.key()) else {
            batch.lost.malformed += 1;
            continue;
        };
        // A deletion carries version 0, a put never does. The event's own type is not asked for: the client
        // library panics on one that it does not know.
        batch.changes.push(if kv.version() == 0 {
            Change::Delete { key: key.to_owned() }
        } else {
            Change::Put {
                key: key.to_owned(),
                value: kv.value().to_vec(),
            }
        });
    }
    Ok(())
}

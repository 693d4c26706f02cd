//! One open watch: lines of JSON, each an event.

use std::time::Duration;

use bytes::BytesMut;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use super::{
    Settings,
    client::{Reader, Resource, Status, status_error},
};
use crate::{
    error::{Error, peer_text},
    limits::{MAX_EVENT_BYTES, WATCH_LENGTH_SLACK},
};

/// A watch of one collection.
pub(super) struct Events {
    resource: Resource,
    body: Body,
    /// Bytes that are no whole line yet.
    buffer: BytesMut,
    /// How many of them are known to hold no line end.
    searched: usize,
    opened: Instant,
    length: Duration,
    /// When the stream last said something.
    heard: Instant,
    idle: Duration,
}

/// What a watch tells.
pub(super) enum Event<T> {
    /// An object is there, or has changed.
    Put(T),
    /// An object is gone; as it was last.
    Delete(T),
    /// An object that cannot be read.
    Unreadable,
    /// The server ended the watch when it was asked to.
    Over,
}

impl Events {
    /// Opens a watch from the version of a list.
    pub(super) async fn open(
        reader: &Reader,
        resource: Resource,
        selector: Option<&str>,
        version: &str,
        settings: &Settings,
    ) -> Result<Self, Error> {
        let opened = Instant::now();
        let body = reader
            .watch(resource, selector, version, settings.watch_length)
            .await?;
        Ok(Self {
            resource,
            body,
            buffer: BytesMut::new(),
            searched: 0,
            opened,
            length: settings.watch_length,
            heard: Instant::now(),
            idle: settings.watch_idle,
        })
    }

    /// Waits for the next event. Cancel-safe: what has arrived stays in the buffer.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<Event<T>, Error> {
        loop {
            while let Some(line) = self.line() {
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                if let Some(event) = self.read(&line)? {
                    return Ok(event);
                }
            }
            if self.buffer.len() > MAX_EVENT_BYTES {
                return Err(Error::TooLarge {
                    resource: self.resource.plural(),
                });
            }
            match timeout_at(self.heard + self.idle, self.body.frame()).await {
                Err(_elapsed) => return Err(Error::Silent),
                Ok(Some(Ok(frame))) => {
                    self.heard = Instant::now();
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Ok(Some(Err(error))) => {
                    return Err(Error::Closed {
                        why: peer_text(&error.to_string()),
                    });
                }
                Ok(None) if self.opened.elapsed() + WATCH_LENGTH_SLACK >= self.length => {
                    return Ok(Event::Over);
                }
                Ok(None) => {
                    return Err(Error::Closed {
                        why: format!(
                            "the API server ended the watch of {} early",
                            self.resource.plural()
                        ),
                    });
                }
            }
        }
    }

    /// The next whole line, without its end.
    fn line(&mut self) -> Option<BytesMut> {
        let unsearched = self.buffer.get(self.searched..)?;
        let Some(at) = unsearched.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.searched + at);
        let _line_end = self.buffer.split_to(1);
        self.searched = 0;
        Some(line)
    }

    /// `None` for an event that changes nothing.
    fn read<T: DeserializeOwned>(&self, line: &[u8]) -> Result<Option<Event<T>>, Error> {
        let garbled = |why: serde_json::Error| Error::Garbled {
            resource: self.resource.plural(),
            why: peer_text(&why.to_string()),
        };
        let raw: RawEvent<'_> = serde_json::from_slice(line).map_err(garbled)?;
        Ok(match raw.kind.as_str() {
            "ADDED" | "MODIFIED" => Some(object(raw.object).map_or(Event::Unreadable, Event::Put)),
            "DELETED" => Some(object(raw.object).map_or(Event::Unreadable, Event::Delete)),
            "ERROR" => {
                let status: Status = serde_json::from_str(raw.object.get()).map_err(garbled)?;
                let message = status.message.unwrap_or_default();
                return Err(status_error(status.code.unwrap_or_default(), &message));
            }
            // A bookmark shows that the stream lives, and that is all we want of it.
            _ => None,
        })
    }
}

fn object<T: DeserializeOwned>(raw: &RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

#[derive(Deserialize)]
struct RawEvent<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

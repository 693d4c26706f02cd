//! The PUB side of one connection: what a simulated worker needs, no more.

use super::{
    Error,
    command::{self, Command},
    frame::write_message,
    greeting,
    reader::{Item, Reader},
};
use crate::limits::{Limits, MAX_PEER_SUBSCRIPTIONS, MAX_PENDING_PONGS};

/// A PUB peer for one subscriber: hand it what was read, send what it holds.
#[derive(Debug)]
pub struct Publisher {
    reader: Reader,
    ready: bool,
    topics: Vec<Box<[u8]>>,
    out: Vec<u8>,
    pending_pongs: usize,
}

impl Default for Publisher {
    fn default() -> Self {
        Self::new()
    }
}

impl Publisher {
    /// A publisher; the greeting is queued at once.
    #[must_use]
    pub fn new() -> Self {
        Self {
            reader: Reader::new(Limits::INBOUND),
            ready: false,
            topics: Vec::new(),
            out: greeting::ours().to_vec(),
            pending_pongs: 0,
        }
    }

    /// Takes all bytes of `input`.
    ///
    /// # Errors
    /// The peer broke the protocol: end the connection.
    pub fn push(&mut self, mut input: &[u8]) -> Result<(), Error> {
        while let Some(item) = self.reader.advance(&mut input)? {
            match item {
                Item::Greeting { .. } => command::ready(b"PUB", &mut self.out),
                Item::Command => match command::parse(self.reader.command())? {
                    Command::Ready {
                        socket_type: Some(kind),
                    } if kind.subscribes() => self.ready = true,
                    Command::Ready { .. } => return Err(Error::SocketType),
                    Command::Error => return Err(Error::Refused),
                    Command::Ping { context } => {
                        if self.pending_pongs >= MAX_PENDING_PONGS {
                            return Err(Error::PingFlood);
                        }
                        self.pending_pongs += 1;
                        command::pong(context, &mut self.out);
                    }
                    Command::Subscribe(topic) => add(&mut self.topics, topic)?,
                    Command::Cancel(topic) => remove(&mut self.topics, topic),
                    Command::Pong | Command::Other => {}
                },
                Item::Message => match self.reader.message().frame(0).and_then(<[u8]>::split_first) {
                    Some((1, topic)) => add(&mut self.topics, topic)?,
                    Some((0, topic)) => remove(&mut self.topics, topic),
                    _ => {}
                },
            }
        }
        Ok(())
    }

    /// Whether the peer asked for messages whose first frame begins like this one.
    #[must_use]
    pub fn wants(&self, first_frame: &[u8]) -> bool {
        self.ready && self.topics.iter().any(|topic| first_frame.starts_with(topic))
    }

    /// Queues a message if the peer wants it; says whether it did.
    pub fn publish(&mut self, frames: &[impl AsRef<[u8]>]) -> bool {
        let wanted = frames.first().is_some_and(|first| self.wants(first.as_ref()));
        if wanted {
            write_message(frames, &mut self.out);
        }
        wanted
    }

    /// Bytes that wait to be sent.
    #[must_use]
    pub fn outgoing(&self) -> &[u8] {
        &self.out
    }

    /// Forgets the first `count` bytes of [`Self::outgoing`], which were sent.
    pub fn sent(&mut self, count: usize) {
        self.out.drain(..count.min(self.out.len()));
        if self.out.is_empty() {
            self.pending_pongs = 0;
        }
    }
}

fn add(topics: &mut Vec<Box<[u8]>>, topic: &[u8]) -> Result<(), Error> {
    if topics.iter().any(|known| **known == *topic) {
        return Ok(());
    }
    if topics.len() >= MAX_PEER_SUBSCRIPTIONS {
        return Err(Error::TooManySubscriptions);
    }
    topics.push(topic.into());
    Ok(())
}

fn remove(topics: &mut Vec<Box<[u8]>>, topic: &[u8]) {
    topics.retain(|known| **known != *topic);
}

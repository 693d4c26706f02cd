//! The SUB side of one connection.

use super::{
    Error,
    command::{self, Command},
    frame::write_message,
    greeting,
    reader::{Item, Message, Reader},
};
use crate::{
    Budget,
    limits::{Limits, MAX_PENDING_PONGS},
};

/// What a subscriber has just learned.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The handshake is done and the subscriptions are queued. Minor 0 peers know no PING.
    Ready {
        /// Minor version of the peer.
        minor: u8,
    },
    /// A message.
    Message(Message<'a>),
    /// Proof of life without content: a PING (already answered), a PONG, or a command that means nothing
    /// to a subscriber.
    Alive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Greeting,
    Handshake { minor: u8 },
    Active { minor: u8 },
}

/// A SUB peer: hand it what was read, send what it holds.
#[derive(Debug)]
pub struct Subscriber {
    reader: Reader,
    state: State,
    topics: Vec<Box<[u8]>>,
    out: Vec<u8>,
    pending_pongs: usize,
}

impl Subscriber {
    /// A subscriber to these prefixes. The greeting is queued at once.
    #[must_use]
    pub fn new(limits: Limits, topics: impl IntoIterator<Item = impl Into<Box<[u8]>>>) -> Self {
        Self {
            reader: Reader::new(limits),
            state: State::Greeting,
            topics: topics.into_iter().map(Into::into).collect(),
            out: greeting::ours().to_vec(),
            pending_pongs: 0,
        }
    }

    /// Holds messages within a budget that it shares with other connections.
    #[must_use]
    pub fn within(mut self, budget: Option<Budget>) -> Self {
        self.reader.within(budget);
        self
    }

    /// Takes bytes from the front of `input`. Call until it answers `None`; the input is then used up.
    ///
    /// # Errors
    /// The peer broke the protocol or a limit: end the connection. The subscriber is of no use afterwards.
    pub fn push<'a>(&'a mut self, input: &mut &[u8]) -> Result<Option<Event<'a>>, Error> {
        let Some(item) = self.reader.advance(input)? else {
            return Ok(None);
        };
        match (self.state, item) {
            (State::Greeting, Item::Greeting { minor }) => {
                command::ready(b"SUB", &mut self.out);
                self.state = State::Handshake { minor };
                Ok(Some(Event::Alive))
            }
            (State::Handshake { minor }, Item::Command) => {
                match command::parse(self.reader.command())? {
                    Command::Ready {
                        socket_type: Some(kind),
                    } if kind.publishes() => {}
                    Command::Ready { .. } => return Err(Error::SocketType),
                    Command::Error => return Err(Error::Refused),
                    Command::Ping { .. }
                    | Command::Pong
                    | Command::Subscribe(_)
                    | Command::Cancel(_)
                    | Command::Other => return Err(Error::NoReady),
                }
                self.state = State::Active { minor };
                for topic in &self.topics {
                    subscribe(minor, topic, &mut self.out);
                }
                Ok(Some(Event::Ready { minor }))
            }
            (State::Active { .. }, Item::Command) => {
                match command::parse(self.reader.command())? {
                    Command::Ping { context } => {
                        if self.pending_pongs >= MAX_PENDING_PONGS {
                            return Err(Error::PingFlood);
                        }
                        self.pending_pongs += 1;
                        command::pong(context, &mut self.out);
                    }
                    Command::Error => return Err(Error::Refused),
                    Command::Ready { .. } => return Err(Error::SecondReady),
                    Command::Pong | Command::Subscribe(_) | Command::Cancel(_) | Command::Other => {}
                }
                Ok(Some(Event::Alive))
            }
            (State::Active { .. }, Item::Message) => Ok(Some(Event::Message(self.reader.message()))),
            (State::Greeting | State::Handshake { .. }, Item::Command | Item::Message)
            | (State::Handshake { .. } | State::Active { .. }, Item::Greeting { .. }) => Err(Error::NoReady),
        }
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
            self.out.shrink_to(64);
        }
    }

    /// Queues a PING, if the handshake is done and the peer knows it. The peer may drop us when nothing
    /// follows within the time to live.
    pub fn ping(&mut self, ttl_deciseconds: u16) -> bool {
        let knows = matches!(self.state, State::Active { minor } if minor >= 1);
        if knows {
            command::ping(ttl_deciseconds, &mut self.out);
        }
        knows
    }

    /// Adds a prefix, now or with the handshake. A prefix that is there already is not sent again.
    pub fn subscribe(&mut self, topic: &[u8]) {
        if self.topics.iter().any(|known| **known == *topic) {
            return;
        }
        if let State::Active { minor } = self.state {
            subscribe(minor, topic, &mut self.out);
        }
        self.topics.push(topic.into());
    }

    /// Takes a prefix back.
    pub fn cancel(&mut self, topic: &[u8]) {
        let Some(at) = self.topics.iter().position(|known| **known == *topic) else {
            return;
        };
        self.topics.swap_remove(at);
        if let State::Active { minor } = self.state {
            write_message(&[[&[0], topic].concat()], &mut self.out);
            if minor >= 1 {
                command::cancel(topic, &mut self.out);
            }
        }
    }

    /// Whether a message has begun and is not complete. To be asked when [`Self::push`] has used up its input.
    #[must_use]
    pub const fn is_within_message(&self) -> bool {
        self.reader.is_within_message()
    }

    /// Bytes of memory held for messages.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.reader.capacity()
    }
}

/// The message form is understood by every peer; the command form is what ZMTP 3.1 asks for. A peer that
/// takes both counts one subscription twice and delivers once.
fn subscribe(minor: u8, topic: &[u8], out: &mut Vec<u8>) {
    write_message(&[[&[1], topic].concat()], out);
    if minor >= 1 {
        command::subscribe(topic, out);
    }
}

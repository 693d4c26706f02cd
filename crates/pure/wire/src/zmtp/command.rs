//! Commands: READY, PING, PONG, SUBSCRIBE, CANCEL, ERROR.

use super::{Error, frame::write_command};
use crate::limits::{MAX_PING_CONTEXT_BYTES, MAX_PROPERTIES, MAX_PROPERTY_VALUE_BYTES};

/// One command of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command<'a> {
    Ready {
        socket_type: Option<SocketType>,
    },
    Ping {
        context: &'a [u8],
    },
    Pong,
    Subscribe(&'a [u8]),
    Cancel(&'a [u8]),
    Error,
    /// A command that we do not know; its name was well-formed.
    Other,
}

/// Socket types that take part in publishing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketType {
    Pub,
    XPub,
    Sub,
    XSub,
    Other,
}

impl SocketType {
    fn named(name: &[u8]) -> Self {
        match name {
            b"PUB" => Self::Pub,
            b"XPUB" => Self::XPub,
            b"SUB" => Self::Sub,
            b"XSUB" => Self::XSub,
            _ => Self::Other,
        }
    }

    pub(super) const fn publishes(self) -> bool {
        matches!(self, Self::Pub | Self::XPub)
    }

    pub(super) const fn subscribes(self) -> bool {
        matches!(self, Self::Sub | Self::XSub)
    }
}

pub(super) fn parse(body: &[u8]) -> Result<Command<'_>, Error> {
    let (name, rest) = short_string(body)?;
    Ok(match name {
        b"" => return Err(Error::MalformedCommand),
        b"READY" => Command::Ready {
            socket_type: socket_type(rest)?,
        },
        // Two bytes of TTL: how long the peer waits for us; every answer of ours is at once.
        b"PING" => match rest.split_first_chunk::<2>() {
            Some((_, context)) if context.len() <= MAX_PING_CONTEXT_BYTES => Command::Ping { context },
            _ => return Err(Error::MalformedCommand),
        },
        b"PONG" if rest.len() <= MAX_PING_CONTEXT_BYTES => Command::Pong,
        b"PONG" => return Err(Error::MalformedCommand),
        b"SUBSCRIBE" => Command::Subscribe(rest),
        b"CANCEL" => Command::Cancel(rest),
        b"ERROR" => {
            short_string(rest)?;
            Command::Error
        }
        _ => Command::Other,
    })
}

pub(super) fn ready(socket_type: &[u8], out: &mut Vec<u8>) {
    let len = u32::try_from(socket_type.len()).unwrap_or(u32::MAX).to_be_bytes();
    write_command(&[b"\x05READY\x0bSocket-Type", &len, socket_type], out);
}

pub(super) fn ping(ttl_deciseconds: u16, out: &mut Vec<u8>) {
    write_command(&[b"\x04PING", &ttl_deciseconds.to_be_bytes()], out);
}

pub(super) fn pong(context: &[u8], out: &mut Vec<u8>) {
    write_command(&[b"\x04PONG", context], out);
}

pub(super) fn subscribe(topic: &[u8], out: &mut Vec<u8>) {
    write_command(&[b"\x09SUBSCRIBE", topic], out);
}

pub(super) fn cancel(topic: &[u8], out: &mut Vec<u8>) {
    write_command(&[b"\x06CANCEL", topic], out);
}

/// Reads the properties of a READY; the first `Socket-Type` counts.
fn socket_type(mut rest: &[u8]) -> Result<Option<SocketType>, Error> {
    let mut found = None;
    let mut properties = 0;
    while !rest.is_empty() {
        properties += 1;
        if properties > MAX_PROPERTIES {
            return Err(Error::MalformedCommand);
        }
        let (name, after_name) = short_string(rest)?;
        let (len, after_len) = after_name
            .split_first_chunk::<4>()
            .ok_or(Error::MalformedCommand)?;
        let len = usize::try_from(u32::from_be_bytes(*len)).map_err(|_| Error::MalformedCommand)?;
        if name.is_empty() || len > MAX_PROPERTY_VALUE_BYTES {
            return Err(Error::MalformedCommand);
        }
        let (value, after) = after_len.split_at_checked(len).ok_or(Error::MalformedCommand)?;
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            found = found.or(Some(SocketType::named(value)));
        }
        rest = after;
    }
    Ok(found)
}

fn short_string(bytes: &[u8]) -> Result<(&[u8], &[u8]), Error> {
    let (len, rest) = bytes.split_first().ok_or(Error::MalformedCommand)?;
    rest.split_at_checked(usize::from(*len))
        .ok_or(Error::MalformedCommand)
}

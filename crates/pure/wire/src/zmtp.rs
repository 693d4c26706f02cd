//! ZMTP 3.x, NULL security, as a state machine over bytes.
//!
//! [`Subscriber`] is the client that the router runs against every publisher; [`Publisher`] is the other
//! side, for simulated fleets and tests. Both take bytes in any split and hold what is to be sent; neither
//! knows a socket or a clock. What is absent on purpose: other security mechanisms, other socket types,
//! ZMTP 2 and older.

mod command;
mod frame;
mod greeting;
mod publisher;
mod reader;
mod subscriber;

pub use frame::write_message;
pub use publisher::Publisher;
pub use reader::Message;
pub use subscriber::{Event, Subscriber};

/// Why a connection must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// The first bytes are not a ZMTP greeting.
    #[error("not a ZMTP greeting")]
    NotZmtp,
    /// The peer speaks ZMTP older than 3.0.
    #[error("ZMTP version too old")]
    OldVersion,
    /// The peer wants a security mechanism other than NULL.
    #[error("security mechanism is not NULL")]
    Mechanism,
    /// A frame sets reserved flag bits.
    #[error("reserved flag bits")]
    ReservedBits,
    /// A command frame claims that more frames follow.
    #[error("command in several frames")]
    SplitCommand,
    /// A command is longer than allowed.
    #[error("command too long")]
    CommandTooLong,
    /// A command does not follow its own grammar.
    #[error("malformed command")]
    MalformedCommand,
    /// Something else came where READY belongs.
    #[error("no READY")]
    NoReady,
    /// A second READY.
    #[error("READY twice")]
    SecondReady,
    /// The peer's socket type cannot serve us.
    #[error("unsuitable socket type")]
    SocketType,
    /// The peer refused the connection with an ERROR command.
    #[error("refused by the peer")]
    Refused,
    /// A frame, or a message, is longer than allowed.
    #[error("frame too long")]
    FrameTooLong,
    /// The message does not fit into what all connections may hold together.
    #[error("no room left for the message")]
    OverBudget,
    /// A message has more frames than allowed.
    #[error("too many frames")]
    TooManyFrames,
    /// The peer pings faster than it reads the answers.
    #[error("ping flood")]
    PingFlood,
    /// The peer asks for more subscriptions than allowed.
    #[error("too many subscriptions")]
    TooManySubscriptions,
}

#[cfg(test)]
mod tests;

//! Every limit of the wire, with its unit and its reason.

/// Bytes of a ZMTP 3.x greeting; fixed by the protocol.
pub const GREETING_BYTES: usize = 64;

/// Longest command body (READY, PING, ERROR …) in bytes. A READY of libzmq has 27.
pub const MAX_COMMAND_BYTES: usize = 512;

/// Most properties of a READY command. libzmq sends two.
pub const MAX_PROPERTIES: usize = 16;

/// Longest property value in bytes. Names are at most 255 bytes, by their one-byte length.
pub const MAX_PROPERTY_VALUE_BYTES: usize = 256;

/// Longest context of a PING in bytes; fixed by ZMTP 3.1.
pub const MAX_PING_CONTEXT_BYTES: usize = 16;

/// PONGs that may wait to be sent. A peer that pings faster than it reads the answers is cut.
pub const MAX_PENDING_PONGS: usize = 16;

/// Frames of an event message; a fifth frame ends the connection.
pub const MAX_FRAMES_PER_MESSAGE: usize = 4;

/// First capacity of a message buffer in bytes. Most samples fit, so an idle subscription stays small.
pub const FIRST_BUFFER_BYTES: usize = 512;

/// A message buffer larger than this is given back after the message: one long event must not pin
/// megabytes for the life of the subscription.
pub const KEPT_BUFFER_BYTES: usize = 64 * 1024;

/// The same where connections share a budget: thousands of idle ones must leave most of it to those that are not.
pub const KEPT_BUDGETED_BUFFER_BYTES: usize = 16 * 1024;

/// The part of a shared budget, one in so many, that is kept for connections that hold little: a few with long messages
/// that never end must not keep out the short ones of all the others.
pub const BUDGET_PARTS_FOR_LITTLE: usize = 4;

/// What counts as little: one part in so many of the budget (256 KiB of 256 MiB), and never less than what a connection
/// keeps between messages. Messages of a busy worker have some ten KiB.
pub const BUDGET_PARTS_OF_LITTLE: usize = 1024;

/// Version and length in front of the payload of frame 4.
pub const FRAME_HEADER_BYTES: usize = 5;

/// Longest bare topic in bytes.
pub const MAX_TOPIC_BYTES: usize = 256;

/// Longest broker subject in bytes: namespace, component, endpoint and topic, percent-encoded.
pub const MAX_SUBJECT_BYTES: usize = 1024;

/// Longest payload of a `kv_metrics` message in bytes. Real ones have under 200.
pub const MAX_KV_METRICS_PAYLOAD_BYTES: usize = 16 * 1024;

/// Longest payload of a `kv-events` message in bytes. One event may hold more than 8,192 blocks of 57
/// bytes and is never split by its publisher, so 1 MiB would refuse long prompts for ever.
pub const MAX_KV_EVENTS_PAYLOAD_BYTES: usize = 8 * 1024 * 1024;

/// Events in one `kv-events` message. Dynamo's publishers send up to 128.
pub const MAX_EVENTS_PER_MESSAGE: u32 = 1024;

/// Blocks in one event. Publishers send a prompt's event whole, so this is the longest prompt in blocks: two
/// million tokens at the usual 16.
pub const MAX_BLOCKS_PER_EVENT: u32 = 131_072;

/// Message bytes beyond the largest frame: topic or subject, publisher id and sequence.
const BESIDE_PAYLOAD_BYTES: usize = 1024;

/// Subscription prefixes that a publisher (the PUB side, used by simulated fleets) keeps for one peer.
pub const MAX_PEER_SUBSCRIPTIONS: usize = 4096;

/// What a subscription may receive. Judged before memory is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest first frame, in bytes.
    pub topic: usize,
    /// Longest other frame, in bytes.
    pub frame: usize,
    /// Longest message (sum of its frames), in bytes.
    pub message: usize,
    /// Longest payload that frame 4 may declare, in bytes.
    pub payload: usize,
    /// Deepest nesting of msgpack values.
    pub nesting: usize,
}

impl Limits {
    /// Topic `kv_metrics` from a worker's own socket.
    pub const KV_METRICS: Self = Self::of(MAX_KV_METRICS_PAYLOAD_BYTES, 8);

    /// Topic `kv-events` with another longest payload.
    #[must_use]
    pub const fn kv_events(payload: usize) -> Self {
        Self::of(payload, Self::KV_EVENTS.nesting)
    }

    /// Topic `kv-events` from a worker's own socket.
    pub const KV_EVENTS: Self = Self::of(MAX_KV_EVENTS_PAYLOAD_BYTES, 12);

    const fn of(payload: usize, nesting: usize) -> Self {
        let frame = payload + FRAME_HEADER_BYTES;
        Self {
            topic: MAX_TOPIC_BYTES,
            frame,
            message: frame + BESIDE_PAYLOAD_BYTES,
            payload,
            nesting,
        }
    }

    /// The same family through a broker, whose first frame is the full subject.
    #[must_use]
    pub const fn brokered(self) -> Self {
        Self {
            topic: MAX_SUBJECT_BYTES,
            message: self.message + MAX_SUBJECT_BYTES,
            ..self
        }
    }

    /// What a publisher accepts from a subscriber: one frame `0x01 topic`.
    pub(crate) const INBOUND: Self = Self {
        topic: 1 + MAX_SUBJECT_BYTES,
        frame: 0,
        message: 1 + MAX_SUBJECT_BYTES,
        payload: 0,
        nesting: 0,
    };
}

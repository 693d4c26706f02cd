//! The four frames of an event message and the envelope in the last of them.

use std::borrow::Cow;

use continuum_fleet::ids::PublisherId;

use crate::{
    Limits, Refusal,
    limits::FRAME_HEADER_BYTES,
    msgpack::{Cursor, Fields, Writer, once},
    zmtp::Message,
};

/// The only frame version that there is.
const VERSION: u8 = 1;

/// What a subscription accepts.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The bare topic, for instance `kv_metrics`: what the envelope must say.
    pub topic: &'a str,
    /// What frame 1 must be: the topic of a direct publisher, the full subject of a broker. `None` when
    /// the caller has judged frame 1 itself (a broker connection that carries many subjects).
    pub first_frame: Option<&'a [u8]>,
    /// The publisher of the record; `None` for a broker that relays publishers without records.
    pub publisher: Option<PublisherId>,
}

/// One accepted message. Its payload is still to be decoded by the topic's own rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// Who published.
    pub publisher: PublisherId,
    /// Position in the publisher's stream; starts at 0.
    pub sequence: u64,
    /// Publisher's wall clock, Unix milliseconds; 0 when it did not say.
    pub published_at: u64,
    /// The topic's payload.
    pub payload: Cow<'a, [u8]>,
}

impl<'a> Delivery<'a> {
    /// Judges a message and opens its envelope.
    ///
    /// # Errors
    /// The first rule that the message breaks, in the order frames, topic, version, size, envelope, identity.
    pub fn decode(message: &Message<'a>, expected: &Expected<'_>, limits: &Limits) -> Result<Self, Refusal> {
        let [topic, publisher, sequence, frame] = message.four().ok_or(Refusal::Malformed)?;
        if expected.first_frame.is_some_and(|wanted| wanted != topic) {
            return Err(Refusal::TopicMismatch);
        }
        let publisher = PublisherId::new(number(publisher)?);
        let sequence = number(sequence)?;
        let envelope = Envelope::decode(opened(frame, limits)?, limits)?;
        if envelope.topic != expected.topic.as_bytes() {
            return Err(Refusal::TopicMismatch);
        }
        let is_other = |id: PublisherId| id != publisher;
        if is_other(PublisherId::new(envelope.publisher)) || expected.publisher.is_some_and(is_other) {
            return Err(Refusal::IdentityMismatch);
        }
        Ok(Self {
            publisher,
            sequence,
            published_at: envelope.published_at,
            payload: envelope.payload,
        })
    }
}

/// The four frames of one message, as a publisher sends them.
#[must_use]
pub fn encode(
    first_frame: &[u8],
    topic: &str,
    publisher: PublisherId,
    sequence: u64,
    published_at: u64,
    payload: &[u8],
) -> [Vec<u8>; 4] {
    let mut writer = Writer::new();
    writer.map(5);
    writer.str("publisher_id").uint(publisher.raw());
    writer.str("sequence").uint(sequence);
    writer.str("published_at").uint(published_at);
    writer.str("topic").str(topic);
    writer.str("payload").bin(payload);
    let envelope = writer.finish();
    let mut frame = Vec::with_capacity(FRAME_HEADER_BYTES + envelope.len());
    frame.push(VERSION);
    frame.extend_from_slice(&u32::try_from(envelope.len()).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend_from_slice(&envelope);
    [
        first_frame.to_vec(),
        publisher.raw().to_be_bytes().to_vec(),
        sequence.to_be_bytes().to_vec(),
        frame,
    ]
}

fn number(frame: &[u8]) -> Result<u64, Refusal> {
    <[u8; 8]>::try_from(frame)
        .map(u64::from_be_bytes)
        .map_err(|_| Refusal::Malformed)
}

/// The envelope bytes of frame 4. Bytes behind the declared length are passed over, as upstream does.
fn opened<'a>(frame: &'a [u8], limits: &Limits) -> Result<&'a [u8], Refusal> {
    let (version, rest) = frame.split_first().ok_or(Refusal::Malformed)?;
    if *version != VERSION {
        return Err(Refusal::UnknownVersion);
    }
    let (len, rest) = rest.split_first_chunk::<4>().ok_or(Refusal::Malformed)?;
    let len = usize::try_from(u32::from_be_bytes(*len)).map_err(|_| Refusal::Oversized)?;
    if len > limits.payload {
        return Err(Refusal::Oversized);
    }
    rest.get(..len).ok_or(Refusal::Malformed)
}

/// `EventEnvelope` of the event plane. Its own `sequence` repeats the one of frame 3 and is not read.
struct Envelope<'a> {
    publisher: u64,
    published_at: u64,
    topic: &'a [u8],
    payload: Cow<'a, [u8]>,
}

#[derive(Clone, Copy)]
enum Field {
    Publisher,
    Sequence,
    PublishedAt,
    Topic,
    Payload,
}

/// What was read so far.
#[derive(Default)]
struct Read<'a> {
    publisher: Option<u64>,
    sequence: Option<u64>,
    published_at: Option<u64>,
    topic: Option<&'a [u8]>,
    payload: Option<Cow<'a, [u8]>>,
}

impl<'a> Fields<'a> for Read<'a> {
    type Field = Field;
    const ORDER: &'static [Field] = &[
        Field::Publisher,
        Field::Sequence,
        Field::PublishedAt,
        Field::Topic,
        Field::Payload,
    ];

    fn named(name: &[u8]) -> Option<Field> {
        match name {
            b"publisher_id" => Some(Field::Publisher),
            b"sequence" => Some(Field::Sequence),
            b"published_at" => Some(Field::PublishedAt),
            b"topic" => Some(Field::Topic),
            b"payload" => Some(Field::Payload),
            _ => None,
        }
    }

    fn read(&mut self, field: Field, cursor: &mut Cursor<'a>) -> Result<(), Refusal> {
        match field {
            Field::Publisher => once(&mut self.publisher, cursor.uint()?),
            Field::Sequence => once(&mut self.sequence, cursor.uint()?),
            Field::PublishedAt => once(&mut self.published_at, cursor.uint()?),
            Field::Topic => once(&mut self.topic, cursor.str()?),
            Field::Payload => once(&mut self.payload, cursor.bytes()?),
        }
    }
}

impl<'a> Envelope<'a> {
    fn decode(bytes: &'a [u8], limits: &Limits) -> Result<Self, Refusal> {
        let fields: Read<'a> = Cursor::new(bytes, limits.nesting).fields()?;
        Ok(Self {
            publisher: fields.publisher.ok_or(Refusal::Malformed)?,
            published_at: fields.published_at.unwrap_or(0),
            topic: fields.topic.ok_or(Refusal::Malformed)?,
            payload: fields.payload.ok_or(Refusal::Malformed)?,
        })
    }
}

#[cfg(test)]
mod tests;

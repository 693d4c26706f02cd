//! `RouterEvent`: what became of KV blocks of one rank. A `kv-events` payload is an array of them.
//!
//! One message may hold megabytes, so events are decoded one at a time, and a block costs its list no more memory
//! than it had bytes on the wire. An event that has no meaning is refused alone as long as its end can be found.

use crate::{
    Limits, Refusal,
    limits::{MAX_BLOCKS_PER_EVENT, MAX_EVENTS_PER_MESSAGE},
    msgpack::{Cursor, Fields, Writer, once},
};

/// One event of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterEvent {
    /// The worker that the event is about.
    pub worker_id: u64,
    /// Where the blocks lie.
    pub tier: Tier,
    /// Who owns them.
    pub domain: Domain,
    /// Position in the stream of events of its publisher; starts at 1.
    pub event_id: u64,
    /// Global rank of the worker; 0 when the writer did not say.
    pub rank: u32,
    /// What happened.
    pub data: Data,
}

/// Where blocks lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Memory of the accelerator; also when the writer did not say.
    Device,
    /// Pinned memory of the host.
    HostPinned,
    /// A disk of the worker.
    Disk,
    /// Outside of the worker, or a tier that is not known here.
    External,
}

impl Tier {
    /// Every tier, from the fastest.
    pub const ALL: [Self; 4] = [Self::Device, Self::HostPinned, Self::Disk, Self::External];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::HostPinned => "host_pinned",
            Self::Disk => "disk",
            Self::External => "external",
        }
    }

    fn named(name: &[u8]) -> Self {
        let named = |tier: &Self| tier.as_str().as_bytes() == name;
        Self::ALL.into_iter().find(named).unwrap_or(Self::External)
    }
}

/// Who owns the blocks of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Domain {
    /// The writer is older than the notion: the worker.
    Legacy,
    /// The worker.
    Worker,
    /// A cache that several workers share.
    CacheOwner,
    /// An explicit nil, or a word that is not known here.
    Unknown,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// Blocks were stored.
    Stored(Stored),
    /// Blocks, by their engine hashes, are gone.
    Removed(Vec<u64>),
    /// All blocks are gone.
    Cleared,
}

/// A chain of stored blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Engine hash of the block that the chain continues; `None` for a chain from the beginning of a prompt.
    pub parent: Option<u64>,
    /// The blocks, each the successor of the one before it.
    pub blocks: Vec<Block>,
}

/// One stored block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The engine's own name for the block at its place. A negative number of the engine is taken by its bits.
    pub hash: u64,
    /// Hash of the tokens in the block, which a router can compute as well.
    pub tokens: u64,
    /// The block covers media, whose hashes went into `tokens`.
    pub multimodal: bool,
}

/// The events of one payload, decoded one by one.
///
/// After a refusal the events behind it still come, unless nothing can be told of where they begin.
#[derive(Debug)]
pub struct Batch<'a> {
    cursor: Cursor<'a>,
    left: u32,
}

impl<'a> Batch<'a> {
    /// Opens the payload of a `kv-events` message.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] when it is no array, or claims more events than it has bytes;
    /// [`Refusal::Oversized`] when it claims more than [`MAX_EVENTS_PER_MESSAGE`].
    pub fn open(payload: &'a [u8], limits: &Limits) -> Result<Self, Refusal> {
        let mut cursor = Cursor::new(payload, limits.nesting);
        let left = cursor.array(1)?;
        if left > MAX_EVENTS_PER_MESSAGE {
            return Err(Refusal::Oversized);
        }
        Ok(Self { cursor, left })
    }
}

impl Iterator for Batch<'_> {
    type Item = Result<RouterEvent, Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let mut begin = self.cursor.clone();
        let event = event(&mut self.cursor);
        if event.is_err() {
            match begin.skip() {
                Ok(()) => self.cursor = begin,
                Err(_) => self.left = 0,
            }
        }
        Some(event)
    }
}

/// A payload as Dynamo's publishers write it.
#[must_use]
pub fn encode(events: &[RouterEvent]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.array(events.len());
    for event in events {
        let domain = match event.domain {
            Domain::Legacy => None,
            Domain::Worker => Some("worker"),
            Domain::CacheOwner => Some("cache_owner"),
            Domain::Unknown => Some("unknown"),
        };
        writer.map(3 + u32::from(domain.is_some()));
        writer.str("worker_id").uint(event.worker_id);
        writer.str("storage_tier").str(event.tier.as_str());
        if let Some(domain) = domain {
            writer.str("residency_domain").str(domain);
        }
        writer.str("event").map(3);
        writer.str("event_id").uint(event.event_id);
        writer.str("data");
        match &event.data {
            Data::Cleared => {
                writer.str("cleared");
            }
            Data::Removed(hashes) => {
                writer.map(1).str("removed").map(1).str("block_hashes");
                writer.array(hashes.len());
                for hash in hashes {
                    writer.uint(*hash);
                }
            }
            Data::Stored(stored) => {
                writer.map(1).str("stored").map(3);
                writer.str("parent_hash").optional_uint(stored.parent);
                writer.str("start_position").optional_uint(None);
                writer.str("blocks").array(stored.blocks.len());
                for block in &stored.blocks {
                    writer.map(3);
                    writer.str("block_hash").uint(block.hash);
                    writer.str("tokens_hash").uint(block.tokens);
                    writer.str("mm_extra_info");
                    if block.multimodal {
                        writer.map(1).str("mm_objects").array(0);
                    } else {
                        writer.optional_uint(None);
                    }
                }
            }
        }
        writer.str("dp_rank").uint(u64::from(event.rank));
    }
    writer.finish()
}

/// The least that a stored block takes: a map with `block_hash` and `tokens_hash`.
const MIN_BLOCK_BYTES: usize = 26;

fn event(cursor: &mut Cursor<'_>) -> Result<RouterEvent, Refusal> {
    let outer: Outer = cursor.fields()?;
    let inner = outer.inner.ok_or(Refusal::Malformed)?;
    Ok(RouterEvent {
        worker_id: outer.worker.ok_or(Refusal::Malformed)?,
        tier: outer.tier.unwrap_or(Tier::Device),
        domain: outer.domain.unwrap_or(Domain::Legacy),
        event_id: inner.id.ok_or(Refusal::Malformed)?,
        rank: inner.rank.unwrap_or(0),
        data: inner.data.ok_or(Refusal::Malformed)?,
    })
}

#[derive(Clone, Copy)]
enum OuterField {
    Worker,
    Tier,
    Domain,
    Inner,
}

#[derive(Default)]
struct Outer {
    worker: Option<u64>,
    tier: Option<Tier>,
    domain: Option<Domain>,
    inner: Option<Inner>,
}

impl<'a> Fields<'a> for Outer {
    type Field = OuterField;
    /// Writers leave fields out, so a position says nothing.
    const ORDER: &'static [OuterField] = &[];

    fn named(name: &[u8]) -> Option<OuterField> {
        match name {
            b"worker_id" => Some(OuterField::Worker),
            b"storage_tier" => Some(OuterField::Tier),
            b"residency_domain" => Some(OuterField::Domain),
            b"event" => Some(OuterField::Inner),
            _ => None,
        }
    }

    fn read(&mut self, field: OuterField, cursor: &mut Cursor<'a>) -> Result<(), Refusal> {
        match field {
            OuterField::Worker => once(&mut self.worker, cursor.uint()?),
            OuterField::Tier => once(&mut self.tier, Tier::named(cursor.str()?)),
            OuterField::Domain => {
                let domain = if cursor.nil() {
                    Domain::Unknown
                } else {
                    match cursor.str()? {
                        b"worker" => Domain::Worker,
                        b"cache_owner" => Domain::CacheOwner,
                        _ => Domain::Unknown,
                    }
                };
                once(&mut self.domain, domain)
            }
            OuterField::Inner => once(&mut self.inner, cursor.fields()?),
        }
    }
}

#[derive(Clone, Copy)]
enum InnerField {
    Id,
    Rank,
    Data,
}

#[derive(Default)]
struct Inner {
    id: Option<u64>,
    rank: Option<u32>,
    data: Option<Data>,
}

impl<'a> Fields<'a> for Inner {
    type Field = InnerField;
    const ORDER: &'static [InnerField] = &[];

    fn named(name: &[u8]) -> Option<InnerField> {
        match name {
            b"event_id" => Some(InnerField::Id),
            b"dp_rank" => Some(InnerField::Rank),
            b"data" => Some(InnerField::Data),
            _ => None,
        }
    }

    fn read(&mut self, field: InnerField, cursor: &mut Cursor<'a>) -> Result<(), Refusal> {
        match field {
            InnerField::Id => once(&mut self.id, cursor.uint()?),
            InnerField::Rank => once(&mut self.rank, cursor.uint()?),
            InnerField::Data => once(&mut self.data, data(cursor)?),
        }
    }
}

/// One of three variants: a bare word, or a map of the word and its content.
fn data(cursor: &mut Cursor<'_>) -> Result<Data, Refusal> {
    let Some(entries) = cursor.map()? else {
        return match cursor.str()? {
            b"cleared" => Ok(Data::Cleared),
            _ => Err(Refusal::Malformed),
        };
    };
    if entries != 1 {
        return Err(Refusal::Malformed);
    }
    match cursor.str()? {
        b"stored" => {
            let chain: Chain = cursor.fields()?;
            Ok(Data::Stored(Stored {
                parent: chain.parent.flatten(),
                blocks: chain.blocks.ok_or(Refusal::Malformed)?,
            }))
        }
        b"removed" => {
            let gone: Gone = cursor.fields()?;
            gone.hashes.map(Data::Removed).ok_or(Refusal::Malformed)
        }
        b"cleared" => cursor.skip().map(|()| Data::Cleared),
        _ => Err(Refusal::Malformed),
    }
}

/// A list of at most [`MAX_BLOCKS_PER_EVENT`] elements of at least `least` bytes each.
fn list<'a, T>(
    cursor: &mut Cursor<'a>,
    least: usize,
    mut element: impl FnMut(&mut Cursor<'a>) -> Result<T, Refusal>,
) -> Result<Vec<T>, Refusal> {
    let len = cursor.array(least)?;
    if len > MAX_BLOCKS_PER_EVENT {
        return Err(Refusal::Oversized);
    }
    let mut elements = Vec::with_capacity(usize::try_from(len).unwrap_or_default());
    for _ in 0..len {
        elements.push(element(cursor)?);
    }
    Ok(elements)
}

#[derive(Clone, Copy)]
enum ChainField {
    Parent,
    Blocks,
}

#[derive(Default)]
struct Chain {
    parent: Option<Option<u64>>,
    blocks: Option<Vec<Block>>,
}

impl<'a> Fields<'a> for Chain {
    type Field = ChainField;
    const ORDER: &'static [ChainField] = &[];

    fn named(name: &[u8]) -> Option<ChainField> {
        match name {
            b"parent_hash" => Some(ChainField::Parent),
            b"blocks" => Some(ChainField::Blocks),
            _ => None,
        }
    }

    fn read(&mut self, field: ChainField, cursor: &mut Cursor<'a>) -> Result<(), Refusal> {
        match field {
            ChainField::Parent => {
                let parent = if cursor.nil() { None } else { Some(cursor.bits()?) };
                once(&mut self.parent, parent)
            }
            ChainField::Blocks => {
                let blocks = list(cursor, MIN_BLOCK_BYTES, |cursor| {
                    let read: ReadBlock = cursor.fields()?;
                    Ok(Block {
                        hash: read.hash.ok_or(Refusal::Malformed)?,
                        tokens: read.tokens.ok_or(Refusal::Malformed)?,
                        multimodal: read.multimodal.unwrap_or(false),
                    })
                })?;
                once(&mut self.blocks, blocks)
            }
        }
    }
}

#[derive(Clone, Copy)]
enum BlockField {
    Hash,
    Tokens,
    Multimodal,
}

#[derive(Default)]
struct ReadBlock {
    hash: Option<u64>,
    tokens: Option<u64>,
    multimodal: Option<bool>,
}

impl<'a> Fields<'a> for ReadBlock {
    type Field = BlockField;
    const ORDER: &'static [BlockField] = &[];

    fn named(name: &[u8]) -> Option<BlockField> {
        match name {
            b"block_hash" => Some(BlockField::Hash),
            b"tokens_hash" => Some(BlockField::Tokens),
            b"mm_extra_info" => Some(BlockField::Multimodal),
            _ => None,
        }
    }

    fn read(&mut self, field: BlockField, cursor: &mut Cursor<'a>) -> Result<(), Refusal> {
        match field {
            BlockField::Hash => once(&mut self.hash, cursor.bits()?),
            BlockField::Tokens => once(&mut self.tokens, cursor.bits()?),
            BlockField::Multimodal => {
                let multimodal = !cursor.nil();
                if multimodal {
                    cursor.skip()?;
                }
                once(&mut self.multimodal, multimodal)
            }
        }
    }
}

#[derive(Clone, Copy)]
enum GoneField {
    Hashes,
}

#[derive(Default)]
struct Gone {
    hashes: Option<Vec<u64>>,
}

impl<'a> Fields<'a> for Gone {
    type Field = GoneField;
    const ORDER: &'static [GoneField] = &[];

    fn named(name: &[u8]) -> Option<GoneField> {
        (name == b"block_hashes").then_some(GoneField::Hashes)
    }

    fn read(&mut self, field: GoneField, cursor: &mut Cursor<'a>) -> Result<(), Refusal> {
        match field {
            GoneField::Hashes => once(&mut self.hashes, list(cursor, 1, Cursor::bits)?),
        }
    }
}

#[cfg(test)]
mod tests;

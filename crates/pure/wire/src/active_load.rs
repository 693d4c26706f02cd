//! `ActiveLoad`: one load sample of one rank.

use continuum_fleet::ids::{InstanceId, Rank};

use crate::{
    Limits, Refusal,
    msgpack::{Cursor, Fields, Writer, once},
};

/// A load sample as it came. `None` means that this sample says nothing of the field, not that it is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveLoad {
    /// The worker that the sample is about.
    pub worker: InstanceId,
    /// Its global rank; 0 when the writer did not say.
    pub rank: Rank,
    /// KV blocks of running decodes.
    pub active_decode_blocks: Option<u64>,
    /// Prompt tokens being prefilled. Real workers never fill it.
    pub active_prefill_tokens: Option<u64>,
    /// KV blocks of running sequences.
    pub kv_used_blocks: Option<u64>,
}

impl ActiveLoad {
    /// Reads the payload of a `kv_metrics` message: a map by name, or an array by position (older
    /// writers). Unknown fields and bytes behind the value are passed over.
    ///
    /// # Errors
    /// [`Refusal::Malformed`]: not msgpack, no worker id, a repeated or mistyped field, or too deep nesting.
    pub fn decode(payload: &[u8], limits: &Limits) -> Result<Self, Refusal> {
        let fields: Sample = Cursor::new(payload, limits.nesting).fields()?;
        Ok(Self {
            worker: fields.worker.map(InstanceId::new).ok_or(Refusal::Malformed)?,
            rank: Rank(fields.rank.unwrap_or(0)),
            active_decode_blocks: fields.decode_blocks.flatten(),
            active_prefill_tokens: fields.prefill_tokens.flatten(),
            kv_used_blocks: fields.used_blocks.flatten(),
        })
    }

    /// The payload as a worker writes it: a map of all five fields.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.map(5);
        writer.str("worker_id").uint(self.worker.raw());
        writer.str("dp_rank").uint(u64::from(self.rank.0));
        writer
            .str("active_decode_blocks")
            .optional_uint(self.active_decode_blocks);
        writer
            .str("active_prefill_tokens")
            .optional_uint(self.active_prefill_tokens);
        writer.str("kv_used_blocks").optional_uint(self.kv_used_blocks);
        writer.finish()
    }
}

#[derive(Clone, Copy)]
enum Field {
    Worker,
    Rank,
    DecodeBlocks,
    PrefillTokens,
    UsedBlocks,
}

/// What was read so far; the outer `Option` tells a field that did not occur from one that was nil.
#[derive(Default)]
struct Sample {
    worker: Option<u64>,
    rank: Option<u32>,
    decode_blocks: Option<Option<u64>>,
    prefill_tokens: Option<Option<u64>>,
    used_blocks: Option<Option<u64>>,
}

impl<'a> Fields<'a> for Sample {
    type Field = Field;
    const ORDER: &'static [Field] = &[
        Field::Worker,
        Field::Rank,
        Field::DecodeBlocks,
        Field::PrefillTokens,
        Field::UsedBlocks,
    ];

    fn named(name: &[u8]) -> Option<Field> {
        match name {
            b"worker_id" => Some(Field::Worker),
            b"dp_rank" => Some(Field::Rank),
            b"active_decode_blocks" => Some(Field::DecodeBlocks),
            b"active_prefill_tokens" => Some(Field::PrefillTokens),
            b"kv_used_blocks" => Some(Field::UsedBlocks),
            _ => None,
        }
    }

    fn read(&mut self, field: Field, cursor: &mut Cursor<'a>) -> Result<(), Refusal> {
        match field {
            Field::Worker => once(&mut self.worker, cursor.uint()?),
            Field::Rank => once(&mut self.rank, cursor.uint()?),
            Field::DecodeBlocks => once(&mut self.decode_blocks, cursor.optional_uint()?),
            Field::PrefillTokens => once(&mut self.prefill_tokens, cursor.optional_uint()?),
            Field::UsedBlocks => once(&mut self.used_blocks, cursor.optional_uint()?),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;

//! Every cap of the fleet model. All input is written by the fleet and trusted by nobody.

use crate::keys::Bucket;

/// Longest registry value that is parsed, in bytes (16 MiB): ten times what etcd accepts by default, so that
/// only a broken or hostile writer meets it.
pub const MAX_RECORD_BYTES: usize = 16 * 1024 * 1024;

/// Longest registry key that is read, in bytes. Real keys stay under 200.
pub const MAX_KEY_BYTES: usize = 1024;

/// Longest model card whose JSON is kept beside its typed fields, in bytes (1 MiB). A longer card keeps its
/// typed fields and its worker; only the opaque JSON is dropped.
pub const MAX_RETAINED_CARD_BYTES: usize = 1024 * 1024;

/// Opaque card JSON kept over all workers, in bytes (256 MiB); equal cards count once.
pub const MAX_RETAINED_CARDS_TOTAL_BYTES: usize = 256 * 1024 * 1024;

/// Keys kept of instances, and of cards. Known keys are still updated when it is reached; new ones are refused.
pub const MAX_RECORDS_PER_KEYSPACE: usize = 16_384;

/// Event channels, and event sources, kept for each instance key that may be kept: one for its load, and cache
/// events of four ranks, as many as the load store has for a fleet of that size. Keys of cache events come before
/// those of load, so a lower cap would take the load of wide data-parallel fleets away.
pub const EVENT_KEYS_PER_RECORD: usize = 5;

/// Keys kept for one worker: its cards (base and adapters), and claims of one instance, channel or source. More
/// are refused, so that the work of one change stays bounded whoever writes.
pub const MAX_CARDS_PER_WORKER: usize = 512;

/// See [`MAX_CARDS_PER_WORKER`]. Two are a conflict already.
pub const MAX_CLAIMS_PER_IDENTITY: usize = 16;

/// Longest namespace, component or endpoint name, in bytes.
pub const MAX_NAME_BYTES: usize = 256;

/// Longest model name, in bytes; a longer one is treated as absent.
pub const MAX_MODEL_NAME_BYTES: usize = 512;

/// Names that one worker serves (base, aliases and adapters). More are not offered.
pub const MAX_NAMES_PER_WORKER: usize = 512;

/// Aliases read from one card.
pub const MAX_ALIASES_PER_CARD: usize = 64;

/// Alternatives in a card's `needs`, and peers in each of them.
pub const MAX_NEEDS: usize = 16;

/// Topology domains read from one card.
pub const MAX_TOPOLOGY_DOMAINS: usize = 32;

/// Longest short text of a card (domain, mode, version), in bytes; a longer one is treated as absent.
pub const MAX_CARD_TEXT_BYTES: usize = 256;

/// Longest tokenizer or template slot kept as text, in bytes; a longer one is treated as absent.
pub const MAX_ARTIFACT_BYTES: usize = 8 * 1024;

/// Data-parallel ranks of one worker that take part in routing. Every rank costs a slot of load state, so a
/// card must not be able to declare four billion of them; no engine runs a thousand.
pub const MAX_RANKS_PER_WORKER: u32 = 1_024;

/// Longest event endpoint, in bytes.
pub const MAX_ENDPOINT_BYTES: usize = 512;

/// XPUB endpoints read from one broker channel.
pub const MAX_BROKER_ENDPOINTS: usize = 8;

/// Keys named in the report of one conflict.
pub const MAX_KEYS_IN_REPORT: usize = 4;

/// Mixed (namespace, model) pairs reported one by one in a pass; the rest share a summary.
pub const MAX_MIXED_REPORTS: usize = 8;

/// Notes kept for the log in one pass; the rest are counted only.
pub const MAX_NOTES_PER_PASS: usize = 64;

/// Conditions remembered as already said. The oldest is forgotten first.
pub const MAX_SAID: usize = 4096;

/// Kubernetes objects of one kind: as many as there may be records in a key space.
pub const MAX_RESOURCES: usize = 16_384;

/// Keys and values of all records in Kubernetes resources together, bytes: a record is kept here beside the reducer.
pub const MAX_RESOURCE_BYTES: usize = 256 * 1024 * 1024;

/// The caps that a deployment may change; their defaults are the constants of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// [`MAX_RECORD_BYTES`].
    pub record_bytes: usize,
    /// [`MAX_RETAINED_CARD_BYTES`].
    pub retained_card_bytes: usize,
    /// [`MAX_RETAINED_CARDS_TOTAL_BYTES`].
    pub retained_cards_total_bytes: usize,
    /// [`MAX_RECORDS_PER_KEYSPACE`]; see also [`EVENT_KEYS_PER_RECORD`].
    pub records_per_keyspace: usize,
}

impl Limits {
    /// Keys kept in a bucket.
    #[must_use]
    pub const fn keys_in(&self, bucket: Bucket) -> usize {
        match bucket {
            Bucket::Instances | Bucket::Cards => self.records_per_keyspace,
            Bucket::EventChannels | Bucket::EventSources => {
                self.records_per_keyspace.saturating_mul(EVENT_KEYS_PER_RECORD)
            }
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            record_bytes: MAX_RECORD_BYTES,
            retained_card_bytes: MAX_RETAINED_CARD_BYTES,
            retained_cards_total_bytes: MAX_RETAINED_CARDS_TOTAL_BYTES,
            records_per_keyspace: MAX_RECORDS_PER_KEYSPACE,
        }
    }
}

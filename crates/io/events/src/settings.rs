//! What the operator decides of subscriptions.

use std::sync::Arc;

use continuum_config::model::{Dynamo, KvLimits, Load, Transport as Reach};
use continuum_fleet::view::Topic;
use continuum_kv_index::Caps;
use continuum_wire::Limits;
use ipnet::IpNet;

/// What the operator decides. A change takes effect without touching what the store holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How publishers are reached.
    pub reach: Reach,
    /// Networks that endpoints must lie in; empty allows all.
    pub allowed: Arc<[IpNet]>,
    /// Most subscriptions at a time. Whoever has one keeps it.
    pub max_subscriptions: usize,
    /// XPUB endpoints of brokers that no record names, `tcp://host:port`.
    pub xpub_endpoints: Arc<[Arc<str>]>,
    /// Nothing is subscribed to while this is off.
    pub enabled: bool,
    /// What matters to subscriptions to block events.
    pub blocks: BlockSettings,
}

/// What the operator decides of block events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSettings {
    /// Longest payload of a message, in bytes.
    pub payload: usize,
    /// What the messages of all connections may hold together, in bytes.
    pub budget: usize,
    /// Ranks of which one subscription has cursors.
    pub cursors: usize,
    /// Caps of the index.
    pub caps: Caps,
}

impl Default for BlockSettings {
    fn default() -> Self {
        Self::from(&KvLimits::default())
    }
}

impl From<&KvLimits> for BlockSettings {
    fn from(limits: &KvLimits) -> Self {
        let wide = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let count = |number: u32| wide(u64::from(number));
        Self {
            payload: wide(limits.max_frame_bytes),
            budget: wide(limits.event_bytes_budget),
            cursors: count(limits.max_cursors_per_subscription),
            caps: Caps {
                blocks: count(limits.max_index_blocks),
                blocks_per_rank: count(limits.max_blocks_per_rank),
                ownerships: count(limits.max_index_ownerships),
                ranks: count(limits.max_owners_per_node),
            },
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::from(&Load::default())
    }
}

impl From<&Load> for Settings {
    fn from(load: &Load) -> Self {
        Self {
            reach: load.transport,
            allowed: load.direct_allow_cidrs.clone().into(),
            max_subscriptions: usize::try_from(load.max_subscriptions).unwrap_or(usize::MAX),
            xpub_endpoints: load
                .zmq_broker
                .xpub_endpoints
                .iter()
                .map(|e| e.to_string().into())
                .collect(),
            enabled: true,
            blocks: BlockSettings::default(),
        }
    }
}

impl Settings {
    /// Of subscriptions to block events: the ways of the load subscriptions, with limits of their own.
    #[must_use]
    pub fn of_blocks(dynamo: &Dynamo) -> Self {
        Self {
            enabled: dynamo.enabled && dynamo.kv.enabled,
            blocks: BlockSettings::from(&dynamo.kv.limits),
            ..Self::from(&dynamo.load)
        }
    }

    /// What one message of a family may be.
    pub(crate) const fn limits(&self, family: Topic) -> Limits {
        match family {
            Topic::KvMetrics => Limits::KV_METRICS,
            Topic::KvEvents => Limits::kv_events(self.blocks.payload),
        }
    }
}

#[cfg(test)]
mod tests {
    use continuum_config::Build;
    use continuum_kv_index::limits::{MOST_BLOCKS, MOST_RANKS};

    /// The index does no more than this, and says nothing of it.
    #[test]
    fn the_configuration_asks_for_no_more_than_the_index_can_do() {
        for (key, most) in [
            ("max_index_blocks", MOST_BLOCKS),
            ("max_owners_per_node", MOST_RANKS),
        ] {
            for (value, is_fine) in [(most, true), (most + 1, false)] {
                let text = format!(
                    "backends: [{{name: a, url: 'http://127.0.0.1:9', models: [m]}}]\n\
                     dynamo: {{kv: {{limits: {{{key}: {value}}}}}}}"
                );
                let parsed = continuum_config::parse(&text, &|_| None, Build::FULL);
                assert_eq!(parsed.is_ok(), is_fine, "{key}: {value}: {parsed:?}");
            }
        }
    }
}

//! Workers whose blocks a prompt cannot be compared with.

use continuum_fleet::view::{Role, Worker};

/// Why a worker is credited with nothing, whatever it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unscored {
    /// It answers no prompts, or its role is not known.
    Role,
    /// Nothing is known of its blocks.
    NoCard,
    /// Its card declares no block size from 1 to 65536.
    NoBlockSize,
    /// Its events are of a mode that is not known here, and may mean anything.
    EventMode,
    /// Its events are published in another namespace than its own.
    EventsElsewhere,
    /// There is no room in the index for some of its ranks: see [`Intake::is_beyond`](super::Intake::is_beyond).
    OverCapacity,
    /// Some of its publishers wait for a subscription, beyond a cap or without a way to them.
    NotSubscribed,
}

impl Unscored {
    /// Every reason, in order.
    pub const ALL: [Self; 7] = [
        Self::Role,
        Self::NoCard,
        Self::NoBlockSize,
        Self::EventMode,
        Self::EventsElsewhere,
        Self::OverCapacity,
        Self::NotSubscribed,
    ];

    /// The word in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Role => "role",
            Self::NoCard => "no_card",
            Self::NoBlockSize => "no_block_size",
            Self::EventMode => "unknown_event_mode",
            Self::EventsElsewhere => "events_elsewhere",
            Self::OverCapacity => "over_capacity",
            Self::NotSubscribed => "not_subscribed",
        }
    }
}

/// Values of `kv_event_source_mode` whose events mean what they always did: of the engine itself, and of an agent
/// beside it.
const KNOWN_MODES: [&str; 2] = ["framework_v1", "state_agent_v2"];

/// Why the worker is not scored, as far as its records say; `None` for one that is.
#[must_use]
pub fn unscored(worker: &Worker) -> Option<Unscored> {
    match worker.role {
        Role::Prefill | Role::Decode | Role::Aggregated => {}
        Role::Encode | Role::Unknown => return Some(Unscored::Role),
    }
    let Some(card) = worker.card.as_deref() else {
        return Some(Unscored::NoCard);
    };
    let is_known = |mode: &str| KNOWN_MODES.contains(&mode);
    // A channel speaks for the workers of its own namespace.
    let is_here = |namespace: &str| namespace == worker.key.namespace.as_str();
    if card.blocks().is_none() {
        Some(Unscored::NoBlockSize)
    } else if !card.kv_event_source_mode.as_deref().is_none_or(is_known) {
        Some(Unscored::EventMode)
    } else if !card.kv_state_namespace.as_deref().is_none_or(is_here) {
        Some(Unscored::EventsElsewhere)
    } else {
        None
    }
}

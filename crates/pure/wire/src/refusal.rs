//! Why one message is dropped. A dropped message never ends its subscription.

/// Why a message, or the sample in it, was refused. One variant, one value of the metric label `result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Refusal {
    /// Not four frames, an id or sequence frame that is not 8 bytes, or msgpack that does not decode.
    #[error("malformed")]
    Malformed,
    /// Frame 4 begins with a version other than 1.
    #[error("unknown version")]
    UnknownVersion,
    /// Frame 1, or the topic in the envelope, is not the subscribed one.
    #[error("topic mismatch")]
    TopicMismatch,
    /// Frame 4 declares more payload than the family allows.
    #[error("oversized")]
    Oversized,
    /// Publisher ids of frame, envelope and record differ.
    #[error("identity mismatch")]
    IdentityMismatch,
}

impl Refusal {
    /// Every refusal, in order.
    pub const ALL: [Self; 5] = [
        Self::Malformed,
        Self::UnknownVersion,
        Self::TopicMismatch,
        Self::Oversized,
        Self::IdentityMismatch,
    ];

    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::UnknownVersion => "unknown_version",
            Self::TopicMismatch => "topic_mismatch",
            Self::Oversized => "oversized",
            Self::IdentityMismatch => "identity_mismatch",
        }
    }
}

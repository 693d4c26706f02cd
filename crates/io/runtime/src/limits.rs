//! Every limit and time of this crate, with its reason.

use std::time::Duration;

/// How long addresses of a name are used without asking again. As long as CoreDNS keeps an answer: to ask more often
/// brings nothing new.
pub const ADDRESSES_FRESH: Duration = Duration::from_secs(5);

/// How long the last addresses are used after a look-up that failed, before the next one.
pub const LOOKUP_PAUSE: Duration = Duration::from_secs(1);

//! When an authority is made, used and dropped. Pure: the time is an argument.

use jiff::{SignedDuration, Timestamp};

/// How long an authority is valid, days: long enough that a rotation is rare, short enough that it is exercised.
pub const AUTHORITY_DAYS: i64 = 365;
/// How long a serving certificate is valid, days; issued anew when a third is left.
pub const SERVING_DAYS: i64 = 30;
/// An authority is rotated when less than this is left, days: routers then have this long to get the new bundle.
pub const ROTATE_BEFORE_DAYS: i64 = 60;
/// A new authority signs only after this long, hours, while the one before is good for longer: the time to repair what
/// keeps the new one from the routers' ConfigMaps, such as an API server that cannot be reached or a right that is missing.
pub const SETTLE_HOURS: i64 = 24;
/// Where the one before has not that long, it signs after this long, minutes: ConfigMap volumes need some to follow.
pub const SETTLE_MINUTES: i64 = 15;
/// Clocks may differ by this much, minutes.
const SKEW_MINUTES: i64 = 5;
/// Authorities that are kept at most: the newest and the one before it.
pub const KEPT: usize = 2;

/// An authority as the Secret holds it.
#[derive(Clone, PartialEq, Eq)]
pub struct Authority {
    /// Certificate, PEM.
    pub cert: String,
    /// Key, PEM.
    pub key: String,
    /// End of its validity.
    pub not_after: Timestamp,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority")
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

/// What the leader does with the authorities of the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// A new one is made and put first.
    pub make: bool,
    /// Those that stay, newest first.
    pub keep: Vec<Authority>,
}

/// Decides by the time.
#[must_use]
pub fn plan(held: &[Authority], now: Timestamp) -> Plan {
    let mut keep: Vec<Authority> = held.iter().filter(|one| one.not_after > now).cloned().collect();
    keep.sort_by_key(|one| std::cmp::Reverse(one.not_after));
    let make = keep
        .first()
        .is_none_or(|newest| newest.not_after < end_of(now, ROTATE_BEFORE_DAYS));
    keep.truncate(if make { KEPT.saturating_sub(1) } else { KEPT });
    Plan { make, keep }
}

/// The authority that signs: the newest that routers can be expected to know, else the only one.
#[must_use]
pub fn signer(held: &[Authority], now: Timestamp) -> Option<&Authority> {
    let live = || held.iter().filter(|one| one.not_after > now);
    let settled = |one: &&Authority| {
        let made = minus(one.not_after, SignedDuration::from_hours(24 * AUTHORITY_DAYS));
        let planned = plus(made, SignedDuration::from_hours(SETTLE_HOURS));
        let hurried = plus(made, SignedDuration::from_mins(SETTLE_MINUTES));
        let lasts = live().any(|other| other.not_after < one.not_after && other.not_after > planned);
        now >= if lasts { planned } else { hurried }
    };
    live()
        .filter(settled)
        .max_by_key(|one| one.not_after)
        .or_else(|| live().min_by_key(|one| one.not_after))
}

/// The end of something that lasts for `days`.
#[must_use]
pub fn end_of(now: Timestamp, days: i64) -> Timestamp {
    plus(now, SignedDuration::from_hours(24 * days))
}

/// The end of a certificate's validity; `None` when it is no certificate.
pub(super) fn expiry(certificate: &[u8]) -> Option<Timestamp> {
    let (_rest, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Timestamp::from_second(parsed.validity().not_after.timestamp()).ok()
}

/// The beginning of a validity: a little before now, for clocks that differ.
#[must_use]
pub fn start_of(now: Timestamp) -> Timestamp {
    minus(now, SignedDuration::from_mins(SKEW_MINUTES))
}

/// The same moment for the certificate library.
pub(super) fn offset(at: Timestamp) -> time::OffsetDateTime {
    time::OffsetDateTime::from_unix_timestamp(at.as_second()).unwrap_or(time::OffsetDateTime::UNIX_EPOCH)
}

fn plus(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

fn minus(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_sub(by).unwrap_or(Timestamp::MIN)
}

//! Counts whom the picker chose, and why.

use continuum_routing::picker::{NoPick, Pick, Reason};
use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

/// `continuum_dynamo_selection_total`.
pub struct Selections {
    decode: [IntCounter; Reason::ALL.len()],
    prefill: [IntCounter; Reason::ALL.len()],
}

impl Selections {
    /// Registers the family.
    ///
    /// # Errors
    /// When it is registered already.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let family = IntCounterVec::new(
            Opts::new(
                "continuum_dynamo_selection_total",
                "Selections of a worker, by role and reason.",
            ),
            &["role", "reason"],
        )?;
        registry.register(Box::new(family.clone()))?;
        let of = |role: &str| Reason::ALL.map(|reason| family.with_label_values(&[role, reason.as_str()]));
        Ok(Self {
            decode: of("decode"),
            prefill: of("prefill"),
        })
    }

    pub(crate) fn count(&self, picked: &Result<Pick, NoPick>) {
        let Some((decode, prefill)) = reasons(picked) else {
            return;
        };
        for (counters, reason) in [(&self.decode, decode), (&self.prefill, prefill)] {
            if let Some(counter) = counters.get(reason as usize) {
                counter.inc();
            }
        }
    }
}

/// The reasons of a pick: decode, then prefill.
const fn reasons(picked: &Result<Pick, NoPick>) -> Option<(Reason, Reason)> {
    match picked {
        Ok(pick) => Some((pick.decode_reason, pick.prefill_reason)),
        Err(NoPick::NoModel) => None,
        Err(NoPick::NotReady | NoPick::NoCandidate) => Some((Reason::NoCandidate, Reason::NoCandidate)),
    }
}

//! The second pick of a request, and what its end proves.

use crate::dispatch::{
    metrics::{Metrics, Repicked},
    refusal::{Cause, Meaning},
};

/// A re-pick that has begun counts once: as a success when its workers answer, as a failure when the request ends
/// otherwise.
pub(super) struct Repick<'a> {
    begun: Option<(Repicked, Cause)>,
    metrics: &'a Metrics,
}

impl<'a> Repick<'a> {
    pub(super) const fn new(metrics: &'a Metrics) -> Self {
        Self { begun: None, metrics }
    }

    pub(super) fn begin(&mut self, means: Meaning, cause: Cause) {
        let label = if means == Meaning::Lottery {
            Repicked::Lottery
        } else {
            Repicked::from(cause)
        };
        self.begun = Some((label, cause));
    }

    /// Who was refused before the re-pick may be as good as who comes after it.
    pub(super) fn accuses_nobody(&mut self) {
        if let Some((_, cause)) = &mut self.begun {
            *cause = Cause::Stale;
        }
    }

    /// Tells whether the workers of before are suspect now.
    pub(super) fn succeeded(&mut self) -> bool {
        let Some((label, cause)) = self.begun.take() else {
            return false;
        };
        self.metrics.repicked(label, true);
        cause == Cause::Suspect
    }
}

impl Drop for Repick<'_> {
    fn drop(&mut self) {
        if let Some((label, _)) = self.begun.take() {
            self.metrics.repicked(label, false);
        }
    }
}

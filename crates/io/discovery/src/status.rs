//! The state of discovery, for readiness, the admin view and metrics.

use continuum_fleet::{Refused, ids::Graph};

use crate::source::{Signals, SourceKind};

/// What discovery is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The config asks for discovery.
    pub enabled: bool,
    /// Where it looks; `None` when it is off.
    pub source: Option<SourceKind>,
    /// What the controllers watch, with the source `controller`.
    pub upstream: Option<SourceKind>,
    /// The number of the pushed view that is shown, with the source `controller`: see [`crate::Pushed`].
    pub pushed: u64,
    /// This build can read that source.
    pub supported: bool,
    /// Which signals the source carries.
    pub signals: Signals,
    /// Configured namespaces.
    pub namespaces: Vec<Graph>,
    /// A session is up: the list is complete and the watch stands.
    pub connected: bool,
    /// The present watcher has finished a full list that looked for every configured namespace.
    pub synced: bool,
    /// The configured namespaces that its last full list looked for.
    pub looked_for: Vec<Graph>,
    /// Some watcher of this process has finished its first full list.
    pub first_sync: bool,
    /// The view was kept by an earlier process and no full list has replaced it yet.
    pub stale: bool,
    /// Watchers started in place of another one, or after discovery was off.
    pub restarts: u64,
    /// Passes begun, by all watchers.
    pub passes: u64,
    /// What is kept out of the view now, or is in it as it was before.
    pub refused: Refused,
    /// Why the last pass ended or could not begin; `None` while a session is up. Holds no secret.
    pub last_error: Option<String>,
}

impl Status {
    /// Whether a router may take requests: nothing is to be found, or something has been found once.
    ///
    /// A source that this build cannot read will never be found, so it does not hold the router back either.
    #[must_use]
    pub const fn ready(&self) -> bool {
        !self.enabled || !self.supported || self.first_sync || self.stale
    }

    /// Whether it is known who is in the fleet that is configured now. While it is not, that a model is not served there
    /// would be a guess.
    #[must_use]
    pub const fn listed(&self) -> bool {
        !self.enabled || !self.supported || self.synced || self.stale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_is_listed_anew_when_another_one_is_configured() {
        let before = Status {
            enabled: true,
            supported: true,
            first_sync: true,
            synced: true,
            ..Status::default()
        };
        assert!(before.listed() && Status::default().listed());
        let now = Status {
            synced: false,
            ..before
        };
        assert!(now.ready() && !now.listed());
        assert!(Status { stale: true, ..now }.listed());
    }

    #[test]
    fn ready_needs_a_list_once_or_a_kept_view() {
        let off = Status::default();
        let on = Status {
            enabled: true,
            supported: true,
            ..Status::default()
        };
        assert!(off.ready() && !on.ready());
        assert!(
            Status {
                first_sync: true,
                ..on.clone()
            }
            .ready()
        );
        assert!(
            Status {
                stale: true,
                ..on.clone()
            }
            .ready()
        );
        assert!(
            Status {
                supported: false,
                ..on
            }
            .ready()
        );
    }
}

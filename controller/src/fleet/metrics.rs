//! How the sources of this replica fare. Labels are closed.

use continuum_discovery::{Status, source::SourceKind};
use prometheus::{IntGaugeVec, Opts, Registry};

/// The kinds that an operator reads.
const KINDS: [SourceKind; 2] = [SourceKind::Kubernetes, SourceKind::KubernetesPods];

/// The gauge of sources.
#[derive(Clone, Debug)]
pub struct Metrics(IntGaugeVec);

/// How a source fares: the reasons of the condition `FleetSynced`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connecting,
    Synced,
    Disconnected,
    Stale,
}

/// One source in the gauge, until it is dropped.
#[derive(Debug)]
pub(super) struct Shown {
    metrics: Metrics,
    as_what: Option<(SourceKind, State)>,
}

impl Metrics {
    /// Registers it.
    ///
    /// # Errors
    /// When a family of that name is registered already.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauge = IntGaugeVec::new(
            Opts::new(
                "continuum_controller_sources",
                "Sources of fleets that this replica watches, by kind and by how they fare",
            ),
            &["kind", "state"],
        )?;
        for kind in KINDS {
            for state in State::ALL {
                gauge.with_label_values(&[kind.as_str(), state.as_str()]);
            }
        }
        registry.register(Box::new(gauge.clone()))?;
        Ok(Self(gauge))
    }

    pub(super) const fn source(self) -> Shown {
        Shown {
            metrics: self,
            as_what: None,
        }
    }

    fn add(&self, (kind, state): (SourceKind, State), count: i64) {
        self.0
            .with_label_values(&[kind.as_str(), state.as_str()])
            .add(count);
    }
}

impl State {
    const ALL: [Self; 4] = [Self::Connecting, Self::Synced, Self::Disconnected, Self::Stale];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Synced => "synced",
            Self::Disconnected => "disconnected",
            Self::Stale => "stale",
        }
    }

    const fn of(status: &Status) -> Self {
        match (status.stale, status.synced, status.connected) {
            (true, _, _) => Self::Stale,
            (false, true, true) => Self::Synced,
            (false, true, false) => Self::Disconnected,
            (false, false, _) => Self::Connecting,
        }
    }
}

impl Shown {
    pub(super) fn update(&mut self, status: &Status) {
        let now = status
            .source
            .filter(|kind| KINDS.contains(kind))
            .map(|kind| (kind, State::of(status)));
        self.become_like(now);
    }

    fn become_like(&mut self, now: Option<(SourceKind, State)>) {
        let before = std::mem::replace(&mut self.as_what, now);
        if before != now {
            before.into_iter().for_each(|what| self.metrics.add(what, -1));
            now.into_iter().for_each(|what| self.metrics.add(what, 1));
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.become_like(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_counted_once_where_it_is() {
        let registry = Registry::new();
        let metrics = Metrics::register(&registry).unwrap();
        let series = || -> Vec<(String, i64)> {
            let family = registry.gather().remove(0);
            let mut all = Vec::new();
            for one in family.get_metric() {
                let labels: Vec<&str> = one.get_label().iter().map(|label| label.value()).collect();
                all.push((labels.join(" "), one.get_gauge().get_value() as i64));
            }
            all
        };
        let counted = || -> Vec<String> {
            let all = series();
            all.into_iter()
                .flat_map(|(labels, count)| (0..count).map(move |_| labels.clone()))
                .collect()
        };
        assert_eq!((series().len(), counted().len()), (8, 0));
        let mut shown = metrics.clone().source();
        let mut status = Status {
            source: Some(SourceKind::Kubernetes),
            ..Status::default()
        };
        shown.update(&status);
        shown.update(&status);
        assert_eq!(counted(), ["kubernetes connecting"]);
        status.synced = true;
        shown.update(&status);
        assert_eq!(counted(), ["kubernetes disconnected"]);
        status.connected = true;
        shown.update(&status);
        let mut other = metrics.source();
        status.source = Some(SourceKind::KubernetesPods);
        status.stale = true;
        other.update(&status);
        assert_eq!(counted(), ["kubernetes synced", "kubernetes_pods stale"]);
        drop(shown);
        assert_eq!(counted(), ["kubernetes_pods stale"]);
    }
}

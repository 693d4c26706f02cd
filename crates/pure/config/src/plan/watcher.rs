//! When the watcher of the fleet is exchanged, why, and what becomes of the view.

use std::collections::BTreeSet;

use crate::model::{Config, Discovery, DiscoverySource, Kubernetes, Upstream};

/// A watcher to stop, a watcher to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatcherSwap {
    /// The word for the log.
    pub reason: Reason,
    /// What becomes of the view of the fleet.
    pub view: ViewOf,
    /// Whether a watcher runs afterwards. Turning discovery off starts none and counts no restart.
    pub starts: bool,
}

/// Why a watcher is exchanged. Where there are several reasons, the first in this order is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Discovery was turned on or off.
    Enabled,
    /// Another kind of source.
    Source,
    /// Another cluster, directory or API server, or other credentials.
    Connection,
    /// Another namespace instead of the one that was followed.
    Namespace,
    /// Namespaces came or went; those that stay go on.
    Namespaces,
    /// The names that pods are given, how much is kept, or where.
    Other,
    /// Only the waiting times.
    Backoff,
}

impl Reason {
    /// The word for the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::Source => "source",
            Self::Connection => "connection",
            Self::Namespace => "namespace",
            Self::Namespaces => "namespaces",
            Self::Other => "other",
            Self::Backoff => "backoff",
        }
    }
}

/// What becomes of the view of the fleet when its watcher is exchanged. The order is from mild to strict.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ViewOf {
    /// It stands until the new watcher's first sync.
    Kept,
    /// As [`Self::Kept`], without the workers and publishers of these configured namespaces.
    Pruned(Vec<String>),
    /// It is emptied at once: the new watcher looks at other workers.
    Cleared,
}

/// What a change of configuration means for the watcher.
pub(super) fn swap(old: &Config, new: &Config) -> Option<WatcherSwap> {
    let upstreams = (upstream(old), upstream(new));
    let (old, new) = (&old.dynamo, &new.dynamo);
    match (old.enabled, new.enabled) {
        (false, false) => return None,
        (false, true) | (true, false) => {
            return Some(WatcherSwap {
                reason: Reason::Enabled,
                view: ViewOf::Cleared,
                starts: new.enabled,
            });
        }
        (true, true) => {}
    }
    let kept_elsewhere = old.state_dir != new.state_dir;
    let (old, new) = (&old.discovery, &new.discovery);
    if old.source != new.source || upstreams.0 != upstreams.1 {
        return Some(WatcherSwap {
            reason: Reason::Source,
            view: ViewOf::Cleared,
            starts: true,
        });
    }
    let mut found: Vec<(Reason, ViewOf)> = Vec::new();
    found.extend(connection(old, new));
    found.extend(namespaces(old, new));
    let pods = old.source == DiscoverySource::KubernetesPods || upstreams.0 == Some(Upstream::KubernetesPods);
    if pods && models_differ(&old.kubernetes, &new.kubernetes) {
        found.push((Reason::Other, ViewOf::Cleared));
    }
    if old.limits != new.limits || kept_elsewhere {
        found.push((Reason::Other, ViewOf::Kept));
    }
    if old.backoff() != new.backoff() {
        found.push((Reason::Backoff, ViewOf::Kept));
    }
    let reason = found.iter().map(|(reason, _)| *reason).min()?;
    let view = found.into_iter().map(|(_, view)| view).max()?;
    Some(WatcherSwap {
        reason,
        view,
        starts: true,
    })
}

/// What stands behind a pushed view.
fn upstream(config: &Config) -> Option<Upstream> {
    let pushed = config.dynamo.discovery.source == DiscoverySource::Controller;
    config.controller.as_ref().filter(|_| pushed)?.upstream
}

fn connection(old: &Discovery, new: &Discovery) -> Option<(Reason, ViewOf)> {
    match old.source {
        DiscoverySource::Etcd if old.etcd.endpoints != new.etcd.endpoints => {
            Some((Reason::Connection, ViewOf::Cleared))
        }
        // The same members with other credentials hold the same workers.
        DiscoverySource::Etcd if old.etcd.tls != new.etcd.tls || old.etcd.auth != new.etcd.auth => {
            Some((Reason::Connection, ViewOf::Kept))
        }
        DiscoverySource::File if old.file.path != new.file.path => {
            Some((Reason::Connection, ViewOf::Cleared))
        }
        DiscoverySource::Kubernetes | DiscoverySource::KubernetesPods | DiscoverySource::Controller
            if old.kubernetes.namespace != new.kubernetes.namespace =>
        {
            Some((Reason::Namespace, ViewOf::Cleared))
        }
        DiscoverySource::Etcd
        | DiscoverySource::File
        | DiscoverySource::Kubernetes
        | DiscoverySource::KubernetesPods
        | DiscoverySource::Controller => None,
    }
}

fn namespaces(old: &Discovery, new: &Discovery) -> Option<(Reason, ViewOf)> {
    if old.namespace_match != new.namespace_match {
        return Some((Reason::Namespace, ViewOf::Cleared));
    }
    let before: BTreeSet<&str> = old.namespaces().into_iter().collect();
    let after: BTreeSet<&str> = new.namespaces().into_iter().collect();
    if before == after {
        return None;
    }
    if !lists(old) && !lists(new) {
        return Some((Reason::Namespace, ViewOf::Cleared));
    }
    let removed = before.difference(&after).map(|name| (*name).to_owned()).collect();
    Some((Reason::Namespaces, ViewOf::Pruned(removed)))
}

/// Whether the source in use has a list of namespaces rather than one.
const fn lists(discovery: &Discovery) -> bool {
    let many = match discovery.source {
        DiscoverySource::Etcd => &discovery.etcd.namespaces,
        DiscoverySource::File => &discovery.file.namespaces,
        DiscoverySource::Kubernetes | DiscoverySource::KubernetesPods | DiscoverySource::Controller => {
            &discovery.kubernetes.dynamo_namespaces
        }
    };
    !many.is_empty()
}

/// Whether a namespace that stays is given other model names.
fn models_differ(old: &Kubernetes, new: &Kubernetes) -> bool {
    let names = |of: &Kubernetes| -> BTreeSet<String> {
        if of.dynamo_namespaces.is_empty() {
            BTreeSet::from([of.dynamo_namespace.clone()])
        } else {
            of.dynamo_namespaces.iter().cloned().collect()
        }
    };
    let (before, after) = (names(old), names(new));
    old.model != new.model
        || before
            .intersection(&after)
            .any(|name| old.models_of(name) != new.models_of(name))
}

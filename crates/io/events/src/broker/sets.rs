//! Which sets of brokers there are, and what to ask of each.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use continuum_config::model::Transport as Reach;
use continuum_fleet::{
    ids::Namespace,
    view::{FleetView, Publisher, Topic, Transport},
};
use continuum_wire::subject::Scope;

use crate::{
    beyond::Beyond,
    limits::{MAX_BROKER_ENDPOINTS, MAX_BROKER_SUBJECTS},
    settings::Settings,
};

/// Full subjects and the namespace of each.
pub(crate) type Subjects = BTreeMap<Box<[u8]>, Namespace>;

/// Endpoints that relay the same publishers, and what to ask of them.
pub(crate) type Sets = BTreeMap<BTreeSet<Arc<str>>, Subjects>;

/// The sets of brokers and what to ask each: the configured set for every namespace of the view, the sets that
/// records name for the namespaces of those records.
pub(crate) fn sets<'a>(
    view: &FleetView,
    topic: Topic,
    publishers: impl Iterator<Item = &'a Arc<Publisher>>,
    settings: &Settings,
) -> (Sets, Beyond) {
    let mut beyond = Beyond::default();
    let mut sets = Sets::new();
    // Brokers are reached directly; the event bus carries publishers.
    if settings.reach == Reach::Broker {
        return (sets, beyond);
    }
    let mut wanted: BTreeMap<BTreeSet<Arc<str>>, Covers> = BTreeMap::new();
    for publisher in publishers {
        let Transport::ZmqBroker { xpub_endpoints } = &publisher.transport else {
            continue;
        };
        let endpoints = xpub_endpoints
            .iter()
            .map(|endpoint| endpoint.as_str().into())
            .collect();
        if let Covers::Some(namespaces) = wanted
            .entry(endpoints)
            .or_insert_with(|| Covers::Some(BTreeSet::new()))
        {
            namespaces.insert(publisher.namespace.clone());
        }
    }
    if !settings.xpub_endpoints.is_empty() {
        let endpoints = settings.xpub_endpoints.iter().cloned().collect();
        wanted.insert(endpoints, Covers::All);
    }
    let mut connections = 0;
    // The operator's own set comes first, so that records cannot crowd it out.
    let mut wanted: Vec<_> = wanted.into_iter().collect();
    wanted.sort_by_key(|(_, covers)| matches!(covers, Covers::Some(_)));
    for (endpoints, covers) in wanted {
        let (subjects, cut) = subjects(view, topic, &covers);
        if subjects.is_empty() || endpoints.is_empty() {
            continue;
        }
        if connections + endpoints.len() > MAX_BROKER_ENDPOINTS {
            beyond.endpoints += endpoints.len();
            continue;
        }
        connections += endpoints.len();
        beyond.subjects += usize::from(cut);
        sets.insert(endpoints, subjects);
    }
    (sets, beyond)
}

/// The namespaces that a set relays.
enum Covers {
    All,
    Some(BTreeSet<Namespace>),
}

impl Covers {
    fn includes(&self, namespace: &Namespace) -> bool {
        match self {
            Self::All => true,
            Self::Some(namespaces) => namespaces.contains(namespace),
        }
    }
}

/// The subjects under which workers of the view may publish, in all three scopes, and whether a cap cut them off.
fn subjects(view: &FleetView, topic: Topic, covers: &Covers) -> (Subjects, bool) {
    let topic = topic.as_str();
    let mut subjects = Subjects::new();
    let mut last = None;
    for (key, worker) in &view.workers {
        let this = (&key.namespace, &worker.component, &worker.endpoint);
        if !covers.includes(&key.namespace) || last.replace(this) == Some(this) {
            continue;
        }
        let namespace = key.namespace.as_str();
        let (component, endpoint) = (Some(&*worker.component), Some(&*worker.endpoint));
        let scopes = [
            Scope {
                namespace,
                component,
                endpoint,
            },
            Scope {
                namespace,
                component,
                endpoint: None,
            },
            Scope {
                namespace,
                component: None,
                endpoint: None,
            },
        ];
        for scope in scopes {
            let subject: Box<[u8]> = scope.subject(topic).into_bytes().into();
            if subjects.len() >= MAX_BROKER_SUBJECTS && !subjects.contains_key(&subject) {
                return (subjects, true);
            }
            subjects.insert(subject, key.namespace.clone());
        }
    }
    (subjects, false)
}

#[cfg(test)]
mod tests;

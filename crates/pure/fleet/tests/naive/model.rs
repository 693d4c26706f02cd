//! The model: a list of records that were admitted, joined from scratch each time. Slow and obvious.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    SeenPublisher, SeenWorker,
    history::{Item, Key, Kind, Op, Sound, Value},
};

/// What a step must have counted.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    pub(crate) malformed: u64,
    pub(crate) duplicates: u64,
    pub(crate) mixed: usize,
}

pub(crate) struct Model {
    graphs: Vec<&'static str>,
    cap: usize,
    records: BTreeMap<String, Item>,
    first: BTreeMap<(String, u64), i64>,
    pub(crate) refused: u64,
}

impl Model {
    pub(crate) fn new(graphs: &[&'static str], cap: usize) -> Self {
        Self {
            graphs: graphs.to_vec(),
            cap,
            records: BTreeMap::new(),
            first: BTreeMap::new(),
            refused: 0,
        }
    }

    pub(crate) fn apply(&mut self, op: &Op, now: i64) -> Expected {
        let mut expected = Expected::default();
        let conflicts = self.conflicts();
        let mixed = self.mixed();
        match op {
            Op::Change(item) if item.value == Value::Gone => drop(self.records.remove(&item.key.text())),
            Op::Change(item) => self.put(item, &BTreeMap::new(), &mut expected),
            Op::Reset(items) => {
                let old = std::mem::take(&mut self.records);
                self.refused = 0;
                items.iter().for_each(|item| self.put(item, &old, &mut expected));
            }
            Op::Retain(graphs) => {
                self.graphs = graphs.clone();
                let graphs = self.graphs.clone();
                self.records
                    .retain(|_, item| graph_of(&graphs, item.key.namespace).is_some());
            }
        }
        let before = std::mem::take(&mut self.first);
        for item in self
            .records
            .values()
            .filter(|item| matches!(item.key.kind, Kind::Instance { .. }))
        {
            let worker = (item.key.namespace.to_owned(), item.key.id);
            let first = before.get(&worker).copied().unwrap_or(now);
            self.first.insert(worker, first);
        }
        expected.duplicates = self
            .conflicts()
            .into_iter()
            .filter(|(who, keys)| conflicts.get(who) != Some(keys))
            .count() as u64;
        expected.mixed = self.mixed().difference(&mixed).count();
        expected
    }

    /// The admitted records, for a fresh start.
    pub(crate) fn records(&self) -> Vec<(String, Vec<u8>)> {
        self.records.values().map(super::history::entry).collect()
    }

    pub(crate) fn workers(&self) -> BTreeMap<(String, u64), SeenWorker> {
        let ids: BTreeSet<_> = self.first.keys().cloned().collect();
        ids.into_iter()
            .filter_map(|id| Some((id.clone(), self.worker(&id.0, id.1)?)))
            .collect()
    }

    pub(crate) fn publishers(&self) -> BTreeMap<(String, u64), SeenPublisher> {
        let mut publishers = BTreeMap::new();
        for topic in ["kv_metrics", "kv-events"] {
            for id in 0..20 {
                let channels = self.select(|key| {
                    matches!(key.kind, Kind::Channel { topic: t } if carries(t, topic)) && key.id == id
                });
                let sources = self.select(|key| {
                    matches!(key.kind, Kind::Source { topic: t } if t == topic) && key.id == id
                });
                let [(key, channel)] = channels.as_slice() else {
                    continue;
                };
                if channel.transport == "Nats" {
                    continue;
                }
                let feeds = match sources.as_slice() {
                    [(source, sound)] if source.namespace == key.namespace => Some(sound.feeds),
                    _ => None,
                };
                let seen = SeenPublisher {
                    namespace: key.namespace.to_owned(),
                    component: key.component.to_owned(),
                    broker: channel.transport == "ZmqBroker",
                    feeds,
                };
                publishers.insert((topic.to_owned(), id), seen);
            }
        }
        publishers
    }

    fn put(&mut self, item: &Item, old: &BTreeMap<String, Item>, expected: &mut Expected) {
        let ours = match item.key.kind {
            Kind::Instance { endpoint } => endpoint == "generate",
            Kind::Card { .. } => true,
            Kind::Channel { topic } | Kind::Source { topic } => topic != "forward-pass-metrics",
        };
        if !ours || graph_of(&self.graphs, item.key.namespace).is_none() {
            return;
        }
        if item.value == Value::Garbage {
            expected.malformed += 1;
        }
        let text = item.key.text();
        let readable = matches!(item.value, Value::Sound(_));
        let admitted = if readable { Some(item) } else { old.get(&text) };
        let Some(admitted) = admitted.cloned() else { return };
        let space = self
            .records
            .values()
            .filter(|other| bucket(&other.key) == bucket(&item.key))
            .count();
        // Channels and sources have room for five times as many.
        let cap = if bucket(&item.key) >= 2 {
            5 * self.cap
        } else {
            self.cap
        };
        if self.records.contains_key(&text) || space < cap {
            self.records.insert(text, admitted);
        } else if readable {
            self.refused += 1;
        }
    }

    fn select(&self, which: impl Fn(&Key) -> bool) -> Vec<(&Key, &Sound)> {
        let sound = |item: &'_ Item| match &item.value {
            Value::Sound(_) => which(&item.key),
            Value::Garbage | Value::ForeignId | Value::ForeignScope | Value::Gone => false,
        };
        self.records
            .values()
            .filter(|item| sound(item))
            .filter_map(|item| match &item.value {
                Value::Sound(sound) => Some((&item.key, sound)),
                Value::Garbage | Value::ForeignId | Value::ForeignScope | Value::Gone => None,
            })
            .collect()
    }

    /// `Err`: several cards claim it.
    fn card(
        &self,
        namespace: &str,
        id: u64,
        component: &str,
        suffix: Option<&str>,
    ) -> Result<Option<&Sound>, ()> {
        let cards = self.select(|key| {
            matches!(key.kind, Kind::Card { suffix: s } if s == suffix)
                && key.namespace == namespace
                && key.id == id
        });
        let scoped: Vec<_> = cards
            .iter()
            .filter(|(key, card)| !card.unscoped && key.component == component)
            .collect();
        let unscoped: Vec<_> = cards.iter().filter(|(_, card)| card.unscoped).collect();
        let chosen = if scoped.is_empty() { unscoped } else { scoped };
        match chosen.as_slice() {
            [] => Ok(None),
            [(_, card)] => Ok(Some(card)),
            _ => Err(()),
        }
    }

    fn worker(&self, namespace: &str, id: u64) -> Option<SeenWorker> {
        let instances = self.select(|key| {
            matches!(key.kind, Kind::Instance { .. }) && key.namespace == namespace && key.id == id
        });
        let [(instance, _)] = instances.as_slice() else {
            return None;
        };
        let card = self.card(namespace, id, instance.component, None).ok().flatten();
        let named = ["prefill", "decode"]
            .into_iter()
            .find(|role| *role == instance.component);
        let claimed = card
            .and_then(|card| card.worker_type)
            .map(str::to_lowercase)
            .filter(|word| word != "odd");
        let role = match (named, claimed) {
            (Some(named), Some(claimed)) if named != claimed => return None,
            (Some(named), _) => named.to_owned(),
            (None, Some(claimed)) => claimed,
            (None, None) if card.is_some_and(|card| card.worker_type.is_none()) => "aggregated".to_owned(),
            (None, None) => "unknown".to_owned(),
        };
        let mut names: Vec<&str> = Vec::new();
        if let Some(card) = card {
            names.push(card.model);
            names.extend(&card.aliases);
        }
        if let Ok(Some(adapter)) = self.card(namespace, id, instance.component, Some("ad")) {
            names.push(adapter.model);
        }
        let mut once = BTreeSet::new();
        names.retain(|name| once.insert(*name));
        Some(SeenWorker {
            graph: graph_of(&self.graphs, namespace)?.to_owned(),
            component: instance.component.to_owned(),
            role,
            names: names.into_iter().map(str::to_owned).collect(),
            ranks: card.map(|card| card.ranks),
            first: *self.first.get(&(namespace.to_owned(), id))?,
        })
    }

    /// Identities that several keys claim, with the keys.
    fn conflicts(&self) -> BTreeMap<String, Vec<String>> {
        let mut claims: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (text, item) in &self.records {
            let Value::Sound(sound) = &item.value else {
                continue;
            };
            let Key {
                namespace,
                component,
                id,
                ..
            } = &item.key;
            let component = if sound.unscoped { "-" } else { component };
            let identities = match item.key.kind {
                Kind::Instance { .. } => vec![format!("instance {namespace} {id}")],
                Kind::Card { suffix } => vec![format!("card {namespace} {id} {component} {suffix:?}")],
                Kind::Channel { topic } => ["kv_metrics", "kv-events"]
                    .into_iter()
                    .filter(|t| carries(topic, t))
                    .map(|topic| format!("channel {topic} {id}"))
                    .collect(),
                Kind::Source { topic } => vec![format!("source {topic} {id}")],
            };
            identities
                .into_iter()
                .for_each(|who| claims.entry(who).or_default().push(text.clone()));
        }
        claims.retain(|_, keys| keys.len() > 1);
        claims
    }

    fn mixed(&self) -> BTreeSet<(String, String)> {
        let mut pairs: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
        for ((namespace, id), worker) in self.workers() {
            let card = self.card(&namespace, id, &worker.component, None).ok().flatten();
            let Some(card) = card else { continue };
            pairs
                .entry((namespace, card.model.to_owned()))
                .or_default()
                .insert(worker.role);
        }
        let mixed = |roles: &BTreeSet<String>| {
            roles.contains("aggregated") && (roles.contains("prefill") || roles.contains("decode"))
        };
        pairs
            .into_iter()
            .filter(|(_, roles)| mixed(roles))
            .map(|(pair, _)| pair)
            .collect()
    }
}

fn graph_of<'a>(graphs: &[&'a str], namespace: &str) -> Option<&'a str> {
    let exact = graphs.iter().find(|graph| **graph == namespace);
    exact
        .or_else(|| {
            graphs.iter().find(|graph| {
                namespace == format!("{graph}-legacy") || namespace == format!("{graph}-0a1b2c3d")
            })
        })
        .copied()
}

fn bucket(key: &Key) -> u8 {
    match key.kind {
        Kind::Instance { .. } => 0,
        Kind::Card { .. } => 1,
        Kind::Channel { .. } => 2,
        Kind::Source { .. } => 3,
    }
}

fn carries(channel: &str, topic: &str) -> bool {
    channel == topic || channel == "broker"
}

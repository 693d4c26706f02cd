//! From the records of one identity to one worker, or one publisher, of the view.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    cards::{CardInfo, Digest},
    graphs::Generation,
    ids::{Graph, InstanceId, ModelName, Namespace, Rank, WorkerKey},
    limits::{MAX_KEYS_IN_REPORT, MAX_NAMES_PER_WORKER},
    notes::ConflictKind,
    records::{ChannelTransport, GENERATE, Slot},
    role,
    said::mark,
    view::{NameKind, Publisher, PublisherKey, Seen, ServedName, Worker},
};

/// Card of one key.
#[derive(Clone, Debug)]
pub(crate) struct CardRecord {
    pub(crate) slot: Slot,
    pub(crate) digest: Digest,
    pub(crate) info: Arc<CardInfo>,
}

impl PartialEq for CardRecord {
    fn eq(&self, other: &Self) -> bool {
        self.slot == other.slot && self.digest == other.digest
    }
}

/// Event channel of one key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChannelRecord {
    pub(crate) namespace: Namespace,
    pub(crate) component: Option<Arc<str>>,
    pub(crate) transport: ChannelTransport,
}

/// Event source of one key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SourceRecord {
    pub(crate) namespace: Namespace,
    pub(crate) feeds: Option<(InstanceId, Rank)>,
}

/// Several keys claim one identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) kind: ConflictKind,
    /// Which card, if it is one.
    pub(crate) slot: Option<Slot>,
    pub(crate) count: usize,
    /// The first keys.
    pub(crate) keys: Vec<Arc<str>>,
    /// Stands for the whole set of keys.
    pub(crate) set: [u8; 16],
}

impl Conflict {
    fn of<'a>(
        kind: ConflictKind,
        slot: Option<&Slot>,
        keys: impl ExactSizeIterator<Item = &'a Arc<str>> + Clone,
    ) -> Option<Self> {
        (keys.len() > 1).then(|| Self {
            kind,
            slot: slot.cloned(),
            count: keys.len(),
            keys: keys.clone().take(MAX_KEYS_IN_REPORT).cloned().collect(),
            set: mark(keys.map(|key| key.as_bytes())),
        })
    }

    /// Whether both are about the same identity.
    pub(crate) fn same_identity(&self, other: &Self) -> bool {
        self.kind == other.kind && self.slot == other.slot
    }
}

/// What the records of one worker amount to.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    pub(crate) worker: Option<Worker>,
    pub(crate) conflicts: Vec<Conflict>,
    pub(crate) role_conflict: Option<role::Conflict>,
    pub(crate) names_cut: bool,
    pub(crate) base: Option<Arc<CardInfo>>,
}

/// Joins the records of one worker. `instances` maps key to component; both maps are in key order.
pub(crate) fn worker(
    key: &WorkerKey,
    (graph, generation): (Graph, Generation),
    seen: Seen,
    instances: &BTreeMap<Arc<str>, Arc<str>>,
    cards: &BTreeMap<Arc<str>, CardRecord>,
) -> Joined {
    let mut joined = Joined::default();
    joined
        .conflicts
        .extend(Conflict::of(ConflictKind::Instance, None, instances.keys()));

    let mut slots: BTreeMap<&Slot, Vec<(&Arc<str>, &CardRecord)>> = BTreeMap::new();
    for (key, card) in cards {
        slots.entry(&card.slot).or_default().push((key, card));
    }
    for (slot, claims) in &slots {
        let kind = if slot.suffix().is_none() {
            ConflictKind::BaseCard
        } else {
            ConflictKind::AdapterCard
        };
        joined
            .conflicts
            .extend(Conflict::of(kind, Some(slot), claims.iter().map(|(key, _)| *key)));
    }

    let mut components = instances.values();
    let (Some(component), None) = (components.next(), components.next()) else {
        return joined;
    };
    // `Some(None)`: claimed by several, so nobody's.
    let card_of = |slot: &Slot| match slots.get(slot)?.as_slice() {
        [(_, card)] => Some(Some(&card.info)),
        _ => Some(None),
    };
    let scoped = |suffix: Option<&Arc<str>>| Slot::Scoped {
        component: Arc::clone(component),
        suffix: suffix.cloned(),
    };
    let base = card_of(&scoped(None))
        .or_else(|| card_of(&Slot::Unscoped { suffix: None }))
        .flatten();
    let role = match role::resolve(component, base.map(|info| info.claim)) {
        Ok(role) => role,
        Err(conflict) => {
            joined.role_conflict = Some(conflict);
            return joined;
        }
    };

    let mut names = Names::default();
    if let Some(info) = base {
        names.add(info.card.display_name.as_ref(), NameKind::Base);
        info.card
            .aliases
            .iter()
            .for_each(|alias| names.add(Some(alias), NameKind::Alias));
    }
    for slot in slots.keys() {
        let Some(suffix) = slot.suffix() else { continue };
        let adapter = match slot {
            Slot::Scoped { component: other, .. } if other == component => card_of(slot),
            // A scoped card of the same adapter wins over one without a scope.
            Slot::Unscoped { .. } if !slots.contains_key(&scoped(Some(suffix))) => card_of(slot),
            Slot::Scoped { .. } | Slot::Unscoped { .. } => None,
        };
        if let Some(Some(info)) = adapter {
            names.add(info.card.display_name.as_ref(), NameKind::Adapter);
        }
    }
    joined.names_cut = names.cut;
    joined.base = base.cloned();
    joined.worker = Some(Worker {
        key: key.clone(),
        graph,
        component: Arc::clone(component),
        endpoint: GENERATE.into(),
        generation,
        role,
        names: names.names.into(),
        card: base.map(|info| Arc::clone(&info.card)),
        seen,
    });
    joined
}

/// Joins the records of one publisher; conflicts come beside.
pub(crate) fn publisher(
    key: PublisherKey,
    graph_of: impl Fn(&Namespace) -> Option<Graph>,
    channels: &BTreeMap<Arc<str>, ChannelRecord>,
    sources: &BTreeMap<Arc<str>, SourceRecord>,
) -> (Option<Publisher>, Vec<Conflict>) {
    let conflicts = [
        Conflict::of(ConflictKind::Channel, None, channels.keys()),
        Conflict::of(ConflictKind::Source, None, sources.keys()),
    ];
    let publisher = only(channels).and_then(|channel| {
        let source = only(sources).filter(|source| source.namespace == channel.namespace);
        Some(Publisher {
            key,
            namespace: channel.namespace.clone(),
            graph: graph_of(&channel.namespace)?,
            component: channel.component.clone(),
            transport: channel.transport.clone()?,
            feeds: source.and_then(|source| source.feeds),
        })
    });
    (publisher, conflicts.into_iter().flatten().collect())
}

impl Slot {
    /// The adapter's slug.
    pub(crate) const fn suffix(&self) -> Option<&Arc<str>> {
        match self {
            Self::Scoped { suffix, .. } | Self::Unscoped { suffix } => suffix.as_ref(),
        }
    }
}

fn only<T>(records: &BTreeMap<Arc<str>, T>) -> Option<&T> {
    let mut values = records.values();
    values.next().filter(|_| values.next().is_none())
}

#[derive(Default)]
struct Names {
    names: Vec<ServedName>,
    known: BTreeSet<ModelName>,
    cut: bool,
}

impl Names {
    fn add(&mut self, name: Option<&ModelName>, kind: NameKind) {
        let Some(name) = name.filter(|name| !self.known.contains(*name)) else {
            return;
        };
        if self.names.len() == MAX_NAMES_PER_WORKER {
            self.cut = true;
            return;
        }
        self.known.insert(name.clone());
        self.names.push(ServedName {
            name: name.clone(),
            kind,
        });
    }
}

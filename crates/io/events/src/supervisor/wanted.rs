//! Which subscriptions a view and the settings ask for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use continuum_fleet::{
    ids::PublisherId,
    view::{FleetView, Publisher, PublisherKey, Topic, Transport},
};

use crate::{
    beyond::Beyond,
    broker::{self, Sets},
    settings::Settings,
};

pub(super) type Admitted<'a> = BTreeMap<PublisherId, &'a Arc<Publisher>>;

/// What a view and the settings ask for.
pub(super) struct Wanted<'a> {
    pub(super) admitted: Admitted<'a>,
    /// Beyond the cap, or there is no way to them.
    pub(super) beyond: Admitted<'a>,
    pub(super) groups: Sets,
    /// What caps keep out.
    pub(super) out: Beyond,
}

impl<'a> Wanted<'a> {
    /// Beyond the cap are those that come last by `order`, and of those that are alike in it the highest ids.
    pub(super) fn of<O: Ord>(
        view: &'a FleetView,
        topic: Topic,
        settings: &Settings,
        reachable: bool,
        order: impl Fn(&Publisher) -> O,
    ) -> Self {
        let key = |id| PublisherKey {
            topic,
            id: PublisherId::new(id),
        };
        let all = || {
            let publishers = view.publishers.range(key(0)..=key(u64::MAX));
            publishers
                .map(|(_, publisher)| publisher)
                .filter(|_| settings.enabled)
        };
        let (groups, mut out) = if settings.enabled {
            broker::sets(view, topic, all(), settings)
        } else {
            Default::default()
        };
        let lines: usize = groups.keys().map(BTreeSet::len).sum();
        let room = if reachable {
            settings.max_subscriptions.saturating_sub(lines)
        } else {
            0
        };
        let mut direct: Vec<_> = all()
            .filter(|publisher| matches!(publisher.transport, Transport::Zmq { .. }))
            .map(|publisher| (publisher.key.id, publisher))
            .collect();
        if direct.len() > room {
            direct.sort_by_key(|(_, publisher)| order(publisher));
        }
        let beyond: Admitted<'_> = direct.split_off(direct.len().min(room)).into_iter().collect();
        let admitted = direct.into_iter().collect();
        if reachable {
            out.publishers = beyond.len();
        }
        Self {
            admitted,
            beyond,
            groups,
            out,
        }
    }
}

//! Which ranks have a place in the index.

use std::collections::{BTreeMap, BTreeSet};

use continuum_fleet::{
    ids::{InstanceId, Namespace, PublisherId},
    view::{Blocks, FleetView},
};

use super::{Gate, kv_publishers, lock};
use crate::{RankKey, limits::RANK_SHARES};

/// By worker and rank, the publisher that source records name, with its order.
pub(super) type Sources = BTreeMap<((Namespace, InstanceId), u32), (u64, PublisherId)>;

impl Gate {
    /// Ranks that are indexed, and those for which there is no room.
    ///
    /// Whoever is there stays, but for ranks of which nobody tells anything. A worker's ranks beyond its share come after
    /// everybody else's, so that one with many of them keeps nobody out. `unsaid` are namespaces with publishers that may
    /// speak for any rank.
    pub(super) fn places(
        &self,
        sources: &Sources,
        unsaid: &BTreeSet<&Namespace>,
    ) -> (Vec<(RankKey, Blocks)>, Vec<RankKey>) {
        let room = self.index.caps().ranks;
        let share = room.div_ceil(RANK_SHARES);
        let mut all = Vec::new();
        for (worker, known) in &self.workers {
            let Some(blocks) = known.blocks else {
                continue;
            };
            let ranks = known.first..known.first.saturating_add(known.ranks);
            all.extend(ranks.enumerate().map(|(at, rank)| {
                let worker = worker.clone();
                let key = RankKey { worker, rank };
                let before = self.ranks.get(&key);
                let is_told = before.is_some_and(|rank| lock(&rank.fed).by.is_some())
                    || unsaid.contains(&key.worker.namespace)
                    || sources.contains_key(&source_key(&key));
                ((at >= share, !is_told, before.is_none()), key, blocks)
            }));
        }
        if all.len() > room {
            all.sort_by_key(|(order, ..)| *order);
        }
        let beyond = all.split_off(all.len().min(room));
        (
            all.into_iter().map(|(_, key, blocks)| (key, blocks)).collect(),
            beyond.into_iter().map(|(_, key, _)| key).collect(),
        )
    }
}

/// Namespaces with publishers that do not say whom they speak for.
pub(super) fn unsaid(view: &FleetView) -> BTreeSet<&Namespace> {
    let unnamed = kv_publishers(view).filter(|publisher| publisher.feeds.is_none());
    unnamed.map(|publisher| &publisher.namespace).collect()
}

pub(super) fn source_key(key: &RankKey) -> ((Namespace, InstanceId), u32) {
    let worker = (key.worker.namespace.clone(), key.worker.instance);
    (worker, key.rank)
}

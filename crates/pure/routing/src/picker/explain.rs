//! The dry run.

use continuum_fleet::{
    ids::Graph,
    view::{Role, Worker},
};

use super::{
    Explained, Request, Standing,
    choose::{DecodePhase, Outcome, PrefillPhase, choose, groups},
    contest::{Fit, Phase, is_excluded},
    cursor::Turn,
    group::{Candidate, Group},
    table::Table,
};
use crate::{
    Millis,
    load::{
        Freshness, Store,
        slot::{AsOf, Reading},
        store,
    },
};

/// See [`super::explain`].
pub(super) fn explain(table: &Table, store: &Store, request: &Request<'_>, now: Millis) -> Vec<Explained> {
    let Some(model) = table.model(request.model) else {
        return Vec::new();
    };
    let outcome = choose(table, store, request, now, Turn::Peek).ok();
    let groups = groups(model, request);
    let at = AsOf::new(now, request.settings.max_staleness);
    let mut rows = Vec::new();
    let mut decode = DecodePhase::new(at, request, true);
    let informed = groups.iter().any(|(_, group)| has_fresh(&decode, group));
    for (place, (graph, group)) in groups.iter().enumerate() {
        let chosen = outcome.as_ref().filter(|outcome| outcome.decode.group == place);
        let decode_index = chosen.map(|outcome| outcome.decode.index);
        let side = Side {
            graph,
            group,
            exclude: request.exclude,
            informed,
        };
        rows.extend(side.rows(&mut decode, decode_index));
        let card = chosen.and_then(|outcome| outcome.pick.decode.worker.card.as_deref());
        let mut prefill = PrefillPhase::new(at, request, group, card);
        let side = Side {
            informed: has_fresh(&prefill, group),
            ..side
        };
        let mine = side.rows(&mut prefill, chosen.and_then(|outcome: &Outcome| outcome.prefill));
        rows.extend(mine.into_iter().map(|row| Explained {
            standing: if chosen.is_none() {
                Standing::Unused
            } else {
                row.standing
            },
            ..row
        }));
        for (candidate, standing) in &group.left_out {
            let Some(worker) = group.worker(candidate) else {
                continue;
            };
            let reading = store::read(&candidate.slot, worker.role, at);
            rows.push(row(graph, worker, candidate, None, &reading, *standing));
        }
    }
    rows
}

/// One side of one group.
#[derive(Clone, Copy)]
struct Side<'a> {
    graph: &'a Graph,
    group: &'a Group,
    exclude: &'a [continuum_fleet::ids::WorkerKey],
    informed: bool,
}

impl Side<'_> {
    fn rows<P: Phase>(&self, phase: &mut P, chosen: Option<usize>) -> Vec<Explained> {
        let candidates = phase.candidates(self.group).iter().enumerate();
        let explain = |(index, candidate): (usize, &Candidate)| {
            let worker = self.group.worker(candidate)?;
            let reading = phase.read(candidate);
            let fit = phase.fit(self.group, candidate);
            let undefined =
                candidate.capacity <= 0.0 || (self.informed && reading.sample == Freshness::Stale);
            let standing = if chosen == Some(index) {
                Standing::Chosen
            } else if is_excluded(self.group, candidate, self.exclude) {
                Standing::Excluded
            } else if fit == Fit::No {
                Standing::NoPair
            } else if reading.suspect || fit == Fit::Suspect {
                Standing::Suspect
            } else if undefined {
                Standing::UndefinedCost
            } else if self.informed && reading.stalled {
                Standing::Stalled
            } else {
                Standing::Candidate
            };
            let backlog = if reading.sample == Freshness::Fresh {
                reading.backlog
            } else {
                reading.open
            };
            let cost = (!undefined).then(|| phase.cost(candidate, backlog));
            Some(row(self.graph, worker, candidate, cost, &reading, standing))
        };
        candidates.filter_map(explain).collect()
    }
}

fn has_fresh(phase: &impl Phase, group: &Group) -> bool {
    let fresh = |candidate: &Candidate| phase.read(candidate).sample == Freshness::Fresh;
    phase
        .candidates(group)
        .iter()
        .any(|candidate| candidate.capacity > 0.0 && fresh(candidate))
}

fn row(
    graph: &Graph,
    worker: &Worker,
    candidate: &Candidate,
    cost: Option<f64>,
    reading: &Reading,
    standing: Standing,
) -> Explained {
    debug_assert!(worker.role != Role::Encode, "encode workers have no candidates");
    Explained {
        graph: graph.clone(),
        worker: worker.key.clone(),
        rank: candidate.rank_of(worker),
        role: worker.role,
        cost,
        freshness: reading.freshness(),
        standing,
    }
}

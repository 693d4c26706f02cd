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
    kv::{
        Prompt,
        choose::{Partners, Readers, zone},
    },
    table::Table,
    topology::Zone,
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
    match request.prompt {
        Some(prompt) => by_prompt(&groups, outcome.as_ref(), request, prompt, at, &mut rows),
        None => by_load(&groups, outcome.as_ref(), request, at, &mut rows),
    }
    rows
}

/// Decode sides first, then the prefill side of the chosen one.
fn by_load(
    groups: &[(&Graph, &Group)],
    outcome: Option<&Outcome>,
    request: &Request<'_>,
    at: AsOf,
    rows: &mut Vec<Explained>,
) {
    let mut decode = DecodePhase::new(at, request, true);
    let informed = groups.iter().any(|(_, group)| has_fresh(&decode, group));
    for (place, (graph, group)) in groups.iter().enumerate() {
        let chosen = outcome.filter(|outcome| outcome.decode.group == place);
        let side = Side {
            graph,
            group,
            exclude: request.exclude,
            informed,
        };
        rows.extend(side.rows(&mut decode, chosen.map(|outcome| outcome.decode.index)));
        let card = chosen.and_then(|outcome| outcome.pick.decode.worker.card.as_deref());
        let mut prefill = PrefillPhase::new(at, request, group, card);
        let side = Side {
            informed: has_fresh(&prefill, group),
            ..side
        };
        let mine = side.rows(&mut prefill, chosen.and_then(|outcome| outcome.prefill));
        rows.extend(unused_unless(chosen.is_some(), mine));
        side.left_out(at, rows);
    }
}

/// Who reads the prompt first, then the decode side of the chosen one.
fn by_prompt(
    groups: &[(&Graph, &Group)],
    outcome: Option<&Outcome>,
    request: &Request<'_>,
    prompt: &Prompt<'_>,
    at: AsOf,
    rows: &mut Vec<Explained>,
) {
    let bare: Vec<&Group> = groups.iter().map(|(_, group)| *group).collect();
    let mut readers = Readers::new(at, request, prompt, true, &bare);
    let informed = bare.iter().any(|group| has_fresh(&readers, group));
    for (place, (graph, group)) in groups.iter().enumerate() {
        let chosen = outcome.filter(|outcome| outcome.decode.group == place);
        let side = Side {
            graph,
            group,
            exclude: request.exclude,
            informed,
        };
        let reader = chosen.and_then(|outcome| {
            if group.pairs() {
                outcome.prefill
            } else {
                Some(outcome.decode.index)
            }
        });
        rows.extend(side.rows(&mut readers, reader));
        if group.pairs() {
            let asked = reader
                .and_then(|index| zone(group, group.prefill.get(index)?))
                .unwrap_or(&Zone::Free);
            let mut partners = Partners::new(at, prompt, asked);
            let side = Side {
                informed: has_fresh(&partners, group),
                ..side
            };
            let mine = side.rows(&mut partners, chosen.map(|outcome| outcome.decode.index));
            rows.extend(unused_unless(chosen.is_some(), mine));
        }
        side.left_out(at, rows);
    }
}

/// The other side of a namespace that was not chosen.
fn unused_unless(chosen: bool, rows: Vec<Explained>) -> impl Iterator<Item = Explained> {
    rows.into_iter().map(move |row| Explained {
        standing: if chosen { row.standing } else { Standing::Unused },
        ..row
    })
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
            let reading = phase.read(self.group, candidate);
            let fit = phase.fit(self.group, candidate);
            let undefined =
                !phase.is_defined(candidate) || (self.informed && reading.sample == Freshness::Stale);
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
            let cost = (!undefined).then(|| phase.cost(self.group, candidate, backlog));
            Some(Explained {
                credit: phase.credit(self.group, candidate),
                ..row(self.graph, worker, candidate, cost, &reading, standing)
            })
        };
        candidates.filter_map(explain).collect()
    }

    fn left_out(&self, at: AsOf, rows: &mut Vec<Explained>) {
        for (candidate, standing) in &self.group.left_out {
            let Some(worker) = self.group.worker(candidate) else {
                continue;
            };
            let reading = store::read(&candidate.slot, worker.role, at);
            rows.push(row(self.graph, worker, candidate, None, &reading, *standing));
        }
    }
}

fn has_fresh(phase: &impl Phase, group: &Group) -> bool {
    let fresh = |candidate: &Candidate| phase.read(group, candidate).sample == Freshness::Fresh;
    phase
        .candidates(group)
        .iter()
        .any(|candidate| phase.is_defined(candidate) && fresh(candidate))
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
        credit: None,
    }
}

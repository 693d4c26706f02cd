//! The counts of a status.

use continuum_crds::status::{FleetStatus, RoleStatus, RoutersStatus, WorkersStatus};

use crate::status::facts::{Facts, Fleet, Router};

pub(super) fn fleet_counts(facts: &Facts) -> Option<FleetStatus> {
    let source = match &facts.fleet {
        Fleet::NotWatched | Fleet::TooMany | Fleet::Off => return None,
        Fleet::Local { kind } => (*kind).to_owned(),
        Fleet::Pushed { source, .. } => source.kind.clone(),
    };
    let counts = facts.counts().cloned().unwrap_or_default();
    let ready = |of: u32| RoleStatus { ready: number(of) };
    Some(FleetStatus {
        source,
        workers: WorkersStatus {
            prefill: ready(counts.prefill),
            decode: ready(counts.decode),
            aggregated: ready(counts.aggregated),
            encode: ready(counts.encode),
            unknown: ready(counts.unknown),
        },
        models: number(counts.models),
        publishers: number(counts.publishers),
    })
}

pub(super) fn router_counts(facts: &Facts) -> RoutersStatus {
    let desired = facts.rollout.as_ref().map_or(0, |rollout| rollout.desired);
    let most = usize::try_from(desired).unwrap_or_default();
    // Pods that drain are connected too and are not counted.
    let count = |meets: &dyn Fn(&Router) -> bool| {
        let met = facts.routers.iter().filter(|router| meets(router)).count();
        i32::try_from(met.min(most)).unwrap_or(i32::MAX)
    };
    let well = count(&|router| facts.lacks(router).is_none());
    RoutersStatus {
        desired,
        connected: count(&|_| true),
        current_config: count(&|router| router.config.is_some() && router.config == facts.config),
        current_view: count(&|router| router.report.is_some() && facts.view_is_current(router)),
        summary: format!("{well}/{desired}"),
    }
}

fn number(of: u32) -> i32 {
    i32::try_from(of).unwrap_or(i32::MAX)
}

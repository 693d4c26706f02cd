//! Each condition but the two that sum up: one finding.

use continuum_crds::conditions::Reason;
use continuum_messages::push;

use super::{Finding, degraded::named};
use crate::{
    fleet::limits::MAX_SOURCES_PER_NAMESPACE,
    status::facts::{Applied, Facts, Fleet, Verdict},
};

pub(super) fn accepted(verdict: &Verdict) -> Finding {
    match verdict {
        Verdict::Accepted { warnings } if warnings.is_empty() => {
            (Reason::Valid, "the config is valid".to_owned())
        }
        Verdict::Accepted { warnings } => (
            Reason::ValidWithWarnings,
            format!("the config is valid; {}", warnings.join("; ")),
        ),
        Verdict::Rejected {
            reason,
            message,
            older_in_force: true,
        } => (
            *reason,
            format!("{message}. The last accepted config stays in force"),
        ),
        Verdict::Rejected {
            reason,
            message,
            older_in_force: false,
        } => (*reason, message.clone()),
    }
}

pub(super) fn applied(applied: &Applied) -> Finding {
    match applied {
        Applied::All => (Reason::Applied, "all resources are as they should be".to_owned()),
        Applied::Nothing => (
            Reason::NothingAccepted,
            "no config of this RouterConfig is in force, so nothing is applied".to_owned(),
        ),
        Applied::Pending => (
            Reason::Applying,
            "the resources have not all been applied yet".to_owned(),
        ),
        Applied::ConfigAlone { message } => (Reason::SpecNotKept, message.clone()),
        Applied::Failed { reason, message } => (*reason, message.clone()),
    }
}

pub(super) fn fleet_synced(facts: &Facts) -> Finding {
    match &facts.fleet {
        Fleet::NotWatched => (Reason::NotWatched, "no config is in force".to_owned()),
        Fleet::TooMany => (
            Reason::TooManyFleets,
            format!(
                "the RouterConfigs of this namespace name more than {MAX_SOURCES_PER_NAMESPACE} fleets that differ in their \
                 namespace, in how names match or in their models: this one is not read"
            ),
        ),
        Fleet::Off => (
            Reason::NoFleet,
            "the config asks for no discovery of a fleet".to_owned(),
        ),
        Fleet::Pushed { source, view, .. } => source_synced(source, view.is_some()),
        Fleet::Local { .. } => {
            let sources: Vec<&push::SourceState> = facts
                .reports()
                .filter_map(|report| report.local_source.as_ref())
                .collect();
            // The worst one counts: a request may meet any router.
            sources
                .iter()
                .map(|source| source_synced(source, true))
                .find(|(reason, _)| reason.status() != "True")
                .or_else(|| sources.first().map(|source| source_synced(source, true)))
                .unwrap_or_else(|| {
                    (
                        Reason::NotReported,
                        "routers read the fleet themselves, and none has reported yet".to_owned(),
                    )
                })
        }
    }
}

fn source_synced(source: &push::SourceState, published: bool) -> Finding {
    let error = if source.last_error.is_empty() {
        String::new()
    } else {
        format!(": {}", source.last_error)
    };
    let kind = &source.kind;
    if source.stale {
        (
            Reason::Stale,
            format!("the view of source `{kind}` is a kept one that nobody has confirmed{error}"),
        )
    } else if source.synced && source.connected && published {
        (
            Reason::Synced,
            format!("source `{kind}` is connected and its view is published"),
        )
    } else if published && source.synced {
        (Reason::Disconnected, format!("source `{kind}` was lost{error}"))
    } else {
        (
            Reason::Connecting,
            format!("source `{kind}` has not been listed yet{error}"),
        )
    }
}

pub(super) fn routers_ready(facts: &Facts) -> Finding {
    let Some(rollout) = &facts.rollout else {
        return (
            Reason::NoDeployment,
            "there is no Deployment of routers yet".to_owned(),
        );
    };
    let desired = usize::try_from(rollout.desired).unwrap_or_default();
    if !rollout.done() {
        let mut message = format!(
            "{} of {} router pods are of the present template, {} of them available",
            rollout.updated.min(rollout.desired),
            rollout.desired,
            rollout.available.min(rollout.desired),
        );
        if rollout.observed && !rollout.stuck.is_empty() {
            message.push_str(": ");
            message.push_str(&rollout.stuck);
        }
        return (Reason::RollingOut, message);
    }
    if desired == 0 {
        return (Reason::ScaledToZero, "no router is wanted".to_owned());
    }
    // A pod that stops stays connected while it drains: as many as are wanted have to be well, not all.
    let well = facts
        .routers
        .iter()
        .filter(|router| facts.lacks(router).is_none())
        .count();
    if well >= desired {
        return (
            Reason::UpToDate,
            format!("{desired} of {desired} routers have the current config and view"),
        );
    }
    if facts.routers.len() < desired {
        return (
            Reason::NotConnected,
            format!(
                "{} of {desired} routers have a session with the operator",
                facts.routers.len()
            ),
        );
    }
    let worst = facts
        .routers
        .iter()
        .filter_map(|router| facts.lacks(router))
        .min_by_key(|(reason, _)| *reason);
    worst.unwrap_or_else(|| {
        (
            Reason::NotConnected,
            format!("{well} of {desired} routers are well"),
        )
    })
}

pub(super) fn shim_reachable(facts: &Facts) -> Finding {
    if facts.config.is_none() {
        return (Reason::NotKnown, "no config is in force".to_owned());
    }
    if facts.pools.is_empty() {
        return (Reason::NoPool, "the config has no shim pool".to_owned());
    }
    let with = |wanted: Option<bool>| -> Vec<&str> {
        let pools = facts.pools.iter().map(String::as_str);
        pools.filter(|pool| is_reached(facts, pool) == wanted).collect()
    };
    let (dark, unknown) = (with(Some(false)), with(None));
    if !dark.is_empty() {
        (
            Reason::NoHealthyReplica,
            format!("no healthy frontend for {}", named(&dark)),
        )
    } else if !unknown.is_empty() {
        (
            Reason::NotKnown,
            format!("no router has reported yet about {}", named(&unknown)),
        )
    } else {
        (Reason::Reachable, "every pool has a healthy frontend".to_owned())
    }
}

/// Whether every router that tells of the pool reaches it: a request may meet any. Routers with the current config speak
/// before the others, which may have other frontends for it; `None` when nobody tells of it.
fn is_reached(facts: &Facts, pool: &str) -> Option<bool> {
    let told = |current: bool| {
        let of = facts
            .routers
            .iter()
            .filter(|router| (router.config == facts.config) == current);
        let pools = of
            .filter_map(|router| router.report.as_ref())
            .flat_map(|report| &report.pools);
        let pools = pools.filter(|told| told.namespace == pool);
        pools.map(|told| told.healthy > 0).reduce(|all, one| all && one)
    };
    told(true).or_else(|| told(false))
}

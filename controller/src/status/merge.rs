//! From facts to a status. Pure: the time is an argument, and the status before decides what is a transition.

mod conditions;
mod degraded;
mod judge;
mod serving;
mod tally;

use std::time::Duration;

use continuum_crds::{
    conditions::{ConditionType, Reason},
    status::RouterConfigStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

pub(crate) use self::serving::Outage;
use self::{
    conditions::{accepted, applied, fleet_synced, routers_ready, shim_reachable},
    degraded::degraded,
    tally::{fleet_counts, router_counts},
};
use super::{
    facts::Facts,
    limits::{COUNTS_EVERY, MAX_MESSAGE},
};

/// A condition that has changed its status or its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Which.
    pub condition: ConditionType,
    /// Why it is now what it is.
    pub reason: Reason,
    /// The message of the condition.
    pub message: String,
}

/// What to write, and what is new about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Merged {
    /// The status as it should be.
    pub status: RouterConfigStatus,
    /// What has changed since the status before; nothing for a first status that is as it should be.
    pub transitions: Vec<Transition>,
    /// Whether it differs from the status before, so that it is worth a write.
    pub differs: bool,
    /// Counts differ and wait for their turn: look again after this time.
    pub again: Option<Duration>,
}

/// Why a condition is what it is, with words.
type Finding = (Reason, String);

/// The status that `facts` make of the one `before`. `counted` is when counts were last written.
#[must_use]
pub fn merge(
    before: Option<&RouterConfigStatus>,
    facts: &Facts,
    now: Timestamp,
    since_counts: Duration,
) -> Merged {
    let findings = findings(facts);
    let old = before
        .map(|status| status.conditions.as_slice())
        .unwrap_or_default();
    let mut transitions = Vec::new();
    let mut conditions = Vec::new();
    for (reason, message) in findings {
        let condition = reason.condition();
        let previous = old.iter().find(|old| old.type_ == condition.as_str());
        let same_status = previous.is_some_and(|old| old.status == reason.status());
        if !(same_status && previous.is_some_and(|old| old.reason == reason.as_str())) {
            transitions.push(Transition {
                condition,
                reason,
                message: message.clone(),
            });
        }
        conditions.push(Condition {
            last_transition_time: match previous.filter(|_| same_status) {
                Some(old) => old.last_transition_time.clone(),
                None => Time(now),
            },
            message,
            observed_generation: Some(facts.generation),
            reason: reason.as_str().to_owned(),
            status: reason.status().to_owned(),
            type_: condition.as_str().to_owned(),
        });
    }
    let mut status = RouterConfigStatus {
        observed_generation: Some(facts.generation),
        conditions,
        fleet: fleet_counts(facts),
        routers: Some(router_counts(facts)),
        replicas: facts.rollout.as_ref().map_or(0, |rollout| rollout.replicas),
        selector: Some(facts.selector.clone()),
        url: facts.url.clone(),
    };
    let mut again = None;
    if let Some(before) = before
        && transitions.is_empty()
        && before.fleet.is_some()
        && before.fleet != status.fleet
        && since_counts < COUNTS_EVERY
    {
        // Counts move with every worker of a fleet that scales; conditions do not wait for them.
        status.fleet.clone_from(&before.fleet);
        again = Some(COUNTS_EVERY.saturating_sub(since_counts));
    }
    Merged {
        differs: before != Some(&status),
        status,
        transitions,
        again,
    }
}

/// Whether users have reason to notice that requests are not served, as far as one moment tells.
pub(crate) fn outage(facts: &Facts) -> Outage {
    serving::outage(facts, &Found::of(facts))
}

/// One finding for each condition, in the order of [`ConditionType::ALL`].
fn findings(facts: &Facts) -> Vec<Finding> {
    let found = Found::of(facts);
    let degraded = degraded(facts, &found);
    let mut all = vec![
        found.ready,
        found.accepted,
        found.applied,
        found.fleet,
        found.routers,
        found.shim,
        degraded,
    ];
    for (_, message) in &mut all {
        shorten(message);
    }
    all
}

/// The findings but for `Degraded`, which sums them up.
struct Found {
    ready: Finding,
    accepted: Finding,
    applied: Finding,
    fleet: Finding,
    routers: Finding,
    shim: Finding,
}

impl Found {
    fn of(facts: &Facts) -> Self {
        let accepted = accepted(&facts.verdict);
        let applied = applied(&facts.applied);
        let fleet = fleet_synced(facts);
        let routers = routers_ready(facts);
        let shim = shim_reachable(facts);
        let not_true = |of: &[&Finding]| {
            let mut of = of.iter();
            let (reason, message) = of.find(|(reason, _)| reason.status() != "True")?;
            Some((unready(reason.condition()), message.clone()))
        };
        let ready = not_true(&[&accepted, &applied, &fleet, &routers])
            // Nobody is there who could tell of frontends.
            .or_else(|| (routers.0 == Reason::ScaledToZero).then(nobody))
            .or_else(|| not_true(&[&shim]))
            .unwrap_or_else(|| served(facts));
        Self {
            ready,
            accepted,
            applied,
            fleet,
            routers,
            shim,
        }
    }
}

fn nobody() -> Finding {
    let message = "no router is wanted, so nobody answers requests";
    (Reason::NoRouterWanted, message.to_owned())
}

/// With all in its place, whether there is anything to ask for: a fleet may be empty, a frontend that is healthy may not
/// have found its workers yet, and a backend may not exist.
fn served(facts: &Facts) -> Finding {
    let mut without = facts
        .routers
        .iter()
        .filter_map(|router| facts.offers_nothing(router));
    match without.next() {
        Some(message) => (Reason::NoModelServed, message),
        None => (Reason::AllReady, "requests are served".to_owned()),
    }
}

/// The reason of `Ready` when this condition is not true.
const fn unready(because: ConditionType) -> Reason {
    match because {
        ConditionType::Accepted => Reason::NotAccepted,
        ConditionType::ResourcesApplied => Reason::ResourcesNotApplied,
        ConditionType::FleetSynced => Reason::FleetNotSynced,
        ConditionType::ShimReachable => Reason::ShimNotReachable,
        ConditionType::RoutersReady | ConditionType::Ready | ConditionType::Degraded => {
            Reason::RoutersNotReady
        }
    }
}

/// Cuts a message to what the API server takes.
fn shorten(message: &mut String) {
    if message.len() > MAX_MESSAGE {
        let mut end = MAX_MESSAGE;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push('…');
    }
}

#[cfg(test)]
mod tests;

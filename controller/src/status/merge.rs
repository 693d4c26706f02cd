//! From facts to a status. Pure: the time is an argument, and the status before decides what is a transition.

use std::{collections::BTreeSet, time::Duration};

use continuum_crds::{
    conditions::{ConditionType, Reason},
    status::{FleetStatus, RoleStatus, RouterConfigStatus, RoutersStatus, WorkersStatus},
};
use continuum_fleet::EventKind;
use continuum_messages::push;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use super::{
    facts::{Applied, Facts, Fleet, Router, Verdict},
    limits::{COUNTS_EVERY, MAX_MESSAGE, MAX_NAMED, VIEW_MAX_AGE},
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
        replicas: facts.rollout.map_or(0, |rollout| rollout.replicas),
        selector: Some(facts.selector.clone()),
        url: Some(facts.url.clone()),
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

/// One finding for each condition, in the order of [`ConditionType::ALL`].
fn findings(facts: &Facts) -> Vec<Finding> {
    let accepted = accepted(&facts.verdict);
    let applied = applied(&facts.applied);
    let fleet = fleet_synced(facts);
    let routers = routers_ready(facts);
    let shim = shim_reachable(facts);
    let degraded = degraded(facts, fleet.0);
    let ready = [&accepted, &applied, &fleet, &routers, &shim]
        .into_iter()
        .find(|(reason, _)| reason.status() != "True")
        .map_or_else(
            || served(facts),
            |(reason, message)| (unready(reason.condition()), message.clone()),
        );
    let mut all = vec![ready, accepted, applied, fleet, routers, shim, degraded];
    for (_, message) in &mut all {
        shorten(message);
    }
    all
}

/// With all in its place, whether there is anything to ask for: a fleet may be empty, and a frontend that is healthy
/// may not have found its workers yet.
fn served(facts: &Facts) -> Finding {
    let without = facts.routers.iter().find(|router| {
        let served = router.report.as_ref().and_then(|report| report.served_models);
        served == Some(0)
    });
    match without {
        Some(router) if !facts.pools.is_empty() => (
            Reason::NoModelServed,
            format!("router {} has no model that clients could ask for", router.pod),
        ),
        Some(_) | None => (Reason::AllReady, "requests are served".to_owned()),
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

fn accepted(verdict: &Verdict) -> Finding {
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

fn applied(applied: &Applied) -> Finding {
    match applied {
        Applied::All => (Reason::Applied, "all resources are as they should be".to_owned()),
        Applied::Nothing => (
            Reason::NothingAccepted,
            "no config of this RouterConfig was accepted yet".to_owned(),
        ),
        Applied::Failed { reason, message } => (*reason, message.clone()),
    }
}

fn fleet_synced(facts: &Facts) -> Finding {
    match &facts.fleet {
        Fleet::NotWatched => (Reason::NotWatched, "there is no accepted config yet".to_owned()),
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

fn routers_ready(facts: &Facts) -> Finding {
    let Some(rollout) = facts.rollout else {
        return (
            Reason::NoDeployment,
            "there is no Deployment of routers yet".to_owned(),
        );
    };
    let desired = usize::try_from(rollout.desired).unwrap_or_default();
    if !rollout.done() {
        return (
            Reason::RollingOut,
            format!(
                "{} of {} router pods are of the present template, {} of them available",
                rollout.updated.min(rollout.desired),
                rollout.desired,
                rollout.available.min(rollout.desired),
            ),
        );
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

fn shim_reachable(facts: &Facts) -> Finding {
    if facts.pools.is_empty() {
        return (Reason::NoPool, "the config has no shim pool".to_owned());
    }
    let mut reported = false;
    let mut healthy = BTreeSet::new();
    for pool in facts.reports().flat_map(|report| &report.pools) {
        reported = true;
        if pool.healthy > 0 {
            healthy.insert(pool.namespace.as_str());
        }
    }
    if !reported {
        return (
            Reason::NotKnown,
            "no router has reported about its pools yet".to_owned(),
        );
    }
    let dark: Vec<&str> = facts
        .pools
        .iter()
        .map(String::as_str)
        .filter(|pool| !healthy.contains(pool))
        .collect();
    if dark.is_empty() {
        (Reason::Reachable, "every pool has a healthy frontend".to_owned())
    } else {
        (
            Reason::NoHealthyReplica,
            format!("no healthy frontend for {}", named(&dark)),
        )
    }
}

/// The worst of what users would notice; the others follow in the message.
fn degraded(facts: &Facts, fleet: Reason) -> Finding {
    let mut wrong: Vec<Finding> = Vec::new();
    if let Verdict::Rejected {
        older_in_force: true, ..
    } = facts.verdict
    {
        wrong.push((
            Reason::ConfigNotInForce,
            "routers run with an older config, since the present one was rejected".to_owned(),
        ));
    }
    if let Fleet::Pushed { refused, .. } = &facts.fleet
        && !refused.is_empty()
    {
        let kinds: Vec<String> = refused
            .iter()
            .map(|(kind, count)| format!("{count} {}", refusal(kind)))
            .collect();
        wrong.push((
            Reason::RecordsRefused,
            format!(
                "records of the fleet are not used, or not as they are now: {}",
                kinds.join(", ")
            ),
        ));
    }
    if let Some(counts) = facts.counts().filter(|_| fleet == Reason::Synced) {
        if counts.models == 0 {
            wrong.push((Reason::NoModels, "the fleet serves no model".to_owned()));
        }
        if !counts.unpaired_models.is_empty() {
            let models: Vec<&str> = counts.unpaired_models.iter().map(String::as_str).collect();
            wrong.push((
                Reason::ModelsWithoutPair,
                format!(
                    "only one half of a prefill and decode pair for {}",
                    named(&models)
                ),
            ));
        }
    }
    let unlisted: BTreeSet<&str> = facts
        .reports()
        .flat_map(|report| report.unlisted_models.iter().map(String::as_str))
        .collect();
    if !unlisted.is_empty() {
        let models: Vec<&str> = unlisted.into_iter().collect();
        wrong.push((
            Reason::ModelsNotListed,
            format!("no healthy frontend lists {}", named(&models)),
        ));
    }
    let unreachable: BTreeSet<&str> = facts
        .routers
        .iter()
        .filter(|router| {
            let feeds = router
                .report
                .as_ref()
                .and_then(|report| report.subscriptions.as_ref());
            feeds.is_some_and(|feeds| feeds.failing > 0 || feeds.refused > 0)
        })
        .map(|router| router.pod.as_str())
        .collect();
    if !unreachable.is_empty() {
        let pods: Vec<&str> = unreachable.into_iter().collect();
        wrong.push((
            Reason::PublishersUnreachable,
            format!(
                "event channels that cannot be subscribed to from {}",
                named(&pods)
            ),
        ));
    }
    let pending: BTreeSet<&str> = facts
        .reports()
        .flat_map(|report| report.pending.iter().map(String::as_str))
        .collect();
    if !pending.is_empty() && facts.rollout.is_some_and(|rollout| rollout.done()) {
        let fields: Vec<&str> = pending.into_iter().collect();
        wrong.push((
            Reason::RestartNeeded,
            format!("changes that need new router pods: {}", named(&fields)),
        ));
    }
    let words: Vec<&str> = wrong.iter().map(|(_, message)| message.as_str()).collect();
    let message = words.join("; ");
    match wrong.first() {
        Some((reason, _)) => (*reason, message),
        None => (Reason::AsExpected, "nothing that users would notice".to_owned()),
    }
}

/// What is wrong with records of a kind.
const fn refusal(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Malformed => "malformed",
        EventKind::Duplicate => "claimed twice",
        EventKind::Mismatch => "that contradict themselves",
        EventKind::OverCapacity => "beyond a cap",
        EventKind::Refused => "of no pod that is known",
        EventKind::Put
        | EventKind::Delete
        | EventKind::Resync
        | EventKind::Unsupported
        | EventKind::Restart => "unknown",
    }
}

impl Facts {
    fn reports(&self) -> impl Iterator<Item = &push::Report> {
        self.routers.iter().filter_map(|router| router.report.as_ref())
    }

    /// Why this router is not up to date; `None`: it is.
    fn lacks(&self, router: &Router) -> Option<Finding> {
        let pod = &router.pod;
        let Some(report) = &router.report else {
            return Some((
                Reason::ConfigPending,
                format!("router {pod} has not reported yet"),
            ));
        };
        let current = router.config.is_some() && router.config == self.config;
        if !current {
            let refused = report.refused.as_ref().filter(|refused| {
                let id = refused.config.as_ref();
                self.config.is_some_and(|config| {
                    id.is_some_and(|id| {
                        id.generation == config.generation && id.digest[..] == config.digest.as_bytes()[..]
                    })
                })
            });
            return Some(match refused {
                Some(refused) => (
                    Reason::ConfigRefused,
                    format!("router {pod} cannot take over the config: {}", refused.error),
                ),
                None => (
                    Reason::ConfigPending,
                    format!("router {pod} has not acknowledged the current config"),
                ),
            });
        }
        if !self.view_is_current(router) {
            return Some((
                Reason::ViewPending,
                format!("router {pod} has no current view of the fleet"),
            ));
        }
        (!report.ready).then(|| {
            (
                Reason::RouterNotReady,
                format!("router {pod} says that it is not ready"),
            )
        })
    }

    fn view_is_current(&self, router: &Router) -> bool {
        match &self.fleet {
            Fleet::Pushed { view, .. } => {
                // Being one change behind is how a fleet that moves looks; only time tells a router that hangs.
                router.view.is_some() && (router.view == *view || router.view_age <= VIEW_MAX_AGE)
            }
            Fleet::NotWatched | Fleet::Off | Fleet::Local { .. } => true,
        }
    }

    /// The fleet, counted; of routers that read it themselves, the one that sees most speaks.
    fn counts(&self) -> Option<&push::FleetCounts> {
        match &self.fleet {
            Fleet::NotWatched | Fleet::Off => None,
            Fleet::Pushed { counts, view, .. } => view.is_some().then_some(counts),
            Fleet::Local { .. } => self
                .reports()
                .filter_map(|report| report.local_fleet.as_ref())
                .max_by_key(|counts| {
                    u64::from(counts.prefill) + u64::from(counts.decode) + u64::from(counts.aggregated)
                }),
        }
    }
}

fn fleet_counts(facts: &Facts) -> Option<FleetStatus> {
    let source = match &facts.fleet {
        Fleet::NotWatched | Fleet::Off => return None,
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

fn router_counts(facts: &Facts) -> RoutersStatus {
    let desired = facts.rollout.map_or(0, |rollout| rollout.desired);
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

/// The first few, and how many more.
fn named(of: &[&str]) -> String {
    let shown: Vec<&str> = of.iter().copied().take(MAX_NAMED).collect();
    let more = of.len().saturating_sub(shown.len());
    let list = shown.join(", ");
    if more == 0 {
        list
    } else {
        format!("{list} and {more} more")
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

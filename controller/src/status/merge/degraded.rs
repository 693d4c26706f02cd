//! What users would notice.

use std::collections::BTreeSet;

use continuum_crds::conditions::Reason;
use continuum_fleet::EventKind;

use super::{Finding, Found, serving::outage};
use crate::status::{
    facts::{Facts, Rollout, Verdict},
    limits::MAX_NAMED,
};

/// Why no model of a fleet is served.
const UNSERVED_MODELS: [Reason; 3] = [
    Reason::NoModels,
    Reason::ModelsWithoutPair,
    Reason::ModelsNotListed,
];

/// The worst of what users would notice; the others follow in the message.
pub(super) fn degraded(facts: &Facts, found: &Found) -> Finding {
    let mut wrong: Vec<Finding> = Vec::new();
    if let Verdict::Rejected { older_in_force, .. } = facts.verdict
        && (older_in_force || facts.is_served())
    {
        wrong.push((
            Reason::ConfigNotInForce,
            "routers run with an older config, since the present one was rejected".to_owned(),
        ));
    }
    let refused = facts.refused();
    if !refused.is_empty() {
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
    if let Some(counts) = facts.counts().filter(|_| found.fleet.0 == Reason::Synced) {
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
    if !pending.is_empty() && facts.rollout.as_ref().is_some_and(Rollout::done) {
        let fields: Vec<&str> = pending.into_iter().collect();
        wrong.push((
            Reason::RestartNeeded,
            format!("changes that need new router pods: {}", named(&fields)),
        ));
    }
    if let Some(why) = outage(facts, found).told(facts.unserved) {
        let mut known = wrong.iter().map(|(reason, _)| reason);
        // Why no model is served has words of its own, most often.
        let said =
            found.ready.0 == Reason::NoModelServed && known.any(|reason| UNSERVED_MODELS.contains(reason));
        if !said {
            wrong.insert(0, (Reason::NotServing, why));
        }
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

/// The first few, and how many more.
pub(super) fn named(of: &[&str]) -> String {
    let shown: Vec<&str> = of.iter().copied().take(MAX_NAMED).collect();
    let more = of.len().saturating_sub(shown.len());
    let list = shown.join(", ");
    if more == 0 {
        list
    } else {
        format!("{list} and {more} more")
    }
}

//! Whether users have reason to notice that requests are not served.

use continuum_crds::conditions::Reason;

use super::{Finding, Found};
use crate::status::{
    facts::{Applied, Facts, Fleet},
    limits::UNSERVED,
};

/// What one moment tells. The words are the condition that says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    /// Requests are served, or nobody wants them to be.
    None,
    /// Nobody serves yet: routers are on their way.
    Starting(String),
    /// Nobody is known to serve. It may pass in a moment.
    Doubtful(String),
    /// It is so, and does not pass by itself.
    Certain(String),
}

impl Outage {
    /// What to tell of it when it has lasted for `unserved`.
    pub(super) fn told(self, unserved: Option<std::time::Duration>) -> Option<String> {
        let lasts = unserved.is_some_and(|unserved| unserved >= UNSERVED);
        match self {
            Self::None => None,
            // A rollout that is to end an outage does not end it by having begun.
            Self::Starting(why) | Self::Doubtful(why) => lasts.then_some(why),
            Self::Certain(why) => Some(why),
        }
    }
}

pub(super) fn outage(facts: &Facts, found: &Found) -> Outage {
    let unwanted = facts.rollout.as_ref().is_some_and(|rollout| rollout.desired == 0);
    if unwanted || found.ready.0.status() == "True" {
        return Outage::None;
    }
    if found.shim.0.status() == "False" {
        return Outage::Certain(because(&found.shim));
    }
    if facts.applied == Applied::Nothing && found.accepted.0.status() == "False" {
        return Outage::Certain(because(&found.accepted));
    }
    let failed = matches!(facts.applied, Applied::Failed { .. });
    if failed && facts.url.is_none() {
        return Outage::Certain(because(&found.applied));
    }
    if found.ready.0 == Reason::NoModelServed {
        return Outage::Doubtful(because(&found.ready));
    }
    if facts.is_served() {
        return Outage::None;
    }
    // From here on no router is known to serve.
    if facts.fleet == Fleet::TooMany {
        return Outage::Certain(because(&found.fleet));
    }
    let Some(rollout) = &facts.rollout else {
        let refused = [Reason::OwnedByOther, Reason::Refused, Reason::Forbidden];
        return if failed && refused.contains(&found.applied.0) {
            Outage::Certain(because(&found.applied))
        } else if failed {
            Outage::Doubtful(because(&found.applied))
        } else if matches!(facts.applied, Applied::ConfigAlone { .. }) {
            Outage::Doubtful(because(&found.routers))
        } else {
            Outage::Starting(because(&found.routers))
        };
    };
    if rollout.observed && !rollout.done() && !rollout.stuck.is_empty() {
        return Outage::Certain(because(&found.routers));
    }
    // Without a view of the fleet routers do not become ready, however long one waits for them.
    if let Fleet::Pushed { source, .. } = &facts.fleet
        && !source.synced
        && !source.last_error.is_empty()
    {
        return Outage::Doubtful(because(&found.fleet));
    }
    let been_there = rollout.done() || (rollout.observed && rollout.complete);
    if !been_there || facts.applied == Applied::Pending {
        return Outage::Starting(because(&found.routers));
    }
    let causes = [&found.routers, &found.fleet, &found.shim, &found.applied];
    let cause = causes.into_iter().find(|(reason, _)| reason.status() != "True");
    Outage::Doubtful(because(cause.unwrap_or(&found.accepted)))
}

impl Facts {
    /// Whether a router says that clients may come, and has something for them.
    pub(super) fn is_served(&self) -> bool {
        self.routers.iter().any(|router| {
            let ready = router.report.as_ref().is_some_and(|report| report.ready);
            ready && self.offers_nothing(router).is_none()
        })
    }
}

fn because((reason, message): &Finding) -> String {
    format!(
        "requests are not served, see `{}`: {message}",
        reason.condition().as_str()
    )
}

use continuum_fleet::{EventKind, Refused};
use continuum_messages::{ConfigId, Digest, push};

use super::*;
use crate::status::{
    facts::{Applied, Fleet, Rollout, Router, Verdict},
    limits::UNSERVED,
};

type Change = fn(&mut Facts);

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

fn config() -> ConfigId {
    ConfigId::of(3, "text")
}

fn source() -> push::SourceState {
    push::SourceState {
        kind: "kubernetes".to_owned(),
        connected: true,
        synced: true,
        ..push::SourceState::default()
    }
}

fn fleet_counts() -> push::FleetCounts {
    push::FleetCounts {
        prefill: 1,
        decode: 2,
        models: 1,
        publishers: 3,
        ..push::FleetCounts::default()
    }
}

fn router(pod: &str) -> Router {
    Router {
        pod: pod.to_owned(),
        config: Some(config()),
        view: Some(Digest::of(b"view")),
        view_age: Duration::ZERO,
        behind: Duration::ZERO,
        report: Some(push::Report {
            ready: true,
            pools: vec![push::Pool {
                namespace: "dynamo".to_owned(),
                replicas: 1,
                healthy: 1,
            }],
            ..push::Report::default()
        }),
    }
}

/// Two routers of two, everything as it should be.
fn well() -> Facts {
    Facts {
        generation: 3,
        verdict: Verdict::Accepted { warnings: Vec::new() },
        applied: Applied::All,
        config: Some(config()),
        fleet: Fleet::Pushed {
            source: source(),
            view: Some(Digest::of(b"view")),
            counts: fleet_counts(),
            refused: Refused::default(),
        },
        rollout: Some(Rollout {
            desired: 2,
            replicas: 2,
            updated: 2,
            ready: 2,
            available: 2,
            observed: true,
            complete: true,
            stuck: String::new(),
        }),
        routers: vec![router("a"), router("b")],
        pools: vec!["dynamo".to_owned()],
        ordinary: false,
        unserved: None,
        selector: "app=x".to_owned(),
        url: Some("http://x-router.ns.svc:8080".to_owned()),
    }
}

fn of(facts: &Facts) -> Merged {
    merge(None, facts, now(), Duration::MAX)
}

fn reason(merged: &Merged, condition: ConditionType) -> (String, String) {
    let found = merged
        .status
        .conditions
        .iter()
        .find(|found| found.type_ == condition.as_str());
    let found = found.unwrap();
    (found.reason.clone(), found.status.clone())
}

fn source_of(facts: &mut Facts) -> &mut push::SourceState {
    match &mut facts.fleet {
        Fleet::Pushed { source, .. } => source,
        other @ (Fleet::NotWatched | Fleet::TooMany | Fleet::Off | Fleet::Local { .. }) => {
            panic!("{other:?}")
        }
    }
}

fn counts_of(facts: &mut Facts) -> &mut push::FleetCounts {
    match &mut facts.fleet {
        Fleet::Pushed { counts, .. } => counts,
        other @ (Fleet::NotWatched | Fleet::TooMany | Fleet::Off | Fleet::Local { .. }) => {
            panic!("{other:?}")
        }
    }
}

fn report(facts: &mut Facts) -> &mut push::Report {
    facts.routers[0].report.as_mut().unwrap()
}

fn rejected(reason: Reason, older_in_force: bool) -> Verdict {
    Verdict::Rejected {
        reason,
        message: "spec.config.server: no".to_owned(),
        older_in_force,
    }
}

fn failed(reason: Reason) -> Applied {
    Applied::Failed {
        reason,
        message: "Deployment x-router: no".to_owned(),
    }
}

fn local(facts: &mut Facts) {
    facts.fleet = Fleet::Local { kind: "etcd" };
    for router in &mut facts.routers {
        router.view = None;
        let report = router.report.as_mut().unwrap();
        report.local_source = Some(push::SourceState {
            kind: "etcd".to_owned(),
            ..source()
        });
        report.local_fleet = Some(fleet_counts());
    }
}

/// No fleet, one backend of ordinary routing that is well.
fn ordinary(facts: &mut Facts) {
    facts.fleet = Fleet::Off;
    facts.pools.clear();
    facts.ordinary = true;
    for router in &mut facts.routers {
        router.view = None;
        let report = router.report.as_mut().unwrap();
        report.pools.clear();
        report.served_models = Some(0);
        report.backend_models = Some(1);
    }
}

const CASES: &[(Reason, Change)] = &[
    (Reason::AllReady, |_| ()),
    (Reason::NotAccepted, |facts| {
        facts.verdict = rejected(Reason::InvalidConfig, true);
    }),
    (Reason::ResourcesNotApplied, |facts| {
        facts.applied = failed(Reason::Refused);
    }),
    (Reason::FleetNotSynced, |facts| source_of(facts).connected = false),
    (Reason::RoutersNotReady, |facts| facts.rollout = None),
    (Reason::ShimNotReachable, |facts| {
        facts.pools.push("other".to_owned())
    }),
    (Reason::NoRouterWanted, |facts| {
        facts.rollout = Some(Rollout {
            observed: true,
            ..Rollout::default()
        });
        facts.routers.clear();
    }),
    (Reason::NoRouterWanted, |facts| {
        facts.rollout = Some(Rollout {
            observed: true,
            ..Rollout::default()
        });
        facts.routers.clear();
        facts.pools.clear();
    }),
    (Reason::NoModelServed, |facts| {
        report(facts).served_models = Some(0)
    }),
    (Reason::NoModelServed, |facts| {
        ordinary(facts);
        facts.ordinary = false;
    }),
    (Reason::NoModelServed, |facts| {
        ordinary(facts);
        report(facts).backend_models = Some(0);
    }),
    (Reason::AllReady, ordinary),
    (Reason::Valid, |_| ()),
    (Reason::ValidWithWarnings, |facts| {
        facts.verdict = Verdict::Accepted {
            warnings: vec!["retries: is high".to_owned()],
        };
    }),
    (Reason::InvalidConfig, |facts| {
        facts.verdict = rejected(Reason::InvalidConfig, false);
    }),
    (Reason::InvalidRouter, |facts| {
        facts.verdict = rejected(Reason::InvalidRouter, true);
    }),
    (Reason::FleetNamespaceNotAllowed, |facts| {
        facts.verdict = rejected(Reason::FleetNamespaceNotAllowed, false);
    }),
    (Reason::Applied, |_| ()),
    (Reason::Applying, |facts| facts.applied = Applied::Pending),
    (Reason::NothingAccepted, |facts| facts.applied = Applied::Nothing),
    (Reason::SpecNotKept, |facts| {
        facts.verdict = rejected(Reason::InvalidConfig, true);
        facts.applied = Applied::ConfigAlone {
            message: "the configuration alone is known".to_owned(),
        };
    }),
    (Reason::NoCertificate, |facts| {
        facts.applied = failed(Reason::NoCertificate)
    }),
    (Reason::OwnedByOther, |facts| {
        facts.applied = failed(Reason::OwnedByOther)
    }),
    (Reason::Refused, |facts| facts.applied = failed(Reason::Refused)),
    (Reason::Forbidden, |facts| {
        facts.applied = failed(Reason::Forbidden)
    }),
    (Reason::ApiUnavailable, |facts| {
        facts.applied = failed(Reason::ApiUnavailable);
    }),
    (Reason::Synced, |_| ()),
    (Reason::Synced, local),
    (Reason::NoFleet, |facts| facts.fleet = Fleet::Off),
    (Reason::Connecting, |facts| {
        source_of(facts).synced = false;
        source_of(facts).connected = false;
    }),
    (Reason::Disconnected, |facts| source_of(facts).connected = false),
    (Reason::Disconnected, |facts| {
        local(facts);
        report(facts).local_source.as_mut().unwrap().connected = false;
    }),
    (Reason::Stale, |facts| source_of(facts).stale = true),
    (Reason::TooManyFleets, |facts| facts.fleet = Fleet::TooMany),
    (Reason::NotWatched, |facts| facts.fleet = Fleet::NotWatched),
    (Reason::NotReported, |facts| {
        local(facts);
        facts.routers.clear();
    }),
    (Reason::UpToDate, |_| ()),
    (Reason::ScaledToZero, |facts| {
        facts.rollout = Some(Rollout {
            observed: true,
            ..Rollout::default()
        });
    }),
    (Reason::NoDeployment, |facts| facts.rollout = None),
    (Reason::RollingOut, |facts| {
        facts.rollout.as_mut().unwrap().updated = 1
    }),
    (Reason::RollingOut, |facts| {
        facts.rollout.as_mut().unwrap().replicas = 3
    }),
    (Reason::RollingOut, |facts| {
        facts.rollout.as_mut().unwrap().observed = false;
    }),
    (Reason::NotConnected, |facts| facts.routers.truncate(1)),
    (Reason::ConfigPending, |facts| {
        facts.routers[1].config = Some(ConfigId::of(2, "old"));
    }),
    (Reason::ConfigPending, |facts| facts.routers[1].report = None),
    (Reason::ConfigRefused, |facts| {
        facts.routers[0].config = Some(ConfigId::of(2, "old"));
        report(facts).refused = Some(push::RefusedConfig {
            config: Some(config().into()),
            error: "`${KEY}` is not set".to_owned(),
        });
    }),
    (Reason::ViewPending, |facts| facts.routers[1].view = None),
    (Reason::ViewPending, |facts| {
        facts.routers[1].view = Some(Digest::of(b"old"));
        facts.routers[1].view_age = Duration::from_secs(11);
    }),
    // Confirmed by the replica that it follows, which does not see what this one does.
    (Reason::ViewPending, |facts| {
        facts.routers[1].view = Some(Digest::of(b"old"));
        facts.routers[1].behind = Duration::from_secs(11);
    }),
    (Reason::UpToDate, |facts| {
        facts.routers[1].view = Some(Digest::of(b"old"));
        facts.routers[1].behind = Duration::from_secs(9);
        facts.routers[1].view_age = Duration::from_secs(9);
    }),
    // This replica sees nothing itself.
    (Reason::UpToDate, |facts| {
        facts.routers[1].view = Some(Digest::of(b"newer"));
        facts.routers[1].behind = Duration::from_secs(11);
        source_of(facts).connected = false;
    }),
    (Reason::RouterNotReady, |facts| report(facts).ready = false),
    (Reason::Reachable, |_| ()),
    (Reason::NoPool, ordinary),
    (Reason::NotKnown, |facts| {
        facts.verdict = rejected(Reason::InvalidConfig, false);
        facts.applied = Applied::Nothing;
        facts.config = None;
        facts.pools.clear();
        facts.routers.clear();
    }),
    (Reason::NoHealthyReplica, |facts| {
        for router in &mut facts.routers {
            router.report.as_mut().unwrap().pools[0].healthy = 0;
        }
    }),
    (Reason::NotKnown, |facts| facts.routers.clear()),
    // A pool that has just come is dark when somebody says so.
    (Reason::NotKnown, |facts| facts.pools.push("other".to_owned())),
    (Reason::NoHealthyReplica, |facts| {
        facts.pools.push("other".to_owned());
        report(facts).pools[0].healthy = 0;
    }),
    // Another config may have other frontends; only where nobody else tells is it better than nothing.
    (Reason::Reachable, |facts| {
        facts.routers[0].config = Some(ConfigId::of(2, "before"));
        report(facts).pools[0].healthy = 0;
    }),
    (Reason::NoHealthyReplica, |facts| {
        for router in &mut facts.routers {
            router.config = Some(ConfigId::of(2, "before"));
        }
        report(facts).pools[0].healthy = 0;
    }),
    (Reason::AsExpected, |_| ()),
    (Reason::NotServing, |facts| {
        facts.applied = failed(Reason::OwnedByOther);
        facts.url = None;
    }),
    (Reason::ConfigNotInForce, |facts| {
        facts.verdict = rejected(Reason::InvalidConfig, true);
    }),
    (Reason::RecordsRefused, |facts| {
        if let Fleet::Pushed { refused, .. } = &mut facts.fleet {
            refused.add(EventKind::Duplicate, 2);
        }
    }),
    (Reason::RecordsRefused, |facts| {
        local(facts);
        report(facts).local_refused = vec![records("duplicate", 1)];
    }),
    (Reason::NoModels, |facts| counts_of(facts).models = 0),
    (Reason::ModelsWithoutPair, |facts| {
        counts_of(facts).unpaired_models = vec!["m".to_owned()];
    }),
    (Reason::ModelsNotListed, |facts| {
        report(facts).unlisted_models = vec!["m".to_owned()];
    }),
    (Reason::PublishersUnreachable, |facts| {
        report(facts).subscriptions = Some(push::Subscriptions {
            wanted: 2,
            failing: 1,
            ..push::Subscriptions::default()
        });
    }),
    (Reason::RestartNeeded, |facts| {
        report(facts).pending = vec!["server.bind_address".to_owned()];
    }),
];

fn records(kind: &str, count: u64) -> push::RefusedRecords {
    push::RefusedRecords {
        kind: kind.to_owned(),
        count,
    }
}

#[test]
fn what_routers_refuse_themselves_is_said_once_with_its_count() {
    let mut facts = well();
    local(&mut facts);
    let told = [
        vec![records("over_capacity", 7), records("malformed", 1)],
        // Another moment of the same fleet, and a kind that this version does not know.
        vec![records("over_capacity", 9), records("of_tomorrow", 2)],
    ];
    for (router, told) in facts.routers.iter_mut().zip(told) {
        router.report.as_mut().unwrap().local_refused = told;
    }
    let merged = of(&facts);
    let found = merged
        .status
        .conditions
        .iter()
        .find(|found| found.type_ == "Degraded");
    let message = found.unwrap().message.clone();
    for said in ["9 beyond a cap", "1 malformed", "2 unknown"] {
        assert!(message.contains(said), "{message}");
    }
    assert!(!message.contains('7'), "{message}");
}

#[test]
fn each_condition_is_what_it_is_for_each_reason() {
    for (wanted, change) in CASES {
        let mut facts = well();
        change(&mut facts);
        let merged = of(&facts);
        assert_eq!(
            reason(&merged, wanted.condition()),
            (wanted.as_str().to_owned(), wanted.status().to_owned()),
            "{merged:#?}"
        );
        let ready = reason(&merged, ConditionType::Ready).1 == "True";
        let others = merged
            .status
            .conditions
            .iter()
            .filter(|condition| !["Ready", "Degraded"].contains(&condition.type_.as_str()));
        let in_place = others.clone().all(|condition| condition.status == "True");
        let nobody = [
            Reason::NoModelServed,
            Reason::NoRouterWanted,
            Reason::ScaledToZero,
        ];
        assert_eq!(ready, in_place && !nobody.contains(wanted));
    }
    for wanted in Reason::ALL {
        assert!(
            CASES.iter().any(|(reason, _)| reason == wanted),
            "no case for {wanted:?}"
        );
    }
}

/// A rollout of two, of which this many are available.
fn rolling(facts: &mut Facts, available: i32) {
    let rollout = facts.rollout.as_mut().unwrap();
    (rollout.available, rollout.ready, rollout.complete) = (available, available, false);
    facts
        .routers
        .truncate(usize::try_from(available).unwrap_or_default());
}

fn in_ready(facts: &mut Facts, ready: bool) {
    for router in &mut facts.routers {
        router.report.as_mut().unwrap().ready = ready;
    }
}

/// What is told of it: at once, and after it has lasted. With words of the message.
const OUTAGES: &[(&str, Change, Told, Told)] = &[
    ("all well", |_| (), None, None),
    (
        "a rollout while others serve",
        |facts| rolling(facts, 1),
        None,
        None,
    ),
    ("the first rollout", |facts| rolling(facts, 0), None, None),
    (
        "nothing applied yet",
        |facts| {
            facts.applied = Applied::Pending;
            facts.rollout = None;
            facts.routers.clear();
        },
        None,
        None,
    ),
    (
        "scaled to zero",
        |facts| {
            facts.rollout = Some(Rollout {
                observed: true,
                ..Rollout::default()
            });
            facts.routers.clear();
        },
        None,
        None,
    ),
    (
        "the source is lost, and routers go on",
        |facts| source_of(facts).connected = false,
        None,
        None,
    ),
    (
        "one router without a session",
        |facts| facts.routers.truncate(1),
        None,
        None,
    ),
    (
        "no healthy frontend",
        |facts| {
            for router in &mut facts.routers {
                router.report.as_mut().unwrap().pools[0].healthy = 0;
            }
        },
        Some("`ShimReachable`: no healthy frontend for dynamo"),
        Some("`ShimReachable`: no healthy frontend for dynamo"),
    ),
    (
        "one fleet too many",
        |facts| {
            facts.fleet = Fleet::TooMany;
            rolling(facts, 0);
        },
        Some("`FleetSynced`: the RouterConfigs of this namespace name more than 8 fleets"),
        Some("`FleetSynced`: the RouterConfigs of this namespace name more than 8 fleets"),
    ),
    (
        "a pool that no router has told of yet",
        |facts| facts.pools.push("other".to_owned()),
        None,
        None,
    ),
    (
        "no router has a session",
        |facts| facts.routers.clear(),
        None,
        Some("`RoutersReady`: 0 of 2 routers have a session"),
    ),
    (
        "no router is ready",
        |facts| in_ready(facts, false),
        None,
        Some("`RoutersReady`: router a says that it is not ready"),
    ),
    (
        "all routers of a finished rollout are lost",
        |facts| {
            rolling(facts, 0);
            facts.rollout.as_mut().unwrap().complete = true;
        },
        None,
        Some("`RoutersReady`: 2 of 2 router pods"),
    ),
    (
        "the first rollout is stuck",
        |facts| {
            rolling(facts, 0);
            facts.rollout.as_mut().unwrap().stuck = "exceeded quota".to_owned();
        },
        Some(
            "`RoutersReady`: 2 of 2 router pods are of the present template, 0 of them available: exceeded quota",
        ),
        Some("exceeded quota"),
    ),
    (
        "a fleet that cannot be read at all",
        |facts| {
            rolling(facts, 0);
            source_of(facts).synced = false;
            source_of(facts).last_error = "forbidden".to_owned();
        },
        None,
        Some("`FleetSynced`: source `kubernetes` has not been listed yet: forbidden"),
    ),
    (
        "the Deployment is somebody else's",
        |facts| {
            facts.applied = failed(Reason::OwnedByOther);
            facts.rollout = None;
            facts.routers.clear();
        },
        Some("`ResourcesApplied`: Deployment x-router: no"),
        Some("`ResourcesApplied`"),
    ),
    (
        "the API server has a bad moment at the start",
        |facts| {
            facts.applied = failed(Reason::ApiUnavailable);
            facts.rollout = None;
            facts.routers.clear();
        },
        None,
        Some("`ResourcesApplied`"),
    ),
    (
        "another resource is refused, and routers serve",
        |facts| facts.applied = failed(Reason::Refused),
        None,
        None,
    ),
    (
        "the Service is somebody else's",
        |facts| {
            facts.applied = failed(Reason::OwnedByOther);
            facts.url = None;
        },
        Some("`ResourcesApplied`"),
        Some("`ResourcesApplied`"),
    ),
    (
        "refused, and nothing is in force",
        |facts| {
            facts.verdict = rejected(Reason::InvalidConfig, false);
            facts.applied = Applied::Nothing;
            (facts.config, facts.rollout, facts.url) = (None, None, None);
            facts.pools.clear();
            facts.routers.clear();
        },
        Some("`Accepted`: spec.config.server: no"),
        Some("`Accepted`: spec.config.server: no"),
    ),
    (
        "a backend that does not exist",
        |facts| {
            ordinary(facts);
            report(facts).backend_models = Some(0);
        },
        None,
        Some("`Ready`: router a has no model that clients could ask for: no backend is healthy"),
    ),
    (
        "nobody to send a request to",
        |facts| {
            ordinary(facts);
            facts.ordinary = false;
        },
        None,
        Some("`Ready`: no backend and no shim pool is configured"),
    ),
];

type Told = Option<&'static str>;

#[test]
fn an_outage_is_told_and_a_start_is_none() {
    for (what, change, at_once, later) in OUTAGES {
        for (lasts, wanted) in [(None, at_once), (Some(UNSERVED), later)] {
            let mut facts = well();
            change(&mut facts);
            // As the writer keeps the time.
            let doubtful = matches!(outage(&facts), Outage::Doubtful(_));
            facts.unserved = lasts.filter(|_| doubtful);
            let merged = of(&facts);
            let mut all = merged.status.conditions.iter();
            let found = all.find(|found| found.type_ == "Degraded").unwrap();
            match wanted {
                None => assert_eq!(found.reason, "AsExpected", "{what}: {found:?}"),
                Some(words) => {
                    assert_eq!(found.reason, "NotServing", "{what}: {found:?}");
                    assert!(found.message.contains(words), "{what}: {found:?}");
                }
            }
        }
    }
    // An outage goes on while a rollout is to end it.
    let mut facts = well();
    rolling(&mut facts, 0);
    facts.unserved = Some(UNSERVED);
    assert_eq!(reason(&of(&facts), ConditionType::Degraded).0, "NotServing");
}

#[test]
fn why_no_model_is_served_is_not_said_twice() {
    let mut facts = well();
    counts_of(&mut facts).models = 0;
    report(&mut facts).served_models = Some(0);
    facts.unserved = Some(UNSERVED);
    let merged = of(&facts);
    assert_eq!(reason(&merged, ConditionType::Ready).0, "NoModelServed");
    assert_eq!(reason(&merged, ConditionType::Degraded).0, "NoModels");
}

#[test]
fn what_runs_while_nothing_can_be_read_of_it_is_an_older_config() {
    let mut facts = well();
    facts.verdict = rejected(Reason::InvalidConfig, false);
    facts.applied = Applied::ConfigAlone {
        message: "routers go on".to_owned(),
    };
    facts.config = None;
    let merged = of(&facts);
    assert_eq!(reason(&merged, ConditionType::Degraded).0, "ConfigNotInForce");
}

#[test]
fn one_delta_behind_is_not_unready() {
    let mut facts = well();
    facts.routers[1].view = Some(Digest::of(b"the one before"));
    facts.routers[1].view_age = Duration::from_millis(400);
    assert_eq!(reason(&of(&facts), ConditionType::RoutersReady).1, "True");
    assert_eq!(of(&facts).status.routers.unwrap().current_view, 2);
}

#[test]
fn a_pod_that_drains_neither_counts_nor_holds_back() {
    let mut facts = well();
    let mut draining = router("old");
    draining.config = Some(ConfigId::of(1, "old"));
    draining.report.as_mut().unwrap().ready = false;
    facts.routers.push(draining);
    let merged = of(&facts);
    assert_eq!(reason(&merged, ConditionType::RoutersReady).1, "True");
    let routers = merged.status.routers.unwrap();
    assert_eq!((routers.desired, routers.connected), (2, 2));
    assert_eq!(routers.summary, "2/2");
}

#[test]
fn times_move_with_the_status_alone() {
    let first = of(&well()).status;
    let later = now() + Duration::from_secs(60);
    let again = merge(Some(&first), &well(), later, Duration::MAX);
    assert!(!again.differs && again.transitions.is_empty());

    // Another reason for the same status is told, and the time stays.
    let mut facts = well();
    facts.verdict = Verdict::Accepted {
        warnings: vec!["w".to_owned()],
    };
    let warned = merge(Some(&first), &facts, later, Duration::MAX);
    let reasons: Vec<Reason> = warned.transitions.iter().map(|t| t.reason).collect();
    assert_eq!(reasons, [Reason::ValidWithWarnings]);
    let time = |status: &RouterConfigStatus, name: &str| {
        let found = status.conditions.iter().find(|found| found.type_ == name);
        found.unwrap().last_transition_time.0
    };
    assert_eq!(time(&warned.status, "Accepted"), now());

    source_of(&mut facts).connected = false;
    let lost = merge(Some(&first), &facts, later, Duration::MAX);
    assert_eq!(time(&lost.status, "FleetSynced"), later);
    assert_eq!(time(&lost.status, "Ready"), later);
    assert_eq!(time(&lost.status, "RoutersReady"), now());
}

#[test]
fn counts_wait_and_conditions_do_not() {
    let first = of(&well()).status;
    let mut facts = well();
    counts_of(&mut facts).decode = 9;
    let early = merge(Some(&first), &facts, now(), Duration::from_secs(4));
    assert!(!early.differs);
    assert_eq!(early.again, Some(Duration::from_secs(6)));
    let due = merge(Some(&first), &facts, now(), Duration::from_secs(10));
    assert!(due.differs && due.again.is_none());
    assert_eq!(due.status.fleet.as_ref().unwrap().workers.decode.ready, 9);
    // A transition takes the counts along.
    source_of(&mut facts).connected = false;
    let moved = merge(Some(&first), &facts, now(), Duration::from_secs(4));
    assert!(moved.differs);
    assert_eq!(moved.status.fleet.unwrap().workers.decode.ready, 9);
}

#[test]
fn a_message_has_an_end() {
    let mut facts = well();
    facts.verdict = Verdict::Accepted {
        warnings: vec!["ö".repeat(MAX_MESSAGE)],
    };
    let merged = of(&facts);
    assert!(
        merged
            .status
            .conditions
            .iter()
            .all(|found| found.message.len() <= MAX_MESSAGE + 3)
    );
}

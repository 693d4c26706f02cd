use continuum_fleet::{EventKind, Refused};
use continuum_messages::{ConfigId, Digest, push};

use super::*;
use crate::status::facts::{Applied, Fleet, Rollout, Router, Verdict};

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
        }),
        routers: vec![router("a"), router("b")],
        pools: vec!["dynamo".to_owned()],
        selector: "app=x".to_owned(),
        url: "http://x-router.ns.svc:8080".to_owned(),
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
        other @ (Fleet::NotWatched | Fleet::Off | Fleet::Local { .. }) => panic!("{other:?}"),
    }
}

fn counts_of(facts: &mut Facts) -> &mut push::FleetCounts {
    match &mut facts.fleet {
        Fleet::Pushed { counts, .. } => counts,
        other @ (Fleet::NotWatched | Fleet::Off | Fleet::Local { .. }) => panic!("{other:?}"),
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
    (Reason::RouterNotReady, |facts| report(facts).ready = false),
    (Reason::Reachable, |_| ()),
    (Reason::NoPool, |facts| facts.pools.clear()),
    (Reason::NoHealthyReplica, |facts| {
        for router in &mut facts.routers {
            router.report.as_mut().unwrap().pools[0].healthy = 0;
        }
    }),
    (Reason::NotKnown, |facts| facts.routers.clear()),
    (Reason::AsExpected, |_| ()),
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

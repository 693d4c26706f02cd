use http::StatusCode;

use super::*;

fn after(meanings: &[Meaning]) -> Vec<Step> {
    let budget = Budget::default();
    let mut attempts = Attempts::new(2);
    meanings
        .iter()
        .map(|meaning| attempts.next(*meaning, true, &budget, 0))
        .collect()
}

#[test]
fn a_replica_changes_as_often_as_configured() {
    assert_eq!(
        after(&[Meaning::Replica; 3]),
        [Step::OtherReplica, Step::OtherReplica, Step::Stop(Stop::Failed)]
    );
}

#[test]
fn workers_are_picked_again_once() {
    for cause in [Cause::Stale, Cause::Suspect] {
        assert_eq!(
            after(&[Meaning::RePick(cause), Meaning::RePick(cause)]),
            [Step::RePick(cause), Step::Stop(Stop::Failed)]
        );
    }
    assert_eq!(
        after(&[
            Meaning::RePick(Cause::ViewBehind),
            Meaning::RePick(Cause::ViewBehind)
        ]),
        [
            Step::RePick(Cause::ViewBehind),
            Step::Stop(Stop::PrefillDecodeUnavailable)
        ]
    );
}

#[test]
fn a_lottery_is_drawn_four_times_more_then_other_workers_are_tried() {
    let steps = after(&[Meaning::Lottery; 6]);
    assert_eq!(steps[..4], [Step::SamePin; 4]);
    assert_eq!(steps[4..], [Step::RePick(Cause::Stale), Step::Stop(Stop::Failed)]);
}

#[test]
fn a_fleet_that_settles_is_given_time_and_then_the_client_its_answer() {
    let steps = after(&[Meaning::Settling; 5]);
    let pauses = [50, 100, 200, 400].map(|ms| Step::SamePinAfter(Duration::from_millis(ms)));
    assert_eq!(steps[..4], pauses);
    assert_eq!(steps[4], Step::Stop(Stop::Relay));
}

#[test]
fn a_view_that_nobody_confirms_is_doubted_once_then_the_frontends_and_then_the_client() {
    assert_eq!(
        after(&[Meaning::Unconfirmed; 4]),
        [
            Step::RePick(Cause::Suspect),
            Step::OtherReplica,
            Step::OtherReplica,
            Step::Stop(Stop::Relay)
        ]
    );
    // A worker that did not answer has used the pick up, and shown that the request is a good one.
    let steps = after(&[
        Meaning::RePick(Cause::Suspect),
        Meaning::Unconfirmed,
        Meaning::Unconfirmed,
        Meaning::Unconfirmed,
    ]);
    assert_eq!(steps[..2], [Step::RePick(Cause::Suspect), Step::OtherReplica]);
    assert_eq!(steps[2..], [Step::OtherReplica, Step::Stop(Stop::Failed)]);
    let budget = Budget::default();
    while budget.take(3) {}
    assert_eq!(
        Attempts::new(2).next(Meaning::Unconfirmed, true, &budget, 3),
        Step::Stop(Stop::Relay)
    );
}

#[test]
fn final_meanings_use_nothing_up() {
    let budget = Budget::default();
    let mut attempts = Attempts::new(2);
    let fresh = attempts;
    for (meaning, stop) in [
        (
            Meaning::BackPressure(StatusCode::TOO_MANY_REQUESTS),
            Stop::BackPressure(StatusCode::TOO_MANY_REQUESTS),
        ),
        (Meaning::ModelNotReady, Stop::ModelNotReady),
        (Meaning::Client, Stop::Relay),
        (Meaning::Failure, Stop::Failed),
    ] {
        assert_eq!(attempts.next(meaning, true, &budget, 0), Step::Stop(stop));
    }
    assert_eq!(attempts, fresh);
    assert_eq!(budget.totals(0), (0, 0));
}

#[test]
fn a_quiet_pool_may_retry_ten_times_in_ten_seconds() {
    let budget = Budget::default();
    assert!((0..10).all(|second| budget.take(second)));
    assert!(!budget.take(9));
    assert!(budget.take(10), "the first retry has left the window");
    assert!(!budget.take(10));
    assert!(budget.take(100));
}

#[test]
fn a_busy_pool_may_retry_one_request_in_five() {
    let budget = Budget::default();
    for second in 0..10 {
        for _ in 0..20 {
            budget.request(second);
        }
    }
    assert_eq!((0..100).filter(|_| budget.take(9)).count(), 40);
    assert_eq!(budget.totals(9), (200, 40));
    assert_eq!(budget.totals(500), (0, 0));
}

#[test]
fn where_there_is_no_other_replica_none_is_paid_for() {
    let budget = Budget::default();
    let mut attempts = Attempts::new(2);
    for (meaning, step) in [
        (Meaning::Replica, Step::Stop(Stop::Failed)),
        (Meaning::Unconfirmed, Step::RePick(Cause::Suspect)),
        (Meaning::Unconfirmed, Step::Stop(Stop::Relay)),
    ] {
        assert_eq!(attempts.next(meaning, false, &budget, 0), step);
    }
    assert_eq!(budget.totals(0), (0, 1), "the pick alone");
}

#[test]
fn an_empty_budget_stops_every_kind_of_retry() {
    let budget = Budget::default();
    while budget.take(3) {}
    for meaning in [
        Meaning::Replica,
        Meaning::Lottery,
        Meaning::RePick(Cause::Suspect),
    ] {
        assert_eq!(
            Attempts::new(2).next(meaning, true, &budget, 3),
            Step::Stop(Stop::Failed)
        );
    }
}

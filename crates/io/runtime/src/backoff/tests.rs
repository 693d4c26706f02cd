use proptest::prelude::*;

use super::*;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn full(initial: u64, max: u64) -> Backoff {
    Backoff::with_jitter(MS(initial), MS(max), || 1.0)
}

#[test]
fn doubles_up_to_max() {
    let mut backoff = full(500, 3_000);
    let waits: Vec<_> = (0..5).map(|_| backoff.delay()).collect();
    assert_eq!(waits, [MS(500), MS(1_000), MS(2_000), MS(3_000), MS(3_000)]);
}

#[test]
fn resets_only_after_a_session_that_lasted_max() {
    let mut backoff = full(500, 30_000);
    backoff.delay();
    backoff.delay();
    backoff.session_ended(MS(29_999));
    assert_eq!(backoff.delay(), MS(2_000));
    backoff.session_ended(MS(30_000));
    assert_eq!(backoff.delay(), MS(500));
    assert_eq!(backoff.delay(), MS(1_000));
}

#[test]
fn a_planned_end_has_its_own_threshold() {
    let mut backoff = full(500, 600_000);
    backoff.delay();
    backoff.session_ended_after(MS(290_000), MS(290_000));
    assert_eq!(backoff.delay(), MS(500));
}

#[test]
fn a_max_below_initial_counts_as_initial() {
    let mut backoff = full(500, 100);
    assert_eq!((backoff.delay(), backoff.delay()), (MS(500), MS(500)));
}

proptest! {
    #[test]
    fn never_spins_and_never_exceeds_max(shares in prop::collection::vec(-1.0..2.0_f64, 1..40), initial in 1_u64..2_000, max in 1_u64..60_000) {
        let count = shares.len();
        let mut shares = shares.into_iter();
        let mut backoff = Backoff::with_jitter(MS(initial), MS(max), move || shares.next().unwrap_or(0.0));
        for _ in 0..count {
            let wait = backoff.delay();
            prop_assert!(wait >= MS(initial).mul_f64(FLOOR) && wait <= MS(max.max(initial)));
        }
    }
}

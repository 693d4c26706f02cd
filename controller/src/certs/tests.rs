use super::{
    plan::{Plan, plan},
    *,
};

fn at(days: i64) -> jiff::Timestamp {
    plan::end_of(jiff::Timestamp::UNIX_EPOCH, 20_000 + days)
}

fn made(on: i64) -> Authority {
    Authority {
        cert: format!("cert of day {on}"),
        key: String::new(),
        not_after: at(on + plan::AUTHORITY_DAYS),
    }
}

#[test]
fn authorities_are_rotated_and_dropped_by_the_time() {
    let (old, new) = (made(0), made(310));
    for (held, day, make, keep) in [
        (vec![], 0, true, vec![]),
        (vec![old.clone()], 300, false, vec![old.clone()]),
        (vec![old.clone()], 310, true, vec![old.clone()]),
        (
            vec![new.clone(), old.clone()],
            320,
            false,
            vec![new.clone(), old.clone()],
        ),
        (vec![new.clone(), old.clone()], 366, false, vec![new.clone()]),
        (vec![old.clone()], 400, true, vec![]),
    ] {
        assert_eq!(plan(&held, at(day)), Plan { make, keep }, "{held:?} on day {day}");
    }
}

#[test]
fn a_new_authority_signs_only_when_routers_can_know_it() {
    let (old, new) = (made(0), made(310));
    let both = [new.clone(), old.clone()];
    let minutes = |day: i64, minutes: i64| at(day) + jiff::SignedDuration::from_mins(minutes);
    assert_eq!(plan::signer(&both, at(310)), Some(&old));
    assert_eq!(
        plan::signer(&both, minutes(310, plan::SETTLE_MINUTES)),
        Some(&old)
    );
    assert_eq!(plan::signer(&both, minutes(311, -1)), Some(&old));
    assert_eq!(plan::signer(&both, at(311)), Some(&new));
    // The old one has hours left, since nobody was there to replace it in time.
    let late = [
        new.clone(),
        Authority {
            not_after: minutes(310, 23 * 60),
            ..old.clone()
        },
    ];
    let settled = minutes(310, plan::SETTLE_MINUTES);
    assert_eq!(plan::signer(&late, minutes(310, 14)), Some(&late[1]));
    assert_eq!(plan::signer(&late, settled), Some(&new));
    assert_eq!(
        plan::signer(std::slice::from_ref(&new), at(310)),
        Some(&new),
        "the only one signs at once"
    );
    assert_eq!(plan::signer(&[old], at(400)), None);
}

#[test]
fn a_serving_certificate_is_issued_for_the_host() {
    let now = jiff::Timestamp::now();
    let authority = authority(now).unwrap();
    issue(&authority, "push.operator.svc", now).unwrap();
}

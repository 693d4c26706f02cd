//! Samples, publishers, coverage, caps.

use std::sync::atomic::{AtomicBool, Ordering};

use continuum_fleet::{
    ids::{InstanceId, Namespace, PublisherId, Rank},
    view::Publisher,
};

use crate::{
    Millis,
    load::{Applied, Freshness, Row, Sample},
    rig::{NS, Rig, aggregated, blocks, decode, key, prefill, publisher, silent, tokens, used, view},
};

fn rows(rig: &Rig) -> Vec<Row> {
    rig.store.rows(3_000, rig.now)
}

fn words(rig: &Rig) -> Vec<&'static str> {
    rows(rig).iter().map(|row| row.freshness.as_str()).collect()
}

fn fields(rig: &Rig) -> (Option<u64>, Option<u64>, Option<u64>) {
    let row = rows(rig).remove(0);
    (
        row.active_decode_blocks,
        row.active_prefill_tokens,
        row.kv_used_blocks,
    )
}

#[test]
fn a_missing_field_keeps_its_value_and_its_time() {
    let mut rig = Rig::new(&[aggregated(1)]);
    rig.hear(blocks(1, 7));
    rig.pass(1_000);
    rig.hear(tokens(1, 40));
    assert_eq!(fields(&rig), (Some(7), Some(40), None));
    assert_eq!(rows(&rig)[0].sample_age_ms, Some(0));
    rig.pass(2_001);
    assert_eq!(
        words(&rig),
        ["stale"],
        "decode blocks are three seconds old, whatever else was said since"
    );
}

#[test]
fn sequences_are_checked_per_publisher_and_rank() {
    let rig = Rig::new(&[aggregated(1).ranks(0, 2)]);
    let apply = |publisher: u64, sequence, rank, value| {
        let sample = Sample {
            rank: Rank(rank),
            ..blocks(1, value)
        };
        rig.store.apply(
            PublisherId::new(publisher),
            &NS.into(),
            sequence,
            &sample,
            rig.now,
        )
    };
    assert_eq!(
        apply(9, 0, 0, 5),
        Applied::Applied,
        "zero is a number like any other"
    );
    assert_eq!(apply(9, 0, 0, 6), Applied::Duplicate);
    assert_eq!(apply(9, 0, 1, 6), Applied::Applied, "another rank");
    assert_eq!(apply(8, 0, 0, 6), Applied::Applied, "another publisher");
    assert_eq!(apply(9, 7, 0, 7), Applied::Applied);
    assert_eq!(apply(9, 6, 0, 8), Applied::Duplicate);
    assert_eq!(fields(&rig).0, Some(7));
    rig.store.forget(PublisherId::new(9));
    assert_eq!(fields(&rig).0, Some(6), "what the other publisher told remains");
    assert_eq!(
        apply(9, 1, 0, 8),
        Applied::Applied,
        "after a reconnect any number is the first"
    );
}

#[test]
fn publishers_of_one_rank_are_kept_apart() {
    let mut rig = Rig::new(&[aggregated(1)]);
    rig.hear_from(1, used(1, 30));
    rig.hear_from(
        2,
        Sample {
            active_prefill_tokens: Some(100),
            ..blocks(1, 12)
        },
    );
    assert_eq!(fields(&rig), (Some(12), Some(100), Some(30)));
    rig.hear_from(1, used(1, 31));
    assert_eq!(fields(&rig), (Some(12), Some(100), Some(31)));
    rig.store.forget(PublisherId::new(2));
    assert_eq!(
        fields(&rig),
        (None, None, Some(31)),
        "series that only it fed are gone"
    );
    rig.store.forget(PublisherId::new(1));
    assert_eq!(fields(&rig), (None, None, None));
    assert_eq!(rows(&rig)[0].sample_age_ms, None);
}

#[test]
fn a_crowd_of_publishers_for_one_rank_is_bounded() {
    let mut rig = Rig::new(&[aggregated(1)]);
    rig.hear_from(1, tokens(1, 77));
    for publisher in 2..100 {
        rig.hear_from(publisher, blocks(1, publisher));
    }
    assert_eq!(
        fields(&rig),
        (Some(99), None, None),
        "the one heard longest ago has given way"
    );
}

#[test]
fn samples_of_strangers_are_refused() {
    let mut rig = Rig::new(&[aggregated(1).ranks(2, 2)]);
    let at = |rank| Sample {
        rank: Rank(rank),
        ..blocks(1, 1)
    };
    for (sample, expected) in [
        (blocks(9, 1), Applied::IdentityMismatch),
        (at(1), Applied::IdentityMismatch),
        (at(2), Applied::Applied),
        (at(3), Applied::Applied),
        (at(4), Applied::IdentityMismatch),
        (at(u32::MAX), Applied::IdentityMismatch),
    ] {
        assert_eq!(rig.hear_from(1, sample), expected, "{sample:?}");
    }
    let foreign = Namespace::from("other");
    let applied = rig
        .store
        .apply(PublisherId::new(1), &foreign, 99, &at(2), rig.now);
    assert_eq!(
        applied,
        Applied::IdentityMismatch,
        "an id means nothing in another namespace"
    );
}

#[test]
fn departed_workers_leave_with_everything_in_one_call() {
    let mut rig = Rig::new(&[aggregated(1).ranks(0, 2), aggregated(2)]);
    rig.hear(blocks(1, 5));
    rig.follow(&view(&[aggregated(2)], &[]));
    assert_eq!(rig.followed.departed, [(key(1), Rank(0)), (key(1), Rank(1))]);
    assert_eq!(rows(&rig).len(), 1);
    assert_eq!(rig.hear_from(1, blocks(1, 5)), Applied::IdentityMismatch);
    rig.follow(&view(&[aggregated(1), aggregated(2)], &[]));
    assert_eq!((rig.followed.added, fields(&rig)), (1, (None, None, None)));
}

#[test]
fn a_worker_that_changes_its_card_keeps_its_samples() {
    let mut rig = Rig::new(&[aggregated(1)]);
    rig.hear(blocks(1, 5));
    rig.follow(&view(&[aggregated(1).blocks(500)], &[]));
    assert_eq!((rig.followed.departed.len(), fields(&rig).0), (0, Some(5)));
    rig.follow(&view(&[aggregated(1).ranks(0, 2)], &[]));
    assert_eq!(
        (rig.followed.departed.len(), rows(&rig).len(), fields(&rig).0),
        (1, 2, None),
        "other ranks, other life"
    );
}

#[test]
fn a_publisher_that_leaves_the_view_takes_its_fields_along() {
    let workers = [aggregated(1)];
    let mut rig = Rig::uncovered(&workers);
    rig.follow(&view(
        &workers,
        &[publisher(1, "aggregated"), publisher(2, "aggregated")],
    ));
    rig.hear_from(1, used(1, 4));
    rig.hear_from(2, blocks(1, 3));
    rig.follow(&view(&workers, &[publisher(1, "aggregated")]));
    assert_eq!(fields(&rig), (None, None, Some(4)));
}

#[test]
fn a_publisher_that_speaks_after_it_left_the_view_is_forgotten_with_its_subscription() {
    let worker = [aggregated(1)];
    let mut rig = Rig::uncovered(&worker);
    let (old, new) = (publisher(1, "aggregated"), publisher(2, "aggregated"));
    rig.follow(&view(&worker, &[old]));
    rig.store.subscribed(PublisherId::new(1), true);
    rig.hear_from(1, used(1, 50));
    rig.follow(&view(&worker, &[new]));
    // The subscription follows the view a moment later.
    rig.hear_from(1, used(1, 60));
    rig.store.subscribed(PublisherId::new(1), false);
    assert_eq!(fields(&rig), (None, None, None));
    rig.store.subscribed(PublisherId::new(2), true);
    assert_eq!(
        words(&rig),
        ["quiet"],
        "nothing that it told makes the rank stale"
    );
}

#[test]
fn an_event_source_tells_whom_a_silent_publisher_speaks_for() {
    let worker = [aggregated(1), aggregated(2)];
    let records = [1, 2].map(|id| Publisher {
        feeds: Some((InstanceId::new(id), Rank(0))),
        ..publisher(id, "backend")
    });
    // Publishers and workers may come in either order, and workers come again.
    let orders = [
        vec![view(&worker, &records)],
        vec![view(&[], &records), view(&worker, &records)],
        vec![view(&worker, &[]), view(&worker, &records)],
        vec![
            view(&worker, &records),
            view(&[], &records),
            view(&worker, &records),
        ],
    ];
    for (order, views) in orders.iter().enumerate() {
        let mut rig = Rig::uncovered(&[]);
        for view in views {
            rig.follow(view);
        }
        rig.store.subscribed(PublisherId::new(1), true);
        assert_eq!(words(&rig), ["quiet", "unknown"], "{order}");
        rig.follow(&view(&worker, &[]));
        assert_eq!(words(&rig), ["unknown", "unknown"], "{order}");
    }
}

#[test]
fn unrecorded_publishers_of_a_worker_are_bounded_and_the_oldest_gives_way() {
    let mut rig = Rig::uncovered(&[aggregated(1)]);
    let cap = crate::limits::PUBLISHERS_PER_WORKER as u64;
    for id in 0..10 * cap {
        rig.hear_from(id, used(1, id));
    }
    // An old one is no longer known to speak for the worker, the newest ones are.
    rig.store.subscribed(PublisherId::new(0), true);
    assert_eq!(words(&rig), ["fresh"]);
    rig.pass(3_001);
    assert_eq!(words(&rig), ["unknown"]);
    rig.store.subscribed(PublisherId::new(10 * cap - 1), true);
    assert_eq!(words(&rig), ["stale"]);
}

#[test]
fn a_raised_cap_hands_out_keys_with_the_next_view() {
    let mut rig = Rig::new(&[]);
    rig.store.set_capacity(1);
    let view = view(&[aggregated(1), aggregated(2)], &[]);
    rig.follow(&view);
    assert_eq!(rows(&rig).len(), 1);
    rig.store.set_capacity(2);
    rig.follow(&view);
    assert_eq!(rows(&rig).len(), 2);
    rig.store.set_capacity(1);
    rig.follow(&view);
    assert_eq!(rows(&rig).len(), 2, "nobody loses a key");
}

#[test]
fn silent_workers_are_covered_when_every_silent_publisher_is_connected() {
    let workers = [aggregated(1), aggregated(2)];
    let mut rig = Rig::uncovered(&workers);
    assert_eq!(words(&rig), ["unknown", "unknown"], "nobody publishes");
    rig.follow(&view(
        &workers,
        &[publisher(1, "aggregated"), publisher(2, "aggregated")],
    ));
    assert_eq!(words(&rig), ["unknown", "unknown"]);
    rig.store.subscribed(PublisherId::new(1), true);
    assert_eq!(
        words(&rig),
        ["unknown", "unknown"],
        "the other could be anybody's"
    );
    rig.store.subscribed(PublisherId::new(2), true);
    assert_eq!(words(&rig), ["quiet", "quiet"]);
    rig.hear_from(1, blocks(1, 0));
    rig.pass(5_000);
    assert_eq!(words(&rig), ["quiet", "quiet"]);
    rig.store.subscribed(PublisherId::new(2), false);
    assert_eq!(
        words(&rig),
        ["quiet", "unknown"],
        "the first worker's publisher is known by its samples"
    );
    rig.store.subscribed(PublisherId::new(1), false);
    assert_eq!(words(&rig), ["unknown", "unknown"]);
    rig.store.subscribed(PublisherId::new(2), true);
    assert_eq!(words(&rig), ["unknown", "quiet"]);
}

#[test]
fn coverage_is_told_apart_by_component_and_follows_the_view() {
    let workers = [prefill(1), decode(2)];
    let mut rig = Rig::uncovered(&workers);
    let both = [publisher(1, "prefill"), publisher(2, "decode")];
    rig.follow(&view(&workers, &both));
    rig.store.subscribed(PublisherId::new(2), true);
    assert_eq!(words(&rig), ["unknown", "quiet"]);
    rig.follow(&view(&workers, &both[..1]));
    assert_eq!(words(&rig), ["unknown", "unknown"], "its publisher has left");
    let whole = Publisher {
        component: None,
        ..publisher(3, "")
    };
    rig.store.subscribed(PublisherId::new(3), true);
    rig.follow(&view(&workers, &[whole]));
    assert_eq!(
        words(&rig),
        ["quiet", "quiet"],
        "a publisher of the whole namespace"
    );
    let named = Publisher {
        feeds: Some((InstanceId::new(1), Rank(0))),
        ..publisher(4, "elsewhere")
    };
    rig.store.subscribed(PublisherId::new(4), true);
    rig.follow(&view(&workers, &[named]));
    assert_eq!(words(&rig), ["quiet", "unknown"], "a record may name the worker");
}

#[test]
fn a_broker_covers_its_namespace() {
    let rig = Rig::uncovered(&[aggregated(1), aggregated(2).namespace("other")]);
    rig.store.broker_covers(&NS.into(), true);
    assert_eq!(words(&rig), ["quiet", "unknown"]);
    rig.store.broker_covers(&NS.into(), false);
    assert_eq!(words(&rig), ["unknown", "unknown"]);
}

#[test]
fn a_full_store_refuses_and_makes_room_again() {
    let mut rig = Rig::uncovered(&[]);
    rig.store = crate::load::Store::with_capacity(3);
    rig.follow(&view(
        &[
            aggregated(1).ranks(0, 2),
            aggregated(2).ranks(0, 2),
            aggregated(3),
        ],
        &[],
    ));
    assert_eq!((rig.followed.added, rig.followed.over_capacity), (3, 2));
    assert_eq!(
        rig.hear_from(
            1,
            Sample {
                rank: Rank(1),
                ..blocks(2, 1)
            }
        ),
        Applied::OverCapacity
    );
    assert_eq!(rig.hear_from(1, blocks(3, 1)), Applied::OverCapacity);
    let reach = |rig: &Rig| {
        rig.decodes(30)
            .into_iter()
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(reach(&rig), [1, 2].into());
    rig.follow(&view(&[aggregated(2).ranks(0, 2), aggregated(3)], &[]));
    assert_eq!((rig.followed.added, rig.followed.over_capacity), (2, 0));
    assert_eq!(
        reach(&rig),
        [2, 3].into(),
        "a worker without room is a candidate once there is some"
    );
}

#[test]
fn a_card_that_declares_four_billion_ranks_gets_a_thousand() {
    let rig = Rig::new(&[aggregated(1).ranks(u32::MAX - 1, u32::MAX), aggregated(2)]);
    assert_eq!(rows(&rig).len(), 2, "no rank number beyond 32 bits");
    let rig = Rig::new(&[aggregated(1).ranks(0, u32::MAX), aggregated(2)]);
    assert_eq!(rows(&rig).len(), 1_025);
    assert!(rig.followed.over_capacity > 4_000_000_000);
    assert!(rig.pick().is_ok());
}

#[test]
fn a_forgotten_publisher_forgives_what_waits_for_its_answer() {
    let mut rig = Rig::new(&[aggregated(1)]);
    rig.hear(blocks(1, 0));
    let _booking = rig.book(&rig.pick().unwrap(), 32, true);
    rig.pass(5_000);
    assert_eq!(words(&rig), ["stalled"]);
    rig.store.forget(PublisherId::new(1));
    assert_eq!(words(&rig), ["quiet"], "the answer may be what was missed");
}

#[test]
fn picks_read_while_writers_write_and_everything_returns_to_zero() {
    let workers: Vec<_> = (1..=4).map(prefill).chain((5..=8).map(decode)).collect();
    let rig = Rig::new(&workers);
    let done = AtomicBool::new(false);
    let (rig, done) = (&rig, &done);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut sequence = 0;
            while !done.load(Ordering::Relaxed) {
                sequence += 1;
                let worker = 1 + sequence % 8;
                let sample = if worker < 5 {
                    tokens(worker, sequence % 9)
                } else {
                    blocks(worker, sequence % 50)
                };
                let applied = rig.store.apply(
                    PublisherId::new(worker),
                    &NS.into(),
                    sequence,
                    &sample,
                    Millis(sequence),
                );
                assert_eq!(applied, Applied::Applied);
                if sequence % 64 == 0 {
                    rig.store.forget(PublisherId::new(worker));
                    rig.store.suspect(&key(worker), Millis(sequence));
                }
            }
        });
        let requests = [0_u64, 1].map(|thread| {
            scope.spawn(move || {
                let mut open = std::collections::VecDeque::new();
                for step in 0..2_000_u64 {
                    let pick = rig.pick().unwrap();
                    assert!(pick.prefill.is_some());
                    open.push_back(rig.book(&pick, 1 + step % 700, step % 3 != thread));
                    if step % 5 < 2 {
                        open[0].prefill_ended(rig.now.plus(step % 40));
                    }
                    if open.len() > 30 {
                        drop(open.swap_remove_back(usize::try_from(step % 30).unwrap()));
                    }
                }
            })
        });
        requests.into_iter().for_each(|thread| thread.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    for row in rows(rig) {
        assert_eq!(
            (row.booked_requests, row.booked_blocks, row.booked_tokens),
            (0, 0, 0),
            "{row:?}"
        );
    }
    assert!(rig.store.is_idle());
}

#[test]
fn freshness_words_are_those_of_the_admin_view() {
    let mut rig = Rig::new(&[aggregated(1), prefill(2)]);
    rig.hear(silent(1));
    assert_eq!(
        words(&rig),
        ["quiet", "quiet"],
        "a sample that says nothing is no load"
    );
    rig.hear(blocks(2, 9));
    assert_eq!(
        rows(&rig)[1].freshness,
        Freshness::Quiet,
        "decode blocks say nothing of a prefill worker"
    );
    rig.hear(tokens(2, 9));
    assert_eq!(rows(&rig)[1].freshness, Freshness::Fresh);
}

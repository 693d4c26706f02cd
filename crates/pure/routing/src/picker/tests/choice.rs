//! Costs, freshness, bookings, ties, suspicion.

use std::collections::BTreeMap;

use crate::{
    Millis,
    load::{Freshness, Sample},
    picker::{NoPick, Reason, Standing, Ties},
    rig::{Rig, aggregated, blocks, decode, decode_of, key, prefill, prefill_of, silent, tokens, used, view},
};

fn counts(picks: Vec<u64>) -> BTreeMap<u64, usize> {
    picks.into_iter().fold(BTreeMap::new(), |mut counts, id| {
        *counts.entry(id).or_default() += 1;
        counts
    })
}

#[test]
fn the_cheapest_fresh_rank_wins_and_capacity_counts() {
    let mut rig = Rig::new(&[aggregated(1), aggregated(2), aggregated(3).blocks(1_000)]);
    rig.hear(blocks(1, 20));
    rig.hear(blocks(2, 10));
    rig.hear(blocks(3, 150));
    let pick = rig.pick().unwrap();
    assert_eq!(
        (decode_of(&pick), pick.decode_reason),
        (2, Reason::Load),
        "11 of 100 against 151 of 1,000"
    );
    rig.hear(blocks(3, 60));
    assert_eq!(
        decode_of(&rig.pick().unwrap()),
        3,
        "61 of 1,000 is less than 11 of 100"
    );
}

#[test]
fn the_prompt_is_part_of_the_decode_cost() {
    let mut rig = Rig::new(&[aggregated(1), aggregated(2).blocks(1_000)]);
    rig.hear(blocks(1, 0));
    rig.hear(blocks(2, 40));
    // One block: 1 of 100 against 41 of 1,000. Fifty blocks: 50 of 100 against 90 of 1,000.
    assert_eq!(decode_of(&rig.pick().unwrap()), 1);
    assert_eq!(decode_of(&rig.ask(|ask| ask.prompt_tokens = 785).unwrap()), 2);
}

#[test]
fn used_blocks_stand_in_for_missing_decode_blocks() {
    let mut rig = Rig::new(&[aggregated(1), aggregated(2)]);
    rig.hear(used(1, 30));
    rig.hear(used(2, 20));
    assert_eq!(decode_of(&rig.pick().unwrap()), 2);
    rig.hear(Sample {
        active_decode_blocks: Some(5),
        ..used(1, 30)
    });
    assert_eq!(
        decode_of(&rig.pick().unwrap()),
        1,
        "decode blocks count when they are known"
    );
    rig.pass(2_000);
    rig.hear(used(1, 40));
    rig.pass(1_500);
    rig.hear(used(2, 20));
    assert_eq!(
        decode_of(&rig.pick().unwrap()),
        2,
        "an old decode field gives way to a fresh stand-in"
    );
}

#[test]
fn quiet_ranks_compete_as_idle_ones() {
    let mut rig = Rig::new(&[aggregated(1), aggregated(2), aggregated(3)]);
    rig.hear(blocks(2, 0));
    rig.pass(10_000);
    rig.hear(blocks(1, 10));
    let picked = counts(rig.decodes(10));
    assert_eq!(
        picked,
        BTreeMap::from([(2, 5), (3, 5)]),
        "last said zero, and never spoke"
    );
    assert_eq!(rig.pick().unwrap().decode_reason, Reason::Load);
}

#[test]
fn loaded_and_silent_ranks_are_not_picked_while_others_have_a_cost() {
    let mut rig = Rig::new(&[aggregated(1), aggregated(2)]);
    rig.hear(blocks(1, 1));
    rig.pass(3_001);
    rig.hear(blocks(2, 99));
    assert_eq!(rig.decodes(3), [2, 2, 2]);
    assert_eq!(rig.explain()[0].freshness, Freshness::Stale);
    assert_eq!(rig.explain()[0].standing, Standing::UndefinedCost);
    assert_eq!(rig.explain()[0].cost, None);
}

#[test]
fn max_staleness_is_inclusive_and_read_at_each_pick() {
    let mut rig = Rig::new(&[aggregated(1), aggregated(2)]);
    rig.hear(blocks(1, 50));
    rig.pass(3_000);
    assert_eq!(rig.pick().unwrap().decode_reason, Reason::Load);
    rig.settings.max_staleness = 2_999;
    assert_eq!(rig.pick().unwrap().decode_reason, Reason::RoundRobinStale);
}

#[test]
fn without_fresh_samples_the_cursor_goes_round() {
    let rig = Rig::new(&[aggregated(1), aggregated(2), aggregated(3)]);
    assert_eq!(rig.pick().unwrap().decode_reason, Reason::RoundRobinStale);
    assert_eq!(counts(rig.decodes(9)), BTreeMap::from([(1, 3), (2, 3), (3, 3)]));
    let six = rig.decodes(6);
    assert_eq!(six[..3], six[3..], "in turn");
}

#[test]
fn without_fresh_samples_bookings_decide_and_even_silent_ranks_take_part() {
    let mut rig = Rig::new(&[aggregated(1), aggregated(2)]);
    rig.hear(blocks(1, 5));
    rig.pass(10_000);
    let first = rig.excluding(&[1]).unwrap();
    let booking = rig.book(&first, 16, true);
    let pick = rig.pick().unwrap();
    assert_eq!((decode_of(&pick), pick.decode_reason), (1, Reason::Booked));
    drop(booking);
    assert_eq!(rig.pick().unwrap().decode_reason, Reason::RoundRobinStale);
}

#[test]
fn ranks_without_capacity_go_round_when_nothing_else_is_known() {
    let rig = Rig::new(&[aggregated(1).no_capacity(), aggregated(2).no_capacity()]);
    let first = rig.excluding(&[2]).unwrap();
    let _booking = rig.book(&first, 16, true);
    assert_eq!(
        counts(rig.decodes(6)),
        BTreeMap::from([(1, 3), (2, 3)]),
        "bookings have no divisor"
    );
    assert_eq!(rig.pick().unwrap().decode_reason, Reason::RoundRobinStale);
}

#[test]
fn ranks_without_capacity_give_way_to_a_defined_cost() {
    let mut rig = Rig::new(&[aggregated(1).no_capacity(), aggregated(2)]);
    rig.hear(blocks(1, 0));
    assert_eq!(
        rig.pick().unwrap().decode_reason,
        Reason::RoundRobinStale,
        "a fresh sample without a cost decides nothing"
    );
    rig.hear(blocks(2, 99));
    assert_eq!(rig.decodes(2), [2, 2]);
    let block_size_matters = Rig::new(&[aggregated(1).card(|card| card.block_size = None), aggregated(2)]);
    assert_eq!(block_size_matters.explain()[0].cost, None);
}

#[test]
fn a_fresh_sample_counts_with_the_bookings_after_it() {
    let mut rig = Rig::new(&[aggregated(1), aggregated(2)]);
    rig.hear(blocks(1, 0));
    rig.hear(blocks(2, 2));
    let first = rig.pick().unwrap();
    assert_eq!(decode_of(&first), 1);
    let booking = rig.book(&first, 100, true);
    assert_eq!(
        decode_of(&rig.pick().unwrap()),
        2,
        "seven blocks were dispatched after the sample"
    );
    rig.hear(blocks(1, 1));
    assert_eq!(decode_of(&rig.pick().unwrap()), 1, "the new sample contains them");
    drop(booking);
    assert_eq!(decode_of(&rig.pick().unwrap()), 1, "and they end without a trace");
    assert_eq!(rig.store.rows(3_000, rig.now)[0].booked_blocks, 0);
}

#[test]
fn the_decode_half_of_a_pair_counts_until_its_prefill_has_ended() {
    let mut rig = Rig::new(&[prefill(1), decode(2), decode(3)]);
    rig.hear(blocks(2, 0));
    rig.hear(blocks(3, 3));
    let first = rig.pick().unwrap();
    assert_eq!(decode_of(&first), 2);
    let booking = rig.book(&first, 160, true);
    rig.hear(blocks(2, 0));
    assert_eq!(
        decode_of(&rig.pick().unwrap()),
        3,
        "no sample of the decode rank can contain it yet"
    );
    booking.prefill_ended(rig.now);
    assert_eq!(
        decode_of(&rig.pick().unwrap()),
        3,
        "it has arrived, and no sample has come since"
    );
    rig.hear(blocks(2, 2));
    assert_eq!(decode_of(&rig.pick().unwrap()), 2);
}

#[test]
fn prefill_bookings_spread_silent_prefill_workers() {
    let mut rig = Rig::new(&[prefill(1), prefill(2), decode(3)]);
    let first = rig.pick().unwrap();
    let booking = rig.book(&first, 500, true);
    let second = rig.pick().unwrap();
    assert_ne!(prefill_of(&first), prefill_of(&second));
    assert_eq!(second.prefill_reason, Reason::Booked);
    rig.pass(40_000);
    assert_eq!(
        prefill_of(&rig.pick().unwrap()),
        prefill_of(&second),
        "no limit of time on an open prefill"
    );
    booking.prefill_ended(rig.now);
    assert_eq!(
        rig.pick().unwrap().prefill_reason,
        Reason::RoundRobinStale,
        "the first byte ends it"
    );
    assert_eq!(
        rig.store.rows(3_000, rig.now)[2].booked_blocks,
        32,
        "the decode part lasts as long as the request"
    );
}

#[test]
fn a_sample_without_the_field_clears_no_prefill_booking() {
    let mut rig = Rig::new(&[prefill(1), prefill(2), decode(3)]);
    let first = rig.pick().unwrap();
    let busy = prefill_of(&first).unwrap();
    let _booking = rig.book(&first, 500, true);
    rig.hear(used(busy, 0));
    assert_ne!(prefill_of(&rig.pick().unwrap()), Some(busy));
    rig.hear(tokens(busy, 0));
    let next = rig.pick().unwrap();
    assert_eq!(
        next.prefill_reason,
        Reason::Load,
        "now a sample with the field takes part, and contains the booking"
    );
    assert!([1, 2].map(Some).contains(&prefill_of(&next)));
}

#[test]
fn a_buffered_prefill_ends_by_the_rate_of_recent_streams() {
    let mut rig = Rig::new(&[prefill(1), decode(2)]);
    let pick = rig.pick().unwrap();
    let stream = rig.book(&pick, 1_000, true);
    rig.pass(100);
    stream.prefill_ended(rig.now);
    let _buffered = rig.book(&pick, 2_000, false);
    let booked = |rig: &Rig| rig.store.rows(3_000, rig.now)[0].booked_tokens;
    rig.pass(199);
    assert_eq!(booked(&rig), 2_000, "ten tokens a millisecond");
    rig.pass(1);
    assert_eq!(booked(&rig), 0);
}

#[test]
fn a_buffered_prefill_without_a_known_rate_ends_with_the_request() {
    let mut rig = Rig::new(&[prefill(1), decode(2)]);
    let pick = rig.pick().unwrap();
    let buffered = rig.book(&pick, 2_000, false);
    rig.pass(1_000_000);
    assert_eq!(rig.store.rows(3_000, rig.now)[0].booked_tokens, 2_000);
    drop(buffered);
    assert_eq!(rig.store.rows(3_000, rig.now)[0].booked_tokens, 0);
}

#[test]
fn a_rank_that_took_two_blocks_and_fell_silent_is_stalled() {
    let mut rig = Rig::new(&[aggregated(1), aggregated(2)]);
    rig.hear(blocks(1, 0));
    let pick = rig.excluding(&[2]).unwrap();
    let booking = rig.book(&pick, 32, true);
    rig.pass(4_999);
    rig.hear(blocks(2, 90));
    assert_eq!(decode_of(&rig.pick().unwrap()), 1);
    rig.pass(1);
    assert_eq!(
        decode_of(&rig.pick().unwrap()),
        2,
        "five seconds without a sample"
    );
    assert_eq!(rig.explain()[0].freshness, Freshness::Stalled);
    assert_eq!(rig.explain()[0].standing, Standing::Stalled);
    rig.hear(silent(1));
    assert_eq!(decode_of(&rig.pick().unwrap()), 1, "any sample is a sign of life");
    drop(booking);
}

#[test]
fn stalls_expire_with_the_request_and_end_with_it() {
    let mut rig = Rig::new(&[aggregated(1), aggregated(2)]);
    rig.hear(blocks(1, 0));
    let pick = rig.excluding(&[2]).unwrap();
    let older = rig.book(&pick, 32, true);
    rig.pass(10_000);
    let younger = rig.book(&pick, 32, true);
    rig.pass(19_999);
    rig.hear(blocks(2, 90));
    assert_eq!(decode_of(&rig.pick().unwrap()), 2);
    rig.pass(1);
    assert_eq!(
        decode_of(&rig.pick().unwrap()),
        2,
        "the older has expired, the younger has not"
    );
    drop(older);
    assert_eq!(decode_of(&rig.pick().unwrap()), 2);
    drop(younger);
    assert_eq!(
        decode_of(&rig.pick().unwrap()),
        1,
        "what has ended may never have reached the engine"
    );
}

#[test]
fn small_requests_pairs_and_silent_fleets_know_no_stall() {
    let mut rig = Rig::new(&[aggregated(1), aggregated(2)]);
    let pick = rig.excluding(&[2]).unwrap();
    let _small = rig.book(&pick, 16, true);
    rig.pass(6_000);
    rig.hear(blocks(2, 90));
    assert_eq!(
        decode_of(&rig.pick().unwrap()),
        1,
        "one block may change nothing that is published"
    );

    let mut rig = Rig::new(&[prefill(1), decode(2), decode(3)]);
    let pick = rig.excluding(&[3]).unwrap();
    let _pair = rig.book(&pick, 32, true);
    rig.pass(6_000);
    rig.hear(blocks(3, 90));
    assert_eq!(
        decode_of(&rig.pick().unwrap()),
        2,
        "the decode half arrives after the prefill"
    );

    let mut rig = Rig::new(&[aggregated(1), aggregated(2)]);
    let pick = rig.excluding(&[2]).unwrap();
    let _booking = rig.book(&pick, 32, true);
    let other = rig.excluding(&[1]).unwrap();
    let _heavier = rig.book(&other, 320, true);
    rig.pass(6_000);
    assert_eq!(
        decode_of(&rig.pick().unwrap()),
        1,
        "no sample can answer in a fleet that publishes none"
    );
}

#[test]
fn a_stalled_rank_is_better_than_an_undefined_cost() {
    let mut rig = Rig::new(&[aggregated(1), aggregated(2)]);
    rig.settings.max_staleness = 60_000;
    rig.hear(blocks(1, 0));
    let pick = rig.excluding(&[2]).unwrap();
    let _booking = rig.book(&pick, 32, true);
    rig.pass(6_000);
    assert_eq!(decode_of(&rig.pick().unwrap()), 2);
    let _other = rig.book(&rig.excluding(&[1]).unwrap(), 32, true);
    rig.pass(6_000);
    assert_eq!(
        rig.pick().unwrap().decode_reason,
        Reason::Load,
        "everybody is stalled: the cheapest of all"
    );
}

#[test]
fn unknown_ranks_are_costed_by_bookings_and_are_never_stalled() {
    let mut rig = Rig::uncovered(&[aggregated(1), aggregated(2)]);
    assert_eq!(rig.explain()[0].freshness, Freshness::Unknown);
    rig.hear(blocks(2, 5));
    let pick = rig.excluding(&[2]).unwrap();
    let _booking = rig.book(&pick, 32, true);
    rig.pass(6_000);
    rig.hear(blocks(2, 5));
    assert_eq!(
        decode_of(&rig.pick().unwrap()),
        1,
        "two booked blocks against five"
    );
    assert_eq!(rig.explain()[0].freshness, Freshness::Unknown);
}

#[test]
fn suspects_stand_back_until_they_speak_or_thirty_seconds_pass() {
    let mut rig = Rig::new(&[aggregated(1), aggregated(2)]);
    rig.store.suspect(&key(1), rig.now);
    assert_eq!(rig.decodes(3), [2, 2, 2]);
    assert_eq!(decode_of(&rig.excluding(&[2]).unwrap()), 1, "others cannot serve");
    assert_eq!(rig.explain()[0].standing, Standing::Suspect);
    rig.pass(29_999);
    assert_eq!(rig.decodes(2), [2, 2]);
    rig.pass(1);
    assert_eq!(counts(rig.decodes(4)).len(), 2);
    rig.store.suspect(&key(1), rig.now);
    rig.hear(silent(1));
    assert_eq!(counts(rig.decodes(4)).len(), 2);
}

#[test]
fn a_suspect_that_answers_is_trusted_again() {
    let rig = Rig::new(&[prefill(1), prefill(2), decode(3)]);
    rig.store.suspect(&key(1), rig.now);
    assert_eq!(prefill_of(&rig.pick().unwrap()), Some(2));
    rig.store.trust(&key(1));
    let prefills: Vec<_> = (0..4)
        .map(|_| prefill_of(&rig.pick().unwrap()).unwrap())
        .collect();
    assert_eq!(counts(prefills).len(), 2);
}

#[test]
fn one_rank_that_speaks_clears_its_whole_worker() {
    let mut rig = Rig::new(&[aggregated(1).ranks(0, 2)]);
    rig.store.suspect(&key(1), rig.now);
    assert!(rig.store.rows(3_000, rig.now).iter().all(|row| row.suspect));
    rig.hear(blocks(1, 0));
    assert!(!rig.store.rows(3_000, rig.now).iter().any(|row| row.suspect));
}

#[test]
fn a_decode_worker_whose_prefill_workers_are_all_suspect_stands_back_too() {
    let rig = Rig::new(&[
        prefill(1).namespace("dynamo-aaaaaaaa"),
        decode(2).namespace("dynamo-aaaaaaaa"),
        prefill(3).namespace("dynamo-bbbbbbbb"),
        decode(4).namespace("dynamo-bbbbbbbb"),
    ]);
    let suspect = rig.table.served();
    assert_eq!(suspect.len(), 1);
    let worker = continuum_fleet::ids::WorkerKey {
        namespace: "dynamo-aaaaaaaa".into(),
        ..key(1)
    };
    rig.store.suspect(&worker, rig.now);
    assert_eq!(rig.decodes(4), [4; 4]);
}

#[test]
fn excluded_workers_are_never_picked_again() {
    let rig = Rig::new(&[prefill(1), prefill(2), decode(3), decode(4)]);
    for _ in 0..4 {
        let pick = rig.excluding(&[1, 3]).unwrap();
        assert_eq!((decode_of(&pick), prefill_of(&pick)), (4, Some(2)));
    }
    assert_eq!(
        rig.excluding(&[1, 2]).unwrap_err(),
        NoPick::NoCandidate,
        "no pair is left"
    );
    assert_eq!(rig.excluding(&[3, 4]).unwrap_err(), NoPick::NoCandidate);
}

#[test]
fn ties_rotate_among_the_cheapest_alone() {
    let mut rig = Rig::new(&[aggregated(1), aggregated(2), aggregated(3), aggregated(4)]);
    for id in 1..=4 {
        rig.hear(blocks(id, if id % 2 == 0 { 5 } else { 6 }));
    }
    let picks = rig.decodes(6);
    assert_eq!(counts(picks.clone()), BTreeMap::from([(2, 3), (4, 3)]));
    assert!(
        picks.windows(2).all(|pair| pair[0] != pair[1]),
        "in turn: {picks:?}"
    );
}

#[test]
fn ties_rotate_among_more_equals_than_a_scan_remembers() {
    let workers: Vec<_> = (1..=200).map(aggregated).collect();
    let mut rig = Rig::new(&workers);
    assert_eq!(counts(rig.decodes(400)), (1..=200).map(|id| (id, 2)).collect());
    for id in 1..=200 {
        rig.hear(blocks(id, if id <= 50 { 9 } else { 1 }));
    }
    assert_eq!(counts(rig.decodes(300)), (51..=200).map(|id| (id, 2)).collect());
    let no_capacity: Vec<_> = (1..=200).map(|id| aggregated(id).no_capacity()).collect();
    let rig = Rig::new(&no_capacity);
    assert_eq!(counts(rig.decodes(200)), (1..=200).map(|id| (id, 1)).collect());
}

#[test]
fn random_ties_reach_everybody_unevenly() {
    let mut rig = Rig::new(&[aggregated(1), aggregated(2), aggregated(3)]);
    rig.settings.ties = Ties::Random;
    let picks = rig.decodes(300);
    let counts = counts(picks.clone());
    assert!(
        counts.len() == 3 && counts.values().all(|count| (60..140).contains(count)),
        "{counts:?}"
    );
    assert!(picks.windows(2).any(|pair| pair[0] == pair[1]));
}

#[test]
fn each_process_starts_somewhere_else() {
    let workers: Vec<_> = (1..=16).map(aggregated).collect();
    let starts: std::collections::BTreeSet<u64> = (0..32)
        .map(|seed| {
            let store = crate::load::Store::new();
            let (table, _) = crate::picker::Table::new(seed).follow(&view(&workers, &[]), &store);
            let rig = Rig {
                table,
                store,
                ..Rig::uncovered(&[])
            };
            decode_of(&rig.pick().unwrap())
        })
        .collect();
    assert!(starts.len() > 8, "{starts:?}");
}

#[test]
fn explain_moves_no_cursor_and_names_the_next_pick() {
    let rig = Rig::new(&[prefill(1), prefill(2), decode(3), decode(4), aggregated(5)]);
    let chosen = |rig: &Rig| -> Vec<u64> {
        let rows = rig
            .explain()
            .into_iter()
            .filter(|row| row.standing == Standing::Chosen);
        rows.map(|row| row.worker.instance.raw()).collect()
    };
    let first = chosen(&rig);
    assert_eq!(first, chosen(&rig));
    let pick = rig.pick().unwrap();
    assert_eq!(first, [decode_of(&pick), prefill_of(&pick).unwrap()]);
    assert_ne!(first, chosen(&rig));
    assert_eq!(rig.explain().last().unwrap().standing, Standing::BesidePairs);
    assert_eq!(rig.explain().len(), 5);
}

#[test]
fn time_may_stand_still_or_run_to_the_end() {
    let mut rig = Rig::new(&[aggregated(1)]);
    rig.now = Millis(0);
    rig.hear(blocks(1, 1));
    assert_eq!(rig.pick().unwrap().decode_reason, Reason::Load);
    rig.now = Millis(u64::MAX);
    rig.store.suspect(&key(1), rig.now);
    rig.hear(blocks(1, u64::MAX));
    let pick = rig.ask(|ask| ask.prompt_tokens = u64::MAX).unwrap();
    drop(rig.book(&pick, u64::MAX, false));
    assert_eq!(rig.store.rows(3_000, rig.now)[0].booked_blocks, 0);
}

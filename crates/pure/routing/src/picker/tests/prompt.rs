//! Picks by what ranks hold of a prompt.

use std::collections::BTreeMap;

use continuum_fleet::view::KvTransferEnforcement;
use continuum_kv_index::{Caps, Index, Matches, RankKey};
use continuum_wire::router_event::{Block, Data, Stored, Tier};
use proptest::prelude::*;

use crate::{
    picker::{
        Reason, Standing,
        kv::{Bypass, BypassPolicy, Held, InFlight, InUse, Prompt, Settings},
    },
    rig::{Build, Rig, aggregated, blocks, decode, decode_of, key, prefill, prefill_of, tokens},
};

const SIZE: u32 = 16;

/// A prompt of whole blocks, and what workers hold of it: (worker, tier, from, to).
struct Known {
    tokens: u64,
    held: Vec<Held>,
    settings: Settings,
    chance: [f64; 2],
}

impl Known {
    fn new(length: u64, holders: &[(u64, Tier, u64, u64)]) -> Self {
        let live: Vec<RankKey> = (0..64).map(rank).collect();
        let index = Index::new(Caps::default());
        index.set_live(&live);
        for (worker, tier, from, to) in holders {
            let data = Data::Stored(Stored {
                parent: from.checked_sub(1).map(|before| 1_000 + before),
                blocks: (*from..*to)
                    .map(|at| Block {
                        hash: 1_000 + at,
                        tokens: 1 + at,
                        multimodal: false,
                    })
                    .collect(),
            });
            assert_eq!(index.apply(&rank(*worker), *tier, &data).refused, None);
        }
        let hashes: Vec<u64> = (0..length).map(|at| 1 + at).collect();
        let mut cached = Matches::new();
        index.find(&hashes, &mut cached);
        Self {
            tokens: length * u64::from(SIZE),
            held: vec![Held {
                block_size: SIZE,
                cached,
                in_flight: InUse::default(),
            }],
            settings: Settings::default(),
            chance: [0.5; 2],
        }
    }

    fn device(length: u64, holders: &[(u64, u64)]) -> Self {
        let holders: Vec<_> = holders
            .iter()
            .map(|(worker, blocks)| (*worker, Tier::Device, 0, *blocks))
            .collect();
        Self::new(length, &holders)
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    fn prompt(&self) -> Prompt<'_> {
        Prompt {
            tokens: self.tokens,
            held: &self.held,
            settings: self.settings,
            chance: self.chance,
        }
    }
}

fn rank(worker: u64) -> RankKey {
    RankKey {
        worker: key(worker),
        rank: 0,
    }
}

fn pins(rig: &Rig, known: &Known) -> (u64, Option<u64>) {
    let pick = rig.pick_by(&known.prompt()).0.unwrap();
    (decode_of(&pick), prefill_of(&pick))
}

#[test]
fn the_prefill_worker_that_holds_most_of_the_prompt_is_chosen() {
    let rig = Rig::new(&[prefill(1), prefill(2), prefill(3), decode(4)]);
    let known = Known::device(20, &[(1, 3), (2, 12)]);
    for _ in 0..6 {
        let (pick, rows) = rig.pick_by(&known.prompt());
        let pick = pick.unwrap();
        assert_eq!(prefill_of(&pick), Some(2));
        assert_eq!(pick.prefill_reason, Reason::KvAware);
        let credit = pick.credit.unwrap();
        assert_eq!((credit.overlap.device, credit.uncached_tokens), (12, 8 * 16));
        let shown: BTreeMap<u64, (Standing, f64, u32)> = rows
            .iter()
            .map(|row| {
                let held = row.credit.map_or(0, |credit| credit.overlap.device);
                (row.worker.instance.raw(), (row.standing, row.cost.unwrap(), held))
            })
            .collect();
        // 20 blocks to read less the credit, and 20 that nobody has in use yet.
        assert_eq!(shown[&1], (Standing::Candidate, 17.0 + 20.0, 3));
        assert_eq!(shown[&2], (Standing::Chosen, 8.0 + 20.0, 12));
        assert_eq!(shown[&3], (Standing::Candidate, 40.0, 0));
        assert_eq!(shown[&4].0, Standing::Chosen);
    }
}

#[test]
fn work_in_front_outweighs_a_prefix() {
    let mut rig = Rig::new(&[prefill(1), prefill(2), decode(3)]);
    let known = Known::device(20, &[(1, 8)]);
    rig.hear(tokens(1, 7 * 16));
    rig.hear(tokens(2, 0));
    assert_eq!(pins(&rig, &known).1, Some(1), "7 + 12 blocks against 20");
    rig.hear(tokens(1, 9 * 16));
    assert_eq!(pins(&rig, &known).1, Some(2));
}

#[test]
fn own_bookings_count_what_is_not_cached() {
    let rig = Rig::new(&[prefill(1), prefill(2), decode(3)]);
    let known = Known::device(20, &[(1, 20)]);
    let mut open = Vec::new();
    for _ in 0..5 {
        let pick = rig.pick_by(&known.prompt()).0.unwrap();
        assert_eq!(
            prefill_of(&pick),
            Some(1),
            "a prompt that is there costs its rank nothing"
        );
        open.push(rig.book(&pick, known.tokens, true));
    }
}

#[test]
fn tiers_have_their_worth() {
    let rig = Rig::new(&[prefill(1), prefill(2), decode(3)]);
    let both = |host: u64| {
        Known::new(
            20,
            &[
                (1, Tier::Device, 0, 6),
                (2, Tier::Device, 0, 2),
                (2, Tier::HostPinned, 2, 2 + host),
            ],
        )
    };
    let credit = |known: &Known| rig.pick_by(&known.prompt()).0.unwrap().credit.unwrap();
    let found = both(18);
    assert_eq!(pins(&rig, &found).1, Some(2));
    assert_eq!(credit(&found).blocks, 2.0 + 0.75 * 18.0);
    assert_eq!(pins(&rig, &both(3)).1, Some(1));
    let worthless = both(18).with(|settings| settings.tiers.host = 0.0);
    assert_eq!(pins(&rig, &worthless).1, Some(1));
}

#[test]
fn credit_fades_on_busy_ranks_where_it_is_told_to() {
    let mut rig = Rig::new(&[prefill(1), prefill(2), decode(3)]);
    rig.hear(tokens(1, 9 * 16));
    rig.hear(tokens(2, 0));
    let known = Known::device(20, &[(1, 10)]);
    assert_eq!(pins(&rig, &known).1, Some(1), "9 + 10 against 20");
    let fading = known.with(|settings| settings.overlap_score_credit_decay = 100.0);
    assert_eq!(pins(&rig, &fading).1, Some(2));
}

#[test]
fn aggregated_workers_read_their_own_prompts() {
    let mut rig = Rig::new(&[aggregated(1), aggregated(2)]);
    rig.hear(blocks(1, 5));
    rig.hear(blocks(2, 0));
    assert_eq!(pins(&rig, &Known::device(20, &[(1, 8)])), (1, None));
    rig.hear(blocks(1, 9));
    assert_eq!(pins(&rig, &Known::device(20, &[(1, 8)])), (2, None));
}

#[test]
fn a_sample_from_before_a_dispatch_does_not_hide_it() {
    let mut rig = Rig::new(&[aggregated(1), aggregated(2)]);
    rig.hear(blocks(1, 0));
    rig.hear(blocks(2, 0));
    let known = Known::device(20, &[(1, 20)]);
    let pick = rig.pick_by(&known.prompt()).0.unwrap();
    assert_eq!(decode_of(&pick), 1);
    let _open = rig.book(&pick, known.tokens, true);
    assert_eq!(
        rig.store.rows(1_000, rig.now)[0].booked_requests,
        1,
        "its prompt and its answer are one"
    );
    // The worker has not seen the request yet.
    rig.hear(blocks(1, 1));
    let (_, rows) = rig.pick_by(&known.prompt());
    assert_eq!(rows[0].cost.unwrap(), 20.0 + 20.0);
}

#[test]
fn what_open_requests_share_is_in_use_once() {
    let rig = Rig::new(&[aggregated(1), aggregated(2)]);
    let in_flight = std::sync::Arc::new(InFlight::default());
    in_flight.set_live(&[rank(1), rank(2)]);
    let mut known = Known::device(20, &[(1, 20)]);
    let hashes: Vec<u64> = (1..=20).collect();
    let first = rig.pick_by(&known.prompt()).0.unwrap();
    assert_eq!(decode_of(&first), 1);
    let entry = in_flight.enter(&rank(1), &hashes);
    let first = rig.book_beside(&first, known.tokens, true, entry.shared());
    known.held[0].in_flight = in_flight.find(&hashes, rig.now);
    let (second, rows) = rig.pick_by(&known.prompt());
    let second = second.unwrap();
    assert_eq!(
        rows[0].cost.unwrap(),
        20.0,
        "they are in use, and no more with this one"
    );
    assert_eq!(decode_of(&second), 1);
    let other = in_flight.enter(&rank(1), &hashes);
    assert_eq!(other.shared(), 20);
    let second = rig.book_beside(&second, known.tokens, true, other.shared());
    for booking in [&first, &second] {
        booking.prefill_ended(rig.now);
    }
    let (_, rows) = rig.pick_by(&known.prompt());
    assert_eq!(rows[0].cost.unwrap(), 20.0);
    // The one that had booked them ends first: the other holds them still.
    first.keep(entry.leave());
    drop(first);
    let (_, rows) = rig.pick_by(&known.prompt());
    assert_eq!(rows[0].cost.unwrap(), 20.0);
    second.keep(other.leave());
    drop(second);
    known.held[0].in_flight = in_flight.find(&hashes, rig.now);
    let (_, rows) = rig.pick_by(&known.prompt());
    assert_eq!(rows[0].cost.unwrap(), 20.0, "its own alone");
}

#[test]
fn what_has_ended_since_the_last_sample_is_not_in_front() {
    let mut rig = Rig::new(&[aggregated(1), aggregated(2)]);
    let known = Known::device(20, &[]);
    let pick = rig.pick_by(&known.prompt()).0.unwrap();
    let worker = decode_of(&pick);
    let booking = rig.book(&pick, known.tokens, true);
    booking.prefill_ended(rig.now);
    rig.hear(blocks(worker, 50));
    let cost = |rig: &Rig| {
        let rows = rig.pick_by(&known.prompt()).1;
        let row = rows.iter().find(|row| row.worker.instance.raw() == worker);
        row.unwrap().cost.unwrap()
    };
    assert_eq!(cost(&rig), 20.0 + 50.0 + 20.0);
    drop(booking);
    assert_eq!(cost(&rig), 20.0 + 30.0 + 20.0);
    rig.hear(blocks(worker, 31));
    assert_eq!(cost(&rig), 20.0 + 31.0 + 20.0);
}

#[test]
fn a_worker_that_serves_alone_has_its_prompts_in_front_until_the_first_byte() {
    let rig = Rig::new(&[aggregated(1), aggregated(2)]);
    let known = Known::device(20, &[(1, 4)]);
    let pick = rig.pick_by(&known.prompt()).0.unwrap();
    assert_eq!(decode_of(&pick), 1);
    let booking = rig.book(&pick, known.tokens, true);
    let (_, rows) = rig.pick_by(&known.prompt());
    let cost = |rows: &[crate::picker::Explained]| rows[0].cost.unwrap();
    // 16 blocks in front, 20 of its own less 4, 20 in use, 20 of its own.
    assert_eq!(cost(&rows), 16.0 + 16.0 + 20.0 + 20.0);
    booking.prefill_ended(rig.now);
    let (_, rows) = rig.pick_by(&known.prompt());
    assert_eq!(cost(&rows), 16.0 + 20.0 + 20.0);
}

#[test]
fn a_prompt_that_was_handed_over_is_its_decode_workers() {
    let mut rig = Rig::new(&[prefill(1), decode(3).blocks(1000)]);
    let known = Known::device(20, &[(1, 4)]);
    let pick = rig.pick_by(&known.prompt()).0.unwrap();
    assert!(pick.head_ends_prefill());
    let booking = rig.book(&pick, known.tokens, true);
    // Of a prompt like it: 16 blocks to read, 20 to hold.
    let cost = |rig: &Rig, worker: u64| {
        let rows = rig.pick_by(&known.prompt()).1;
        let row = rows.iter().find(|row| row.worker.instance.raw() == worker);
        row.unwrap().cost.unwrap()
    };
    assert_eq!(cost(&rig, 1), 16.0 + 16.0 + 20.0);
    rig.hear(blocks(3, 50));
    assert_eq!(
        cost(&rig, 3),
        (50.0 + 20.0 + 20.0) / 1000.0,
        "it is not there yet"
    );
    booking.prefill_ended(rig.now);
    assert_eq!(cost(&rig, 1), 16.0 + 20.0);
    rig.hear(blocks(3, 71));
    assert_eq!(cost(&rig, 3), (71.0 + 20.0) / 1000.0);
}

#[test]
fn the_head_tells_the_end_of_a_prefill_where_workers_are_asked_in_turn() {
    let known = Known::device(20, &[(1, 4)]);
    let tells = |workers: &[Build]| {
        let rig = Rig::new(workers);
        rig.pick_by(&known.prompt()).0.unwrap().head_ends_prefill()
    };
    assert!(tells(&[prefill(1), decode(3)]));
    let at_once = prefill(1).card(|card| card.has_disaggregated_endpoint = true);
    assert!(!tells(&[at_once, decode(3)]), "both are asked at once");
    assert!(!tells(&[aggregated(1)]), "the head comes before its work");
    let by_load = Rig::new(&[prefill(1), decode(3)]).pick().unwrap();
    assert!(!by_load.head_ends_prefill());
}

#[test]
fn what_a_rank_has_read_counts_where_its_events_do_not_tell() {
    let rig = Rig::new(&[prefill(1), prefill(2), decode(3)]);
    let in_flight = std::sync::Arc::new(InFlight::default());
    in_flight.set_live(&[rank(1), rank(2)]);
    let mut known = Known::device(20, &[(1, 3)]);
    let hashes: Vec<u64> = (1..=20).collect();
    in_flight.enter(&rank(2), &hashes[..12]).remember(rig.now);
    known.held[0].in_flight = in_flight.find(&hashes, rig.now);
    let pick = rig.pick_by(&known.prompt()).0.unwrap();
    assert_eq!(prefill_of(&pick), Some(2));
    assert_eq!(pick.credit.unwrap().overlap.device, 12);
}

#[test]
fn without_any_overlap_or_load_it_goes_round() {
    let rig = Rig::new(&[prefill(1), prefill(2), decode(3)]);
    let cold = Known::device(20, &[]);
    let picks: Vec<_> = (0..4).map(|_| rig.pick_by(&cold.prompt()).0.unwrap()).collect();
    assert!(
        picks
            .iter()
            .all(|pick| pick.prefill_reason == Reason::RoundRobinStale)
    );
    let mut chosen: Vec<_> = picks.iter().filter_map(prefill_of).collect();
    chosen.sort_unstable();
    assert_eq!(chosen, [1, 1, 2, 2]);
}

#[test]
fn the_decode_worker_is_one_of_the_prefill_workers_namespace_and_zone() {
    let apart = [prefill(1), decode(2)].map(|build| build.namespace("dynamo-0123abcd"));
    let rig = Rig::new(&[&apart[..], &[prefill(3), decode(4)]].concat());
    let held = |worker, namespace: &str| {
        let mut known = Known::device(20, &[]);
        let index = Index::new(Caps::default());
        let mut rank = rank(worker);
        rank.worker.namespace = namespace.into();
        index.set_live(std::slice::from_ref(&rank));
        let block = Block {
            hash: 9,
            tokens: 1,
            multimodal: false,
        };
        let data = Data::Stored(Stored {
            parent: None,
            blocks: vec![block],
        });
        assert_eq!(index.apply(&rank, Tier::Device, &data).stored, 1);
        index.find(&[1], &mut known.held[0].cached);
        known
    };
    assert_eq!(pins(&rig, &held(1, "dynamo-0123abcd")), (2, Some(1)));
    assert_eq!(pins(&rig, &held(3, "dynamo")), (4, Some(3)));

    let zoned = |id, zone: &str| prefill(id).zone(zone).transfer(KvTransferEnforcement::Required);
    let rig = Rig::new(&[
        zoned(1, "a"),
        zoned(2, "b"),
        zoned(5, "c"),
        decode(3).zone("a"),
        decode(4).zone("b"),
    ]);
    assert_eq!(pins(&rig, &Known::device(20, &[(2, 4)])), (4, Some(2)));
    // The one without a partner is nobody's, whatever it holds.
    assert_eq!(pins(&rig, &Known::device(20, &[(5, 20), (1, 1)])), (3, Some(1)));
}

#[test]
fn temperature_spreads_by_cost() {
    let rig = Rig::new(&[prefill(1), prefill(2), decode(3)]);
    let mut known = Known::device(20, &[(1, 10)]).with(|settings| settings.temperature = 1.0);
    let mut counts = [0; 2];
    for step in 0..1000 {
        known.chance = [f64::from(step) / 1000.0, 0.0];
        counts[usize::from(pins(&rig, &known).1 == Some(2))] += 1;
    }
    // Costs 20 and 40 are the range: weights 1 and 1/e.
    assert_eq!(counts, [732, 268]);
}

#[test]
fn a_short_prompt_may_bypass_the_prefill_pool() {
    let rig = Rig::new(&[prefill(1), decode(2), decode(3)]);
    let bypass = Bypass {
        policy: BypassPolicy::IslBounding,
        eff_isl_threshold: 100,
        eff_isl_ratio_threshold: 0.7,
        prefill_busy_threshold: None,
        decode_busy_threshold: None,
    };
    let known = Known::device(20, &[(3, 15)]).with(|settings| settings.bypass = Some(bypass));
    let pick = rig.pick_by(&known.prompt()).0.unwrap();
    assert_eq!((decode_of(&pick), prefill_of(&pick)), (3, None));
    assert_eq!(pick.decode_reason, Reason::ConditionalBypass);
    assert_eq!(pick.credit.unwrap().uncached_tokens, 80);
    let longer = Known::device(20, &[(3, 13)]).with(|settings| settings.bypass = Some(bypass));
    let pick = rig.pick_by(&longer.prompt()).0.unwrap();
    assert_eq!((decode_of(&pick), prefill_of(&pick)), (3, Some(1)));
    assert_eq!(
        pick.prefill_reason,
        Reason::RoundRobinStale,
        "one prefill worker alone is no choice"
    );
}

#[test]
fn workers_of_another_block_size_are_not_credited_and_still_chosen() {
    let other = prefill(2).card(|card| card.block_size = Some(32));
    let rig = Rig::new(&[other, decode(3)]);
    let known = Known::device(20, &[(2, 10)]);
    let pick = rig.pick_by(&known.prompt()).0.unwrap();
    assert_eq!(prefill_of(&pick), Some(2));
    assert_eq!(pick.credit.unwrap().overlap.device, 0);
}

#[test]
fn of_two_kinds_of_blocks_of_one_size_each_rank_is_credited_with_its_own() {
    let speculative = prefill(2).card(|card| card.enable_eagle = true);
    let rig = Rig::new(&[prefill(1), speculative, decode(3)]);
    for (plain, ahead, chosen) in [((1, 12), (2, 3), 1), ((1, 3), (2, 12), 2)] {
        let mut known = Known::device(20, &[plain]);
        known.held.extend(Known::device(20, &[ahead]).held);
        let pick = rig.pick_by(&known.prompt()).0.unwrap();
        assert_eq!(prefill_of(&pick), Some(chosen));
        assert_eq!(pick.credit.unwrap().overlap.device, 12);
    }
}

proptest! {
    /// The chosen prefill worker is one of the cheapest by the formula, written again.
    #[test]
    fn the_cheapest_by_the_formula_is_chosen(
        length in 1_u64..40,
        ranks in prop::collection::vec((0_u64..40, 0_u64..1_000), 1..8),
    ) {
        let workers: Vec<Build> = (1..).zip(&ranks).map(|(id, _)| prefill(id)).chain([decode(60)]).collect();
        let mut rig = Rig::new(&workers);
        let mut holders = Vec::new();
        let mut costs = Vec::new();
        for (id, (blocks, ahead)) in (1..).zip(&ranks) {
            let held = (*blocks).min(length);
            if held > 0 {
                holders.push((id, held));
            }
            rig.hear(tokens(id, *ahead));
            let (length, held, ahead) = (length as f64, held as f64, *ahead as f64 / 16.0);
            costs.push((id, (ahead + length - held).max(0.0) + length));
        }
        let chosen = pins(&rig, &Known::device(length, &holders)).1.unwrap();
        let least = costs.iter().map(|(_, cost)| *cost).fold(f64::INFINITY, f64::min);
        let cost = costs.iter().find(|(id, _)| *id == chosen).unwrap().1;
        prop_assert!((cost - least).abs() < 1e-9, "{chosen} {costs:?}");
    }
}

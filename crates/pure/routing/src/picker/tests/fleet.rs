//! Who is a candidate: roles, mixed namespaces, generations, needs, topology, names, pools, ranks.

use std::collections::BTreeSet;

use continuum_fleet::{
    ids::{Graph, Rank, WorkerKey},
    view::{KvTransferEnforcement, NameKind, Role},
};

use crate::{
    picker::{NoPick, Reason, Standing, prompt_tokens},
    rig::{Build, MODEL, NS, Rig, aggregated, blocks, decode, decode_of, key, prefill, prefill_of, view},
};

fn reachable(rig: &Rig) -> BTreeSet<(u64, Option<u64>)> {
    (0..24)
        .filter_map(|_| rig.pick().ok())
        .map(|pick| (decode_of(&pick), prefill_of(&pick)))
        .collect()
}

#[test]
fn pairs_come_from_one_namespace() {
    let mut workers = vec![prefill(1), decode(2)];
    workers.extend([prefill(3), decode(4)].map(|build| build.namespace("dynamo-0123abcd")));
    let rig = Rig::new(&workers);
    assert_eq!(reachable(&rig), BTreeSet::from([(2, Some(1)), (4, Some(3))]));
}

#[test]
fn mixed_namespaces_follow_the_table() {
    type Pins = Vec<(u64, Option<u64>)>;
    let cases: [(&str, Vec<Build>, Pins); 6] = [
        (
            "pairs leave aggregated workers aside",
            vec![prefill(1), decode(2), aggregated(3)],
            vec![(2, Some(1))],
        ),
        (
            "prefill beside aggregated is not used",
            vec![prefill(1), aggregated(3)],
            vec![(3, None)],
        ),
        (
            "decode and aggregated are both pinned alone",
            vec![decode(2), aggregated(3)],
            vec![(2, None), (3, None)],
        ),
        ("decode alone", vec![decode(2)], vec![(2, None)]),
        ("aggregated alone", vec![aggregated(3)], vec![(3, None)]),
        ("prefill alone serves nobody", vec![prefill(1)], vec![]),
    ];
    for (name, workers, expected) in cases {
        let rig = Rig::new(&workers);
        assert_eq!(reachable(&rig), expected.into_iter().collect(), "{name}");
    }
}

#[test]
fn the_mixed_rule_holds_per_generation() {
    let rig = Rig::new(&[prefill(1), decode(2), aggregated(3).namespace("dynamo-0123abcd")]);
    assert_eq!(reachable(&rig), BTreeSet::from([(2, Some(1)), (3, None)]));
    let lone = (0..8)
        .filter_map(|_| rig.pick().ok())
        .find(|pick| pick.prefill.is_none())
        .unwrap();
    assert_eq!(lone.prefill_reason, Reason::NoPrefillPool);
}

#[test]
fn generations_of_one_namespace_are_kept_apart() {
    let needy = decode(4).needs(&[&[Role::Prefill]]).generation(2);
    let mut rig = Rig::new(&[prefill(1), decode(2), needy.clone()]);
    assert_eq!(reachable(&rig), BTreeSet::from([(2, Some(1))]));
    rig.follow(&view(
        &[prefill(1), decode(2), needy, prefill(3).generation(2)],
        &[],
    ));
    assert_eq!(reachable(&rig), BTreeSet::from([(2, Some(1)), (4, Some(3))]));
}

#[test]
fn encode_and_unknown_workers_are_never_picked() {
    let rig = Rig::new(&[Build::new(1, Role::Encode), Build::new(2, Role::Unknown)]);
    assert_eq!(rig.pick().unwrap_err(), NoPick::NoModel);
    let rig = Rig::new(&[
        Build::new(1, Role::Encode),
        Build::new(2, Role::Unknown),
        aggregated(3),
    ]);
    assert_eq!(reachable(&rig), BTreeSet::from([(3, None)]));
}

#[test]
fn no_model_is_told_from_no_candidate() {
    let rig = Rig::new(&[prefill(1)]);
    assert_eq!(rig.pick().unwrap_err(), NoPick::NoCandidate);
    assert_eq!(
        rig.ask(|ask| ask.model = "other".into()).unwrap_err(),
        NoPick::NoModel
    );
    assert_eq!(rig.ask(|ask| ask.pools.clear()).unwrap_err(), NoPick::NoModel);
    assert_eq!(
        rig.ask(|ask| ask.pools = vec!["elsewhere".into()]).unwrap_err(),
        NoPick::NoModel
    );
}

#[test]
fn needs_tell_what_a_frontend_will_refuse() {
    let lone_decode = decode(2).needs(&[&[Role::Prefill]]);
    let mut rig = Rig::new(std::slice::from_ref(&lone_decode));
    assert_eq!(rig.pick().unwrap_err(), NoPick::NotReady);
    assert!(!rig.table.served()[0].ready);
    rig.follow(&view(
        &[prefill(1).needs(&[&[Role::Decode]]), lone_decode.clone()],
        &[],
    ));
    assert_eq!(reachable(&rig), BTreeSet::from([(2, Some(1))]));
    rig.follow(&view(&[lone_decode.clone(), aggregated(3)], &[]));
    assert_eq!(
        reachable(&rig),
        BTreeSet::from([(3, None)]),
        "an aggregated worker needs nobody"
    );
    let either = decode(4).needs(&[&[Role::Prefill, Role::Encode], &[Role::Aggregated]]);
    rig.follow(&view(&[either, aggregated(3)], &[]));
    assert_eq!(
        reachable(&rig),
        BTreeSet::from([(3, None), (4, None)]),
        "one alternative is complete"
    );
}

#[test]
fn peers_count_per_namespace_and_under_every_name() {
    let needy = decode(2).needs(&[&[Role::Prefill]]).name("nick", NameKind::Alias);
    let elsewhere = prefill(1).namespace("dynamo-0123abcd");
    let mut rig = Rig::new(&[needy.clone(), elsewhere]);
    assert_eq!(rig.pick().unwrap_err(), NoPick::NotReady);
    rig.follow(&view(&[needy, prefill(1)], &[]));
    let nick = rig.ask(|ask| (ask.model, ask.listed) = ("nick".into(), true));
    assert_eq!(
        decode_of(&nick.unwrap()),
        2,
        "the peer has come, although it has no such alias"
    );
}

#[test]
fn a_registered_prefill_set_forbids_decode_workers_alone() {
    let waiting = prefill(1).needs(&[&[Role::Encode]]);
    let rig = Rig::new(&[waiting, decode(2)]);
    assert_eq!(rig.pick().unwrap_err(), NoPick::NotReady);
}

#[test]
fn a_required_domain_filters_pairs() {
    let required = KvTransferEnforcement::Required;
    let rig = Rig::new(&[
        prefill(1).zone("a").transfer(required),
        prefill(2).zone("b").transfer(required),
        decode(3).zone("a"),
        decode(4).zone("b"),
        decode(5).zone("c"),
        decode(6),
    ]);
    assert_eq!(reachable(&rig), BTreeSet::from([(3, Some(1)), (4, Some(2))]));
    let no_pair: Vec<u64> = rig
        .explain()
        .iter()
        .filter(|row| row.standing == Standing::NoPair && row.role == Role::Decode)
        .map(|row| row.worker.instance.raw())
        .collect();
    assert_eq!(no_pair, [5, 6]);
    assert_eq!(
        decode_of(&rig.excluding(&[1]).unwrap()),
        4,
        "a failed prefill worker takes its zone along"
    );
}

#[test]
fn aggregated_workers_serve_where_no_pair_is_possible() {
    let rig = Rig::new(&[
        prefill(1).zone("a").transfer(KvTransferEnforcement::Required),
        decode(2).zone("b"),
        aggregated(3),
    ]);
    assert_eq!(reachable(&rig), BTreeSet::from([(3, None)]));
}

#[test]
fn a_required_domain_without_a_value_binds_nobody() {
    let rig = Rig::new(&[prefill(1).transfer(KvTransferEnforcement::Required), decode(2)]);
    assert_eq!(reachable(&rig), BTreeSet::from([(2, Some(1))]));
}

#[test]
fn a_preferred_domain_weighs() {
    let preferred = KvTransferEnforcement::Preferred { weight: 1.0 };
    let rig = Rig::new(&[
        prefill(1).zone("a").transfer(preferred),
        prefill(2).zone("b").transfer(preferred),
        decode(3).zone("a"),
    ]);
    let pick = rig.pick().unwrap();
    assert_eq!(prefill_of(&pick), Some(1), "even in an idle fleet");
    let _near = rig.book(&pick, 1_000, true);
    assert_eq!(prefill_of(&rig.pick().unwrap()), Some(2), "it yields to load");
}

#[test]
fn aliases_and_adapters_are_offered_when_frontends_list_them() {
    let rig = Rig::new(&[
        aggregated(1)
            .name("nick", NameKind::Alias)
            .name("lora", NameKind::Adapter),
        aggregated(2),
    ]);
    for name in ["nick", "lora"] {
        assert_eq!(
            rig.ask(|ask| ask.model = name.into()).unwrap_err(),
            NoPick::NoModel,
            "{name}"
        );
        for _ in 0..3 {
            let pick = rig
                .ask(|ask| (ask.model, ask.listed) = (name.into(), true))
                .unwrap();
            assert_eq!(decode_of(&pick), 1, "only who serves {name}");
        }
    }
    let served = rig.table.served();
    let names: Vec<_> = served
        .iter()
        .map(|served| (served.name.as_str(), served.kind))
        .collect();
    assert_eq!(
        names,
        [
            (MODEL, NameKind::Base),
            ("lora", NameKind::Adapter),
            ("nick", NameKind::Alias)
        ]
    );
    assert_eq!(served[0].max_model_len, Some(4_096));
}

#[test]
fn a_name_may_be_base_for_some_and_alias_for_others() {
    let rig = Rig::new(&[
        aggregated(1),
        Build::new(2, Role::Aggregated)
            .name("x", NameKind::Base)
            .name("y", NameKind::Alias),
    ]);
    assert_eq!(reachable(&rig).len(), 2);
    let mut other = aggregated(3);
    other.0.names = aggregated(3).name("z", NameKind::Base).0.names[1..].into();
    let other = other.name(MODEL, NameKind::Alias);
    let rig = Rig::new(&[aggregated(1), other]);
    assert_eq!(reachable(&rig), BTreeSet::from([(1, None)]));
    let listed: BTreeSet<u64> = (0..4)
        .map(|_| decode_of(&rig.ask(|ask| ask.listed = true).unwrap()))
        .collect();
    assert_eq!(listed, BTreeSet::from([1, 3]));
}

#[test]
fn only_pools_of_the_request_are_used_and_load_decides_among_them() {
    let mut rig = Rig::new(&[aggregated(1), aggregated(2).namespace("west").graph("west")]);
    let both = |rig: &Rig| rig.ask(|ask| ask.pools.push("west".into())).unwrap();
    assert_eq!(reachable(&rig), BTreeSet::from([(1, None)]));
    rig.hear(blocks(1, 50));
    assert_eq!(
        both(&rig).graph,
        Graph::from("west"),
        "unknown and unbooked against fifty blocks"
    );
    let booking = rig.book(&both(&rig), 1_600, true);
    assert_eq!(both(&rig).graph, Graph::from(NS));
    drop(booking);
}

#[test]
fn each_rank_is_a_candidate_of_its_own() {
    let mut rig = Rig::new(&[aggregated(1).ranks(2, 3)]);
    let ranks: BTreeSet<_> = (0..6).map(|_| rig.pick().unwrap().decode.rank).collect();
    assert_eq!(ranks, [2, 3, 4].map(|rank| Some(Rank(rank))).into());
    let first = rig.pick().unwrap();
    let _booking = rig.book(&first, 160, true);
    assert_ne!(rig.pick().unwrap().decode.rank, first.decode.rank);
    rig.follow(&view(&[aggregated(1).ranks(2, 1)], &[]));
    assert_eq!(
        rig.pick().unwrap().decode.rank,
        Some(Rank(2)),
        "never outside the card's range"
    );
}

#[test]
fn a_pair_carries_both_ranks_or_none() {
    let rig = Rig::new(&[prefill(1), decode(2)]);
    let pick = rig.pick().unwrap();
    assert_eq!(
        (pick.decode.rank, pick.prefill.unwrap().rank),
        (Some(Rank(0)), Some(Rank(0)))
    );
    for workers in [
        [prefill(1).no_card(), decode(2)],
        [prefill(1), decode(2).no_card()],
    ] {
        let pick = Rig::new(&workers).pick().unwrap();
        assert_eq!((pick.decode.rank, pick.prefill.unwrap().rank), (None, None));
    }
    assert_eq!(
        Rig::new(&[aggregated(1).no_card()]).pick().unwrap().decode.rank,
        None
    );
}

#[test]
fn sets_in_a_pool_are_counted_for_the_lottery() {
    let old = |build: Build| build.namespace("dynamo-0123abcd");
    let cases: [(&str, Vec<Build>, u32); 5] = [
        ("one pair of sets", vec![prefill(1), decode(2), decode(3)], 1),
        ("mixed roles", vec![prefill(1), decode(2), aggregated(3)], 2),
        (
            "two generations",
            vec![prefill(1), decode(2), old(prefill(3)), old(decode(4))],
            2,
        ),
        (
            "two components",
            vec![aggregated(1), aggregated(2).component("spare")],
            2,
        ),
        (
            "two prefill components",
            vec![prefill(1), prefill(4).component("spare"), decode(2)],
            2,
        ),
    ];
    for (name, workers, sets) in cases {
        assert_eq!(Rig::new(&workers).pick().unwrap().sets_in_pool, sets, "{name}");
    }
}

#[test]
fn router_config_is_told() {
    let with = |build: Build| build.card(|card| card.has_router_config = true);
    let rig = Rig::new(&[with(aggregated(1))]);
    assert!(rig.pick().unwrap().router_config);
    assert!(rig.table.serves_unpinned(&MODEL.into(), &NS.into()));
    let rig = Rig::new(&[with(aggregated(1)), aggregated(2)]);
    assert!(
        !rig.table.serves_unpinned(&MODEL.into(), &NS.into()),
        "every card must carry it"
    );
    assert!(!rig.table.serves_unpinned(&"other".into(), &NS.into()));
}

#[test]
fn the_table_follows_the_fleet() {
    let mut rig = Rig::new(&[prefill(1), decode(2)]);
    assert!(rig.table.has_prefill(&MODEL.into(), &NS.into()));
    let before = rig.pick().unwrap();
    let booking = rig.book(&before, 160, true);
    rig.follow(&view(&[aggregated(3)], &[]));
    assert!(!rig.table.has_prefill(&MODEL.into(), &NS.into()));
    let gone: Vec<WorkerKey> = rig.followed.departed.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(gone, [key(1), key(2)]);
    assert_eq!(reachable(&rig), BTreeSet::from([(3, None)]));
    drop(booking);
    rig.follow(&view(&[], &[]));
    assert_eq!(rig.pick().unwrap_err(), NoPick::NoModel);
    assert!(rig.table.served().is_empty());
    rig.follow(&view(&[prefill(1), decode(2)], &[]));
    assert!(
        rig.store
            .rows(3_000, rig.now)
            .iter()
            .all(|row| row.booked_requests == 0),
        "a new life"
    );
}

#[test]
fn a_worker_that_changes_its_graph_moves() {
    let mut rig = Rig::new(&[aggregated(1)]);
    rig.follow(&view(&[aggregated(1).graph("west")], &[]));
    assert_eq!(rig.pick().unwrap_err(), NoPick::NoModel);
    assert_eq!(
        rig.ask(|ask| ask.pools = vec!["west".into()]).unwrap().graph,
        Graph::from("west")
    );
}

#[test]
fn prompt_length_is_estimated_from_characters() {
    for (ascii, other, tokens) in [
        (0, 0, 1),
        (3, 0, 1),
        (4, 0, 1),
        (400, 0, 100),
        (7, 5, 6),
        (u64::MAX, u64::MAX, u64::MAX),
    ] {
        assert_eq!(prompt_tokens(ascii, other), tokens);
    }
}

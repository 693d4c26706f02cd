//! Caps: what makes way, what stays, and how much memory it takes.

use continuum_fleet::ids::{InstanceId, Namespace, WorkerKey};
use continuum_kv_index::{Caps, Index, Matches, RankKey, Refusal, reference::Reference};
use continuum_wire::router_event::{Block, Data, Stored, Tier};
use proptest::prelude::*;

fn rank(number: u64) -> RankKey {
    RankKey {
        worker: WorkerKey {
            namespace: Namespace::new("dynamo"),
            instance: InstanceId::new(number),
        },
        rank: 0,
    }
}

/// The name of an engine that is of its own for a prompt.
fn name(engine: u64, prompt: &[u64]) -> u64 {
    // No engine gives two blocks one name: a beginning of zeros must not vanish in it.
    prompt.iter().fold(engine.wrapping_add(0x51), |name, hash| {
        (name ^ (hash + 1))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(23)
    })
}

/// The blocks of a prompt from one on.
fn stored(engine: u64, prompt: &[u64], from: usize) -> Data {
    let block = |n: usize| Block {
        hash: name(engine, &prompt[..=n]),
        tokens: prompt[n],
        multimodal: false,
    };
    Data::Stored(Stored {
        parent: from.checked_sub(1).map(|n| name(engine, &prompt[..=n])),
        blocks: (from..prompt.len()).map(block).collect(),
    })
}

fn device(index: &Index, rank: &RankKey, prompt: &[u64]) -> u32 {
    let mut out = Matches::new();
    index.find(prompt, &mut out);
    out.of(rank).device
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Real engines under tiny caps: the index may know less than there is, never more.
    #[test]
    fn a_full_index_claims_nothing_that_is_not_there(
        steps in prop::collection::vec((0_u64..4, 0_u64..3, prop::collection::vec(0_u64..3, 1..7), 0_usize..7, 0_u8..10), 1..150),
        all_caps in prop::collection::vec((1_usize..30, 1_usize..20, 1_usize..40).prop_map(|(blocks, blocks_per_rank, ownerships)| Caps {
            blocks, blocks_per_rank, ownerships, ranks: 3,
        }), 1..4),
    ) {
        let mut all_caps = all_caps.into_iter().cycle();
        let mut caps = all_caps.next().unwrap_or_default();
        let index = Index::new(caps);
        let mut reference = Reference::default();
        let live: Vec<_> = (0..4).map(rank).collect();
        index.set_live(&live);
        reference.set_live(&live);
        for (at, (number, engine, prompt, from, what)) in steps.into_iter().enumerate() {
            if at % 20 == 19 {
                // They are changed while it is in use.
                caps = all_caps.next().unwrap_or_default();
                index.set_caps(caps);
                while index.tidy() {}
            }
            // The second half of the ranks has engines with names of their own.
            let engine = if number < 2 { 0 } else { number + engine / 2 };
            let from = from.min(prompt.len() - 1);
            let data = match what {
                0..=5 => stored(engine, &prompt, from),
                6..=8 => Data::Removed((from..prompt.len()).map(|n| name(engine, &prompt[..=n])).collect()),
                _ => Data::Cleared,
            };
            let tier = if what == 3 { Tier::HostPinned } else { Tier::Device };
            index.apply(&rank(number), tier, &data);
            reference.apply(&rank(number), tier, &data);
            let stats = index.stats();
            prop_assert!(stats.blocks <= caps.blocks && stats.ownerships <= caps.ownerships, "{stats:?}");
            let mut out = Matches::new();
            index.find(&prompt, &mut out);
            for number in 0..4 {
                let (ours, most) = (out.of(&rank(number)), reference.find(&rank(number), &prompt));
                prop_assert!(ours.device <= most.device && ours.total() <= 7, "{ours:?} of {most:?}");
                prop_assert!(number < 3 || ours.total() == 0, "a rank beyond the cap");
            }
        }
        index.set_live(&[]);
        while index.tidy() {}
        prop_assert_eq!(index.stats().ownerships, 0);
    }
}

#[test]
fn memory_is_flat_over_fifty_turnovers() {
    let caps = Caps {
        blocks: 1_024,
        blocks_per_rank: 512,
        ownerships: 2_048,
        ranks: 16,
    };
    let index = Index::new(caps);
    let live: Vec<_> = (0..8).map(rank).collect();
    index.set_live(&live);
    let mut next = 0_u64;
    let mut turnover = || {
        let end = next + caps.blocks as u64;
        while next < end {
            let prompt: Vec<u64> = (0..32).map(|n| next + n).collect();
            let number = next / 32 % 8;
            // Half of the engines have names of their own, and two of them have every prompt.
            index.apply(
                &rank(number),
                Tier::Device,
                &stored(number / 4 * number, &prompt, 0),
            );
            index.apply(&rank(7 - number), Tier::Device, &stored(number % 3, &prompt, 0));
            next += 32;
        }
        index.stats()
    };
    for _ in 0..5 {
        turnover();
    }
    let early = turnover();
    assert!(
        early.blocks <= caps.blocks && early.blocks > caps.blocks * 9 / 10,
        "{early:?}"
    );
    let mut most = early.bytes;
    for _ in 0..50 {
        most = most.max(turnover().bytes);
    }
    assert!(most < early.bytes * 6 / 5, "{most} bytes after {}", early.bytes);
}

#[test]
fn what_is_asked_for_stays_in_a_flood() {
    let caps = Caps {
        blocks: 1_000,
        ..Caps::default()
    };
    let index = Index::new(caps);
    index.set_live(&[rank(0), rank(1)]);
    let popular: Vec<u64> = (0..50).collect();
    index.apply(&rank(0), Tier::Device, &stored(0, &popular, 0));
    for n in 0..1_000_u64 {
        let once: Vec<u64> = (0..20).map(|at| 1_000 + n * 20 + at).collect();
        let applied = index.apply(&rank(1), Tier::Device, &stored(0, &once, 0));
        assert_eq!((applied.stored, applied.refused), (20, None));
        assert_eq!(device(&index, &rank(0), &popular), 50, "after {n} others");
    }
    assert_eq!(index.stats().blocks, 1_000);
}

#[test]
fn a_rank_at_its_cap_loses_its_own_blocks_alone() {
    let caps = Caps {
        blocks_per_rank: 100,
        ..Caps::default()
    };
    let index = Index::new(caps);
    index.set_live(&[rank(0), rank(1)]);
    let modest: Vec<u64> = (0..60).collect();
    index.apply(&rank(0), Tier::Device, &stored(0, &modest, 0));
    let endless: Vec<u64> = (0..20_000).collect();
    let applied = index.apply(&rank(1), Tier::Device, &stored(0, &endless, 0));
    assert_eq!(applied.refused, None);
    assert_eq!(index.stats().ownerships, 160);
    assert_eq!(device(&index, &rank(0), &modest), 60);
}

/// Its blocks are few among those of others, so that a look at some of them finds none of its own.
#[test]
fn a_rank_with_a_low_cap_goes_on_storing_at_it() {
    let caps = Caps {
        blocks_per_rank: 100,
        ..Caps::default()
    };
    let index = Index::new(caps);
    let live: Vec<_> = (0..=500).map(rank).collect();
    index.set_live(&live);
    for number in 1..=500 {
        let others: Vec<u64> = (0..100).map(|n| number * 1_000 + n).collect();
        index.apply(&rank(number), Tier::Device, &stored(0, &others, 0));
    }
    let popular: Vec<u64> = (1_000_000..1_000_010).collect();
    index.apply(&rank(0), Tier::Device, &stored(0, &popular, 0));
    let prompt = |n: u64| -> Vec<u64> { (0..5).map(|at| 2_000_000 + n * 5 + at).collect() };
    for n in 0..1_000 {
        assert_eq!(device(&index, &rank(0), &popular), 10, "it is asked for: {n}");
        let applied = index.apply(&rank(0), Tier::Device, &stored(0, &prompt(n), 0));
        assert_eq!((applied.stored, applied.refused), (5, None), "{n}");
        // What its engine takes out by itself is no room that has to be made.
        if n % 3 == 0 {
            let gone = (0..5).map(|at| name(0, &prompt(n)[..=at])).collect();
            index.apply(&rank(0), Tier::Device, &Data::Removed(gone));
        }
    }
    for n in 995..999 {
        assert_eq!(
            device(&index, &rank(0), &prompt(n)),
            if n % 3 == 0 { 0 } else { 5 },
            "{n}"
        );
    }
    let left = index.stats().ownerships - 50_000;
    assert!((90..=100).contains(&left), "{left}");
    for number in 1..=500 {
        let others: Vec<u64> = (0..100).map(|n| number * 1_000 + n).collect();
        assert_eq!(device(&index, &rank(number), &others), 100);
    }
}

#[test]
fn caps_change_without_forgetting_what_is_known() {
    let small = Caps {
        blocks: 1_000,
        blocks_per_rank: 800,
        ..Caps::default()
    };
    let index = Index::new(small);
    index.set_live(&[rank(0), rank(1)]);
    let prompts: Vec<Vec<u64>> = (0..40_u64).map(|n| (n * 100..n * 100 + 50).collect()).collect();
    let store = |number, prompts: &[Vec<u64>]| {
        for prompt in prompts {
            let applied = index.apply(&rank(number), Tier::Device, &stored(0, prompt, 0));
            assert_eq!(applied.refused, None);
        }
    };
    let held = |number| {
        prompts
            .iter()
            .map(|prompt| device(&index, &rank(number), prompt))
            .sum::<u32>()
    };
    store(0, &prompts[..16]);
    assert_eq!(held(0), 800);
    // Larger: at once.
    index.set_caps(Caps {
        blocks: 3_000,
        blocks_per_rank: 2_000,
        ..small
    });
    assert_eq!(held(0), 800);
    store(0, &prompts[16..]);
    assert_eq!((held(0), index.stats().evicted), (2_000, 0));
    // Smaller: in parts, and what is asked for stays.
    index.set_caps(Caps { blocks: 500, ..small });
    store(1, &prompts[39..]);
    let blocks = index.stats().blocks;
    assert!((1_700..2_000).contains(&blocks), "{blocks}");
    while index.tidy() {
        assert_eq!(device(&index, &rank(1), &prompts[39]), 50);
    }
    assert_eq!(index.stats().blocks, 500);
    // A rank beyond its cap loses two of its own for each one that it stores.
    index.set_caps(Caps {
        blocks: 3_000,
        blocks_per_rank: 100,
        ..small
    });
    let ownerships = index.stats().ownerships;
    store(0, &[vec![77_777]]);
    assert_eq!(index.stats().ownerships, ownerships - 1);
    for n in 0..500 {
        store(0, &[vec![88_888 + n]]);
    }
    assert_eq!(index.stats().ownerships, 150);
}

#[test]
fn ranks_beyond_the_cap_and_strangers_are_refused() {
    let index = Index::new(Caps {
        ranks: 1,
        ..Caps::default()
    });
    index.set_live(&[rank(0), rank(1)]);
    for (number, refused) in [
        (0, None),
        (1, Some(Refusal::IdentityMismatch)),
        (2, Some(Refusal::IdentityMismatch)),
    ] {
        let applied = index.apply(&rank(number), Tier::Device, &stored(0, &[1, 2], 0));
        assert_eq!(applied.refused, refused, "rank {number}");
        assert_eq!(applied.refused_blocks, if refused.is_some() { 2 } else { 0 });
    }
    let applied = index.apply(&rank(0), Tier::External, &stored(0, &[1, 2], 0));
    assert_eq!(applied.refused, Some(Refusal::OtherTier));
}

#[test]
fn a_rank_that_is_cleared_again_and_again_waits_for_the_sweep_alone() {
    let index = Index::new(Caps::default());
    index.set_live(&[rank(0), rank(1)]);
    let long: Vec<u64> = (0..50_000).collect();
    index.apply(&rank(0), Tier::Device, &stored(0, &long, 0));
    for _ in 0..10 {
        index.apply(&rank(1), Tier::Device, &stored(0, &long[..100], 0));
        index.clear(&rank(1));
        assert_eq!(device(&index, &rank(1), &long), 0);
    }
    assert_eq!(device(&index, &rank(0), &long), 50_000);
    let mut parts = 0;
    while index.tidy() {
        parts += 1;
        assert!(parts < 1_000);
    }
    let applied = index.apply(&rank(1), Tier::Device, &stored(0, &long[..100], 0));
    assert_eq!((applied.stored, applied.refused), (100, None));
    assert_eq!(index.stats().ownerships, 50_100);
}

/// A rank that leaves costs no caller its sweep, and whoever comes in its place gets no part of it.
#[test]
fn what_departed_ranks_leave_is_swept_in_parts_and_no_burden_of_those_who_come() {
    let index = Index::new(Caps::default());
    let long: Vec<u64> = (0..3_000).collect();
    index.set_live(&[rank(0), rank(1)]);
    for number in 0..2 {
        index.apply(&rank(number), Tier::Device, &stored(0, &long, 0));
    }
    for number in 2..10 {
        index.set_live(&[rank(0), rank(number)]);
        assert_eq!(device(&index, &rank(number - 1), &long), 0);
        let applied = index.apply(&rank(number), Tier::Device, &stored(0, &long[..1], 0));
        assert_eq!((applied.stored, applied.refused), (1, None), "rank {number}");
    }
    assert!(
        index.stats().ownerships > 5_000,
        "they are swept with events and by `tidy`"
    );
    while index.tidy() {}
    assert_eq!(index.stats().ownerships, 3_001);
}

#[test]
fn a_rank_that_calls_its_blocks_something_else_again_and_again_is_refused() {
    let caps = Caps {
        blocks_per_rank: 60,
        ..Caps::default()
    };
    let index = Index::new(caps);
    index.set_live(&[rank(0), rank(1)]);
    let prompt: Vec<u64> = (0..50).collect();
    index.apply(&rank(0), Tier::Device, &stored(0, &prompt, 0));
    index.apply(&rank(1), Tier::Device, &stored(0, &prompt, 0));
    // Beside the 50 names of the blocks themselves it gets 60 of its own.
    let mut refused = 0;
    let mut most = 0;
    for engine in 1..200 {
        let applied = index.apply(&rank(1), Tier::Device, &stored(engine, &prompt, 0));
        assert_eq!(applied.stored, 0);
        refused += applied.refused_blocks;
        let over = (engine > 1).then_some(Refusal::OverCapacity);
        assert_eq!(applied.refused, over, "names {engine}");
        if engine == 2 {
            most = index.stats().bytes;
        }
    }
    assert_eq!(refused, 198 * 50 - 10);
    let bytes = index.stats().bytes;
    assert!(bytes <= most, "{bytes} bytes after {most}");
    for number in 0..2 {
        assert_eq!(device(&index, &rank(number), &prompt), 50);
    }
    // What it takes back has room again.
    let names = (0..50).map(|n| name(1, &prompt[..=n])).collect();
    let applied = index.apply(&rank(1), Tier::Device, &Data::Removed(names));
    assert_eq!(applied.removed, 0);
    let applied = index.apply(&rank(1), Tier::Device, &stored(3, &prompt[..40], 0));
    assert_eq!(applied.refused, None);
    // An engine with names of its own for all that it holds can have as many blocks as any other.
    let all: Vec<u64> = (1_000..1_060).collect();
    index.apply(&rank(0), Tier::Device, &stored(0, &all, 0));
    index.clear(&rank(1));
    while index.tidy() {}
    let applied = index.apply(&rank(1), Tier::Device, &stored(7, &all, 0));
    assert_eq!((applied.stored, applied.refused), (60, None));
    let more: Vec<u64> = (2_000..2_060).collect();
    let applied = index.apply(&rank(1), Tier::Device, &stored(7, &more, 0));
    assert_eq!((applied.stored, applied.refused), (60, None));
}

#[test]
fn names_of_all_ranks_together_are_bounded() {
    let caps = Caps {
        ownerships: 100,
        ..Caps::default()
    };
    let index = Index::new(caps);
    let live: Vec<_> = (0..8).map(rank).collect();
    index.set_live(&live);
    let prompt: Vec<u64> = (0..10).collect();
    let mut refused = 0;
    for engine in 0..6 {
        for number in 0..8 {
            let names = 1 + engine * 8 + number;
            refused += index
                .apply(&rank(number), Tier::Device, &stored(names, &prompt, 0))
                .refused_blocks;
        }
    }
    // 80 blocks are owned with 480 names in all. 10 of those belong to the blocks themselves.
    assert_eq!(refused, 480 - 110);
    for number in 0..8 {
        assert_eq!(device(&index, &rank(number), &prompt), 10);
    }
}

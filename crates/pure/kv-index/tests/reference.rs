//! The index against one that is easy to see to be right.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use continuum_fleet::ids::{InstanceId, Namespace, WorkerKey};
use continuum_kv_index::{Caps, Index, Matches, RankKey, reference::Reference};
use continuum_wire::router_event::{Block, Data, Stored, Tier};
use proptest::prelude::*;

fn rank(number: u64) -> RankKey {
    RankKey {
        worker: WorkerKey {
            namespace: Namespace::new("dynamo"),
            instance: InstanceId::new(number / 2),
        },
        rank: u32::try_from(number % 2).unwrap(),
    }
}

const RANKS: u64 = 5;

#[derive(Clone, Debug)]
enum Step {
    Live(u8),
    Event(u64, Tier, Data),
    Clear(u64),
}

fn tier() -> impl Strategy<Value = Tier> {
    prop_oneof![
        6 => Just(Tier::Device),
        2 => Just(Tier::HostPinned),
        2 => Just(Tier::Disk),
        1 => Just(Tier::External),
    ]
}

/// Few names and few hashes, so that everything meets everything.
fn step() -> impl Strategy<Value = Step> {
    let block = (0_u64..8, 0_u64..3).prop_map(|(hash, tokens)| Block {
        hash,
        tokens,
        multimodal: false,
    });
    let stored = (prop::option::of(0_u64..8), prop::collection::vec(block, 0..5))
        .prop_map(|(parent, blocks)| Data::Stored(Stored { parent, blocks }));
    let removed = prop::collection::vec(0_u64..8, 0..4).prop_map(Data::Removed);
    let data = prop_oneof![8 => stored, 4 => removed, 1 => Just(Data::Cleared)];
    prop_oneof![
        1 => any::<u8>().prop_map(Step::Live),
        20 => (0..RANKS, tier(), data).prop_map(|(rank, tier, data)| Step::Event(rank, tier, data)),
        1 => (0..RANKS).prop_map(Step::Clear),
    ]
}

fn live(bits: u8) -> Vec<RankKey> {
    // Mostly everybody.
    let bits = if bits < 128 { 0xff } else { bits };
    (0..RANKS).filter(|n| bits >> n & 1 == 1).map(rank).collect()
}

/// As [`Index::set_live`], and nothing of ranks that left is left behind.
fn set_live(index: &Index, live: &[RankKey]) {
    index.set_live(live);
    while index.tidy() {}
}

fn check(index: &Index, reference: &Reference, hashes: &[u64], out: &mut Matches) {
    index.find(hashes, out);
    for number in 0..RANKS {
        let rank = rank(number);
        assert_eq!(
            out.of(&rank),
            reference.find(&rank, hashes),
            "{rank:?} of {hashes:?}"
        );
    }
}

/// All prompts of up to so many blocks of three kinds.
fn prompts(depth: usize) -> Vec<Vec<u64>> {
    let mut all = vec![Vec::new()];
    let mut from = 0;
    for _ in 0..depth {
        let to = all.len();
        for at in from..to {
            for hash in 0..3 {
                let mut next = all[at].clone();
                next.push(hash);
                all.push(next);
            }
        }
        from = to;
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn events_mean_the_same(steps in prop::collection::vec(step(), 1..60), seed: u64) {
        let index = Index::seeded(Caps::default(), seed);
        let mut reference = Reference::default();
        set_live(&index, &live(0));
        reference.set_live(&live(0));
        for step in steps {
            match step {
                Step::Live(bits) => {
                    set_live(&index, &live(bits));
                    reference.set_live(&live(bits));
                }
                Step::Event(number, tier, data) => {
                    let rank = rank(number);
                    let applied = index.apply(&rank, tier, &data);
                    prop_assert_eq!(applied, reference.apply(&rank, tier, &data), "{:?} {:?}", rank, data);
                }
                Step::Clear(number) => {
                    index.clear(&rank(number));
                    reference.apply(&rank(number), Tier::Device, &Data::Cleared);
                }
            }
        }
        let mut out = Matches::new();
        for prompt in prompts(5) {
            check(&index, &reference, &prompt, &mut out);
        }
        set_live(&index, &[]);
        let stats = index.stats();
        prop_assert_eq!((stats.blocks, stats.ownerships, stats.ranks), (0, 0, 0));
    }
}

/// Long prompts that part ways everywhere: most of them go on as the others do.
fn long() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![9 => Just(0_u64), 1 => 1_u64..3], 1..22)
}

/// An engine's name for the last block of a prompt. Each block has few.
fn name(engine: u64, prompt: &[u64]) -> u64 {
    prompt.iter().fold(engine, |name, hash| name * 3 + hash + 1) << 2 | engine
}

#[derive(Clone, Debug)]
struct Long {
    rank: u64,
    tier: Tier,
    prompt: Vec<u64>,
    from: usize,
    engine: u64,
    what: u8,
}

fn long_step() -> impl Strategy<Value = Long> {
    (0..RANKS, tier(), long(), 0_usize..22, 0_u64..3, 0_u8..24).prop_map(
        |(rank, tier, prompt, from, engine, what)| Long {
            rank,
            tier,
            from: from % prompt.len(),
            prompt,
            engine,
            what,
        },
    )
}

impl Long {
    fn data(&self) -> Data {
        let name = |end: usize| match self.what {
            // A name that this rank gives to anything.
            0 => 1 << 60,
            _ => name(self.engine, &self.prompt[..=end]),
        };
        match self.what {
            0..15 => {
                let block = |n: usize| Block {
                    hash: name(n),
                    tokens: self.prompt[n],
                    multimodal: false,
                };
                Data::Stored(Stored {
                    parent: self
                        .from
                        .checked_sub(1)
                        .map(|n| self::name(self.engine, &self.prompt[..=n])),
                    blocks: (self.from..self.prompt.len()).map(block).collect(),
                })
            }
            15..23 => Data::Removed((self.from..self.prompt.len()).map(name).collect()),
            _ => Data::Cleared,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn long_prompts_mean_the_same(steps in prop::collection::vec(long_step(), 1..120), seed: u64) {
        let index = Index::seeded(Caps::default(), seed);
        let mut reference = Reference::default();
        set_live(&index, &live(0));
        reference.set_live(&live(0));
        let mut out = Matches::new();
        for step in &steps {
            let (rank, data) = (rank(step.rank), step.data());
            let applied = index.apply(&rank, step.tier, &data);
            prop_assert_eq!(applied, reference.apply(&rank, step.tier, &data), "{:?} {:?}", rank, step);
            check(&index, &reference, &step.prompt, &mut out);
        }
        for step in &steps {
            let mut prompt = step.prompt.clone();
            check(&index, &reference, &prompt, &mut out);
            prompt.extend([0; 20]);
            check(&index, &reference, &prompt, &mut out);
        }
        set_live(&index, &[]);
        prop_assert_eq!(index.stats().blocks, 0);
    }
}

//! Histories of blocks.

use continuum_fleet::ids::{InstanceId, Namespace, WorkerKey};
use continuum_kv_index::{Caps, Index, Matches, RankKey, reference::Reference};
use continuum_wire::router_event::{Block, Data, Stored, Tier};

const RANKS: u8 = 4;
/// Names of an engine, few enough that none of them is refused as one too many.
const NAMES: u8 = 8;
/// Hashes of tokens.
const HASHES: u8 = 3;
/// Steps of one history: the index to compare with is slow.
const MAX_STEPS: usize = 200;
/// Small enough to be reached.
const SMALL: Caps = Caps {
    blocks: 12,
    blocks_per_rank: 6,
    ownerships: 16,
    ranks: 3,
};

/// A history of events, each step a byte that says what and of whom, and up to five more. The index agrees with one that
/// is easy to see to be right, and one with small caps keeps them.
pub fn kv_index(data: &[u8]) {
    let mut bytes = data.iter().copied();
    let (index, small) = (Index::seeded(Caps::default(), 1), Index::seeded(SMALL, 2));
    let mut reference = Reference::default();
    let all: Vec<_> = (0..RANKS).map(rank).collect();
    index.set_live(&all);
    small.set_live(&all);
    reference.set_live(&all);
    let mut out = Matches::new();
    for _ in 0..MAX_STEPS {
        let Some(step) = bytes.next() else { break };
        let who = rank(step % RANKS);
        let tier = Tier::ALL[usize::from(step / RANKS % 4)];
        let data = match step / RANKS / 4 {
            0 => Data::Cleared,
            1 => {
                let live: Vec<_> = all.iter().filter(|rank| **rank != who).cloned().collect();
                set_live(&index, &live);
                set_live(&small, &live);
                reference.set_live(&live);
                index.set_live(&all);
                small.set_live(&all);
                reference.set_live(&all);
                continue;
            }
            2..6 => Data::Removed(
                bytes
                    .by_ref()
                    .take(2)
                    .map(|name| u64::from(name % NAMES))
                    .collect(),
            ),
            more => {
                let parent = bytes.next().filter(|parent| *parent < 128);
                let block = |byte: u8| Block {
                    hash: u64::from(byte % NAMES),
                    tokens: u64::from(byte / NAMES % HASHES),
                    multimodal: false,
                };
                let blocks = bytes.by_ref().take(usize::from(more % 5)).map(block).collect();
                Data::Stored(Stored {
                    parent: parent.map(|parent| u64::from(parent % NAMES)),
                    blocks,
                })
            }
        };
        let applied = index.apply(&who, tier, &data);
        assert_eq!(applied, reference.apply(&who, tier, &data), "the same came of it");
        small.apply(&who, tier, &data);
        let stats = small.stats();
        assert!(
            stats.blocks <= SMALL.blocks
                && stats.ownerships <= SMALL.ownerships
                && stats.ranks <= SMALL.ranks,
            "caps are kept"
        );
    }
    for number in 0..u32::from(HASHES).pow(4) {
        let prompt: Vec<u64> = (0..4)
            .map(|at| u64::from(number / u32::from(HASHES).pow(at) % u32::from(HASHES)))
            .collect();
        index.find(&prompt, &mut out);
        for rank in &all {
            assert_eq!(out.of(rank), reference.find(rank, &prompt), "the same prefix");
        }
        small.find(&prompt, &mut out);
    }
    for index in [index, small] {
        set_live(&index, &[]);
        let stats = index.stats();
        assert_eq!(
            (stats.blocks, stats.ownerships),
            (0, 0),
            "nothing is left of ranks that went"
        );
    }
}

/// Nothing of ranks that left is left behind.
fn set_live(index: &Index, live: &[RankKey]) {
    index.set_live(live);
    while index.tidy() {}
}

fn rank(number: u8) -> RankKey {
    RankKey {
        worker: WorkerKey {
            namespace: Namespace::new("dynamo"),
            instance: InstanceId::new(u64::from(number / 2)),
        },
        rank: u32::from(number % 2),
    }
}

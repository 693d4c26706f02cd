//! Readers beside a writer.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread::scope,
};

use continuum_fleet::ids::{InstanceId, Namespace, WorkerKey};
use continuum_kv_index::{Caps, Index, Matches, RankKey};
use continuum_wire::router_event::{Block, Data, Stored, Tier};

fn rank(number: u64) -> RankKey {
    RankKey {
        worker: WorkerKey {
            namespace: Namespace::new("dynamo"),
            instance: InstanceId::new(number),
        },
        rank: 0,
    }
}

fn stored(prompt: std::ops::Range<u64>) -> Data {
    let block = |n: u64| Block {
        hash: n,
        tokens: n,
        multimodal: false,
    };
    Data::Stored(Stored {
        parent: prompt.start.checked_sub(1),
        blocks: prompt.map(block).collect(),
    })
}

/// The first rank always holds one block more than the second, or as many; a reader never sees it otherwise.
#[test]
fn a_lookup_sees_one_state() {
    let index = Index::new(Caps::default());
    let live: Vec<_> = (0..4).map(rank).collect();
    index.set_live(&live);
    let prompt: Vec<u64> = (0..24).collect();
    let (stop, lookups) = (AtomicBool::new(false), AtomicUsize::new(0));
    scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut out = Matches::new();
                while !stop.load(Ordering::Relaxed) {
                    index.find(&prompt, &mut out);
                    let (ahead, behind) = (out.of(&rank(0)).device, out.of(&rank(1)).device);
                    assert!(ahead == behind || ahead == behind + 1, "{ahead} and {behind}");
                    lookups.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut rounds = 0_u64;
        while rounds < 50 || lookups.load(Ordering::Relaxed) < 500 {
            for n in 0..24 {
                index.apply(&rank(0), Tier::Device, &stored(n..n + 1));
                index.apply(&rank(1), Tier::Device, &stored(n..n + 1));
            }
            // Beside it, a rank that is cleared and one that comes and goes.
            index.apply(&rank(2), Tier::Device, &stored(0..24));
            index.clear(&rank(2));
            if rounds.is_multiple_of(16) {
                index.set_live(&live[..3]);
                index.set_live(&live);
            }
            index.apply(&rank(3), Tier::Device, &stored(0..24));
            for n in (0..24).rev() {
                index.apply(&rank(1), Tier::Device, &Data::Removed(vec![n]));
                index.apply(&rank(0), Tier::Device, &Data::Removed(vec![n]));
            }
            rounds += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
    index.set_live(&[]);
    while index.tidy() {}
    assert_eq!(index.stats().blocks, 0);
}

use continuum_fleet::ids::{InstanceId, Namespace, WorkerKey};
use continuum_wire::router_event::Block;
use proptest::prelude::*;

use super::*;

pub(crate) fn rank(number: u64) -> RankKey {
    RankKey {
        worker: WorkerKey {
            namespace: Namespace::new("dynamo"),
            instance: InstanceId::new(number),
        },
        rank: 0,
    }
}

fn data() -> impl Strategy<Value = Data> {
    // Nearly all blocks are one block, and its names are few.
    let block = (0_u64..6, prop_oneof![3 => Just(0_u64), 1 => 0_u64..3]);
    let block = block.prop_map(|(hash, tokens)| Block {
        hash,
        tokens,
        multimodal: false,
    });
    prop_oneof![
        3 => (prop::option::of(0_u64..6), prop::collection::vec(block, 0..6))
            .prop_map(|(parent, blocks)| Data::Stored(Stored { parent, blocks })),
        2 => prop::collection::vec(0_u64..6, 0..4).prop_map(Data::Removed),
        1 => Just(Data::Cleared),
    ]
}

proptest! {
    /// What a rank says in words that collide is its own loss.
    #[test]
    fn collisions_by_hand_change_no_other_score(
        steps in prop::collection::vec((0_u64..3, data()), 1..80),
        prompt in prop::collection::vec(prop_oneof![3 => Just(0_u64), 1 => 0_u64..3], 1..8),
    ) {
        let index = Index::with(Caps::default(), Seeds::weak());
        let alone = Index::with(Caps::default(), Seeds::weak());
        index.set_live(&[rank(0), rank(1), rank(2)]);
        alone.set_live(&[rank(0)]);
        let (mut out, mut one) = (Matches::new(), Matches::new());
        for (number, data) in steps {
            let applied = index.apply(&rank(number), Tier::Device, &data);
            if number == 0 {
                prop_assert_eq!(applied, alone.apply(&rank(0), Tier::Device, &data));
            }
            index.find(&prompt, &mut out);
            alone.find(&prompt, &mut one);
            prop_assert_eq!(out.of(&rank(0)), one.of(&rank(0)));
        }
        index.set_live(&[]);
        while index.tidy() {}
        prop_assert_eq!(index.stats().blocks, 0);
    }
}

#[test]
fn a_chain_that_continues_itself_ends() {
    let index = Index::with(Caps::default(), Seeds::weak());
    index.set_live(&[rank(0)]);
    let block = |hash| Block {
        hash,
        tokens: 0,
        multimodal: false,
    };
    for parent in [None, Some(1), Some(2)] {
        let blocks = vec![block(1), block(2)];
        let applied = index.apply(&rank(0), Tier::Device, &Data::Stored(Stored { parent, blocks }));
        let refused = parent.map(|_| Refusal::InvalidSequence);
        assert_eq!(applied.refused, refused, "{parent:?}");
    }
    let blocks = (3..20_000).map(block).collect();
    index.apply(
        &rank(0),
        Tier::Device,
        &Data::Stored(Stored {
            parent: Some(2),
            blocks,
        }),
    );
    let mut out = Matches::new();
    index.find(&vec![0; 100_000], &mut out);
    assert!(index.stats().blocks <= 8, "all of them are one run");
    assert!(usize::try_from(out.of(&rank(0)).device).unwrap() <= MAX_LOOKUP_BLOCKS);
}

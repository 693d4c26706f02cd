use continuum_wire::router_event::{Block, Data, Stored, Tier};

use crate::{Caps, Index, Matches, Overlap, index::tests::rank};

const BLOCKS: u64 = 400;
const RANKS: u64 = 100;

fn stored(blocks: u64) -> Data {
    let block = |n: u64| Block {
        hash: n,
        tokens: n,
        multimodal: false,
    };
    Data::Stored(Stored {
        parent: None,
        blocks: (0..blocks).map(block).collect(),
    })
}

/// One rank with holes makes a set of owners of its own for every block; all others hold all of them.
#[test]
fn ranks_that_hold_on_cost_nothing_where_others_drop_out() {
    let index = Index::new(Caps::default());
    let live: Vec<_> = (0..=RANKS).map(rank).collect();
    index.set_live(&live);
    for rank in &live {
        index.apply(rank, Tier::HostPinned, &stored(BLOCKS));
    }
    let holes = (0..BLOCKS).filter(|n| n % 2 == 1).collect();
    index.apply(&rank(RANKS), Tier::HostPinned, &Data::Removed(holes));
    // Half of them hold a part on the device too, and one goes on from it on disk.
    for number in 0..RANKS / 2 {
        index.apply(&rank(number), Tier::Device, &stored(number + 1));
    }
    index.apply(&rank(0), Tier::Disk, &stored(BLOCKS));
    index.apply(&rank(0), Tier::HostPinned, &Data::Removed(vec![300]));

    let (mut out, prompt) = (Matches::new(), (0..BLOCKS).collect::<Vec<_>>());
    index.find(&prompt, &mut out);
    assert!(
        out.stretches.len() as u64 >= BLOCKS - 1,
        "the shape that is meant"
    );
    let most = 4 * live.len();
    assert!(out.looked_at <= most, "{} members, at most {most}", out.looked_at);

    let all = u32::try_from(BLOCKS).unwrap();
    let overlap = |device, host, disk| Overlap { device, host, disk };
    assert_eq!(out.of(&rank(0)), overlap(1, 299, all - 300));
    assert_eq!(out.of(&rank(7)), overlap(8, all - 8, 0));
    assert_eq!(out.of(&rank(RANKS - 1)), overlap(0, all, 0));
    assert_eq!(out.of(&rank(RANKS)), overlap(0, 1, 0));
}

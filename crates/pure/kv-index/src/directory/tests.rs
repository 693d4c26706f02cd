use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Hashes that meet: at both ends, in one segment, at one home, with the same upper half.
fn hash() -> impl Strategy<Value = u64> {
    prop_oneof![
        0_u64..64,
        any::<u64>(),
        (0_u64..300).prop_map(|n| u64::MAX - (n << 30)),
        (0_u64..64).prop_map(|n| (1 << 63) + (n << 33)),
    ]
}

proptest! {
    #[test]
    fn is_a_map(steps in prop::collection::vec((hash(), 0_u32..4, any::<bool>()), 1..600), expected in 1_usize..20_000) {
        let mut table = Directory::new(expected, Fill::Dense);
        let mut model = BTreeSet::new();
        for (hash, id, put) in &steps {
            // What shares the upper half has the same hash to it.
            let entry = (tag(*hash), *id);
            if *put {
                if model.insert(entry) {
                    table.insert(*hash, *id);
                }
            } else {
                prop_assert_eq!(table.remove(*hash, *id), model.remove(&entry));
            }
        }
        for (hash, id, _) in steps {
            let found = table.find(hash, |one| one == id);
            prop_assert_eq!(found.is_some(), model.contains(&(tag(hash), id)));
            let mut seen = BTreeSet::new();
            table.find(hash, |one| { seen.insert(one); false });
            let known = model.iter().filter(|(one, _)| *one == tag(hash)).map(|(_, id)| *id);
            prop_assert_eq!(seen, known.collect::<BTreeSet<_>>());
        }
    }
}

#[test]
fn memory_follows_what_is_in_it() {
    let mut table = Directory::new(1 << 16, Fill::Dense);
    let empty = table.bytes();
    let hash = |n: u32| u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for n in 1..=50_000 {
        table.insert(hash(n), n);
    }
    let full = table.bytes() - empty;
    let least = 50_000 * size_of::<u64>();
    assert!(full < least * 3 / 2, "{full} bytes for {least}");
    for n in 1..=50_000 {
        assert!(table.remove(hash(n), n));
    }
    let left = table.bytes() - empty;
    assert!(left < least / 5, "{left} bytes are left");
}

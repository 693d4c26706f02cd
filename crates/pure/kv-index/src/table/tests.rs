use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Default)]
struct Entry(u64, u32);

impl Slot for Entry {
    fn key(&self) -> u64 {
        self.0
    }
}

/// Keys that meet: at both ends, in one segment, at one home.
fn key() -> impl Strategy<Value = u64> {
    prop_oneof![
        1_u64..64,
        any::<u64>().prop_map(|key| key.max(1)),
        (0_u64..300).prop_map(|n| u64::MAX - n),
        (0_u64..64).prop_map(|n| (1 << 63) + (n << 40)),
    ]
}

proptest! {
    #[test]
    fn is_a_map_in_order(steps in prop::collection::vec((key(), any::<bool>(), any::<u32>()), 1..600), expected in 1_usize..20_000) {
        let mut table: Table<Entry, u32> = Table::new(expected, Fill::Dense);
        let mut map = BTreeMap::new();
        for (key, put, value) in steps {
            match (table.find(key), put) {
                (None, true) => {
                    let at = table.insert(Entry(key, value), value);
                    prop_assert_eq!((table.hot(at).1, table.cold(at)), (value, value));
                    map.insert(key, value);
                }
                (Some(at), true) => {
                    table.hot_mut(at).1 = value;
                    table.set_cold(at, value);
                    map.insert(key, value);
                }
                (Some(at), false) => prop_assert_eq!(Some(table.remove(at).1), map.remove(&key)),
                (None, false) => prop_assert!(!map.contains_key(&key)),
            }
            prop_assert_eq!(table.len(), map.len());
        }
        for (key, value) in &map {
            let at = table.find(*key);
            prop_assert_eq!(at.map(|at| (table.hot(at).1, table.cold(at))), Some((*value, *value)));
        }
        let mut walked = Vec::new();
        let mut place = table.from(0);
        while let Some(at) = place {
            walked.push((table.hot(at).0, table.hot(at).1));
            place = table.next(at);
        }
        prop_assert_eq!(walked, map.clone().into_iter().collect::<Vec<_>>());
        for key in [0, 5, 1 << 63, u64::MAX - 100, u64::MAX] {
            let first = map.range(key..).next().map(|(key, _)| *key);
            prop_assert_eq!(table.from(key).map(|at| table.hot(at).0), first);
        }
    }
}

#[test]
fn memory_follows_what_is_in_it() {
    let mut table: Table<Entry> = Table::new(1 << 16, Fill::Dense);
    let empty = table.bytes();
    let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for n in 1..=50_000 {
        table.insert(Entry(key(n), 0), ());
    }
    let full = table.bytes() - empty;
    let least = 50_000 * size_of::<Entry>();
    assert!(full < least * 3 / 2, "{full} bytes for {least}");
    for n in 1..=50_000 {
        let at = table.find(key(n)).unwrap();
        table.remove(at);
    }
    let left = table.bytes() - empty;
    assert!(left < least / 10, "{left} bytes are left");
}

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn members(sets: &Sets, set: SetId) -> BTreeSet<u16> {
    let mut members = BTreeSet::new();
    sets.view(set).each(|member| {
        assert!(members.insert(member));
    });
    members
}

fn member() -> impl Strategy<Value = u16> {
    prop_oneof![0_u16..12, 0_u16..400, any::<u16>().prop_map(|m| m % 24_000)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Some blocks whose owners come and go.
    #[test]
    fn equal_sets_have_one_id(steps in prop::collection::vec((0_usize..6, member()), 1..800)) {
        let mut sets = Sets::new(Seeds::new(7), 1024);
        let mut blocks = vec![(EMPTY, BTreeSet::new()); 6];
        for (at, member) in steps {
            let (set, model) = &mut blocks[at];
            if model.remove(&member) {
                prop_assert!(sets.contains(*set, member));
                *set = sets.take(*set, member);
            } else {
                prop_assert!(!sets.contains(*set, member));
                model.insert(member);
                *set = sets.add(*set, member);
            }
            prop_assert_eq!(members(&sets, *set), model.clone());
        }
        let mut ids = BTreeMap::new();
        for (set, model) in &blocks {
            prop_assert_eq!(*ids.entry(model.clone()).or_insert(*set), *set);
        }
        for (set, model) in &mut blocks {
            let even = |member: u16| member.is_multiple_of(2);
            model.retain(|member| !even(*member));
            *set = sets.take_all(*set, even);
            prop_assert_eq!(members(&sets, *set), model.clone());
            sets.release(*set);
        }
        prop_assert!((0..sets.used).all(|number| sets.entry(number).uses == 0));
    }

    #[test]
    fn narrowing_keeps_members(active in prop::collection::btree_set(0_u16..500, 0..200), with in prop::collection::btree_set(0_u16..600, 0..200)) {
        let mut sets = Sets::new(Seeds::new(7), 1024);
        let set = with.iter().fold(EMPTY, |set, member| sets.add(set, *member));
        let mut bits = vec![0_u64; 8];
        for member in &active {
            bits[usize::from(*member) / 64] |= 1 << (member % 64);
        }
        let mut gone = BTreeSet::new();
        sets.view(set).narrow(&mut bits, |member| { gone.insert(member); });
        let mut left = BTreeSet::new();
        for (number, word) in bits.iter().enumerate() {
            each_bit(number, *word, &mut |member| { left.insert(member); });
        }
        prop_assert_eq!(&left, &active.intersection(&with).copied().collect());
        prop_assert_eq!(&gone, &active.difference(&with).copied().collect());
    }
}

#[test]
fn sets_that_nothing_uses_are_freed() {
    let mut sets = Sets::new(Seeds::new(7), 1024);
    let mut most = 0;
    for round in 0..20_u16 {
        for first in 0..2_000_u16 {
            let one = sets.add(EMPTY, first);
            let two = sets.add(one, 2_000 + round);
            let three = sets.add(two, 3_000 + round);
            sets.release(three);
        }
        if round == 5 {
            most = sets.bytes();
        }
    }
    assert!(sets.bytes() <= most + most / 10, "{} after {most}", sets.bytes());
}

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// Goes along a prompt as far as blocks or their places are there, and on without them.
fn tip_of(blocks: &Blocks, prompt: &[u64]) -> Tip {
    prompt.iter().fold(Tip::default(), |mut tip, local| {
        let key = tip.next(&blocks.seeds, *local);
        match blocks.after(&tip, key) {
            Place::There(id) | Place::Vacant(id) => {
                tip.go(key, id);
                tip
            }
            Place::Nowhere => tip.and(key),
        }
    })
}

fn find(blocks: &Blocks, prompt: &[u64]) -> Option<BlockId> {
    let (last, before) = prompt.split_last()?;
    let tip = tip_of(blocks, before);
    match blocks.after(&tip, tip.next(&blocks.seeds, *last)) {
        Place::There(id) => Some(id),
        Place::Vacant(_) | Place::Nowhere => None,
    }
}

fn put(blocks: &mut Blocks, prompt: &[u64]) -> Option<BlockId> {
    let (last, before) = prompt.split_last()?;
    let tip = tip_of(blocks, before);
    let key = tip.next(&blocks.seeds, *last);
    let place = blocks.after(&tip, key);
    Some(blocks.put(&tip, key, place.vacant()))
}

/// Prompts that part ways everywhere, over three runs.
fn prompt() -> impl Strategy<Value = Vec<u64>> {
    let rare = prop_oneof![6 => Just(0_u64), 1 => 0_u64..3];
    prop::collection::vec(rare, 1..2 * RUN + 4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Blocks come and go in any order, with holes; each is found along its prompt and by its name, and nothing else is.
    #[test]
    fn a_block_is_found_while_it_is_there(steps in prop::collection::vec((prompt(), 0_u8..4), 1..200)) {
        let mut blocks = Blocks::new(Seeds::new(7), 64);
        let mut model: BTreeMap<Vec<u64>, u64> = BTreeMap::new();
        let mut names = 0;
        for (prompt, what) in &steps {
            match (find(&blocks, prompt), what) {
                (Some(id), 0) => {
                    prop_assert!(model.remove(prompt).is_some());
                    blocks.take_out(id);
                }
                (Some(_), _) => prop_assert!(model.contains_key(prompt)),
                (None, 0) => prop_assert!(!model.contains_key(prompt)),
                (None, _) => {
                    names += 1;
                    prop_assert!(model.insert(prompt.clone(), names).is_none());
                    let id = put(&mut blocks, prompt).unwrap();
                    blocks.give_name(id, names);
                }
            }
            prop_assert_eq!(blocks.len(), model.len());
        }
        let mut seen = BTreeSet::new();
        for (prompt, name) in &model {
            let id = find(&blocks, prompt).unwrap();
            prop_assert!(seen.insert(id.number()));
            prop_assert_eq!((blocks.name(id), blocks.named(*name)), (Some(*name), Some(id)));
            let tip = blocks.tip(id);
            prop_assert!(blocks.ends_here(&tip));
            let along = tip_of(&blocks, prompt);
            prop_assert_eq!(tip.way(), along.way());
        }
        let mut walked = BTreeSet::new();
        let mut next = 0;
        while let Some(id) = blocks.from(next) {
            walked.insert(id.number());
            next = id.number() + 1;
        }
        prop_assert_eq!(&walked, &seen);
        for number in walked {
            blocks.take_out(BlockId::of(number));
        }
        prop_assert_eq!(blocks.from(0), None);
        for (prompt, _) in &steps {
            prop_assert_eq!(find(&blocks, prompt), None);
        }
        for name in 0..=names {
            prop_assert_eq!(blocks.named(name), None);
        }
    }
}

#[test]
fn memory_follows_what_is_in_it() {
    let mut blocks = Blocks::new(Seeds::new(7), 1 << 16);
    let empty = blocks.bytes();
    let mut most = 0;
    for round in 0..5_u64 {
        let mut ids = Vec::new();
        for prompt in 0..2_000_u64 {
            let locals: Vec<u64> = (0..20).map(|n| round << 40 | prompt << 20 | n).collect();
            for end in 1..=locals.len() {
                ids.push(put(&mut blocks, &locals[..end]).unwrap());
            }
        }
        if round == 0 {
            most = blocks.bytes();
            assert!(most - empty < ids.len() * 40, "{} bytes", most - empty);
        }
        assert!(
            blocks.bytes() <= most + most / 20,
            "round {round}: {}",
            blocks.bytes()
        );
        for id in ids {
            blocks.take_out(id);
        }
        let left = blocks.bytes() - empty;
        assert!(left < most / 10, "{left} bytes are left of {most}");
    }
}

//! A table that followed a fleet through its changes equals one that is built from the last view.

use std::{collections::BTreeMap, sync::Arc};

use continuum_fleet::{
    ids::{Graph, ModelName},
    view::{FleetView, KvTransferEnforcement, NameKind, Role},
};
use proptest::prelude::*;

use crate::{
    Millis,
    load::Store,
    picker::{Explained, Pool, Request, Served, Settings, Table, explain},
    rig::{Build, MODEL, key, view},
};

/// A worker in one of a few namespaces, with a few traits that matter.
fn any_worker() -> impl Strategy<Value = Build> {
    let role = prop_oneof![
        3 => Just(Role::Prefill),
        3 => Just(Role::Decode),
        2 => Just(Role::Aggregated),
        1 => Just(Role::Encode),
    ];
    (
        1..7_u64,
        role,
        0..2_usize,
        0..3_u32,
        0..4_usize,
        0..4_usize,
        1..3_u32,
    )
        .prop_map(|(id, role, namespace, generation, names, terms, ranks)| {
            let mut build = Build::new(id, role)
                .namespace(["dynamo", "west"][namespace])
                .ranks(0, ranks);
            if generation > 0 {
                build = build.generation(generation);
            }
            build = match names {
                1 => build.name("nick", NameKind::Alias),
                2 => build.name("nick", NameKind::Base),
                3 => build.name("lora", NameKind::Adapter),
                _ => build,
            };
            match terms {
                1 => build.needs(&[&[if role == Role::Prefill {
                    Role::Decode
                } else {
                    Role::Prefill
                }]]),
                2 => build.zone("a").transfer(KvTransferEnforcement::Required),
                3 => build
                    .zone("b")
                    .transfer(KvTransferEnforcement::Preferred { weight: 0.5 }),
                _ => build,
            }
        })
}

#[derive(Clone, Debug)]
enum Change {
    Put(Build),
    Remove(prop::sample::Index),
}

/// The dry run of each name, with and without a listing.
type Rows = BTreeMap<(&'static str, bool), Vec<Explained>>;

/// Everything that can be seen of a table over an idle store.
fn picture(table: &Table, store: &Store) -> (Vec<Served>, Rows) {
    let mut explained = BTreeMap::new();
    let graph = Graph::from("dynamo");
    for (name, listed) in [
        (MODEL, false),
        (MODEL, true),
        ("nick", false),
        ("nick", true),
        ("lora", true),
    ] {
        let model = ModelName::from(name);
        let pools = [Pool {
            graph: &graph,
            listed,
        }];
        let request = Request {
            model: &model,
            pools: &pools,
            prompt_tokens: 64,
            prompt: None,
            exclude: &[],
            settings: Settings::default(),
        };
        explained.insert((name, listed), explain(table, store, &request, Millis(5)));
    }
    (table.served().to_vec(), explained)
}

#[test]
fn a_full_table_refuses_names_until_there_is_room() {
    let adapters = |id: u64| {
        let build = Build::new(id, Role::Aggregated).name("lora-1", NameKind::Adapter);
        build.name("lora-2", NameKind::Adapter)
    };
    let store = Store::new();
    let full = Table {
        capacity: 4,
        ..Table::new(0)
    };
    let (table, _) = full.follow(&view(&[adapters(1), adapters(2)], &[]), &store);
    assert_eq!(
        (table.served().len(), table.refused_names(), table.entries),
        (2, 1, 4)
    );
    assert!(table.is_live(&key(2)));
    let (table, _) = table.follow(&view(&[adapters(1)], &[]), &store);
    assert_eq!(
        (table.served().len(), table.refused_names(), table.entries),
        (3, 0, 3)
    );
    assert!(!table.is_live(&key(2)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn following_equals_building(
        changes in prop::collection::vec(
            prop_oneof![
                3 => any_worker().prop_map(Change::Put),
                1 => any::<prop::sample::Index>().prop_map(Change::Remove),
            ],
            1..30,
        ),
        capacity in prop_oneof![Just(4_usize), Just(1_000)],
    ) {
        let store = Store::with_capacity(capacity);
        let mut table = Table::new(3);
        let mut view = FleetView::default();
        for change in changes {
            match change {
                Change::Put(Build(worker)) => {
                    view.workers.insert(worker.key.clone(), Arc::new(worker));
                }
                Change::Remove(index) => {
                    if !view.workers.is_empty() {
                        let key = view.workers.keys().nth(index.index(view.workers.len())).cloned();
                        view.workers.remove(&key.unwrap());
                    }
                }
            }
            (table, _) = table.follow(&view, &store);
            // A full store gives its keys in the order of arrival, so only an ample one can be compared.
            if capacity > 100 {
                let fresh_store = Store::new();
                let (fresh, _) = Table::new(3).follow(&view, &fresh_store);
                prop_assert_eq!(picture(&table, &store), picture(&fresh, &fresh_store));
                prop_assert_eq!(table.entries, fresh.entries);
            }
        }
        let keys = store.rows(1, Millis(1)).len();
        prop_assert!(keys <= capacity);
        (table, _) = table.follow(&FleetView::default(), &store);
        prop_assert_eq!(table.entries, 0);
        prop_assert!(table.refused.is_empty());
        prop_assert!(table.models.is_empty() && table.members.is_empty() && table.roles.is_empty());
        prop_assert!(store.rows(1, Millis(1)).is_empty());
    }
}

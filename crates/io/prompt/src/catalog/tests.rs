//! Who outvotes whom.

use continuum_fleet::view::Worker;

use super::*;
use crate::{artifact::Checksum, prompts::tests as fleet};

fn files(content: &str) -> continuum_fleet::view::Artifacts {
    let of = |slot: &str| {
        (
            format!("/{content}/{slot}"),
            Checksum::of(format!("{content}{slot}").as_bytes()),
        )
    };
    fleet::artifacts(&[of("tokenizer"), of("config")])
}

fn key(content: &str) -> Key {
    Files::of(&files(content)).unwrap().key()
}

fn read(workers: &[Worker], pinned: &[&str]) -> Catalog {
    let workers = workers
        .iter()
        .map(|worker| (worker.key.clone(), Arc::new(worker.clone())));
    let view = FleetView {
        workers: workers.collect(),
        ..FleetView::default()
    };
    let pinned: Vec<Key> = pinned.iter().map(|content| key(content)).collect();
    Reader::default().read(&view, |key| pinned.contains(key))
}

/// What counts for `m`: the files, whether it is an adapter, whether somebody says otherwise.
fn m(catalog: &Catalog) -> (Option<Key>, bool, bool) {
    let offer = &catalog.models[&ModelName::new("m")];
    let files = match &offer.files {
        Agreed::On(key, _) => Some(key.clone()),
        Agreed::No | Agreed::Unusable(_) => None,
    };
    (files, offer.adapter, offer.others)
}

const BASE: &[(&str, NameKind)] = &[("m", NameKind::Base)];
const ALIAS: &[(&str, NameKind)] = &[("n", NameKind::Base), ("m", NameKind::Alias)];
const ADAPTER: &[(&str, NameKind)] = &[("n", NameKind::Base), ("m", NameKind::Adapter)];

#[test]
fn a_name_is_what_most_of_its_workers_say() {
    /// What a worker calls itself, and its files.
    type Of<'a> = (&'a [(&'a str, NameKind)], Option<&'a str>);
    /// Workers, pins, and what counts: the files, whether it is an adapter, whether somebody says otherwise.
    type Row<'a> = (&'a [Of<'a>], &'a [&'a str], Option<&'a str>, bool, bool);
    let (a, b, none) = (Some("a"), Some("b"), None);
    let table: [Row<'_>; 15] = [
        (&[(BASE, a), (BASE, a)], &["a"], a, false, false),
        // An adapter of another model, and one of the same: both are only called like it.
        (&[(BASE, a), (ADAPTER, b)], &["a", "b"], a, false, true),
        (&[(BASE, a), (ADAPTER, a)], &["a"], a, false, true),
        (
            &[(ADAPTER, a), (ADAPTER, a), (BASE, b)],
            &["a", "b"],
            a,
            true,
            true,
        ),
        (&[(ADAPTER, a)], &["a"], a, true, false),
        (&[(BASE, a), (ALIAS, a)], &["a"], a, false, false),
        (&[(BASE, a), (ALIAS, b)], &["a"], a, false, true),
        // What is not pinned has no say, and neither has a card without files.
        (&[(BASE, b), (BASE, b), (BASE, a)], &["a"], a, false, true),
        (&[(BASE, none), (BASE, none), (BASE, a)], &["a"], a, false, true),
        (&[(BASE, b), (BASE, b), (BASE, a)], &[], b, false, true),
        // Of pinned ones, more than half must agree.
        (&[(BASE, b), (BASE, a), (BASE, a)], &["a", "b"], a, false, true),
        (&[(BASE, b), (BASE, a)], &["a", "b"], None, false, false),
        (&[(BASE, b), (BASE, a)], &[], None, false, false),
        (&[(BASE, none)], &["a"], None, false, false),
        (
            &[(ADAPTER, b), (BASE, none), (BASE, a)],
            &["a", "b"],
            a,
            false,
            true,
        ),
    ];
    for (number, (workers, pinned, expected, adapter, others)) in table.into_iter().enumerate() {
        let workers: Vec<Worker> = workers
            .iter()
            .zip(1..)
            .map(|((names, content), id)| fleet::worker(id, names, content.map(files).unwrap_or_default()))
            .collect();
        let found = m(&read(&workers, pinned));
        assert_eq!(found, (expected.map(key), adapter, others), "row {number}");
        let reversed: Vec<Worker> = workers
            .iter()
            .rev()
            .zip(1..)
            .map(|(worker, id)| Worker {
                key: fleet::worker(id, BASE, files("a")).key,
                ..worker.clone()
            })
            .collect();
        assert_eq!(
            m(&read(&reversed, pinned)),
            found,
            "row {number}, in another order"
        );
    }
}

#[test]
fn aliases_without_end_leave_the_models_their_room() {
    let names: Vec<(String, NameKind)> = (0..MAX_MODELS + 1)
        .map(|n| (format!("alias-{n}"), NameKind::Alias))
        .collect();
    let names: Vec<(&str, NameKind)> = names.iter().map(|(name, kind)| (name.as_str(), *kind)).collect();
    let workers = [
        fleet::worker(1, &names, files("b")),
        fleet::worker(2, BASE, files("a")),
    ];
    let catalog = read(&workers, &["a", "b"]);
    assert_eq!(m(&catalog), (Some(key("a")), false, false));
    assert_eq!(catalog.models.len(), MAX_MODELS);
}

#[test]
fn each_round_asks_other_workers() {
    let at = |id: u64| {
        let sum = |slot: &str| Checksum::of(slot.as_bytes());
        let place = |slot: &str| (format!("/{id}/{slot}"), sum(slot));
        fleet::worker(id, BASE, fleet::artifacts(&[place("tokenizer"), place("config")]))
    };
    let workers = (1..=10)
        .map(at)
        .map(|worker| (worker.key.clone(), Arc::new(worker)));
    let view = FleetView {
        workers: workers.collect(),
        ..FleetView::default()
    };
    let mut reader = Reader::default();
    let mut asked = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let catalog = reader.read(&view, |_| true);
        let Agreed::On(_, places) = &catalog.models[&ModelName::new("m")].files else {
            unreachable!()
        };
        assert_eq!(places.len(), MAX_ORIGINS);
        asked.extend(places.iter().map(|files| format!("{:?}", files.0)));
        reader.ask_others();
    }
    assert_eq!(asked.len(), 10);
}

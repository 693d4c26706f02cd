//! Random hostile histories against a model that keeps a list of records and joins all of it from scratch.

use continuum_fleet::{EventKind, NamespaceMatch, Note, Reducer, Settings, limits::Limits};
use jiff::Timestamp;
use naive::{
    history::{Op, change, entry, history},
    model::Model,
};
use proptest::prelude::*;

mod naive {
    //! What both sides are reduced to, to be compared.

    use std::collections::BTreeMap;

    use continuum_fleet::view::{FleetView, Transport};

    pub(crate) mod history;
    pub(crate) mod model;

    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct SeenWorker {
        pub(crate) graph: String,
        pub(crate) component: String,
        pub(crate) role: String,
        pub(crate) names: Vec<String>,
        pub(crate) ranks: Option<u32>,
        pub(crate) first: i64,
    }

    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct SeenPublisher {
        pub(crate) namespace: String,
        pub(crate) component: String,
        pub(crate) broker: bool,
        pub(crate) feeds: Option<(u64, u32)>,
    }

    pub(crate) fn seen_workers(view: &FleetView) -> BTreeMap<(String, u64), SeenWorker> {
        let seen = view.workers.iter().map(|(key, worker)| {
            assert_eq!(*key, worker.key);
            let seen = SeenWorker {
                graph: worker.graph.as_str().to_owned(),
                component: worker.component.to_string(),
                role: worker.role.as_str().to_owned(),
                names: worker
                    .names
                    .iter()
                    .map(|name| name.name.as_str().to_owned())
                    .collect(),
                ranks: worker.ranks().map(|ranks| ranks.size),
                first: worker.seen.first.as_second(),
            };
            ((key.namespace.as_str().to_owned(), key.instance.raw()), seen)
        });
        seen.collect()
    }

    pub(crate) fn seen_publishers(view: &FleetView) -> BTreeMap<(String, u64), SeenPublisher> {
        let seen = view.publishers.iter().map(|(key, publisher)| {
            assert_eq!(*key, publisher.key);
            let seen = SeenPublisher {
                namespace: publisher.namespace.as_str().to_owned(),
                component: publisher.component.as_deref().unwrap_or_default().to_owned(),
                broker: matches!(publisher.transport, Transport::ZmqBroker { .. }),
                feeds: publisher.feeds.map(|(instance, rank)| (instance.raw(), rank.0)),
            };
            ((key.topic.as_str().to_owned(), key.id.raw()), seen)
        });
        seen.collect()
    }
}

fn settings(cap: usize) -> Settings {
    Settings {
        namespaces: vec!["g".into(), "h".into()],
        namespace_match: NamespaceMatch::Generation,
        limits: Limits {
            records_per_keyspace: cap,
            ..Limits::default()
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_reducer_agrees_with_a_join_from_scratch(ops in history(), cap in prop_oneof![Just(1_usize), Just(4), Just(9), Just(1000)]) {
        let mut reducer = Reducer::new(settings(cap));
        let mut model = Model::new(&["g", "h"], cap);
        for (second, op) in (1..).zip(ops) {
            let now = Timestamp::from_second(second).unwrap_or(Timestamp::MAX);
            let notes = match &op {
                Op::Change(item) => reducer.apply(change(item), now),
                Op::Reset(items) => reducer.reset(items.iter().map(entry), now),
                Op::Retain(graphs) => reducer.retain_namespaces(graphs.iter().map(|g| (*g).into()).collect(), now),
            };
            let expected = model.apply(&op, second);

            let view = reducer.view();
            prop_assert_eq!(naive::seen_workers(&view), model.workers(), "workers after {:?}", op);
            prop_assert_eq!(naive::seen_publishers(&view), model.publishers(), "publishers after {:?}", op);
            prop_assert_eq!(view.capped.records, model.refused);
            prop_assert_eq!(notes.count(EventKind::Malformed), expected.malformed, "{:?}", op);
            prop_assert_eq!(notes.count(EventKind::Duplicate), expected.duplicates, "{:?}", op);
            let mixed = notes.lines().iter().filter(|note| matches!(note, Note::MixedNamespace { .. })).count();
            prop_assert_eq!(mixed, expected.mixed, "{:?}", op);

            // A fresh start from what is there gives the same view.
            let mut fresh = Reducer::new(Settings { namespaces: reducer.settings().namespaces.clone(), ..settings(1000) });
            fresh.reset(model.records(), now);
            let mut fresh = fresh.view();
            fresh.capped = view.capped;
            prop_assert_eq!(fresh, view, "a fresh start after {:?}", op);
        }
    }
}

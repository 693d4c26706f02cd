use kube::{
    api::WatchEvent,
    core::ObjectList,
    runtime::reflector::{self, store::Writer},
};
use prometheus::Registry;

use super::*;

/// More deeply nested than `serde_json` goes; the API server does not mind.
fn nested() -> String {
    format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200))
}

fn text(name: &str, uid: &str, more: &str, router: &str) -> String {
    format!(
        r#"{{"apiVersion":"router.continuum.dev/v1alpha1","kind":"RouterConfig","metadata":{{"name":"{name}","namespace":"n",
        "uid":"{uid}","resourceVersion":"7"{more}}},"spec":{{"config":{{}},"router":{router}}}}}"#
    )
}

fn good(name: &str) -> String {
    text(name, "1", "", "{}")
}

fn large() -> String {
    let router = r#"{"podDisruptionBudget":{"minAvailable":3000000000}}"#;
    text("large", "1", "", router)
}

fn deep() -> String {
    let nested = nested();
    let fields = format!(r#","managedFields":[{{"manager":"m","fieldsV1":{nested}}}]"#);
    text("deep", "1", &fields, &format!(r#"{{"podTemplate":{nested}}}"#))
}

fn one(text: &str) -> Guarded {
    serde_json::from_str(text).unwrap()
}

#[test]
fn one_bad_object_does_not_spoil_a_list() {
    let list = format!(
        r#"{{"apiVersion":"router.continuum.dev/v1alpha1","kind":"RouterConfigList","metadata":{{"resourceVersion":"9"}},
        "items":[{},{},{},{}]}}"#,
        good("a"),
        large(),
        deep(),
        good("b"),
    );
    assert!(serde_json::from_str::<ObjectList<RouterConfig>>(&list).is_err());
    let list: ObjectList<Guarded> = serde_json::from_str(&list).unwrap();
    let readable: Vec<_> = list.items.iter().map(|one| one.0.is_ok()).collect();
    assert_eq!(readable, [true, false, false, true]);
    assert_eq!(list.items[2].key().name.as_ref(), "deep");
    assert_eq!(list.items[2].meta().resource_version.as_deref(), Some("7"));
}

#[test]
fn one_bad_object_does_not_end_a_watch() {
    for (text, readable) in [(good("a"), true), (large(), false), (deep(), false)] {
        let line = format!(r#"{{"type":"MODIFIED","object":{text}}}"#);
        let event: WatchEvent<Guarded> = serde_json::from_str(&line).unwrap();
        assert!(matches!(event, WatchEvent::Modified(one) if one.0.is_ok() == readable));
    }
    let line = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"message":"old","reason":"Expired"}}"#;
    let event: WatchEvent<Guarded> = serde_json::from_str(line).unwrap();
    assert!(matches!(event, WatchEvent::Error(status) if status.code == 410));
}

/// A filter as it stands in a watch.
struct Watch {
    filter: Filter,
    writer: Writer<RouterConfig>,
    store: Store<RouterConfig>,
    metrics: Metrics,
}

impl Watch {
    fn new() -> Self {
        let metrics = Metrics::register(&Registry::new()).unwrap();
        let (store, writer) = reflector::store();
        Self {
            filter: Filter::new(store.clone(), metrics.clone()),
            writer,
            store,
            metrics,
        }
    }

    /// The names in the store after these events, and how many objects are unreadable.
    fn after(&mut self, events: Vec<Event<Guarded>>) -> (Vec<String>, i64) {
        for event in events {
            if let Some(event) = self.filter.take(event) {
                self.writer.apply_watcher_event(&event);
            }
        }
        let mut names: Vec<String> = self
            .store
            .state()
            .iter()
            .filter_map(|object| object.metadata.name.clone())
            .collect();
        names.sort();
        (names, self.metrics.unreadable_now())
    }
}

#[test]
fn what_cannot_be_read_stays_as_it_was_last_known() {
    let list = |texts: &[String]| {
        let mut events = vec![Event::Init];
        events.extend(texts.iter().map(|text| Event::InitApply(one(text))));
        events.push(Event::InitDone);
        events
    };
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let mut watch = Watch::new();
    // Never known.
    let seen = watch.after(list(&[good("a"), large()]));
    assert_eq!(seen, (names(&["a"]), 1));
    // Known, and then not readable any more: by a change, and by a list.
    assert_eq!(
        watch.after(vec![Event::Apply(one(&good("deep")))]),
        (names(&["a", "deep"]), 1)
    );
    assert_eq!(
        watch.after(vec![Event::Apply(one(&deep()))]),
        (names(&["a", "deep"]), 2)
    );
    assert_eq!(
        watch.after(list(&[good("a"), large(), deep()])),
        (names(&["a", "deep"]), 2)
    );
    // Readable again.
    assert_eq!(
        watch.after(vec![Event::Apply(one(&good("large")))]),
        (names(&["a", "deep", "large"]), 1)
    );
    // Gone, by a list and by an event.
    assert_eq!(
        watch.after(list(&[good("a"), deep()])),
        (names(&["a", "deep"]), 1)
    );
    assert_eq!(watch.after(vec![Event::Delete(one(&deep()))]), (names(&["a"]), 0));
}

#[test]
fn another_one_of_the_same_name_is_not_taken_for_the_last() {
    let mut watch = Watch::new();
    let other = text("large", "2", "", "{}");
    let seen = watch.after(vec![
        Event::Init,
        Event::InitApply(one(&other)),
        Event::InitDone,
        Event::Init,
        Event::InitApply(one(&large())),
        Event::InitDone,
    ]);
    assert_eq!(seen, (Vec::new(), 1));
}

#[test]
fn one_that_is_being_deleted_is_let_go() {
    let router = r#"{"podDisruptionBudget":{"minAvailable":3000000000}}"#;
    let leaving = text(
        "large",
        "1",
        r#","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["a/b"]"#,
        router,
    );
    let taken = Watch::new().filter.take(Event::Apply(one(&leaving)));
    let Some(Event::Apply(object)) = taken else {
        panic!("{taken:?}");
    };
    assert!(object.metadata.deletion_timestamp.is_some());
    assert_eq!(object.metadata.finalizers.unwrap(), ["a/b"]);
}

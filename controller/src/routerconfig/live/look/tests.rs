use kube::core::ObjectList;
use serde_json::json;

use super::*;

const MIB: usize = 1 << 20;

fn child(more: &Value, owners: &Value) -> Value {
    let mut all = json!({
        "metadata": {
            "name": "chat-router", "namespace": "n", "uid": "u", "resourceVersion": "7",
            "labels": { MANAGED_BY: "continuum-controller" },
            "ownerReferences": owners,
        },
    });
    crate::routerconfig::build::merge::strategic(&mut all, more.clone());
    all
}

fn owner(uid: &str) -> Value {
    json!([{
        "apiVersion": "router.continuum.dev/v1alpha1", "kind": "RouterConfig", "name": "chat", "uid": uid,
        "controller": true,
    }])
}

fn watched(object: &Value) -> Look {
    serde_json::from_value(object.clone()).unwrap()
}

#[test]
fn nothing_that_a_tenant_writes_makes_what_is_kept_large() {
    let large = "x".repeat(MIB);
    let annotations = json!({ PROCESS_CONFIG: large, "a": large });
    let conditions = json!([{ "type": "ReplicaFailure", "status": "True", "message": large }]);
    let objects = [
        child(&json!({ "data": { "a": large } }), &owner("1")),
        child(&json!({ "data": { "a": large } }), &json!([])),
        child(
            &json!({ "metadata": { "annotations": annotations } }),
            &owner("1"),
        ),
        child(
            &json!({ "metadata": { "managedFields": [{ "manager": large }] } }),
            &owner("1"),
        ),
        child(
            &json!({ "metadata": { "finalizers": vec!["a/b"; MIB / 16] } }),
            &owner("1"),
        ),
        child(&json!({ "metadata": { "labels": { "l": large } } }), &owner("1")),
        child(&json!({}), &owner(&large)),
        child(&json!({}), &json!(vec![owner("1")[0].clone(); MIB / 256])),
        child(
            &json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } }),
            &owner("1"),
        ),
        child(&json!({ "status": { "conditions": conditions } }), &owner("1")),
    ];
    let list = json!({ "metadata": { "resourceVersion": "9" }, "items": objects, "apiVersion": "v1", "kind": "List" });
    let list: ObjectList<Look> = serde_json::from_value(list).unwrap();
    assert_eq!(list.items.len(), objects.len());
    for look in list.items {
        let kept = format!("{look:?}").len();
        assert!(kept < 4096, "{kept} of {:.4000}", format!("{look:?}"));
    }
}

#[test]
fn a_watch_and_a_request_see_the_same() {
    let object = json!({
        "data": { "a": "b" },
        "spec": { "replicas": 3, "template": { "metadata": { "annotations": { PROCESS_CONFIG: "abc" } } } },
        "status": { "replicas": 2 },
    });
    let object = child(&object, &owner("1"));
    let asked = Look::of(&serde_json::from_value(object.clone()).unwrap());
    let seen = watched(&object);
    assert_eq!(seen.content, asked.content);
    assert_eq!((seen.version(), seen.process.as_deref()), (7, Some("abc")));
    assert_eq!((seen.rollout.desired, seen.rollout.replicas), (3, 2));
    assert_eq!(seen.owner_references()[0].uid, "1");
    let edited = child(&json!({ "data": { "a": "c" } }), &owner("1"));
    assert_ne!(watched(&edited).content, seen.content);
}

#[test]
fn what_says_to_be_nobodys_is_not_kept() {
    let stranger = json!([{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "a", "uid": "1", "controller": true }]);
    let mut no_controller = owner("1");
    no_controller[0]["controller"] = json!(false);
    for owners in [json!([]), stranger, no_controller] {
        let look = watched(&child(&json!({}), &owners));
        assert!(kept(Event::InitApply(look.clone())).is_none(), "{owners}");
        assert!(matches!(kept(Event::Apply(look)), Some(Event::Delete(_))));
    }
    let elsewhere = json!({ "metadata": { "labels": { OWNER_UID: "1", OWNER_NAMESPACE: "m" } } });
    for ours in [child(&elsewhere, &json!([])), child(&json!({}), &owner("1"))] {
        assert!(matches!(
            kept(Event::InitApply(watched(&ours))),
            Some(Event::InitApply(_))
        ));
        assert!(matches!(
            kept(Event::Apply(watched(&ours))),
            Some(Event::Apply(_))
        ));
    }
}

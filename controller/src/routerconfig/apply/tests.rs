use std::{convert::Infallible, sync::Mutex};

use http::{Request, Response};
use kube::client::Body;

use super::*;
use crate::routerconfig::validate::tests::object;

/// An API server that has nothing, and the paths that it was asked for.
fn empty() -> (Client, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let paths = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        paths.lock().unwrap().push(request.uri().path().to_owned());
        let answer = json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": [] });
        let answer = Response::new(Body::from(answer.to_string().into_bytes()));
        async move { Ok::<_, Infallible>(answer) }
    });
    (Client::new(service, "n"), asked)
}

#[test]
fn what_is_no_namespace_does_not_become_a_part_of_a_path() {
    assert!(is_namespace("dynamo") && is_namespace("team-7"));
    for wrong in [
        "",
        "victim/roles#",
        "victim/rolebindings?labelSelector=",
        "..",
        "%2e%2e",
        "Dynamo",
        "a b",
        &"a".repeat(64),
    ] {
        assert!(!is_namespace(wrong), "{wrong}");
    }
}

#[tokio::test]
async fn a_note_of_thousands_of_namespaces_costs_no_thousands_of_requests() {
    let mut object = object(json!({}), json!({}));
    let names: Vec<String> = (0..20_000).map(|n| format!("n{n}")).collect();
    object
        .annotations_mut()
        .insert(ELSEWHERE.to_owned(), names.join(","));
    let (client, asked) = empty();
    let (_leads, leads) = watch::channel(true);
    let applier = Applier {
        client: &client,
        live: &Live::default(),
        leads: &leads,
        lost: AtomicBool::new(false),
        object: &object,
    };
    let allowed = Namespaces::Some(vec!["shared".to_owned()]);
    applier.leave_foreign(&allowed, None).await.unwrap();
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), (MAX_ELSEWHERE + 1) * 2);
    assert!(asked.iter().any(|path| path.contains("/shared/")), "{asked:?}");
}

#[tokio::test]
async fn a_kind_of_which_nobody_is_sure_is_left_alone() {
    let object = object(json!({}), json!({}));
    let (client, asked) = empty();
    let (_leads, leads) = watch::channel(true);
    let applier = Applier {
        client: &client,
        live: &Live::default(),
        leads: &leads,
        lost: AtomicBool::new(false),
        object: &object,
    };
    for (unsure, expected) in [(Some(pod_monitor()), false), (None, true)] {
        asked.lock().unwrap().clear();
        applier.apply(&[], unsure.as_ref(), &mut Known::default()).await;
        let asked = asked.lock().unwrap();
        assert_eq!(
            asked.iter().any(|path| path.contains("/podmonitors/")),
            expected,
            "{asked:?}"
        );
    }
}

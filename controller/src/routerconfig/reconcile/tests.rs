use std::{
    convert::Infallible,
    sync::atomic::{AtomicBool, Ordering},
};

use continuum_discovery::k8s::Credentials;
use continuum_messages::Epoch;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::{
    client::Body,
    runtime::{
        reflector::{self, store::Writer},
        watcher::Event,
    },
};
use serde_json::json;
use tokio::time::sleep;

use super::*;
use crate::routerconfig::{
    build::template::PROCESS_CONFIG,
    kept::Start,
    limits::{LISTS, PAGE},
    validate::tests::{fleet_of, object, settings},
};

/// Between the first question and its answer.
const SLOW: Duration = Duration::from_secs(2);

/// An API server that has nothing, and says so slowly to the first who asks.
fn empty() -> Client {
    let asked = AtomicBool::new(false);
    let service = tower::service_fn(move |_: Request<Body>| {
        let first = !asked.swap(true, Ordering::Relaxed);
        async move {
            if first {
                sleep(SLOW).await;
            }
            let answer = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "message": "", "code": 404,
            });
            let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
            *response.status_mut() = StatusCode::NOT_FOUND;
            Ok::<_, Infallible>(response)
        }
    });
    Client::new(service, "n")
}

fn reconciler(client: Client) -> Reconciler {
    let metrics = crate::metrics::Metrics::new().unwrap();
    let hub = Hub::new("controller-0", Epoch::from_raw([1; 16]), metrics.push);
    let fleets = Fleets::new(Arc::clone(&hub), Credentials::Found, metrics.sources);
    let context = Context {
        client: client.clone(),
        hub,
        fleets: Arc::new(Mutex::new(fleets)),
        settings: settings(),
        served: Namespaces::All,
        leads: watch::channel(false).1,
        serving: watch::channel(None).1,
        trouble: watch::channel(None).1,
        listed: watch::channel(false).0,
        metrics: metrics.reconcile,
        instance: "controller-0".to_owned(),
    };
    let reporter = Reporter {
        controller: MANAGER.to_owned(),
        instance: None,
    };
    Reconciler {
        context,
        memory: Arc::default(),
        live: Live::default(),
        pod_monitors: PodMonitors::default(),
        turns: Turns::default(),
        recorder: Recorder::new(client, reporter),
    }
}

/// A RouterConfig of which the ConfigMap is asked, in a list.
fn listed() -> (Arc<RouterConfig>, Writer<RouterConfig>, First) {
    let rejected = object(json!({ "nonsense": 1 }), json!({}));
    let (store, mut writer) = reflector::store();
    for event in [Event::Init, Event::InitApply(rejected.clone()), Event::InitDone] {
        writer.apply_watcher_event(&event);
    }
    let first = First {
        namespace: None,
        store,
        refused: watch::channel(false).1,
    };
    (Arc::new(rejected), writer, first)
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_meanwhile_does_not_come_back_by_the_first_look() {
    let reconciler = reconciler(empty());
    let (object, mut writer, first) = listed();
    let key = key_of(&*object);
    let gone = async {
        sleep(SLOW / 2).await;
        writer.apply_watcher_event(&Event::Delete((*object).clone()));
        reconciler.forget(&key).await;
    };
    let firsts = [first];
    tokio::join!(reconciler.first_list(&firsts), gone);
    assert!(*reconciler.context.listed.borrow());
    assert!(reconciler.memory.of(&key).is_none());
}

#[tokio::test(start_paused = true)]
async fn the_first_look_takes_nothing_back_that_the_reconciler_found_out() {
    let reconciler = reconciler(empty());
    let (object, _writer, first) = listed();
    let key = key_of(&*object);
    let reconciled = async {
        sleep(SLOW / 2).await;
        let mut entry = reconciler.understand(&object).await;
        entry.applied = Applied::All;
        reconciler.memory.keep(key.clone(), entry);
    };
    let firsts = [first];
    tokio::join!(reconciler.first_list(&firsts), reconciled);
    assert_eq!(reconciler.memory.of(&key).unwrap().applied, Applied::All);
}

#[tokio::test]
async fn a_verdict_is_made_once_for_each_spec() {
    let reconciler = reconciler(empty());
    let good = Arc::new(object(fleet_of(json!({ "source": "kubernetes" })), json!({})));
    let first = reconciler.understand(&good).await.in_force.unwrap();
    let mut touched = (*good).clone();
    touched.metadata.annotations = Some([("look".to_owned(), "again".to_owned())].into());
    let second = reconciler.understand(&Arc::new(touched)).await;
    assert!(second.object.metadata.annotations.is_some());
    assert!(Arc::ptr_eq(&first.text, &second.in_force.unwrap().text));

    let mut bad = object(json!({ "nonsense": 1 }), json!({}));
    bad.metadata.generation = Some(8);
    let bad = Arc::new(bad);
    let rejected = reconciler.understand(&bad).await;
    let Verdict::Rejected { message, .. } = &rejected.verdict else {
        panic!("{:?}", rejected.verdict);
    };
    assert!(message.contains("nonsense"));
    assert!(
        Arc::ptr_eq(&first.text, &rejected.in_force.unwrap().text),
        "what was accepted stays"
    );
    let key = key_of(&*bad);
    reconciler.memory.amend(&key, |entry| {
        if let Verdict::Rejected { message, .. } = &mut entry.verdict {
            "as it was found".clone_into(message);
        }
    });
    let again = reconciler.understand(&bad).await;
    assert!(matches!(&again.verdict, Verdict::Rejected { message, .. } if message == "as it was found"));

    // Another one of the same name is judged by itself.
    let mut other = (*bad).clone();
    other.metadata.uid = Some("0-2".to_owned());
    let other = reconciler.understand(&Arc::new(other)).await;
    assert!(matches!(&other.verdict, Verdict::Rejected { message, .. } if message.contains("nonsense")));
}

/// An API server that takes every child as it is, and has a Deployment with a pod of that process.
fn taking(process: String) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let process = process.clone();
        async move {
            let (head, body) = request.into_parts();
            let mut metadata = json!({
                "name": "chat-router", "namespace": "dynamo", "uid": "u", "resourceVersion": "5",
                "ownerReferences": [{
                    "apiVersion": "router.continuum.dev/v1alpha1", "kind": "RouterConfig", "name": "chat", "uid": "0-1",
                    "controller": true,
                }],
            });
            let mut status = StatusCode::OK;
            let answer = if head.method == "PATCH" {
                let body = body.collect().await.unwrap().to_bytes();
                let mut object: serde_json::Value = serde_json::from_slice(&body).unwrap();
                let fields = object["metadata"].as_object().unwrap().clone();
                metadata.as_object_mut().unwrap().extend(fields);
                object["metadata"] = metadata;
                object["status"] = json!({ "replicas": 1 });
                object
            } else if head.uri.path().contains("/deployments/") {
                let annotations = json!({ PROCESS_CONFIG: process });
                json!({
                    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
                    "spec": { "template": { "metadata": { "annotations": annotations } } }, "status": { "replicas": 1 },
                })
            } else {
                status = StatusCode::NOT_FOUND;
                json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "message": "", "code": 404,
                })
            };
            let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
            *response.status_mut() = status;
            Ok::<_, Infallible>(response)
        }
    });
    Client::new(service, "n")
}

#[tokio::test(start_paused = true)]
async fn what_no_router_takes_over_is_looked_at_ever_more_rarely() {
    let good = Arc::new(object(fleet_of(json!({ "source": "kubernetes" })), json!({})));
    let accepted = validate(&good, &settings()).unwrap();
    let client = taking(accepted.process_hash().unwrap().to_owned());
    let (_leads, leads) = watch::channel(true);
    let mut reconciler = reconciler(client);
    reconciler.context.leads = leads;
    let key = key_of(&*good);
    let mut entry = reconciler.understand(&good).await;
    entry.start = Some(Some(Start {
        text: "what routers have run".into(),
        proven: true,
    }));
    let mut waits = Vec::new();
    loop {
        let wait = reconciler.apply(&key, &mut entry, "ca").await;
        assert_eq!(entry.applied, Applied::All);
        if entry.unproven.is_none() {
            break;
        }
        waits.push(wait.as_secs());
        sleep(wait).await;
    }
    // Until nobody has been there to tell for so long that it is given to pods without a proof.
    assert_eq!(waits, [1, 1, 2, 4, 8, 16]);
}

/// An API server that never answers, and how it was asked.
fn silent() -> (Client, Arc<std::sync::Mutex<Vec<String>>>) {
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let uris = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        uris.lock().unwrap().push(request.uri().to_string());
        std::future::pending::<Result<Response<Body>, Infallible>>()
    });
    (Client::new(service, "n"), asked)
}

#[tokio::test(start_paused = true)]
async fn lists_are_read_in_small_pages_and_those_of_children_few_at_once() {
    let (client, asked) = silent();
    let reconciler = reconciler(client);
    let (watches, _live) = Watches::of(&reconciler.context, &reconciler.memory);
    let (reconciler, stop) = (Arc::new(reconciler), CancellationToken::new());
    let running = watches
        .into_iter()
        .map(|watches| watches.drive(Arc::clone(&reconciler), &stop));
    let running = join_all(running);
    assert!(
        tokio::time::timeout(Duration::from_secs(1), running)
            .await
            .is_err()
    );
    let asked = asked.lock().unwrap();
    assert!(
        asked.iter().all(|uri| uri.ends_with(&format!("&limit={PAGE}"))),
        "{asked:#?}"
    );
    let children = asked.iter().filter(|uri| uri.contains("managed-by")).count();
    assert_eq!((asked.len(), children), (LISTS + 1, LISTS), "{asked:#?}");
}

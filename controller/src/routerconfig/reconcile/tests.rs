use std::{
    convert::Infallible,
    sync::atomic::{AtomicBool, Ordering},
};

use continuum_discovery::k8s::Credentials;
use continuum_messages::Epoch;
use http::{Request, Response, StatusCode};
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
use crate::routerconfig::validate::tests::{object, settings};

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

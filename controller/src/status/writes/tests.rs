use std::{convert::Infallible, sync::Mutex, time::Duration};

use http::{Request, Response};
use kube::{client::Body, runtime::events::Reporter};

use super::*;
use crate::{
    routerconfig::{
        memory::{Absent, Entry},
        validate::tests::object,
    },
    status::{
        facts::Verdict,
        limits::{MAX_WRITES, MAX_WRITES_PER_NAMESPACE},
    },
};

/// An API server that never answers for the namespaces `hangs…`, and the names of what it has written.
fn server() -> (Client, Arc<Mutex<Vec<String>>>) {
    let written = Arc::new(Mutex::new(Vec::new()));
    let names = Arc::clone(&written);
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let names = Arc::clone(&names);
        async move {
            if path.contains("/hangs") {
                std::future::pending::<()>().await;
            }
            names.lock().unwrap().push(path);
            let object = serde_json::to_vec(&object(json!({}), json!({}))).unwrap();
            Ok::<_, Infallible>(Response::new(Body::from(object)))
        }
    });
    (Client::new(service, "n"), written)
}

fn write(namespace: &str, number: usize) -> (Key, Write) {
    let mut object = object(json!({}), json!({}));
    object.metadata.namespace = Some(namespace.to_owned());
    object.metadata.name = Some(number.to_string());
    let key = Key {
        namespace: namespace.into(),
        name: number.to_string().into(),
    };
    let merged = Merged {
        status: RouterConfigStatus::default(),
        transitions: Vec::new(),
        differs: true,
        again: None,
    };
    let write = Write {
        object: Arc::new(object),
        first: true,
        counts_moved: true,
        merged,
    };
    (key, write)
}

#[tokio::test(start_paused = true)]
async fn a_namespace_whose_writes_hang_holds_up_no_other() {
    let (client, written) = server();
    let memory = Arc::new(Memory::default());
    let (_leading, leads) = watch::channel(true);
    let publisher = Publisher {
        client: client.clone(),
        leads,
        memory: Arc::clone(&memory),
        recorder: Recorder::new(
            client,
            Reporter {
                controller: MANAGER.to_owned(),
                instance: None,
            },
        ),
    };
    let mut writes = Writes::new(publisher, crate::metrics::Metrics::new().unwrap().reconcile);
    let wanted = || {
        let hang = (0..100).map(|number| write("hangs", number));
        let well = (0..20).map(|number| write("well", number));
        hang.chain(well).collect::<Vec<_>>()
    };
    for (key, write) in wanted() {
        let verdict = Verdict::Accepted { warnings: Vec::new() };
        memory.keep(key, Entry::new(write.object, verdict, None, Absent::default()));
    }
    let begun = Instant::now();
    writes.put(wanted());
    let moment = Duration::from_millis(10);
    writes.until(tokio::time::sleep(moment)).await;
    assert_eq!(written.lock().unwrap().len(), 20);
    let (well, _) = write("well", 0);
    let entry = memory.of(&well).unwrap();
    assert!(entry.written.is_some() && entry.counted.is_some());
    // What hangs is not begun again beside itself, and is given up at last.
    assert_eq!(writes.running.len(), MAX_WRITES_PER_NAMESPACE);
    let (first, _) = write("hangs", 0);
    assert!(writes.is_busy(&first));
    writes.until(tokio::time::sleep(WRITE)).await;
    assert!(!writes.is_busy(&first) && writes.running.len() == MAX_WRITES_PER_NAMESPACE);
    assert!(!writes.failing.failed(&first, Reason::ApiUnavailable), "told of");
    assert!(memory.of(&first).unwrap().written.is_none() && begun.elapsed() < 2 * WRITE);

    // Two that hang take every place for a while, and the third one comes next.
    writes.put((0..20).map(|number| write("hangs-too", number)).collect());
    writes.until(tokio::time::sleep(moment)).await;
    assert_eq!(writes.running.len(), MAX_WRITES);
    let mut wanted = wanted();
    wanted.extend((0..20).map(|number| write("hangs-too", number)));
    wanted.extend((0..2).map(|number| write("new", number)));
    writes.put(wanted);
    writes.until(tokio::time::sleep(WRITE)).await;
    let written = written.lock().unwrap();
    assert_eq!(written.iter().filter(|path| path.contains("/new/")).count(), 2);
}

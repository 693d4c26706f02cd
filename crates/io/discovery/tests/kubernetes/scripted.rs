//! Answers that no real API server gives on demand.

use std::{io::Write as _, path::PathBuf};

use continuum_discovery::{
    Error,
    k8s::{Credentials, Kubernetes, KubernetesPods, KubernetesPodsWatch, Settings},
    source::{Seed, Source as _, Watch as _},
};
use continuum_fleet::{
    EventKind,
    kubernetes::{Limits, pods},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpListener,
    sync::mpsc,
};

const LIST: &str = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}"#;

/// What one request is answered with. The connection closes after it.
#[derive(Clone)]
struct Answer {
    status: u16,
    body: Vec<u8>,
}

fn ok(body: impl Into<Vec<u8>>) -> Answer {
    Answer {
        status: 200,
        body: body.into(),
    }
}

/// A server that gives these answers in order, a kubeconfig for it, and the targets that were asked for.
async fn server(answers: Vec<Answer>) -> (tempfile::NamedTempFile, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut kubeconfig = tempfile::NamedTempFile::new().unwrap();
    write!(
        kubeconfig,
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: \"http://{}\"}}}}]\n\
         users: [{{name: u, user: {{}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n",
        listener.local_addr().unwrap()
    )
    .unwrap();
    let (asked, targets) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for answer in answers {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            let mut lines = String::new();
            while !lines.ends_with("\r\n\r\n") && stream.read_line(&mut lines).await.unwrap() > 0 {}
            let target = lines.split(' ').nth(1).unwrap_or_default().to_owned();
            let _gone = asked.send(target);
            let head = format!("HTTP/1.1 {} X\r\nconnection: close\r\n\r\n", answer.status);
            // A client that has seen enough hangs up.
            let _hung_up = stream.write_all(head.as_bytes()).await;
            let _hung_up = stream.write_all(&answer.body).await;
            let _hung_up = stream.shutdown().await;
        }
    });
    (kubeconfig, targets)
}

async fn open(answers: Vec<Answer>) -> Result<(Seed, KubernetesPodsWatch), Error> {
    let (kubeconfig, _targets) = server(answers).await;
    source(kubeconfig.path().to_owned()).open().await
}

fn source(kubeconfig: PathBuf) -> KubernetesPods {
    source_with(kubeconfig, Limits::default())
}

fn source_with(kubeconfig: PathBuf, limits: Limits) -> KubernetesPods {
    let credentials = Credentials::Kubeconfig(kubeconfig);
    let settings = Settings::new(credentials, "fleet".into(), limits);
    let fleet = pods::Settings {
        namespaces: vec!["a".into(), "b".into()],
        model: Some("m".into()),
        ..pods::Settings::default()
    };
    KubernetesPods::new(settings, fleet)
}

/// How a pass ends whose watch says this.
async fn end(watch: impl Into<Vec<u8>>) -> Error {
    let (_seed, mut watch) = open(vec![ok(LIST), ok(watch)]).await.unwrap();
    watch.next().await.unwrap_err()
}

#[tokio::test]
async fn every_end_of_a_watch_has_its_name() {
    assert!(matches!(end("").await, Error::Closed { .. }), "an early end");
    let half = r#"{"type":"ADDED","object":{"metadata":{"#;
    assert!(matches!(end(half).await, Error::Closed { .. }), "half a line");
    let gone =
        r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#;
    assert!(matches!(end(format!("{gone}\n")).await, Error::Expired));
    let error = r#"{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd is\u0007 away"}}"#;
    let told = end(format!("{error}\n")).await.to_string();
    assert!(told.ends_with("500 etcd is away"), "{told}");
    assert!(matches!(end("<html>\n").await, Error::Garbled { .. }));
    assert!(matches!(
        end(vec![b'x'; 17 << 20]).await,
        Error::TooLarge { resource: "pods" }
    ));
}

#[tokio::test]
async fn bookmarks_are_no_changes_and_unreadable_objects_are_counted() {
    let lines = concat!(
        r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"9"}}}"#,
        "\n\n",
        r#"{"type":"ADDED","object":{"metadata":7}}"#,
        "\n"
    );
    let (_seed, mut watch) = open(vec![ok(LIST), ok(lines)]).await.unwrap();
    let batch = watch.next().await.unwrap();
    assert_eq!((batch.lost.malformed, batch.changes.len()), (1, 0));
    assert!(matches!(watch.next().await, Err(Error::Closed { .. })));
}

#[tokio::test]
async fn every_refusal_of_a_list_has_its_name() {
    let answer = |status, body: &str| {
        vec![Answer {
            status,
            body: body.into(),
        }]
    };
    let told = |result: Result<(Seed, KubernetesPodsWatch), Error>| result.err().unwrap();
    assert!(matches!(told(open(answer(401, "")).await), Error::Unauthorized));
    assert!(matches!(
        told(open(answer(403, "{}")).await),
        Error::Forbidden { verb: "list", .. }
    ));
    assert!(matches!(told(open(answer(410, "{}")).await), Error::Expired));
    let away = told(open(answer(503, r#"{"message":"no etcd"}"#)).await).to_string();
    assert!(away.ends_with("503 no etcd"), "{away}");
    assert!(matches!(
        told(open(answer(200, "<html>")).await),
        Error::Garbled { .. }
    ));
    assert!(matches!(
        told(open(answer(200, r#"{"items":[]}"#)).await),
        Error::Garbled { .. }
    ));
    let watch = vec![ok(LIST), answer(403, "{}").remove(0)];
    assert!(matches!(
        told(open(watch).await),
        Error::Forbidden { verb: "watch", .. }
    ));
}

#[tokio::test]
async fn a_list_is_read_page_by_page_and_the_watch_starts_where_it_did() {
    let page = |version: u32, token: &str, name: &str| {
        ok(format!(
            r#"{{"metadata":{{"resourceVersion":"{version}","continue":"{token}"}},"items":[{{"metadata":{{"name":"{name}"}}}},{{"metadata":1}}]}}"#
        ))
    };
    // The second page is too large at first: it is asked for again in halves.
    let huge = ok(vec![b' '; 65 << 20]);
    let answers = vec![page(7, "t1", "p-0"), huge, page(7, "", "p-1"), ok("")];
    let (kubeconfig, mut targets) = server(answers).await;
    let (seed, _watch) = source(kubeconfig.path().to_owned()).open().await.unwrap();
    assert_eq!(seed.lost.malformed, 2);
    let selector = "labelSelector=nvidia.com%2Fdynamo-discovery-backend%3Dkubernetes%2Cnvidia.com%2F\
                    dynamo-discovery-enabled%3Dtrue%2Cnvidia.com%2Fdynamo-namespace+in+%28a%2Cb%29";
    let pods = format!("/api/v1/namespaces/fleet/pods?&{selector}");
    let mut asked = async || targets.recv().await.unwrap();
    assert_eq!(asked().await, format!("{pods}&limit=500"));
    assert_eq!(asked().await, format!("{pods}&limit=500&continue=t1"));
    assert_eq!(asked().await, format!("{pods}&limit=250&continue=t1"));
    let watch = asked().await;
    for part in [
        "watch=true",
        "timeoutSeconds=290",
        "allowWatchBookmarks=true",
        "resourceVersion=7",
        selector,
    ] {
        assert!(watch.contains(part), "{part} in {watch}");
    }
}

/// A list with these objects.
fn items(items: &[serde_json::Value]) -> Answer {
    let list = serde_json::json!({"metadata": {"resourceVersion": "7"}, "items": items});
    ok(list.to_string())
}

#[tokio::test]
async fn what_resources_hold_beyond_the_limit_is_left_out_before_they_are_joined() {
    // Nothing that becomes a record, so that the join's own limit does not see it.
    let resource = |name: &str, junk: usize| {
        serde_json::json!({
            "metadata": {"name": name, "annotations": {"huge": "x".repeat(10_000)}},
            "spec": {"data": {"junk": "x".repeat(junk)}},
        })
    };
    let list = items(&[resource("a", 3_000), resource("b", 3_000), resource("c", 10)]);
    let answers = vec![list, ok(""), items(&[]), ok("")];
    let (kubeconfig, _targets) = server(answers).await;
    let credentials = Credentials::Kubeconfig(kubeconfig.path().to_owned());
    let limits = Limits {
        bytes: 4 << 10,
        ..Limits::default()
    };
    let mut source = Kubernetes::new(Settings::new(credentials, "fleet".into(), limits));
    let (seed, _watch) = source.open().await.unwrap();
    assert_eq!(seed.lost, continuum_discovery::source::Lost::default());
    let refused: Vec<_> = seed.refused.iter().collect();
    assert_eq!(refused, [(EventKind::OverCapacity, 1)], "b alone");
}

#[tokio::test]
async fn of_pods_what_is_read_is_kept_up_to_a_limit() {
    let pod = |name: &str, field: &str, label: &str| serde_json::json!({"metadata": {"name": name, field: {label: "x".repeat(17 << 20)}}});
    let list = items(&[
        pod("huge", "labels", "nvidia.com/dynamo-namespace"),
        pod("annotated", "annotations", "whatever"),
        pod("labelled", "labels", "whatever"),
    ]);
    let (kubeconfig, _targets) = server(vec![list, ok("")]).await;
    let limits = Limits {
        resources: 3,
        ..Limits::default()
    };
    let (seed, _watch) = source_with(kubeconfig.path().to_owned(), limits)
        .open()
        .await
        .unwrap();
    assert_eq!((seed.lost.over_capacity, seed.lost.malformed), (1, 0));
}

#[tokio::test]
async fn credentials_that_cannot_be_read_are_said() {
    let error = source("/no/such/kubeconfig".into()).open().await.err().unwrap();
    assert!(matches!(error, Error::NoCredentials { .. }), "{error}");
}

/// A program of a kubeconfig that hangs blocks no async thread, and is not started again by the next pass.
#[tokio::test]
async fn a_credential_program_that_hangs_is_started_once() {
    let folder = tempfile::tempdir().unwrap();
    let (starts, release) = (folder.path().join("starts"), folder.path().join("release"));
    let kubeconfig = folder.path().join("config");
    let script = format!(
        "echo x >> {}; while [ ! -e {} ]; do sleep 0.05; done",
        starts.display(),
        release.display()
    );
    std::fs::write(
        &kubeconfig,
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: \"http://127.0.0.1:9\"}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [\"-c\", \"{script}\"], interactiveMode: Always}}}}}}]\n"
        ),
    )
    .unwrap();
    let mut source = source(kubeconfig);
    for _ in 0..3 {
        let pass = tokio::time::timeout(std::time::Duration::from_millis(300), source.open()).await;
        assert!(pass.is_err(), "it hangs");
    }
    std::fs::write(&release, "").unwrap();
    assert!(source.open().await.is_err());
    assert_eq!(std::fs::read_to_string(&starts).unwrap().lines().count(), 1);
}

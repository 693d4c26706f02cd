//! Who may open a session, and how one ends.

use std::{sync::Arc, time::Duration};

use continuum_messages::{limits::MAX_FROM_ROUTER_BYTES, push, push::from_router::Message};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tonic::Code;

use crate::support::{PATIENCE, Rig, certificate, fleet, follow, hello, key, message};

#[tokio::test]
async fn only_a_router_of_a_known_routerconfig_gets_in() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    rig.config("chat", source, &["prod"]);
    for (token, code, reason) in [
        ("", Code::Unauthenticated, "no_token"),
        ("wrong", Code::Unauthenticated, "token"),
        (&"x".repeat(9_000), Code::Unauthenticated, "no_token"),
        // A good token, of another RouterConfig's ServiceAccount.
        ("ns/other/pod", Code::NotFound, "unknown"),
        ("elsewhere/chat/pod", Code::NotFound, "unknown"),
    ] {
        let before = rig.metric("continuum_controller_push_refused_total", reason);
        let refused = rig.open(token, vec![hello(None)]).await.map(drop).unwrap_err();
        assert_eq!(refused.code(), code, "{token:.20}: {refused}");
        assert!(!refused.message().is_empty());
        assert_eq!(
            rig.metric("continuum_controller_push_refused_total", reason),
            before + 1.0
        );
    }
    assert!(rig.hub.sessions().of(&key("ns", "chat")).is_empty());
}

#[tokio::test]
async fn what_is_not_the_protocol_ends_the_session() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    rig.config("chat", source, &["prod"]);
    let report = |report| message(Message::Report(report));
    let bad_id = push::ViewId {
        number: 1,
        ..push::ViewId::default()
    };
    let cases = [
        (
            "no hello",
            vec![report(push::Report::default())],
            Code::InvalidArgument,
        ),
        ("twice", vec![hello(None), hello(None)], Code::InvalidArgument),
        (
            "another protocol",
            vec![message(Message::Hello(push::Hello {
                protocol: 99,
                ..push::Hello::default()
            }))],
            Code::FailedPrecondition,
        ),
        (
            "an identity without a digest",
            vec![
                hello(None),
                report(push::Report {
                    view: Some(bad_id),
                    ..push::Report::default()
                }),
            ],
            Code::InvalidArgument,
        ),
        (
            "too many pools",
            vec![
                hello(None),
                report(push::Report {
                    pools: vec![push::Pool::default(); 257],
                    ..push::Report::default()
                }),
            ],
            Code::InvalidArgument,
        ),
        (
            "too long",
            vec![
                hello(None),
                report(push::Report {
                    pending: vec!["x".repeat(MAX_FROM_ROUTER_BYTES)],
                    ..push::Report::default()
                }),
            ],
            Code::InvalidArgument,
        ),
    ];
    for (what, messages, code) in cases {
        let mut router = rig.open("ns/chat/pod", messages).await.unwrap();
        let status = router.end().await;
        assert_eq!(status.code(), code, "{what}: {status}");
    }
    // Something that a newer router may say is passed over.
    let newer = push::FromRouter { message: None };
    let mut router = rig.open("ns/chat/pod", vec![hello(None), newer]).await.unwrap();
    router.welcome().await;
    router.report().await;
    rig.sessions("chat", |sessions| sessions.iter().any(|s| s.report.is_some()))
        .await;
}

#[tokio::test]
async fn bytes_that_are_not_tls_or_http2_are_hung_up_on() {
    let rig = Rig::start().await;
    let mut stream = TcpStream::connect(("127.0.0.1", rig.port)).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _reset = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap();
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP/"));
    assert_eq!(rig.metric("continuum_controller_push_refused_total", "tls"), 1.0);
}

/// Whatever is in between sees who hangs up: the port to connect to, and whether it was the server.
async fn between(rig: &Rig) -> (u16, tokio::task::JoinHandle<bool>) {
    let between = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, to) = (between.local_addr().unwrap().port(), rig.port);
    let hung_up = tokio::spawn(async move {
        let (client, _) = between.accept().await.unwrap();
        let server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        tokio::select! {
            _ = tokio::io::copy(&mut from_client, &mut to_server) => false,
            _ = tokio::io::copy(&mut from_server, &mut to_client) => true,
        }
    });
    (port, hung_up)
}

#[tokio::test]
async fn a_connection_whose_sessions_do_not_begin_ends() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    rig.config("chat", source, &["prod"]);
    let (port, hung_up) = between(&rig).await;
    let channel = rig.channel_at(port, &rig.ca).await.unwrap();
    // No hello, twice.
    for _ in 0..2 {
        assert!(!hung_up.is_finished());
        let report = message(Message::Report(push::Report::default()));
        let opened = rig.open_on(channel.clone(), "ns/chat/pod", vec![report]).await;
        assert_eq!(opened.unwrap().end().await.code(), Code::InvalidArgument);
    }
    // Before it would be closed as one that nobody uses.
    let by_server = timeout(Duration::from_secs(3), hung_up).await.unwrap().unwrap();
    assert!(by_server);
    // One whose session has begun stays after that.
    let (port, hung_up) = between(&rig).await;
    let channel = rig.channel_at(port, &rig.ca).await.unwrap();
    for pod in ["one", "two", "three"] {
        let opened = rig
            .open_on(channel.clone(), &format!("ns/chat/{pod}"), vec![hello(None)])
            .await;
        opened.unwrap().welcome().await;
        rig.sessions("chat", <[_]>::is_empty).await;
    }
    assert!(!hung_up.is_finished());
}

#[tokio::test]
async fn a_connection_on_which_a_bad_token_was_shown_ends_once_that_is_answered() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    rig.config("chat", source, &["prod"]);
    let (port, hung_up) = between(&rig).await;
    let channel = rig.channel_at(port, &rig.ca).await.unwrap();
    let refused = rig.open_on(channel.clone(), "wrong", vec![hello(None)]).await;
    assert_eq!(refused.map(drop).unwrap_err().code(), Code::Unauthenticated);
    // Before it would be closed as one that nobody uses.
    let by_server = timeout(Duration::from_secs(3), hung_up).await.unwrap().unwrap();
    assert!(by_server);
    assert_eq!(rig.metric("continuum_controller_push_refused_total", "idle"), 0.0);
    drop(channel);
}

/// Connects from another address than routers do here.
async fn from(host: u8, port: u16) -> std::io::Result<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, host], 0).into())?;
    socket.connect(([127, 0, 0, 1], port).into()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_token_keeps_no_router_out() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    rig.config("chat", source, &["prod"]);
    rig.hub.set_view(source, &fleet(&[("prod", 3)]));
    let mut before = rig.router("ns/chat/before").await;
    before.workers(3).await;

    // Two thousand that say nothing, from the routers' own address and from others, and some beyond the handshake.
    let mut idle = Vec::new();
    for number in 0..2_000_u32 {
        let host = if number % 2 == 0 {
            1
        } else {
            2 + u8::try_from(number % 7).unwrap()
        };
        idle.push(from(host, rig.port).await.unwrap());
    }
    let mut beyond = Vec::new();
    for _ in 0..50 {
        beyond.push(rig.channel(&rig.ca).await);
    }
    let entered = |pod: &'static str| {
        let rig = &rig;
        async move {
            let begun = tokio::time::Instant::now();
            let mut router = rig.router(&format!("ns/chat/{pod}")).await;
            router.workers(3).await;
            // What a router waits for a session.
            assert!(
                begun.elapsed() < Duration::from_secs(3),
                "{pod}: {:?}",
                begun.elapsed()
            );
            router
        }
    };
    let _one = entered("one").await;

    // And bad tokens without end, while more come.
    let bad = async {
        loop {
            let _refused = rig.open("wrong", vec![hello(None)]).await.map(drop);
            idle.push(from(9, rig.port).await.unwrap());
        }
    };
    let good = async {
        // Refused for as long as it takes to be in a pause.
        while rig.metric("continuum_controller_push_refused_total", "pause") < 1.0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Its token is known by now, as that of a router that comes back is.
        entered("one").await
    };
    let _again = tokio::select! {
        () = bad => unreachable!("it has no end"),
        again = timeout(PATIENCE, good) => again.unwrap(),
    };
    assert!(rig.metric("continuum_controller_push_refused_total", "full") > 1_000.0);
    before.report().await;
    before.next().await.unwrap();
}

#[tokio::test]
async fn a_newer_session_of_a_pod_takes_the_place_of_the_older() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    rig.config("chat", source, &["prod"]);
    rig.hub.set_view(source, &fleet(&[("prod", 1)]));
    let mut older = rig.router("ns/chat/pod").await;
    older.view().await;
    let mut other = rig.router("ns/chat/another").await;
    let mut newer = rig.router("ns/chat/pod").await;
    assert_eq!(older.end().await.code(), Code::Aborted);
    newer.view().await;
    other.view().await;
    rig.sessions("chat", |sessions| {
        sessions.len() == 2 && sessions.iter().all(|s| s.view.is_some())
    })
    .await;
    drop(newer);
    rig.sessions("chat", |sessions| sessions.len() == 1).await;
    assert_eq!(
        rig.metric("continuum_controller_push_ended_total", "replaced"),
        1.0
    );
}

#[tokio::test]
async fn a_silent_router_is_given_up_and_an_idle_connection_closed() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    rig.config("chat", source, &["prod"]);
    let mut silent = rig
        .open("ns/chat/pod", vec![hello(Some(follow(None, None)))])
        .await
        .unwrap();
    let idle = rig.channel(&rig.ca).await.unwrap();
    let status = silent.end().await;
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert!(rig.hub.sessions().of(&key("ns", "chat")).is_empty());
    let closed = async {
        while rig.metric("continuum_controller_push_refused_total", "idle") < 1.0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, closed).await.unwrap();
    drop(idle);
}

#[tokio::test]
async fn a_replica_that_stops_says_so_at_once() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    rig.config("chat", source, &["prod"]);
    let mut router = rig.router("ns/chat/pod").await;
    rig.stop.cancel();
    let status = timeout(Duration::from_secs(1), router.end()).await.unwrap();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    timeout(PATIENCE, rig.serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_routerconfig_that_is_gone_takes_its_sessions_along() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    rig.config("chat", source, &["prod"]);
    let mut router = rig.router("ns/chat/pod").await;
    rig.hub.remove(&key("ns", "chat"));
    assert_eq!(router.end().await.code(), Code::NotFound);
    let refused = rig
        .open("ns/chat/pod", vec![hello(None)])
        .await
        .map(drop)
        .unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
}

#[tokio::test]
async fn a_new_certificate_is_used_for_the_next_connection() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    rig.config("chat", source, &["prod"]);
    let mut before = rig.router("ns/chat/pod").await;
    let (config, ca) = certificate();
    rig.tls.send_replace(Arc::clone(&config));
    assert!(
        rig.channel(&rig.ca).await.is_err(),
        "the old authority does not know the new certificate"
    );
    rig.channel(&ca).await.unwrap();
    before.report().await;
    before.next().await.unwrap();
}

#[tokio::test]
async fn reports_say_what_each_router_has() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    rig.config("chat", source, &["prod"]);
    let router = rig.router("ns/chat/pod-7").await;
    let report = push::Report {
        ready: true,
        pools: vec![push::Pool {
            namespace: "prod".to_owned(),
            replicas: 2,
            healthy: 1,
        }],
        ..push::Report::default()
    };
    router
        .sender
        .send(message(Message::Report(report.clone())))
        .await
        .unwrap();
    rig.sessions("chat", |sessions| sessions.iter().any(|s| s.report.is_some()))
        .await;
    let sessions = rig.hub.sessions().of(&key("ns", "chat"));
    assert_eq!(
        (sessions[0].pod.name.as_ref(), sessions[0].followed),
        ("pod-7", true)
    );
    assert_eq!(
        sessions[0].report.as_ref().map(|(said, _)| said.as_ref()),
        Some(&report)
    );

    // Saying the same again wakes nobody.
    let mut changes = rig.hub.sessions().subscribe();
    changes.mark_unchanged();
    let again = push::Report {
        view_age_ms: 7,
        in_flight: 3,
        ..report
    };
    router
        .sender
        .send(message(Message::Report(again.clone())))
        .await
        .unwrap();
    let arrived = async {
        while rig.hub.sessions().of(&key("ns", "chat"))[0]
            .report
            .as_ref()
            .map(|(said, _)| said.in_flight)
            != Some(3)
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, arrived).await.unwrap();
    assert!(!changes.has_changed().unwrap());
}

#[tokio::test]
async fn a_router_that_takes_nothing_is_given_up_though_it_reports() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    rig.config("chat", source, &["prod"]);
    rig.hub.set_view(source, &fleet(&[("prod", 8_000)]));
    let stuck = rig.router("ns/chat/pod").await;
    let given_up = async {
        while rig.metric("continuum_controller_push_ended_total", "slow") < 1.0 {
            stuck.report().await;
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    };
    timeout(PATIENCE, given_up).await.unwrap();
    assert!(rig.hub.sessions().of(&key("ns", "chat")).is_empty());
}

//! What routers are given.

use std::time::Duration;

use continuum_fleet::view::Role;
use continuum_messages::{ConfigId, Epoch, Published, push, push::from_controller::Message};
use tokio::time::{Instant, timeout};

use crate::support::{Rig, fleet, follow, hello, key, message, roles, worker};

#[tokio::test]
async fn a_router_gets_the_whole_view_then_differences() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    rig.config("chat", source, &["prod"]);
    rig.hub.set_source_state(
        source,
        push::SourceState {
            kind: "kubernetes".to_owned(),
            connected: true,
            ..push::SourceState::default()
        },
    );
    let mut view = fleet(&[("prod", 100)]);
    rig.hub.set_view(source, &view);

    let mut router = rig.router("ns/chat/pod-0").await;
    let first = router.view().await;
    assert!(first.full);
    assert_eq!(first.view, view);
    assert_eq!(
        (router.configs.len(), router.sources.len()),
        (1, 1),
        "both come before the view"
    );
    assert_eq!(router.configs[0].text, "first");

    let changed = worker("prod", 5, Role::Prefill);
    view.workers.insert(changed.key.clone(), changed);
    rig.hub.set_view(source, &view);
    let second = router.view().await;
    assert!(!second.full);
    assert_eq!(second.view, view);
    assert_eq!(second.id, rig.hub.published(&key("ns", "chat")).unwrap().id);
    rig.sessions("chat", |sessions| {
        sessions.iter().all(|s| s.view == Some(second.id))
    })
    .await;
    assert_eq!(rig.metric("continuum_controller_push_views_total", "delta"), 1.0);
    assert!(rig.metric("continuum_controller_push_lag_seconds", "") >= 1.0);
}

#[tokio::test]
async fn routers_see_their_own_namespaces_and_nothing_of_others() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    rig.hub
        .set_view(source, &fleet(&[("prod", 3), ("dev", 2), ("dev-legacy", 1)]));
    rig.config("chat", source, &["prod"]);
    rig.config("both", source, &["prod", "dev"]);
    let mut chat = rig.router("ns/chat/a").await;
    let mut both = rig.router("ns/both/b").await;
    assert_eq!(chat.view().await.view, fleet(&[("prod", 3)]));
    assert_eq!(both.view().await.view.workers.len(), 6);

    // A change that one of them does not see is no update for it.
    rig.hub.set_view(source, &fleet(&[("prod", 3), ("dev", 5)]));
    assert_eq!(both.view().await.view.workers.len(), 8);
    rig.hub.set_view(source, &fleet(&[("prod", 4), ("dev", 5)]));
    assert_eq!(chat.view().await.id.number, 2);

    // Another fleet for the same RouterConfig: what differs is sent.
    rig.config("chat", source, &["dev"]);
    assert_eq!(chat.view().await.view, fleet(&[("dev", 5)]));
}

#[tokio::test]
async fn an_equal_view_is_not_sent_and_a_known_one_is_the_base_of_a_difference() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    rig.config("chat", source, &["prod"]);
    rig.hub.set_view(source, &fleet(&[("prod", 3)]));
    rig.hub.set_view(source, &fleet(&[("prod", 4)]));

    // The names are those of another replica; the content is ours.
    let other = |count| Published::first(fleet(&[("prod", count)]), Epoch::from_raw([9; 16])).id;
    let config = ConfigId::of(1, "first");
    for (has, sent) in [(other(4), None), (other(3), Some(false)), (other(2), Some(true))] {
        let hello = hello(Some(follow(Some(has), Some(config))));
        let mut router = rig.open("ns/chat/pod", vec![hello]).await.unwrap();
        router.welcome().await;
        match (router.next().await.unwrap(), sent) {
            (Message::Heartbeat(beat), None) => {
                assert_eq!(beat.config, Some(config.into()));
                assert_eq!(
                    beat.view,
                    rig.hub.published(&key("ns", "chat")).map(|p| p.id.into())
                );
            }
            (Message::View(part), Some(full)) => assert_eq!(part.base.is_none(), full),
            (message, _) => panic!("{has:?}: {message:?}"),
        }
    }
    assert_eq!(rig.metric("continuum_controller_push_views_total", "equal"), 1.0);
}

#[tokio::test]
async fn a_router_asks_for_a_whole_view_by_naming_none() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    rig.config("chat", source, &["prod"]);
    rig.hub.set_view(source, &fleet(&[("prod", 3)]));
    let mut router = rig.router("ns/chat/pod").await;
    router.view().await;
    router
        .sender
        .send(message(push::from_router::Message::Follow(follow(None, None))))
        .await
        .unwrap();
    assert!(router.view().await.full);
}

#[tokio::test]
async fn a_config_update_reaches_those_that_follow() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    rig.config("chat", source, &["prod"]);
    rig.hub.set_view(source, &fleet(&[("prod", 1)]));
    let mut router = rig.router("ns/chat/pod").await;
    let mut idle = rig.open("ns/chat/other", vec![hello(None)]).await.unwrap();
    idle.welcome().await;
    router.view().await;
    rig.hub.set_config(&key("ns", "chat"), "", 2, "second");
    rig.hub.set_view(source, &fleet(&[("prod", 2)]));
    // The first views may be of before.
    router.workers(2).await;
    let last = router.configs.last().unwrap();
    assert_eq!(last.text, "second");
    assert_eq!(last.id, Some(ConfigId::of(2, "second").into()));
    // The first ones may be of before.
    loop {
        let Message::Heartbeat(beat) = idle.next().await.unwrap() else {
            panic!("who does not follow is told of the newest alone")
        };
        idle.report().await;
        if beat.config == Some(ConfigId::of(2, "second").into()) {
            break;
        }
    }
}

#[tokio::test]
async fn a_router_that_does_not_read_holds_nobody_and_then_gets_the_newest() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    rig.config("chat", source, &["prod"]);
    rig.hub.set_view(source, &fleet(&[("prod", 4_000)]));
    // Its window is full after a part of the first view; it goes on reporting.
    let mut slow = rig.router("ns/chat/slow").await;
    let mut quick = rig.router("ns/chat/quick").await;
    quick.view().await;
    let changes: u64 = 20;
    let mut worst = Duration::ZERO;
    for more in 1..=changes {
        rig.hub
            .set_view(source, &fleet(&[("prod", 4_000), ("prod-legacy", more)]));
        let began = Instant::now();
        while quick.view().await.id.number < more + 1 {}
        worst = worst.max(began.elapsed());
        slow.report().await;
    }
    assert!(worst < Duration::from_secs(2), "{worst:?}");

    let first = timeout(Duration::from_secs(5), slow.view()).await.unwrap();
    assert_eq!(first.id.number, 1, "what had begun is finished");
    // A message or two were made before there was no more room; what came after them is skipped.
    let mut updates = 1;
    let newest = loop {
        let next = slow.view().await;
        updates += 1;
        if next.id.number == changes + 1 {
            break next;
        }
    };
    assert!(updates <= 4, "{updates} updates");
    assert_eq!(newest.view, rig.hub.published(&key("ns", "chat")).unwrap().view);
    assert!(rig.metric("continuum_controller_push_skipped_views_total", "") >= 16.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_routers_have_each_change() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    rig.config("chat", source, &["prod"]);
    rig.hub.set_view(source, &fleet(&[("prod", 256)]));
    // Each reads from the beginning: who says nothing for three seconds is given up.
    let mut tasks = Vec::new();
    for number in 0..200 {
        let mut router = rig.router(&format!("ns/chat/pod-{number}")).await;
        tasks.push(tokio::spawn(async move {
            let whole = router.workers(300).await;
            (roles(&whole.view), router)
        }));
    }
    for count in 257..=300 {
        rig.hub.set_view(source, &fleet(&[("prod", count)]));
        tokio::task::yield_now().await;
    }
    let newest = rig.hub.published(&key("ns", "chat")).unwrap().id;
    rig.sessions("chat", |sessions| {
        sessions.len() == 200 && sessions.iter().all(|s| s.followed && s.view == Some(newest))
    })
    .await;
    for task in tasks {
        let (roles, _router) = task.await.unwrap();
        assert_eq!(roles, [(Role::Decode, 300)].into());
    }
}

#[tokio::test]
async fn a_router_that_reads_its_fleet_itself_gets_its_config_alone() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    rig.hub.set_view(source, &fleet(&[("prod", 1)]));
    rig.hub.set_fleet(&key("ns", "local"), None);
    rig.hub.set_config(&key("ns", "local"), "", 3, "text");
    let mut router = rig.router("ns/local/pod").await;
    assert!(matches!(router.next().await.unwrap(), Message::Config(config) if config.text == "text"));
    assert!(matches!(router.next().await.unwrap(), Message::Heartbeat(beat) if beat.view.is_none()));

    // Its fleet is pushed from now on.
    rig.config("local", source, &["prod"]);
    assert_eq!(router.view().await.view, fleet(&[("prod", 1)]));
}

#[tokio::test(start_paused = true)]
async fn what_a_view_was_replaced_by_and_when_is_kept() {
    use continuum_controller::push::{Hub, Metrics};

    let metrics = Metrics::register(&prometheus::Registry::new()).unwrap();
    let hub = Hub::new("controller-0", Epoch::from_raw([1; 16]), metrics);
    let (source, chat) = (hub.add_source(), key("ns", "chat"));
    let graphs = continuum_fleet::Graphs::new(
        [continuum_fleet::ids::Graph::from("prod")],
        continuum_fleet::NamespaceMatch::Generation,
    );
    let fleet_of = continuum_controller::push::Fleet {
        source,
        graphs,
        origins: [].into(),
    };
    hub.set_fleet(&chat, Some(fleet_of));
    hub.set_config(&chat, "uid", 1, "first");
    let show = |workers| {
        hub.set_view(source, &fleet(&[("prod", workers)]));
        hub.published(&chat).unwrap().id.digest
    };
    let secs = |of: u64| tokio::time::advance(Duration::from_secs(of));
    let since = |digest| hub.superseded(&chat, digest).map(|since| since.as_secs());
    let (one, two) = (show(1), show(2));
    secs(7).await;
    let three = show(3);
    secs(5).await;
    assert_eq!((since(one), since(two), since(three)), (Some(12), Some(5), None));
    assert_eq!(since(continuum_messages::Digest::of(b"of another replica")), None);
    // Back to what there was: it is the newest, and then it was replaced just now.
    assert_eq!((show(1), since(one)), (one, None));
    show(4);
    assert_eq!((since(one), since(three)), (Some(0), Some(0)));
}

#[tokio::test]
async fn who_comes_to_a_source_makes_it_no_less_synced_for_the_others() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    let tell = |listed: &[&str]| {
        let listed: Vec<_> = listed
            .iter()
            .map(|name| continuum_fleet::ids::Graph::from(*name))
            .collect();
        let state = push::SourceState {
            kind: "kubernetes".to_owned(),
            connected: true,
            // For one of all at least.
            synced: false,
            ..push::SourceState::default()
        };
        rig.hub.set_source(source, state, Some(listed.into()));
    };
    tell(&["prod"]);
    rig.hub.set_view(source, &fleet(&[("prod", 3)]));
    rig.config("chat", source, &["prod"]);
    rig.config("both", source, &["prod", "dev"]);
    let (mut chat, mut both) = (rig.router("ns/chat/a").await, rig.router("ns/both/b").await);
    chat.view().await;
    both.view().await;
    assert!(chat.sources[0].synced && !both.sources[0].synced);
    tell(&["dev", "prod"]);
    rig.hub.set_view(source, &fleet(&[("prod", 4), ("dev", 1)]));
    chat.view().await;
    both.view().await;
    assert_eq!((chat.sources.len(), both.sources.len()), (1, 2));
    assert!(both.sources[1].synced);
}

#[tokio::test]
async fn a_view_is_counted_once_for_all_that_see_it() {
    let rig = Rig::start().await;
    let source = rig.hub.add_source();
    for name in ["one", "two"] {
        rig.config(name, source, &["a"]);
    }
    let counted = |name: &str| rig.hub.counted(&key("ns", name));
    assert!(counted("one").is_none());
    rig.hub.set_view(source, &fleet(&[("a", 3), ("b", 2)]));
    let (one, two) = (counted("one").unwrap(), counted("two").unwrap());
    assert!(one.0 == two.0 && std::sync::Arc::ptr_eq(&one.1, &two.1));
    assert_eq!(one.1.decode, 3);
    rig.hub.set_view(source, &fleet(&[("a", 4)]));
    assert_eq!(counted("one").unwrap().1.decode, 4);
}

use continuum_runtime::backoff::Backoff;

use super::*;
use crate::testing::{Pass, Scripted, delete, events, instance, outlet, put};

const MS: fn(u64) -> Duration = Duration::from_millis;
const SECS: fn(u64) -> Duration = Duration::from_secs;

fn backoff() -> Backoff {
    Backoff::with_jitter(MS(500), SECS(30), || 1.0)
}

fn session(lasts: Duration) -> Pass {
    Pass::Runs {
        list: vec![instance("dynamo", 1)],
        changes: vec![],
        end: Some((lasts, Error::Compacted)),
    }
}

fn lost() -> Pass {
    Pass::Fails(Error::Closed {
        why: "on purpose".into(),
    })
}

/// Runs passes until the last one hangs; the times at which they began, from the first one.
async fn begins(passes: Vec<Pass>) -> Vec<Duration> {
    let count = passes.len();
    let (outlet, _, _) = outlet();
    let status = Arc::clone(&outlet.status);
    let source = Scripted::new(passes);
    let began = Arc::clone(&source.began);
    let stop = CancellationToken::new();
    let task = tokio::spawn(drive(source, outlet, backoff(), stop.clone()));
    status.wait_for(|status| status.passes == count as u64 + 1).await;
    tokio::task::yield_now().await;
    stop.cancel();
    task.await.unwrap();
    let began = began.lock().unwrap();
    began.iter().map(|at| *at - began[0]).collect()
}

#[tokio::test(start_paused = true)]
async fn failures_double_the_wait_up_to_its_max() {
    let began = begins((0..8).map(|_| lost()).collect()).await;
    let waits: Vec<Duration> = began.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(
        waits,
        [
            MS(500),
            SECS(1),
            SECS(2),
            SECS(4),
            SECS(8),
            SECS(16),
            SECS(30),
            SECS(30)
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn only_a_session_as_long_as_the_max_resets_the_wait() {
    let began = begins(vec![lost(), session(SECS(29)), session(SECS(30)), lost()]).await;
    let waits: Vec<Duration> = began.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(waits, [MS(500), SECS(29) + SECS(1), SECS(30) + MS(500), SECS(1)]);
}

/// What a source that turns over sees of its own connection: passes, and whether the status ever said otherwise.
async fn turn(over: Over, max: Duration, then: Pass) -> (Vec<Duration>, Vec<bool>) {
    let (outlet, _, registry) = outlet();
    let status = Arc::clone(&outlet.status);
    let list = || vec![instance("dynamo", 1)];
    let source = Scripted::new([
        lost(),
        lost(),
        Pass::Turns {
            list: list(),
            after: WATCH_LENGTH,
            over,
        },
        then,
    ]);
    let began = Arc::clone(&source.began);
    let stop = CancellationToken::new();
    let backoff = Backoff::with_jitter(MS(500), max, || 1.0);
    let task = tokio::spawn(drive(source, outlet, backoff, stop.clone()));
    status.wait_for(|status| status.connected).await;
    let mut seen = Vec::new();
    status
        .wait_for(|status| {
            seen.push(status.connected);
            status.passes == 5
        })
        .await;
    tokio::task::yield_now().await;
    stop.cancel();
    task.await.unwrap();
    drop(registry);
    let began = began.lock().unwrap();
    (began.windows(2).map(|pair| pair[1] - pair[0]).collect(), seen)
}

#[tokio::test(start_paused = true)]
async fn a_planned_end_keeps_the_connection_and_forgets_failures() {
    // A wait that may grow beyond the length of a watch: the planned end resets it none the less.
    for max in [SECS(30), SECS(3_600)] {
        for over in [Over::Turn, Over::Widen] {
            let then = Pass::Turns {
                list: vec![instance("dynamo", 1)],
                after: WATCH_LENGTH,
                over,
            };
            let (waits, seen) = turn(over, max, then).await;
            assert_eq!(
                waits,
                [MS(500), SECS(1), WATCH_LENGTH + MS(500), WATCH_LENGTH + MS(500)]
            );
            assert!(seen.iter().all(|connected| *connected), "{seen:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_after_a_planned_end_is_a_lost_connection() {
    let (waits, seen) = turn(Over::Turn, SECS(30), lost()).await;
    assert_eq!(waits, [MS(500), SECS(1), WATCH_LENGTH + MS(500), SECS(1)]);
    assert_eq!(seen.last(), Some(&false));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_does_not_end_is_given_up() {
    let began = begins(vec![Pass::Hangs]).await;
    assert_eq!(began[1], SEED_TIMEOUT + MS(500));
}

#[tokio::test(start_paused = true)]
async fn the_view_outlives_its_session_and_first_seen_outlives_the_resync() {
    let (outlet, fleet, registry) = outlet();
    let status = Arc::clone(&outlet.status);
    let source = Scripted::new([
        Pass::Runs {
            list: vec![instance("dynamo", 1), instance("dynamo", 2)],
            changes: vec![
                (SECS(1), put(instance("dynamo", 3))),
                (SECS(2), delete(instance("dynamo", 1))),
            ],
            end: Some((SECS(3), Error::Compacted)),
        },
        lost(),
        Pass::Runs {
            list: vec![instance("dynamo", 2)],
            changes: vec![],
            end: None,
        },
    ]);
    let stop = CancellationToken::new();
    let task = tokio::spawn(drive(source, outlet, backoff(), stop.clone()));

    let ids = |view: &continuum_fleet::view::FleetView| {
        view.workers.keys().map(|k| k.instance.hex()).collect::<Vec<_>>()
    };
    fleet.wait_for(|view| ids(view) == ["1", "2"]).await;
    assert!(status.load().connected && status.load().first_sync);
    let first_seen = fleet.load().workers.values().nth(1).unwrap().seen.first;
    fleet.wait_for(|view| ids(view) == ["1", "2", "3"]).await;
    fleet.wait_for(|view| ids(view) == ["2", "3"]).await;

    status
        .wait_for(|status| status.passes == 2 && status.last_error.is_some())
        .await;
    assert!(!status.load().connected && status.load().ready());
    assert_eq!(ids(&fleet.load()), ["2", "3"], "a lost source empties nothing");
    status
        .wait_for(|status| status.passes == 3 && status.connected)
        .await;
    assert_eq!(status.load().last_error, None);
    assert_eq!(ids(&fleet.load()), ["2"]);
    assert_eq!(
        fleet.load().workers.values().next().unwrap().seen.first,
        first_seen
    );
    assert_eq!((events(&registry, "resync"), events(&registry, "delete")), (2, 1));
    stop.cancel();
    task.await.unwrap();
    assert!(!status.load().connected);
}

#[tokio::test(start_paused = true)]
async fn changes_that_are_at_hand_make_one_view() {
    let (outlet, fleet, _) = outlet();
    let changes = (0..1_000)
        .map(|id| (SECS(1), put(instance("dynamo", id))))
        .collect();
    let source = Scripted::new([Pass::Runs {
        list: vec![],
        changes,
        end: None,
    }]);
    let stop = CancellationToken::new();
    let task = tokio::spawn(drive(source, outlet, backoff(), stop.clone()));
    fleet.wait_for(|view| view.workers.len() == 1_000).await;
    assert!(
        fleet.generation() <= 10,
        "{} views for a thousand changes at hand",
        fleet.generation()
    );
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_equal_list_is_no_change() {
    let (outlet, fleet, _) = outlet();
    let status = Arc::clone(&outlet.status);
    let source = Scripted::new([session(SECS(1)), session(SECS(1)), session(SECS(1))]);
    let stop = CancellationToken::new();
    let task = tokio::spawn(drive(source, outlet, backoff(), stop.clone()));
    status.wait_for(|status| status.passes == 4).await;
    assert_eq!(fleet.generation(), 1);
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn stops_at_once_in_every_state() {
    for passes in [vec![Pass::Hangs], vec![session(SECS(1_000))], vec![lost()]] {
        let (outlet, _, _) = outlet();
        let status = Arc::clone(&outlet.status);
        let stop = CancellationToken::new();
        let task = tokio::spawn(drive(Scripted::new(passes), outlet, backoff(), stop.clone()));
        status.wait_for(|status| status.passes == 1).await;
        tokio::task::yield_now().await;
        let asked = Instant::now();
        stop.cancel();
        task.await.unwrap();
        assert_eq!(asked.elapsed(), Duration::ZERO);
    }
}

#[test]
fn a_list_that_comes_after_the_stop_changes_nothing() {
    let (outlet, fleet, _) = outlet();
    let seed = || crate::source::Seed {
        entries: vec![instance("dynamo", 1)],
        ..Default::default()
    };
    let stop = CancellationToken::new();
    stop.cancel();
    outlet.feed.take_unless(&stop, seed(), &[]);
    outlet.feed.lock().publish();
    assert!(
        fleet.load().workers.is_empty(),
        "a later watcher may own the view"
    );
    outlet.feed.take_unless(&CancellationToken::new(), seed(), &[]);
    assert!(fleet.load().workers.is_empty(), "shown by its watcher alone");
    outlet.feed.lock().publish();
    assert_eq!(fleet.load().workers.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn names_that_come_end_no_list_and_no_connection() {
    let (mut outlet, fleet, _registry) = outlet();
    let (names, wanted) = watch::channel(vec![Graph::from("dynamo")]);
    outlet.names = wanted;
    let status = Arc::clone(&outlet.status);
    let with = |extra: &[&str]| {
        let all: Vec<Graph> = ["dynamo"]
            .iter()
            .chain(extra)
            .map(|name| Graph::from(*name))
            .collect();
        status.update(|status| {
            status.synced &= all.len() == status.looked_for.len();
            status.namespaces.clone_from(&all);
        });
        names.send_replace(all);
    };
    with(&[]);
    let runs = || Pass::Runs {
        list: vec![instance("dynamo", 1)],
        changes: vec![(MS(400), put(instance("dynamo", 2)))],
        end: None,
    };
    let source = Scripted::new([runs(), runs(), Pass::Fails(Error::Silent)]);
    let began = Arc::clone(&source.began);
    let stop = CancellationToken::new();
    let task = tokio::spawn(drive(source, outlet, backoff(), stop.clone()));
    status.wait_for(|status| status.connected && status.synced).await;
    // Over and over: the others see changes meanwhile, and all names together make one list.
    let begun = Instant::now();
    for extra in [&["a"][..], &["a", "b"], &["a", "b", "c"]] {
        with(extra);
        sleep(MS(100)).await;
    }
    assert!(!status.load().synced && status.load().passes == 1);
    let known: Vec<Graph> = status.load().looked_for.clone();
    assert_eq!(known, [Graph::from("dynamo")], "synced for who sees it");
    fleet.wait_for(|view| view.workers.len() == 2).await;
    status
        .wait_for(|status| {
            assert!(status.connected, "{status:?}");
            status.looked_for.len() == 4
        })
        .await;
    assert!(
        status.load().synced && begun.elapsed() < SECS(1),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(began.lock().unwrap().len(), 2);
    // A pass that fails tells the truth.
    with(&["a"]);
    status.wait_for(|status| !status.connected).await;
    assert_eq!(status.load().passes, 3);
    stop.cancel();
    task.await.unwrap();
}

use std::{future::pending, sync::Arc};

use tokio::time::Instant;

use super::*;

const GRACE: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn a_signal_asks_every_task_to_stop_and_waits() {
    let tasks = Tasks::new();
    let spawner = tasks.spawner();
    spawner.essential("listens", |stop| async move {
        stop.cancelled().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok(())
    });
    let start = Instant::now();
    let exit = tasks.run(async {}, || GRACE, pending()).await;
    assert!(exit.drained && exit.first.is_none());
    assert_eq!(start.elapsed(), Duration::from_secs(2));
    assert!(spawner.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_deaf_task_is_dropped_after_the_grace() {
    let tasks = Tasks::new();
    let spawner = tasks.spawner();
    spawner.essential("deaf", |_stop| pending());
    spawner.spawn("deaf too", |_stop| pending()).detach();
    let start = Instant::now();
    assert!(!tasks.run(async {}, || GRACE, pending()).await.drained);
    assert_eq!(start.elapsed(), GRACE);
    assert!(spawner.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_second_signal_ends_the_wait() {
    let tasks = Tasks::new();
    tasks.spawner().essential("deaf", |_stop| pending());
    let start = Instant::now();
    assert!(
        !tasks
            .run(async {}, || GRACE, tokio::time::sleep(Duration::from_secs(1)))
            .await
            .drained
    );
    assert_eq!(start.elapsed(), Duration::from_secs(1));
}

#[tokio::test]
async fn the_end_of_an_essential_task_ends_the_run_and_is_named() {
    let tasks = Tasks::new();
    tasks.spawner().essential("stays", |stop| async move {
        stop.cancelled().await;
        Ok(())
    });
    tasks
        .spawner()
        .essential("fails", |_stop| async { Err("no port".into()) });
    let exit = tasks.run(pending(), || GRACE, pending()).await;
    let first = exit.first.unwrap();
    assert_eq!(first.name, "fails");
    assert!(matches!(first.how, How::Failed(error) if error.to_string() == "no port"));
    assert!(exit.drained);
}

#[tokio::test]
async fn a_panic_in_an_essential_task_is_noticed() {
    let tasks = Tasks::new();
    tasks
        .spawner()
        .essential("lost", |_stop| async { panic!("on purpose") });
    let exit = tasks.run(pending(), || GRACE, pending()).await;
    assert!(matches!(
        exit.first,
        Some(Ended {
            name: "lost",
            how: How::Lost
        })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_supervised_task_stops_by_itself_or_is_dropped() {
    let tasks = Tasks::new();
    let spawner = tasks.spawner();
    let listens = spawner.spawn("listens", |stop| async move { stop.cancelled().await });
    assert!(!listens.is_finished());
    assert!(listens.stop(GRACE).await);
    let start = Instant::now();
    assert!(!spawner.spawn("deaf", |_stop| pending()).stop(GRACE).await);
    assert_eq!(start.elapsed(), GRACE);
    assert!(spawner.is_empty());
    assert!(!tasks.stop_token().is_cancelled());
}

#[tokio::test]
async fn a_dropped_handle_stops_its_task_alone() {
    let tasks = Tasks::new();
    let held = Arc::new(());
    let other = tasks
        .spawner()
        .spawn("other", |stop| async move { stop.cancelled().await });
    let mut ended = {
        let held = Arc::clone(&held);
        let mut task = tasks.spawner().spawn("dropped", |stop| async move {
            stop.cancelled().await;
            drop(held);
        });
        task.handle.take()
    };
    ended.take().unwrap().await.unwrap();
    assert_eq!(Arc::strong_count(&held), 1);
    assert!(!other.is_finished());
}

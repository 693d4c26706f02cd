//! A thread of its own for work that must not stand in the way of requests.
//!
//! One message of block events may be megabytes, and a busy fleet sends a hundred thousand events a second. On the
//! threads that carry requests each would be a pause of theirs; here the kernel shares out the time.

use std::{io, thread};

use continuum_runtime::tasks::Spawner;
use tokio::runtime;

/// Runs `start` where tasks that it starts run on a thread of this name. The thread ends when the process stops, once
/// its tasks have ended.
///
/// # Errors
/// The system gives no thread, or no event queue.
pub fn run<T>(name: &str, spawner: &Spawner, start: impl FnOnce() -> T) -> io::Result<T> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let started = {
        let _here = runtime.enter();
        start()
    };
    let ended = spawner.all_ended();
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        runtime.block_on(ended);
        // A look-up may hang in the resolver for longer than anybody waits for it.
        runtime.shutdown_background();
    })?;
    Ok(started)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use continuum_runtime::tasks::Tasks;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn tasks_run_on_the_thread_and_end_with_the_process() {
        let tasks = Tasks::new();
        let (named, name) = oneshot::channel();
        let spawner = tasks.spawner();
        run("apart", &spawner, || {
            spawner.essential("busy", |stop| async move {
                drop(named.send(thread::current().name().map(str::to_owned)));
                stop.cancelled().await;
                Ok(())
            });
        })
        .unwrap();
        assert_eq!(name.await.unwrap().as_deref(), Some("apart"));
        assert!(tasks.drain(Duration::from_secs(5), std::future::pending()).await);
    }
}

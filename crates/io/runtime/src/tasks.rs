//! Named background work: asked to stop, waited for, dropped when it does not listen, noticed when it dies.
//!
//! A dead background task behind a listening port is the worst state of a server. So a task is either
//! *essential*: its end, whatever the reason, ends [`Tasks::run`] and with it the process after a drain; or it
//! belongs to a supervisor that holds its [`Task`] handle.

use std::{fmt, future::Future, time::Duration};

use tokio::{sync::mpsc, task::JoinHandle, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument as _;

/// Why a task failed.
pub type TaskError = Box<dyn std::error::Error + Send + Sync>;

/// All tasks of a process. Held by `main`; everything else gets a [`Spawner`].
#[derive(Debug)]
pub struct Tasks {
    spawner: Spawner,
    ended: mpsc::UnboundedReceiver<Ended>,
}

/// Starts tasks. Cheap to clone.
#[derive(Clone)]
pub struct Spawner {
    tracker: TaskTracker,
    stop: CancellationToken,
    kill: CancellationToken,
    ended: mpsc::UnboundedSender<Ended>,
}

/// One task of a supervisor. Dropping it asks the task to stop and does not wait; see [`Task::detach`].
#[derive(Debug)]
pub struct Task {
    name: &'static str,
    stop: CancellationToken,
    kill: CancellationToken,
    handle: Option<JoinHandle<()>>,
}

/// The end of an essential task.
#[derive(Debug)]
pub struct Ended {
    /// Its name.
    pub name: &'static str,
    /// How it ended.
    pub how: How,
}

/// How a task ended.
#[derive(Debug)]
pub enum How {
    /// It returned.
    Finished,
    /// It returned an error.
    Failed(TaskError),
    /// It was dropped or panicked.
    Lost,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished => f.write_str("it returned"),
            Self::Failed(error) => error.fmt(f),
            Self::Lost => f.write_str("it was lost"),
        }
    }
}

/// How [`Tasks::run`] ended.
#[derive(Debug)]
pub struct Exit {
    /// The essential task whose end caused it; `None` after a signal.
    pub first: Option<Ended>,
    /// Whether every task listened within the grace.
    pub drained: bool,
}

impl Tasks {
    /// No tasks yet.
    #[must_use]
    pub fn new() -> Self {
        let (sender, ended) = mpsc::unbounded_channel();
        let spawner = Spawner {
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
            ended: sender,
        };
        Self { spawner, ended }
    }

    /// A handle that starts tasks.
    #[must_use]
    pub fn spawner(&self) -> Spawner {
        self.spawner.clone()
    }

    /// Cancelled when the process stops.
    #[must_use]
    pub fn stop_token(&self) -> CancellationToken {
        self.spawner.stop.clone()
    }

    /// Runs until `signal`, or until an essential task ends; then asks all tasks to stop, waits up to `grace`,
    /// and drops those that are left. `at_once` (a second signal) ends the wait. `grace` is asked when the stop comes: it
    /// may have been configured anew until then.
    pub async fn run(
        mut self,
        signal: impl Future<Output = ()>,
        grace: impl FnOnce() -> Duration,
        at_once: impl Future<Output = ()>,
    ) -> Exit {
        let first = tokio::select! {
            biased;
            () = signal => None,
            ended = self.ended.recv() => ended,
        };
        let drained = self.drain(grace(), at_once).await;
        Exit { first, drained }
    }

    /// Asks every task to stop and waits as [`Self::run`] does. Says whether all of them ended by themselves.
    pub async fn drain(self, grace: Duration, at_once: impl Future<Output = ()>) -> bool {
        self.spawner.stop.cancel();
        self.spawner.tracker.close();
        let drained = tokio::select! {
            biased;
            ended = timeout(grace, self.spawner.tracker.wait()) => ended.is_ok(),
            () = at_once => false,
        };
        if !drained {
            self.spawner.kill.cancel();
            self.spawner.tracker.wait().await;
        }
        drained
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner")
            .field("tasks", &self.tracker.len())
            .finish_non_exhaustive()
    }
}

impl Spawner {
    /// Starts a task whose end ends the process. `make` gets the token that asks it to stop.
    pub fn essential<F>(&self, name: &'static str, make: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = Result<(), TaskError>> + Send + 'static,
    {
        let report = Report {
            name,
            how: Some(How::Lost),
            to: self.ended.clone(),
        };
        let task = make(self.stop.child_token());
        let work = async move {
            let mut report = report;
            report.how = Some(match task.await {
                Ok(()) => How::Finished,
                Err(error) => How::Failed(error),
            });
        };
        self.start(name, self.kill.child_token(), work);
    }

    /// Starts a task that the caller supervises. `make` gets the token that asks it to stop.
    #[must_use = "dropping the handle stops the task"]
    pub fn spawn<F>(&self, name: &'static str, make: impl FnOnce(CancellationToken) -> F) -> Task
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, kill) = (self.stop.child_token(), self.kill.child_token());
        let work = make(stop.clone());
        let handle = self.start(name, kill.clone(), work);
        Task {
            name,
            stop,
            kill,
            handle: Some(handle),
        }
    }

    /// Cancelled when the process stops.
    #[must_use]
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.child_token()
    }

    /// Ends when the process was asked to stop and every task has ended.
    pub fn all_ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let (stop, tracker) = (self.stop.clone(), self.tracker.clone());
        async move {
            stop.cancelled().await;
            tracker.wait().await;
        }
    }

    /// How many tasks are alive.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tracker.len()
    }

    /// Whether no task is alive.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tracker.is_empty()
    }

    fn start(
        &self,
        name: &'static str,
        kill: CancellationToken,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let span = tracing::info_span!("task", name);
        self.tracker.spawn(
            async move {
                tokio::select! {
                    biased;
                    () = kill.cancelled() => {}
                    () = work => {}
                }
            }
            .instrument(span),
        )
    }
}

impl Task {
    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Asks it to stop, without waiting.
    pub fn ask_to_stop(&self) {
        self.stop.cancel();
    }

    /// Waits for its end. Cancel-safe.
    pub async fn ended(&mut self) {
        if let Some(handle) = self.handle.as_mut() {
            // A lost task has ended too; with `panic = "abort"` there is nothing more to learn.
            let _ended = handle.await;
            self.handle = None;
        }
    }

    /// Asks it to stop, waits up to `grace`, then drops its work. Says whether it ended by itself.
    pub async fn stop(mut self, grace: Duration) -> bool {
        self.stop.cancel();
        let listened = timeout(grace, self.ended()).await.is_ok();
        if !listened {
            tracing::warn!(task = self.name, "task did not stop within its grace, dropped");
            self.kill.cancel();
            self.ended().await;
        }
        listened
    }

    /// Lets it run until the process stops.
    pub fn detach(mut self) {
        self.stop = CancellationToken::new();
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Tells the end of an essential task, also when it is dropped half way.
struct Report {
    name: &'static str,
    how: Option<How>,
    to: mpsc::UnboundedSender<Ended>,
}

impl Drop for Report {
    fn drop(&mut self) {
        if let Some(how) = self.how.take() {
            // Nobody listens once the process drains.
            let _nobody = self.to.send(Ended { name: self.name, how });
        }
    }
}

#[cfg(test)]
mod tests;

//! How many prompts are worked on at a time, and whose.
//!
//! A prompt that is being worked on cannot be stopped, so room for the next model must be kept before it asks: where
//! several models are loaded, one more of a model is begun only while it has fewer in work than there are permits
//! left. One busy or slow model then holds half of them, a second one a quarter, and so on; a model alone holds all.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::oneshot, time::timeout};

/// Permits for work on prompts.
#[derive(Debug)]
pub(crate) struct Permits {
    state: Mutex<State>,
}

/// One prompt may be worked on until this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    model: u64,
    /// Whom it goes back to; `None` for one that was never given out.
    to: Option<Arc<Permits>>,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// More than one model is loaded.
    several: bool,
    lines: BTreeMap<u64, Line>,
    given: u64,
}

/// A model's prompts.
#[derive(Debug, Default)]
struct Line {
    held: usize,
    /// First come, first served.
    waiting: VecDeque<oneshot::Sender<Permit>>,
    /// When it was given one last.
    given: u64,
}

impl Permits {
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                free: count,
                several: false,
                lines: BTreeMap::new(),
                given: 0,
            }),
        })
    }

    /// Whether more than one model is loaded.
    pub(crate) fn set_several(self: &Arc<Self>, several: bool) {
        let mut state = self.lock();
        state.several = several;
        self.hand_out(&mut state);
    }

    /// A permit for a prompt of this model; `None` when none comes in time.
    pub(crate) async fn take(self: &Arc<Self>, model: u64, wait: Duration) -> Option<Permit> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.lock();
            let line = state.lines.entry(model).or_default();
            line.forget_gone();
            line.waiting.push_back(sender);
            self.hand_out(&mut state);
        }
        timeout(wait, receiver).await.ok()?.ok()
    }

    /// Gives out what may be given out: to whom has fewest, then to whom was given one longest ago.
    fn hand_out(self: &Arc<Self>, state: &mut State) {
        loop {
            state.lines.values_mut().for_each(Line::forget_gone);
            state
                .lines
                .retain(|_, line| line.held > 0 || !line.waiting.is_empty());
            let (free, several) = (state.free, state.several);
            let next = state
                .lines
                .iter_mut()
                .filter(|(_, line)| !line.waiting.is_empty() && line.may_have_one(free, several))
                .min_by_key(|(_, line)| (line.held, line.given));
            let Some((model, line)) = next else {
                return;
            };
            let Some(sender) = line.waiting.pop_front() else {
                return;
            };
            let permit = Permit {
                model: *model,
                to: Some(Arc::clone(self)),
            };
            match sender.send(permit) {
                Ok(()) => {
                    line.held += 1;
                    state.given += 1;
                    line.given = state.given;
                    state.free = free.saturating_sub(1);
                }
                // Its drop must not take the lock that is held here.
                Err(mut permit) => permit.to = None,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    const fn may_have_one(&self, free: usize, several: bool) -> bool {
        if several { self.held < free } else { free > 0 }
    }

    /// Who has waited too long is gone; the first comes first here, too.
    fn forget_gone(&mut self) {
        while self.waiting.front().is_some_and(oneshot::Sender::is_closed) {
            self.waiting.pop_front();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(permits) = self.to.take() else {
            return;
        };
        let mut state = permits.lock();
        state.free += 1;
        if let Some(line) = state.lines.get_mut(&self.model) {
            line.held = line.held.saturating_sub(1);
        }
        permits.hand_out(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(20);

    /// As many as a model gets without anybody giving one back.
    async fn all(permits: &Arc<Permits>, model: u64) -> Vec<Permit> {
        let mut held = Vec::new();
        while let Some(permit) = permits.take(model, WAIT).await {
            held.push(permit);
        }
        held
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_alone_has_all_and_one_of_several_leaves_room_for_the_next() {
        let permits = Permits::new(8);
        assert_eq!(all(&permits, 1).await.len(), 8);
        permits.set_several(true);
        let one = all(&permits, 1).await;
        assert_eq!(one.len(), 4);
        let two = all(&permits, 2).await;
        assert_eq!(two.len(), 2);
        let three = all(&permits, 3).await;
        assert_eq!(three.len(), 1);
        assert_eq!(all(&permits, 4).await.len(), 1);
        drop((one, two, three));
        assert_eq!(all(&permits, 4).await.len(), 4);
        let state = permits.lock();
        assert_eq!((state.free, state.lines.len()), (8, 0), "nothing is left behind");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_is_served_in_order_and_the_one_with_least_first() {
        let permits = Permits::new(2);
        let (first, second) = (permits.take(1, WAIT).await, permits.take(1, WAIT).await);
        assert!(first.is_some() && second.is_some());
        let wait = |model| {
            let permits = Arc::clone(&permits);
            tokio::spawn(async move { permits.take(model, WAIT).await })
        };
        let (a, b, c) = (wait(1), wait(1), wait(2));
        tokio::task::yield_now().await;
        drop(first);
        let c = c.await.unwrap();
        assert!(c.is_some() && !a.is_finished() && !b.is_finished());
        drop(second);
        let a = a.await.unwrap();
        assert!(a.is_some() && !b.is_finished());
        // It waits in vain, and what comes back later is not lost with it.
        assert!(b.await.unwrap().is_none());
        drop((a, c));
        assert_eq!(all(&permits, 3).await.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_given_to_somebody_who_has_just_left_comes_back() {
        let permits = Permits::new(1);
        let held = permits.take(1, WAIT).await;
        let mut waiting = Box::pin(permits.take(1, WAIT));
        assert!(once(&mut waiting).await.is_none());
        drop(held);
        // It is in the channel now, and nobody reads it.
        drop(waiting);
        assert!(permits.take(2, WAIT).await.is_some());
        assert_eq!(permits.lock().free, 1);
    }

    /// Polls once.
    async fn once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        std::future::poll_fn(|cx| match std::pin::Pin::new(&mut *future).poll(cx) {
            std::task::Poll::Ready(found) => std::task::Poll::Ready(Some(found)),
            std::task::Poll::Pending => std::task::Poll::Ready(None),
        })
        .await
    }
}

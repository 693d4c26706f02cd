//! A watch that goes on whatever happens to it: after each failure it waits a little longer, alone, and says once what is
//! the matter.

use std::{sync::Arc, time::Duration};

use futures::{Stream, StreamExt as _, stream};
use kube::runtime::watcher::{self, Event};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, sleep},
};

use crate::routerconfig::{
    Metrics,
    limits::{RETRY_MOST, WATCH_PAUSE, WATCH_PAUSE_MOST, WATCH_WELL},
    metrics::{Trouble, Watched},
};

/// How one watch fares.
pub(super) struct Patience {
    what: Watched,
    /// `None`: all of them.
    namespace: Option<String>,
    metrics: Metrics,
    /// Told when it is not allowed to look, or there is nothing to look at.
    refused: Option<watch::Sender<bool>>,
    /// What a list takes one of, where not all may be read at once.
    lists: Option<Arc<Semaphore>>,
    /// Taken for the list that is being read.
    list: Option<OwnedSemaphorePermit>,
    /// The next that is asked for is a list.
    to_list: bool,
    failed: Option<Failed>,
    pause: Option<Duration>,
}

/// Since it was last heard.
struct Failed {
    how: Trouble,
    times: u32,
    at: Instant,
    /// It was said.
    told: bool,
}

impl Patience {
    pub(super) fn new(what: Watched, namespace: Option<&str>, metrics: &Metrics) -> Self {
        Self {
            what,
            namespace: namespace.map(str::to_owned),
            metrics: metrics.clone(),
            refused: None,
            lists: None,
            list: None,
            to_list: false,
            failed: None,
            pause: None,
        }
    }

    pub(super) fn telling(mut self, refused: watch::Sender<bool>) -> Self {
        self.refused = Some(refused);
        self
    }

    /// Waits with each list until one of these is free.
    pub(super) fn listing(mut self, lists: Arc<Semaphore>) -> Self {
        self.lists = Some(lists);
        self
    }

    /// The events of a watch, without its errors.
    pub(super) fn of<K: Send + 'static>(
        self,
        events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
    ) -> impl Stream<Item = Event<K>> + Send + 'static {
        stream::unfold((events.boxed(), self), |(mut events, mut patience)| async move {
            loop {
                if let Some(pause) = patience.pause.take() {
                    sleep(pause).await;
                }
                if patience.to_list && patience.list.is_none() {
                    patience.take_turn().await;
                }
                match events.next().await? {
                    Ok(event) => {
                        // This is said before anything is asked.
                        patience.to_list = matches!(event, Event::Init);
                        if !patience.to_list {
                            patience.heard();
                        }
                        if matches!(event, Event::InitDone) {
                            patience.list = None;
                        }
                        return Some((event, (events, patience)));
                    }
                    Err(error) => {
                        patience.list = None;
                        patience.failed(&error);
                    }
                }
            }
        })
    }

    async fn take_turn(&mut self) {
        if let Some(lists) = &self.lists {
            self.list = Arc::clone(lists).acquire_owned().await.ok();
        }
    }

    fn heard(&mut self) {
        if self.failed.take().is_some_and(|failed| failed.told) {
            tracing::info!(
                what = self.what.as_str(),
                namespace = self.namespace(),
                "a watch is heard again"
            );
        }
        if let Some(refused) = &self.refused {
            refused.send_replace(false);
        }
    }

    fn failed(&mut self, error: &watcher::Error) {
        let how = Trouble::of(error);
        if how == Trouble::Expired {
            tracing::debug!(%error, "a watch begins anew");
            self.pause = Some(WATCH_PAUSE);
            return;
        }
        self.metrics.watch_failed(self.what, how);
        // A watch of which nothing was heard may have been well for hours.
        let before = self
            .failed
            .take()
            .filter(|failed| failed.at.elapsed() < WATCH_WELL);
        let times = before.as_ref().map_or(0, |before| before.times);
        let told = before.is_some_and(|before| before.told && before.how == how);
        // A connection may end: only when the next one fails too is anything the matter.
        let tell = !told && (how != Trouble::ApiUnavailable || times > 0);
        if tell {
            tracing::warn!(
                what = self.what.as_str(),
                namespace = self.namespace(),
                reason = how.as_str(),
                %error,
                "a watch failed and is tried again"
            );
        }
        let most = match how {
            Trouble::Forbidden | Trouble::NotFound => RETRY_MOST,
            Trouble::Expired | Trouble::ApiUnavailable | Trouble::Unreadable => WATCH_PAUSE_MOST,
        };
        self.pause = Some(
            WATCH_PAUSE
                .saturating_mul(2_u32.saturating_pow(times.min(16)))
                .min(most),
        );
        self.failed = Some(Failed {
            how,
            times: times.saturating_add(1),
            at: Instant::now(),
            told: told || tell,
        });
        if let Some(refused) = &self.refused {
            refused.send_replace(matches!(how, Trouble::Forbidden | Trouble::NotFound));
        }
    }

    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("*")
    }
}

#[cfg(test)]
mod tests {
    use kube::{Error, core::Status};

    use super::*;

    fn refused(code: u16) -> watcher::Error {
        let status = Status::failure("no", "No").with_code(code);
        watcher::Error::InitialListFailed(Error::Api(Box::new(status)))
    }

    #[tokio::test(start_paused = true)]
    async fn the_pause_after_a_failure_grows_until_something_is_heard() {
        let events = stream::iter([
            Ok(Event::Init),
            Err(refused(403)),
            Ok(Event::Init),
            Err(refused(403)),
            Ok(Event::Init),
            Err(refused(403)),
            Ok(Event::Init),
            Ok(Event::Apply(1)),
            Err(refused(500)),
            Ok(Event::Apply(2)),
        ]);
        let metrics = Metrics::register(&prometheus::Registry::new()).unwrap();
        let (tell, told) = watch::channel(false);
        let begun = Instant::now();
        let patience = Patience::new(Watched::RouterConfigs, Some("n"), &metrics).telling(tell);
        let mut heard = Box::pin(patience.of(events));
        let mut at = Vec::new();
        while let Some(event) = heard.next().await {
            at.push((format!("{event:?}"), begun.elapsed().as_millis(), *told.borrow()));
        }
        let at: Vec<_> = at
            .iter()
            .map(|(event, at, told)| (event.as_str(), *at, *told))
            .collect();
        assert_eq!(
            at,
            [
                ("Init", 0, false),
                ("Init", 300, true),
                ("Init", 900, true),
                ("Init", 2100, true),
                ("Apply(1)", 2100, false),
                ("Apply(2)", 2400, false),
            ]
        );
        assert_eq!(
            metrics.watch_errors(Watched::RouterConfigs, Trouble::Forbidden),
            3
        );
        assert_eq!(
            metrics.watch_errors(Watched::RouterConfigs, Trouble::ApiUnavailable),
            1
        );
    }

    #[tokio::test(start_paused = true)]
    async fn lists_wait_for_each_other_and_watches_do_not() {
        let metrics = Metrics::register(&prometheus::Registry::new()).unwrap();
        let lists = Arc::new(Semaphore::new(1));
        let watch = |events: Vec<watcher::Result<Event<i32>>>| {
            let patience = Patience::new(Watched::Children, None, &metrics).listing(Arc::clone(&lists));
            Box::pin(patience.of(stream::iter(events)))
        };
        let whole = || vec![Ok(Event::Init), Ok(Event::InitDone), Ok(Event::Apply(1))];
        let (mut one, mut two, mut third) = (
            watch(whole()),
            watch(vec![Ok(Event::Init), Err(refused(403))]),
            watch(whole()),
        );
        let moment = Duration::from_millis(100);
        let listed = |event| matches!(event, Some(Event::InitDone));
        for watch in [&mut one, &mut two, &mut third] {
            assert!(matches!(watch.next().await, Some(Event::Init)));
        }
        // Until its list is whole, nobody else has one.
        lists.clone().acquire_owned().await.unwrap().forget();
        assert!(tokio::time::timeout(moment, one.next()).await.is_err());
        lists.add_permits(1);
        assert!(listed(one.next().await));
        assert_eq!(lists.available_permits(), 1);
        // One that fails gives way.
        assert!(two.next().await.is_none());
        assert_eq!(lists.available_permits(), 1);
        assert!(listed(third.next().await));
        assert!(matches!(one.next().await, Some(Event::Apply(1))));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_may_not_look_asks_rarely() {
        let events = stream::repeat_with(|| Err::<Event<()>, _>(refused(403)));
        let metrics = Metrics::register(&prometheus::Registry::new()).unwrap();
        let patience = Patience::new(Watched::Children, None, &metrics);
        let mut heard = Box::pin(patience.of(events));
        let hour = Duration::from_secs(3600);
        assert!(tokio::time::timeout(hour, heard.next()).await.is_err());
        let asked = metrics.watch_errors(Watched::Children, Trouble::Forbidden);
        assert!((110..140).contains(&asked), "{asked}");
    }
}

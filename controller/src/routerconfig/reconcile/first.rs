//! The first look: what must have been listed before routers may be sent here.

use continuum_crds::RouterConfig;
use futures::{
    FutureExt as _,
    future::{join_all, select_all},
};
use kube::runtime::reflector::Store;
use tokio::{sync::watch, time::sleep};

use crate::routerconfig::limits::{FIRST_LIST, REFUSED};

/// The first list of one namespace, or of all of them.
pub(super) struct First {
    pub(super) namespace: Option<String>,
    pub(super) store: Store<RouterConfig>,
    /// It may not be listed now, or there is nothing to list.
    pub(super) refused: watch::Receiver<bool>,
}

impl First {
    /// Waits for the list. `false`: it does not come, and others need not wait for it.
    async fn listed(&self) -> bool {
        let mut refused = self.refused.clone();
        let refused = async {
            if refused.wait_for(|refused| *refused).await.is_err() {
                std::future::pending::<()>().await;
            }
            sleep(REFUSED).await;
        };
        tokio::select! {
            biased;
            ready = self.store.wait_until_ready() => return ready.is_ok(),
            () = refused => {}
            () = sleep(FIRST_LIST) => {}
        }
        tracing::warn!(
            namespace = self.namespace.as_deref().unwrap_or("*"),
            "the RouterConfigs of a namespace could not be listed: those of others do not wait for them"
        );
        false
    }
}

/// Looks at everything that can be listed. Done when nothing is left to be waited for and something was listed: without
/// that there is nothing to send routers here for.
pub(super) async fn look<'a, F: Future<Output = ()>>(all: &'a [First], see: impl Fn(&'a First) -> F) {
    let looks = all.iter().map(|first| async {
        let listed = first.listed().await;
        if listed {
            see(first).await;
        }
        listed
    });
    if join_all(looks).await.contains(&true) || all.is_empty() {
        return;
    }
    let any = all.iter().map(|first| {
        async move {
            if first.store.wait_until_ready().await.is_err() {
                std::future::pending::<()>().await;
            }
            first
        }
        .boxed()
    });
    let (first, _, _) = select_all(any).await;
    see(first).await;
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use kube::runtime::{
        reflector::{self, store::Writer},
        watcher::Event,
    };
    use tokio::time::{Duration, Instant, timeout};

    use super::*;

    struct Namespace {
        first: First,
        writer: Writer<RouterConfig>,
        refuse: watch::Sender<bool>,
    }

    fn namespace(name: &str) -> Namespace {
        let (store, writer) = reflector::store();
        let (refuse, refused) = watch::channel(false);
        let first = First {
            namespace: Some(name.to_owned()),
            store,
            refused,
        };
        Namespace {
            first,
            writer,
            refuse,
        }
    }

    impl Namespace {
        fn list(&mut self) {
            for event in [Event::Init, Event::InitDone] {
                self.writer.apply_watcher_event(&event);
            }
        }
    }

    async fn look_at(all: &[First]) -> (Vec<String>, Duration) {
        let begun = Instant::now();
        let seen = RefCell::new(Vec::new());
        look(all, |first| {
            seen.borrow_mut().extend(first.namespace.clone());
            std::future::ready(())
        })
        .await;
        (seen.into_inner(), begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_cannot_be_listed_holds_the_others_up_for_a_moment() {
        let (mut good, gone, silent) = (namespace("good"), namespace("gone"), namespace("silent"));
        good.list();
        gone.refuse.send_replace(true);
        let (seen, took) = look_at(&[gone.first, good.first]).await;
        assert_eq!((seen, took), (vec!["good".to_owned()], REFUSED));

        let mut good = namespace("good");
        good.list();
        let (seen, took) = look_at(&[silent.first, good.first]).await;
        assert_eq!((seen, took), (vec!["good".to_owned()], FIRST_LIST));
    }

    #[tokio::test(start_paused = true)]
    async fn without_any_list_nothing_is_ready() {
        let (gone, mut later) = (namespace("gone"), namespace("later"));
        gone.refuse.send_replace(true);
        later.refuse.send_replace(true);
        let all = [gone.first, later.first];
        let mut looking = Box::pin(look_at(&all));
        assert!(timeout(Duration::from_secs(3600), &mut looking).await.is_err());
        for event in [Event::Init, Event::InitDone] {
            later.writer.apply_watcher_event(&event);
        }
        assert_eq!(looking.await.0, ["later"]);
    }
}

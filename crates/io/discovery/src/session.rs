//! The life of a watcher: pass after pass, with a back-off between them, until it is asked to stop.

use std::{future::Future, pin::pin, sync::Arc, task::Poll, time::Duration};

use continuum_fleet::ids::Graph;
use continuum_runtime::{backoff::Backoff, cell::Cell, said::Said};
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    error::{Error, ErrorKind},
    feed::SharedFeed,
    limits::{COALESCED_CHANGES, NAMES_PAUSE, SAID, SEED_TIMEOUT, WATCH_LENGTH},
    metrics::Metrics,
    source::{Over, Source, SourceKind, Watch},
    status::Status,
};

/// What a watcher writes to.
#[derive(Clone, Debug)]
pub(crate) struct Outlet {
    pub(crate) kind: SourceKind,
    pub(crate) feed: SharedFeed,
    pub(crate) status: Arc<Cell<Status>>,
    pub(crate) metrics: Metrics,
    /// The Dynamo namespaces that are wanted: moves when a list has to look for more.
    pub(crate) names: watch::Receiver<Vec<Graph>>,
}

/// How a session ended.
enum End {
    Failed(Error),
    /// A full list would bring back records that a cap had refused.
    Relist,
    /// The source ended the pass as planned.
    Planned(Over),
}

impl End {
    /// Whether the source still counts as connected while the next pass lists: nothing is wrong with it.
    const fn keeps_connection(&self) -> bool {
        match self {
            Self::Planned(_) => true,
            Self::Failed(_) | Self::Relist => false,
        }
    }
}

/// Runs passes until `stop`. A pass that cannot begin or ends leaves the last view in place.
pub(crate) async fn drive<S: Source>(
    mut source: S,
    mut outlet: Outlet,
    mut backoff: Backoff,
    stop: CancellationToken,
) {
    let mut said = Said::new(SAID);
    while !stop.is_cancelled() {
        let end = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            end = pass(&mut source, &mut outlet, &mut backoff, &mut said, &stop) => end,
        };
        if !end.keeps_connection() {
            outlet.status.update(|status| status.connected = false);
        }
        let delay = match end {
            End::Planned(Over::Names) => Duration::ZERO,
            End::Planned(Over::Turn | Over::Widen) | End::Failed(_) | End::Relist => backoff.delay(),
        };
        report(&end, delay, &outlet, &mut said);
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = sleep(delay) => {}
        }
    }
    outlet.status.update(|status| status.connected = false);
}

/// One pass, from connecting to the end of its watch.
async fn pass<S: Source>(
    source: &mut S,
    outlet: &mut Outlet,
    backoff: &mut Backoff,
    said: &mut Said<ErrorKind>,
    stop: &CancellationToken,
) -> End {
    outlet.status.update(|status| status.passes += 1);
    let names = outlet.names.borrow_and_update().clone();
    source.look_for(&names);
    let began = Instant::now();
    let (seed, watch) = match timeout(SEED_TIMEOUT, source.open()).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => return End::Failed(error),
        Err(_elapsed) => return End::Failed(Error::SeedTimeout),
    };
    let records = seed.entries.len();
    // Thousands of cards are to be read: streams of clients must not wait for that.
    let (feed, stop, listed) = (outlet.feed.clone(), stop.clone(), names.clone());
    let taken = spawn_blocking(move || feed.take_unless(&stop, seed, &listed)).await;
    if let Err(lost) = taken {
        return End::Failed(Error::Closed {
            why: lost.to_string(),
        });
    }
    let refused = {
        let feed = outlet.feed.lock();
        feed.publish();
        feed.refused()
    };
    let up = Instant::now();
    let renewed = outlet.status.load().connected;
    outlet.metrics.resynced(outlet.kind, up - began);
    outlet.status.update(|status| {
        status.connected = true;
        // Some may have gone meanwhile, and others have come.
        let listed = |name: &&Graph| names.contains(name);
        status.looked_for = status.namespaces.iter().filter(listed).cloned().collect();
        status.synced = status.looked_for.len() == status.namespaces.len();
        status.first_sync = true;
        status.stale = false;
        status.last_error = None;
        status.refused = refused;
    });
    let (source, took_ms) = (
        outlet.kind.as_str(),
        u64::try_from((up - began).as_millis()).unwrap_or(u64::MAX),
    );
    if renewed {
        tracing::debug!(source, records, took_ms, "discovery has listed its source again");
    } else {
        tracing::info!(source, records, took_ms, "discovery is in sync");
    }
    let end = follow(watch, outlet, up + backoff.max()).await;
    if !matches!(end, End::Planned(Over::Names)) {
        // Sessions that end by plan are sound, however long failures may wait.
        backoff.session_ended_after(up.elapsed(), backoff.max().min(WATCH_LENGTH));
    }
    said.clear();
    end
}

/// Applies changes until the watch ends. All changes that are at hand make one view.
///
/// Not before `may_relist` is the list read again for a cap's sake: a fleet that stays at its cap must not be
/// listed over and over.
async fn follow(mut watch: impl Watch, outlet: &mut Outlet, may_relist: Instant) -> End {
    let feed = &outlet.feed;
    let mut names_at: Option<Instant> = None;
    loop {
        let next = tokio::select! {
            next = watch.next() => next,
            () = renamed(&mut outlet.names), if names_at.is_none() => {
                names_at = Some(Instant::now() + NAMES_PAUSE);
                continue;
            }
            () = sleep_until(names_at.unwrap_or_else(Instant::now)), if names_at.is_some() => {
                return End::Planned(Over::Names);
            }
        };
        let mut batch = match next {
            Ok(batch) => batch,
            Err(error) => return End::Failed(error),
        };
        let mut applied = 0;
        let mut over = None;
        let failed = loop {
            applied += batch.changes.len();
            over = over.or(batch.over);
            feed.lock().apply(batch);
            if over.is_some() || applied >= COALESCED_CHANGES {
                break None;
            }
            match at_hand(watch.next()).await {
                Some(Ok(next)) => batch = next,
                Some(Err(error)) => break Some(error),
                None => break None,
            }
        };
        let (wants_reset, refused) = {
            let feed = feed.lock();
            feed.publish();
            (feed.wants_reset(), feed.refused())
        };
        if outlet.status.read().refused != refused {
            outlet.status.update(|status| status.refused = refused);
        }
        if let Some(error) = failed {
            return End::Failed(error);
        }
        if let Some(over) = over {
            return End::Planned(over);
        }
        if wants_reset && Instant::now() >= may_relist {
            return End::Relist;
        }
    }
}

/// Other Dynamo namespaces are wanted.
async fn renamed(names: &mut watch::Receiver<Vec<Graph>>) {
    if names.changed().await.is_err() {
        // Who could want others is gone.
        std::future::pending::<()>().await;
    }
}

fn report(end: &End, delay: Duration, outlet: &Outlet, said: &mut Said<ErrorKind>) {
    let retry_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
    let source = outlet.kind.as_str();
    match end {
        End::Planned(Over::Turn) => {
            tracing::debug!(source, retry_ms, "the watch has had its time, listing anew")
        }
        End::Planned(Over::Widen) => {
            tracing::info!(
                source,
                retry_ms,
                "the fleet needs more to be watched, listing anew"
            );
        }
        End::Planned(Over::Names) => {
            tracing::debug!(source, "more Dynamo namespaces are wanted, listing anew");
        }
        End::Relist => tracing::info!(
            source,
            retry_ms,
            "there is room again for records that were refused, listing anew"
        ),
        End::Failed(error) => {
            let text = error.to_string();
            if said.first_time(error.kind()) {
                tracing::warn!(
                    source,
                    error = text,
                    retry_ms,
                    "discovery lost its source, the last view stays"
                );
            } else {
                tracing::debug!(source, error = text, retry_ms, "discovery still has no source");
            }
            outlet.status.update(|status| status.last_error = Some(text));
        }
    }
}

/// What a future gives without waiting. The future is dropped, so it must be cancel-safe.
async fn at_hand<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        })
    })
    .await
}

#[cfg(test)]
mod tests;

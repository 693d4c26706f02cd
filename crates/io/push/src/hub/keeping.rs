//! The view on disk: read at the start, written after it has changed.

use std::sync::Arc;

use continuum_messages::Digest;
use continuum_runtime::cell::Cell;
use tokio::{sync::watch, task::spawn_blocking, time::sleep};
use tokio_util::sync::CancellationToken;

use super::Hub;
use crate::{
    kept::{self, Keep},
    limits::KEEP_INTERVAL,
    settings::Settings,
    view::Pushed,
};

impl Hub {
    /// Begins with the view that an earlier process kept.
    pub(super) async fn restore(&mut self) {
        let Some(settings) = self.settings.as_deref() else {
            return;
        };
        let Some(keep) = keep_of(settings) else { return };
        // A file of other ones is not read.
        let origins = settings.origins.clone();
        let read = spawn_blocking({
            let keep = keep.clone();
            move || kept::read(&keep)
        });
        match read.await {
            Ok(Ok(Some(assembler))) => {
                tracing::info!(
                    workers = assembler.view().workers.len(),
                    "began with the kept view of the fleet, stale until a controller confirms it"
                );
                let (id, view) = (assembler.id(), assembler.view().clone());
                self.assembler = assembler;
                {
                    let mut have = self.shared.lock();
                    have.view = id;
                    have.stale = true;
                }
                self.out.pushed.update(|pushed| {
                    pushed.number = pushed.number.saturating_add(1);
                    pushed.id = id;
                    pushed.view = view;
                    pushed.kept = true;
                    pushed.origins = origins.into();
                });
            }
            Ok(Ok(None)) | Err(_) => {}
            Ok(Err(error)) => {
                tracing::warn!(dir = %keep.dir.display(), %error, "the kept view of the fleet cannot be used");
            }
        }
    }
}

fn keep_of(settings: &Settings) -> Option<Keep> {
    Some(Keep {
        dir: settings.state_dir.clone().filter(|_| settings.views)?,
        scope: Digest::of(settings.origins.join("\n").as_bytes()).to_string(),
    })
}

/// Writes the view after it has changed, now and then.
pub(crate) async fn keep_views(
    pushed: Arc<Cell<Pushed>>,
    mut settings: watch::Receiver<Option<Settings>>,
    stop: CancellationToken,
) {
    let mut changes = pushed.subscribe();
    let mut kept: Option<(u64, Keep)> = None;
    let mut failing = false;
    let work = async {
        loop {
            changes.borrow_and_update();
            let now = pushed.load();
            let keep = settings
                .borrow_and_update()
                .as_ref()
                // What is of another fleet, or of nobody knows which, is not for the next process.
                .filter(|settings| now.id.is_some() && !now.kept && *settings.origins == *now.origins)
                .and_then(keep_of);
            if let Some(keep) = keep
                && kept.as_ref() != Some(&(now.number, keep.clone()))
            {
                let (to, view) = (keep.clone(), now.view.clone());
                let written = spawn_blocking(move || kept::write(&to, view)).await;
                match written {
                    Ok(Err(error)) if !failing => {
                        failing = true;
                        tracing::warn!(dir = %keep.dir.display(), %error, "the view of the fleet cannot be kept");
                    }
                    Ok(Ok(())) => failing = false,
                    Ok(Err(_)) | Err(_) => {}
                }
                kept = Some((now.number, keep));
                sleep(KEEP_INTERVAL).await;
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                changed = settings.changed() => if changed.is_err() { return },
            }
        }
    };
    if stop.run_until_cancelled(work).await.is_some() {
        stop.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use continuum_messages::{Epoch, Published};
    use continuum_runtime::tasks::Tasks;

    use super::*;
    use crate::testing::fleet;

    fn settings(dir: &Path, origin: &str) -> Settings {
        Settings {
            host: String::new(),
            port: 0,
            ca_file: "/".into(),
            token_file: "/".into(),
            views: true,
            state_dir: Some(dir.to_owned()),
            origins: vec![origin.to_owned()],
        }
    }

    /// Workers of what is kept for this origin.
    fn kept(dir: &Path, origin: &str) -> Option<usize> {
        let read = kept::read(&keep_of(&settings(dir, origin)).unwrap()).unwrap();
        read.map(|assembler| assembler.view().workers.len())
    }

    #[tokio::test(start_paused = true)]
    async fn a_view_is_filed_under_what_it_is_of_whatever_is_configured() {
        let (dir, tasks) = (tempfile::tempdir().unwrap(), Tasks::new());
        let (pushed, dir) = (Arc::<Cell<Pushed>>::default(), dir.path());
        let (to_settings, wanted) = watch::channel(Some(settings(dir, "one")));
        let cell = Arc::clone(&pushed);
        tasks.spawner().essential("kept view", |stop| async move {
            keep_views(cell, wanted, stop).await;
            Ok(())
        });
        let show = |number: u64, workers: u64, origin: &str| {
            let view = fleet(workers);
            let id = Published::first(view.clone(), Epoch::from_raw([1; 16])).id;
            pushed.publish(Pushed {
                number,
                id: Some(id),
                view,
                origins: [origin.to_owned()].into(),
                ..Pushed::default()
            });
        };
        show(1, 3, "one");
        sleep(KEEP_INTERVAL * 2).await;
        assert_eq!((kept(dir, "one"), kept(dir, "two")), (Some(3), None));
        // The configuration names another source, and what the one before does still comes.
        to_settings.send_replace(Some(settings(dir, "two")));
        sleep(KEEP_INTERVAL * 2).await;
        show(2, 4, "one");
        sleep(KEEP_INTERVAL * 2).await;
        assert_eq!((kept(dir, "one"), kept(dir, "two")), (Some(3), None));
        show(3, 5, "two");
        sleep(KEEP_INTERVAL * 2).await;
        assert_eq!((kept(dir, "one"), kept(dir, "two")), (None, Some(5)));
        // Of nobody knows which.
        pushed.update(|pushed| {
            pushed.number += 1;
            pushed.origins = Arc::default();
            pushed.view = fleet(6);
        });
        sleep(KEEP_INTERVAL * 2).await;
        assert_eq!(kept(dir, "two"), Some(5));
        drop(tasks);
    }
}

//! The view on disk: read at the start, written after it has changed.

use std::sync::Arc;

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
        let Some(keep) = self.settings.as_deref().and_then(keep_of) else {
            return;
        };
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
        scope: settings.scope.clone(),
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
            let keep = settings.borrow_and_update().as_ref().and_then(keep_of);
            let now = pushed.load();
            if let Some(keep) = keep.filter(|_| now.id.is_some() && !now.kept)
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

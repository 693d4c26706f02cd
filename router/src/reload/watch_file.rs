//! Notices that a file has changed, also when it is replaced, as a mounted ConfigMap is: its folder is watched.

use std::{path::Path, sync::Arc, time::Duration};

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::{sync::Notify, time::timeout};

use super::Error;

/// A writer may need several steps; they are over when nothing has happened for so long.
const SETTLE: Duration = Duration::from_millis(200);
/// Other files of the folder may change all the time.
const SETTLE_AT_MOST: Duration = Duration::from_secs(2);
/// Watches miss changes on some file systems (network mounts): the content is compared this often in any case.
const POLL: Duration = Duration::from_secs(10);

/// Wakes `changed` at each event in the file's folder, as long as the watcher lives.
pub(super) fn start(file: &Path, changed: Arc<Notify>) -> Result<RecommendedWatcher, Error> {
    let folder = match file.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let refused = |source| Error::Watch {
        folder: folder.display().to_string(),
        source,
    };
    let mut watcher =
        notify::recommended_watcher(move |_: notify::Result<notify::Event>| changed.notify_one())
            .map_err(refused)?;
    watcher
        .watch(folder, RecursiveMode::NonRecursive)
        .map_err(refused)?;
    Ok(watcher)
}

/// Returns after the last of a row of changes, or after a while without any.
pub(super) async fn settled(changed: &Notify) {
    if timeout(POLL, changed.notified()).await.is_ok() {
        let _busy_folder = timeout(SETTLE_AT_MOST, async {
            while timeout(SETTLE, changed.notified()).await.is_ok() {}
        })
        .await;
    }
}

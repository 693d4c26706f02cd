//! What the passes of both sources have in common.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use continuum_fleet::{Change, Notes, Refused};
use tokio::task::JoinError;

use super::{
    Settings,
    client::{Reader, Resource},
    list::{Kept, Listed, list},
    watch::Events,
};
use crate::{
    error::Error,
    source::{Batch, Lost, Over},
};

/// The join of a source, which its present watch feeds.
pub(super) struct SharedJoin<J>(Arc<Mutex<J>>);

impl<J> Clone for SharedJoin<J> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<J> SharedJoin<J> {
    pub(super) fn new(join: J) -> Self {
        Self(Arc::new(Mutex::new(join)))
    }

    /// Held for one event or one list, and never across an await.
    pub(super) fn lock(&self) -> MutexGuard<'_, J> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Work off the async threads did not come back.
pub(super) fn lost_task(lost: JoinError) -> Error {
    Error::Closed {
        why: lost.to_string(),
    }
}

/// A whole list, and the watch that goes on from it.
pub(super) async fn follow<T: Kept>(
    reader: &Reader,
    resource: Resource,
    selector: Option<&str>,
    settings: &Settings,
    lost: &mut Lost,
) -> Result<(Listed<T>, Events), Error> {
    let listed = list(reader, resource, selector, settings.limits, lost).await?;
    let events = Events::open(reader, resource, selector, &listed.version, settings).await?;
    Ok((listed, events))
}

/// What a join made of an event.
pub(super) fn batch((changes, notes): (Vec<Change>, Notes), refused: Refused) -> Batch {
    Batch {
        changes,
        notes,
        refused: Some(refused),
        ..Batch::default()
    }
}

/// An object that cannot be read.
pub(super) fn unreadable() -> Batch {
    Batch {
        lost: Lost {
            malformed: 1,
            ..Lost::default()
        },
        ..Batch::default()
    }
}

/// A watch has had its time.
pub(super) fn turn() -> Batch {
    Batch {
        over: Some(Over::Turn),
        ..Batch::default()
    }
}

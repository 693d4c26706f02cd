//! Limits of what a status says.

use std::time::Duration;

/// A view that was current this long ago (10 s) is current: longer than any delta takes, shorter than anybody waits.
pub const VIEW_MAX_AGE: Duration = Duration::from_secs(10);

/// Counts alone are written at most this often: a fleet that scales must not make a write of every worker.
pub const COUNTS_EVERY: Duration = Duration::from_secs(10);

/// Bytes of a condition's message. The API server takes 32 KiB; people read a line.
pub const MAX_MESSAGE: usize = 2048;

/// Nothing is served for this long (30 s) before users are said to notice: routers come back to a new leader, and a router
/// that starts has looked at its backends, well before.
pub const UNSERVED: Duration = Duration::from_secs(30);

/// Characters of what the controller of Deployments says that a message quotes: a quota's refusal names every resource.
pub const MAX_QUOTED_CHARS: usize = 400;

/// Names in one message: enough to find the cause, few enough to read.
pub const MAX_NAMED: usize = 8;

/// Characters of an Event's note: it is at most 1 kB, and a character has four bytes at most.
pub(crate) const MAX_NOTE_CHARS: usize = 250;

/// Resources that have not been applied for this long are worth a word (5 s): until then the status waits for what
/// becomes of them.
pub(crate) const PENDING: Duration = Duration::from_secs(5);

/// Changes within this time make one look: a rollout is many.
pub(crate) const PAUSE: Duration = Duration::from_millis(250);

/// A look without a change: for views that grow old and counts that wait.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Statuses that are written at once: a leader that has just come writes all of them, and the API server serves others too.
pub(crate) const MAX_WRITES: usize = 8;

/// Those of one namespace among them: where its admission webhooks hang, those of others are written all the same.
pub(crate) const MAX_WRITES_PER_NAMESPACE: usize = 4;

/// After this long (12 s) a write is given up and tried again in its turn: an admission webhook has 10 s by default.
pub(crate) const WRITE: Duration = Duration::from_secs(12);

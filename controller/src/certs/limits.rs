//! Times and caps of the certificates of the push port.

use std::time::Duration;

/// Between two looks at files that somebody else keeps (10 s): a Secret volume takes about a minute to follow anyway.
pub(crate) const FILES_EVERY: Duration = Duration::from_secs(10);

/// A file is at most this long, in bytes (64 KiB): certificates, their keys and bundles have some; the bundle goes into
/// every ConfigMap beside the configuration.
pub(crate) const MAX_FILE_BYTES: u64 = 64 << 10;

/// A certificate of a new authority is served only after this long (15 min): by then the operator has put the authority
/// into the ConfigMaps, and the kubelets have brought it into the pods.
pub(crate) const SETTLE: Duration = Duration::from_secs(15 * 60);

/// An authority that the files do not name any more is still given to routers for this long after its last certificate
/// (1 h): other replicas of the operator may see their files later, and serve with it.
pub(crate) const OVERLAP: Duration = Duration::from_secs(60 * 60);

/// Authorities that routers are given, with those of before (16): beyond that the one that was replaced first goes.
pub(crate) const MAX_AUTHORITIES: usize = 16;

/// While there is no authority, its Secret is looked at this often (500 ms): a start waits for it.
pub(crate) const SECRET_WHILE_EMPTY: Duration = Duration::from_millis(500);

/// Otherwise the Secret of authorities is looked at this often (60 s): a rotation leaves weeks.
pub(crate) const SECRET_EVERY: Duration = Duration::from_secs(60);

//! Kubernetes: list page by page, watch, and list again when a watch ends.
//!
//! A pass connects anew, reads every list, opens every watch from the version of its list, and only then hands
//! anything over. Watches are never resumed: whatever ends one of them ends the pass, and the next pass lists all.
//! The API server is asked to end them after [`crate::limits::WATCH_LENGTH`]; that end is no failure.
//!
//! What a resource means is decided in `continuum_fleet::kubernetes`. Here are two calls, list and watch, and no
//! other: nothing in this module can write to a cluster.

#[cfg(feature = "kubernetes")]
mod client;
#[cfg(feature = "kubernetes")]
mod list;
#[cfg(feature = "kubernetes")]
mod metadata;
#[cfg(feature = "kubernetes")]
mod objects;
#[cfg(feature = "kubernetes")]
mod pass;
#[cfg(feature = "kubernetes")]
mod pods;
#[cfg(feature = "kubernetes")]
mod watch;

use std::{path::PathBuf, time::Duration};

use continuum_fleet::kubernetes::Limits;

#[cfg(feature = "kubernetes")]
pub use self::{
    metadata::{Kubernetes, KubernetesWatch},
    pods::{KubernetesPods, KubernetesPodsWatch},
};
use crate::limits::{WATCH_IDLE, WATCH_LENGTH};

/// Who we are to the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Credentials {
    /// The pod's ServiceAccount; without one, the files of `KUBECONFIG`, or `~/.kube/config`.
    #[default]
    Found,
    /// The current context of this file.
    Kubeconfig(PathBuf),
}

/// Where to look and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Who we are.
    pub credentials: Credentials,
    /// The Kubernetes namespace of the fleet.
    pub namespace: String,
    /// How much is kept.
    pub limits: Limits,
    /// When the server is to end a watch.
    pub watch_length: Duration,
    /// How long a watch may be silent.
    pub watch_idle: Duration,
}

impl Settings {
    /// The usual times for a namespace.
    #[must_use]
    pub const fn new(credentials: Credentials, namespace: String, limits: Limits) -> Self {
        Self {
            credentials,
            namespace,
            limits,
            watch_length: WATCH_LENGTH,
            watch_idle: WATCH_IDLE,
        }
    }
}

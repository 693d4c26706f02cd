//! From a `RouterConfig` to what must exist for it. Everything here but the reconciler is a pure function: no client,
//! no clock.

pub mod build;
mod limits;
pub mod render;
pub mod validate;

use std::collections::{BTreeMap, BTreeSet};

use continuum_crds::conditions::Reason;

/// What the operator was started with, as far as RouterConfigs depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The namespaces whose fleets a RouterConfig elsewhere may name. Its own is always allowed.
    pub fleet_namespaces: Allowed,
    /// The image of routers, where a RouterConfig does not name another.
    pub router_image: String,
    /// Where routers reach the controllers: `https://<service>.<namespace>.svc:9443`.
    pub push_endpoint: String,
    /// Whether the cluster has the PodMonitor API.
    pub pod_monitors: bool,
}

/// A list of namespaces, or all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Every namespace.
    All,
    /// These.
    Names(BTreeSet<String>),
}

impl Allowed {
    /// Whether the namespace is one of them.
    #[must_use]
    pub fn has(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Names(names) => names.contains(namespace),
        }
    }
}

/// Why a RouterConfig is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Rejected {
    /// One of the reasons of `Accepted`.
    pub reason: Reason,
    /// What is wrong, by field.
    pub message: String,
}

/// The name of every child in the RouterConfig's namespace.
#[must_use]
pub fn child_name(router_config: &str) -> String {
    format!("{router_config}-router")
}

/// What selects the router pods of a RouterConfig.
#[must_use]
pub fn selector(router_config: &str) -> BTreeMap<String, String> {
    [
        ("app.kubernetes.io/name", "continuum-router"),
        ("app.kubernetes.io/instance", router_config),
        ("app.kubernetes.io/component", "router"),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}

/// The labels of every child.
#[must_use]
pub fn labels(router_config: &str) -> BTreeMap<String, String> {
    let mut labels = selector(router_config);
    labels.insert("app.kubernetes.io/managed-by".to_owned(), MANAGER.to_owned());
    labels
}

/// The field manager of everything that the operator applies, and the value of the label `managed-by`.
pub const MANAGER: &str = "continuum-controller";

//! From a `RouterConfig` to what must exist for it. Everything here but the reconciler is a pure function: no client,
//! no clock.

mod apply;
pub mod build;
mod kept;
mod limits;
mod live;
pub(crate) mod memory;
mod metrics;
pub mod reconcile;
pub mod render;
mod restore;
pub mod validate;

use std::collections::BTreeMap;

use continuum_crds::{conditions::Reason, spec::PullPolicy};

pub(crate) use apply::reason_of;
pub use metrics::Metrics;

use crate::cli::{Cli, Namespaces};

/// What the operator was started with, as far as RouterConfigs depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The namespaces whose fleets a RouterConfig elsewhere may name. Its own is always allowed.
    pub fleet_namespaces: Namespaces,
    /// The image of routers, where a RouterConfig does not name another.
    pub router_image: String,
    /// The pull policy of that image, where a RouterConfig does not name another.
    pub pull_policy: Option<PullPolicy>,
    /// Where routers reach the controllers: `https://<service>.<namespace>.svc:9443`.
    pub push_endpoint: String,
    /// Whether the cluster has the PodMonitor API.
    pub pod_monitors: bool,
}

impl Settings {
    /// What was written on the command line. Whether there are PodMonitors is not known by it.
    #[must_use]
    pub fn of(cli: &Cli) -> Self {
        Self {
            fleet_namespaces: cli.foreign_fleets(),
            router_image: cli.router_image.clone(),
            pull_policy: cli.router_image_pull_policy.as_deref().and_then(PullPolicy::of),
            push_endpoint: cli.push_endpoint.clone(),
            pod_monitors: false,
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

/// What the names of children end in.
const CHILD_SUFFIX: &str = "-router";

/// The name of every child in the RouterConfig's namespace.
#[must_use]
pub fn child_name(router_config: &str) -> String {
    format!("{router_config}{CHILD_SUFFIX}")
}

/// The RouterConfig that has a child of this name.
#[must_use]
pub fn owner_of(child: &str) -> Option<&str> {
    child.strip_suffix(CHILD_SUFFIX).filter(|name| !name.is_empty())
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
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

/// The field manager of everything that the operator applies, and the value of the label `managed-by`.
pub const MANAGER: &str = "continuum-controller";

/// The label of everything that the operator makes.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// On children outside the RouterConfig's namespace, where no owner reference can be: the owner's namespace.
pub const OWNER_NAMESPACE: &str = "router.continuum.dev/owner-namespace";
/// On children outside the RouterConfig's namespace: the owner's uid.
pub const OWNER_UID: &str = "router.continuum.dev/owner-uid";

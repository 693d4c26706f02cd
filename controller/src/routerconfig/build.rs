//! What must exist in the cluster for an accepted RouterConfig.

mod children;
pub(crate) mod merge;
pub(crate) mod template;

use continuum_crds::RouterConfig;
use k8s_openapi::api::{
    apps::v1::Deployment,
    autoscaling::v2::HorizontalPodAutoscaler,
    core::v1::{ConfigMap, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
    rbac::v1::{Role, RoleBinding},
};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};

use super::{Settings, child_name, labels, selector, validate::Accepted};

/// A resource that the operator wants, without what the API server adds.
#[derive(Clone, Debug)]
pub struct Child {
    /// Its kind.
    pub resource: ApiResource,
    /// Itself. Unless it is foreign, the RouterConfig owns it.
    pub object: DynamicObject,
    /// It is in the fleet's namespace and not in the RouterConfig's, so it cannot be owned: a finalizer removes it.
    pub foreign: bool,
}

/// What the ConfigMap holds.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    /// The configuration that a router pod starts with.
    pub config: &'a str,
    /// A router has had it in force.
    pub proven: bool,
    /// The certificates, PEM, that routers check the controllers against.
    pub ca: &'a str,
}

/// Everything that must exist, in the order in which it must be applied.
#[must_use]
pub fn children(
    object: &RouterConfig,
    accepted: &Accepted,
    settings: &Settings,
    files: Files<'_>,
) -> Vec<Child> {
    children::all(object, accepted, settings, files)
}

/// The ConfigMap alone, with the accepted spec as it was kept in it.
#[must_use]
pub(crate) fn config_map(object: &RouterConfig, files: Files<'_>, kept: Option<String>) -> Child {
    children::config_map(object, files, kept)
}

/// The ConfigMap as it is, whatever is in it, with these certificates.
#[must_use]
pub(crate) fn with_authority(object: &RouterConfig, there: &DynamicObject, ca: &str) -> Child {
    children::with_authority(object, there, ca)
}

/// Every kind that a child may have, in the order in which they are applied; those that are there no longer are
/// deleted. PodMonitors are the last: their API may be missing.
#[must_use]
pub fn kinds() -> Vec<ApiResource> {
    vec![
        ApiResource::erase::<ServiceAccount>(&()),
        ApiResource::erase::<Role>(&()),
        ApiResource::erase::<RoleBinding>(&()),
        ApiResource::erase::<ConfigMap>(&()),
        ApiResource::erase::<Service>(&()),
        ApiResource::erase::<Deployment>(&()),
        ApiResource::erase::<PodDisruptionBudget>(&()),
        ApiResource::erase::<HorizontalPodAutoscaler>(&()),
        ApiResource::erase::<NetworkPolicy>(&()),
        pod_monitor(),
    ]
}

/// The kind PodMonitor of the Prometheus operator.
#[must_use]
pub fn pod_monitor() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("monitoring.coreos.com", "v1", "PodMonitor"),
        "podmonitors",
    )
}

/// Warns of labels that are the operator's, and so not those that were written.
pub(crate) fn left_out(object: &RouterConfig, warnings: &mut Vec<String>) {
    let router = &object.spec.router;
    let written = [
        ("service", router.service.as_ref().map(|service| &service.labels)),
        (
            "monitoring",
            router.monitoring.as_ref().map(|monitoring| &monitoring.labels),
        ),
    ];
    let own = labels(object.metadata.name.as_deref().unwrap_or_default());
    for (section, written) in written {
        for key in written.into_iter().flat_map(|written| written.keys()) {
            if own.contains_key(key) {
                warnings.push(template::left_out(&format!("{section}.labels[{key}]")));
            }
        }
    }
}

/// Where clients inside the cluster send requests.
#[must_use]
pub fn url(object: &RouterConfig) -> String {
    let host = format!(
        "http://{}.{}.svc",
        child_name(object.metadata.name.as_deref().unwrap_or_default()),
        object.metadata.namespace.as_deref().unwrap_or_default()
    );
    match children::ports(object).first() {
        Some(port) if port.port != 80 => format!("{host}:{}", port.port),
        Some(_) | None => host,
    }
}

/// The selector of router pods, for the scale subresource.
#[must_use]
pub fn scale_selector(object: &RouterConfig) -> String {
    let pairs: Vec<String> = selector(object.metadata.name.as_deref().unwrap_or_default())
        .into_iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    pairs.join(",")
}

#[cfg(test)]
mod tests;

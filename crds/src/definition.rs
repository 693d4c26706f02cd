//! The custom resource definition.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::spec::RouterConfig;

/// The definition of `routerconfigs.router.continuum.dev`.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    RouterConfig::crd()
}

/// The definition as YAML.
#[must_use]
pub fn yaml() -> String {
    serde_yaml_ng::to_string(&crd()).unwrap_or_default()
}

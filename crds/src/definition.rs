//! The custom resource definition: what the derive makes of the types, the schema of the configuration in it, and rules
//! in CEL for what a schema cannot say.

mod rules;
mod structural;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Value, json};

use crate::spec::{DEFAULT_REPLICAS, RouterConfig};

/// What the file begins with.
const HEADER: &str = "# Generated from crds/src by `make generate`; do not edit.\n";

/// The definition of `routerconfigs.router.continuum.dev`.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    let mut definition = RouterConfig::crd();
    for version in &mut definition.spec.versions {
        let Some(validation) = &mut version.schema else {
            continue;
        };
        let Some(schema) = &validation.open_api_v3_schema else {
            continue;
        };
        let Ok(mut schema) = serde_json::to_value(schema) else {
            continue;
        };
        complete(&mut schema);
        if let Ok(schema) = serde_json::from_value(schema) {
            validation.open_api_v3_schema = Some(schema);
        }
    }
    definition
}

/// The definition as YAML.
#[must_use]
pub fn yaml() -> String {
    format!("{HEADER}{}", serde_yaml_ng::to_string(&crd()).unwrap_or_default())
}

fn complete(schema: &mut Value) {
    structural::shorten(schema);
    structural::bound(schema);
    if let Some(config) = schema.pointer_mut("/properties/spec/properties/config") {
        *config = structural::config();
    }
    if let Some(router) = schema
        .pointer_mut("/properties/spec/properties/router")
        .and_then(Value::as_object_mut)
    {
        // The scale subresource needs the number to be there, also when nobody wrote it.
        router.insert("default".to_owned(), json!({ "replicas": DEFAULT_REPLICAS }));
    }
    rules::add(schema);
}

#[cfg(test)]
mod tests;

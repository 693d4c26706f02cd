use std::{fs, path::Path};

use serde_json::Value;

use super::*;

/// What `kubectl apply` without `--server-side` keeps in an annotation.
const MAX_ANNOTATION_BYTES: usize = 262_144;

#[test]
fn the_committed_definition_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("yaml/routerconfigs.yaml");
    let committed = fs::read_to_string(path).unwrap_or_default();
    assert!(committed == yaml(), "crds/yaml is old: run `make generate`");
    assert!(serde_json::to_string(&crd()).unwrap().len() < MAX_ANNOTATION_BYTES);
}

#[test]
fn every_rule_has_a_place() {
    let schema = serde_json::to_string(&crd()).unwrap();
    assert_eq!(schema.matches("\"rule\":").count(), rules::count());
}

/// Every field of the configuration is a field of the resource, so that a misspelt one is refused by its name.
#[test]
fn every_field_of_the_configuration_is_known() {
    let definition = serde_json::to_value(crd()).unwrap();
    let config = definition
        .pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/config")
        .unwrap();
    let defaults = serde_json::to_value(continuum_config::Config::default()).unwrap();
    let mut fields = 0;
    check(config, &defaults, "", &mut fields);
    assert!(fields > 100, "{fields}");
}

/// Quantities, which Rust keeps as text, however large the number is.
const QUANTITIES: [&str; 6] = [
    ".averageValue",
    ".divisor",
    ".limits.additionalProperties",
    ".requests.additionalProperties",
    ".tolerance",
    ".value",
];

/// One object that Rust cannot read, and the API server can, would be one that the operator cannot look after.
#[test]
fn every_number_is_as_narrow_in_the_schema_as_in_the_types() {
    let definition = serde_json::to_value(crd()).unwrap();
    let root = definition
        .pointer("/spec/versions/0/schema/openAPIV3Schema")
        .unwrap();
    let mut numbers = 0;
    bounded(root, "", &mut numbers);
    assert!(numbers > 20, "{numbers}");
}

fn bounded(schema: &Value, path: &str, numbers: &mut usize) {
    // The configuration is read as any JSON.
    if path == ".spec.config" {
        return;
    }
    let either = schema["x-kubernetes-int-or-string"] == true;
    let quantity = either && QUANTITIES.iter().any(|end| path.ends_with(end));
    if (either || schema["type"] == "integer") && !quantity {
        *numbers += 1;
        let bounds = schema["minimum"].is_number() && schema["maximum"].is_number();
        assert!(bounds, "{path} has no bounds: {schema}");
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        bounded(field, &format!("{path}.{name}"), numbers);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            bounded(&schema[inner], &format!("{path}.{inner}"), numbers);
        }
    }
}

fn check(schema: &Value, value: &Value, path: &str, fields: &mut usize) {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    if let Value::Object(values) = value
        && schema.get("additionalProperties").is_none()
    {
        for (name, value) in values {
            let field = &schema["properties"][name];
            assert!(field.is_object(), "{path}.{name}");
            *fields += 1;
            check(field, value, &format!("{path}.{name}"), fields);
        }
    }
}

//! The JSON Schema of a configuration, made from the model. It is what `config schema` prints, what editors
//! read, and what drives the check of keys and types: there is no second list of fields.

use std::sync::LazyLock;

use serde_json::Value;

use crate::model::Config;

static SCHEMA: LazyLock<Value> = LazyLock::new(|| schemars::schema_for!(Config).to_value());

/// The schema that the check follows.
pub(crate) fn checked() -> &'static Value {
    &SCHEMA
}

/// The schema for editors, as pretty JSON with a final newline.
///
/// It differs from what the check follows in one way: a text that begins with an environment reference is
/// not held against a pattern.
#[must_use]
pub fn json() -> String {
    let mut schema = SCHEMA.clone();
    allow_references(&mut schema);
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

fn allow_references(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(pattern)) = fields.get_mut("pattern") {
                *pattern = format!("\\$\\{{|{pattern}");
            }
            fields.values_mut().for_each(allow_references);
        }
        Value::Array(items) => items.iter_mut().for_each(allow_references),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Follows a `$ref` into `$defs`; any other schema is itself.
pub(crate) fn resolve(schema: &Value) -> &Value {
    let Some(name) = schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|r| r.strip_prefix("#/$defs/"))
    else {
        return schema;
    };
    SCHEMA
        .get("$defs")
        .and_then(|defs| defs.get(name))
        .unwrap_or(&Value::Null)
}

/// The alternatives of a field, "nothing" left out.
pub(crate) fn alternatives(schema: &Value) -> Vec<&Value> {
    match schema.get("anyOf").and_then(Value::as_array) {
        Some(any) => any
            .iter()
            .filter(|one| one.get("type").and_then(Value::as_str) != Some("null"))
            .map(resolve)
            .collect(),
        None => vec![resolve(schema)],
    }
}

/// Whether the schema takes values of that JSON type.
pub(crate) fn takes(schema: &Value, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(many)) => many.iter().any(|one| one == kind),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => false,
    }
}

/// The words that a field may hold, if it holds words.
pub(crate) fn words(schema: &Value) -> Vec<&str> {
    let options = schema
        .get("oneOf")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let listed = schema
        .get("enum")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let constant = schema.get("const").into_iter();
    options
        .iter()
        .flat_map(|option| {
            let many = option
                .get("enum")
                .and_then(Value::as_array)
                .map(Vec::as_slice)
                .unwrap_or_default();
            option.get("const").into_iter().chain(many)
        })
        .chain(listed)
        .chain(constant)
        .filter_map(Value::as_str)
        .collect()
}

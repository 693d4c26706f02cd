//! The schema of the configuration as a structural schema of Kubernetes.
//!
//! What a structural schema cannot say is said otherwise:
//! - A text with `${NAME}` stands for any text and any whole number, as it does in a file: patterns have it as an
//!   alternative, and whole numbers may be text with a reference. Numbers with a fraction and yes-or-no values must be
//!   written out: Kubernetes has no type for "that or a text".
//! - Defaults stay out: the router knows them, and the API server would write them into every object.

use serde_json::{Map, Value, json};

/// A text with a reference to the environment.
const REFERENCE: &str = r"\$\{";
/// The sections and fields that the operator sets. They are in the schema, loosely, so that rules can refuse them with a
/// word on what to do instead.
const OPERATORS: [&str; 3] = ["admin", "controller", "server.tls"];
/// Fields that the operator reads: they are words, never references.
const LITERAL: [&str; 2] = ["dynamo.discovery.source", "dynamo.discovery.namespace_match"];
/// Lists of named things, and what names them: names are unique, and appliers own items, not the list.
const NAMED: [(&str, &str); 4] = [
    ("backends", "name"),
    ("dynamo.shim.pools", "namespace"),
    ("dynamo.discovery.kubernetes.models", "component"),
    ("dynamo.event_bus.brokers", "id"),
];
/// The largest whole number up to which all are exact as floating-point numbers.
const MAX_EXACT: i64 = 1 << 53;
/// Characters of a description: `kubectl explain` is for looking things up, the reference for reading.
const MAX_DESCRIPTION: usize = 240;

/// The schema of `spec.config`.
pub(super) fn config() -> Value {
    let root: Value = serde_json::from_str(&continuum_config::schema::json()).unwrap_or_default();
    let empty = json!({});
    let definitions = root.get("$defs").unwrap_or(&empty);
    let mut out = Convert { definitions }.node(&root, "");
    if let Some(fields) = out.as_object_mut() {
        fields.insert(
            "description".to_owned(),
            json!(
                "The configuration of the routers: the document that a router outside Kubernetes reads, without the fields \
                 that the operator sets."
            ),
        );
    }
    out
}

/// Cuts descriptions at the end of a sentence, in place.
pub(super) fn shorten(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = short(text);
            }
            fields.values_mut().for_each(shorten);
        }
        Value::Array(items) => items.iter_mut().for_each(shorten),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Holds whole numbers to the bounds of their format, which the API server knows and does not look at: an object with a
/// larger one could not be read by those who are made of types.
pub(super) fn bound(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("type").is_some_and(|kind| kind == "integer") {
                let format = fields.get("format").and_then(Value::as_str);
                let (least, most) = match format {
                    Some("int32") => (i64::from(i32::MIN), i64::from(i32::MAX)),
                    // Bounds are floating-point numbers, and exact no further.
                    _ => (-MAX_EXACT, MAX_EXACT),
                };
                fields.entry("minimum").or_insert_with(|| json!(least));
                fields.entry("maximum").or_insert_with(|| json!(most));
            }
            fields.values_mut().for_each(bound);
        }
        Value::Array(items) => items.iter_mut().for_each(bound),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

struct Convert<'a> {
    definitions: &'a Value,
}

impl Convert<'_> {
    fn node(&self, schema: &Value, path: &str) -> Value {
        let own = schema.get("description").and_then(Value::as_str);
        let (schema, nullable) = self.only(schema);
        let described = own.or_else(|| schema.get("description").and_then(Value::as_str));
        let mut out = if OPERATORS.contains(&path) {
            let mut out = Map::new();
            out.insert("type".to_owned(), json!("object"));
            out.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
            out
        } else {
            self.shape(schema, path)
        };
        let mut text = described.unwrap_or_default().replace('\n', " ");
        let words = words(schema);
        if !words.is_empty() && !out.contains_key("enum") {
            text.push_str(&format!(" One of: {}.", words.join(", ")));
        }
        text.push_str(&bounds(schema));
        if !text.is_empty() {
            out.insert("description".to_owned(), json!(short(&text)));
        }
        if nullable {
            out.insert("nullable".to_owned(), json!(true));
        }
        Value::Object(out)
    }

    /// The one alternative beside null, references followed; and whether null is one.
    fn only<'b>(&'b self, schema: &'b Value) -> (&'b Value, bool) {
        let followed = schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|name| name.strip_prefix("#/$defs/"))
            .and_then(|name| self.definitions.get(name))
            .unwrap_or(schema);
        let Some(any) = followed.get("anyOf").and_then(Value::as_array) else {
            let null = types(followed).contains(&"null");
            return (followed, null);
        };
        let nullable = any.iter().any(|one| types(one) == ["null"]);
        let first = any.iter().find(|one| types(one) != ["null"]);
        (first.map_or(followed, |one| self.only(one).0), nullable)
    }

    fn shape(&self, schema: &Value, path: &str) -> Map<String, Value> {
        let mut out = Map::new();
        let copy = |out: &mut Map<String, Value>, names: &[&str]| {
            for name in names {
                if let Some(value) = schema.get(*name) {
                    out.insert((*name).to_owned(), value.clone());
                }
            }
        };
        let words = words(schema);
        let kinds: Vec<&str> = types(schema).into_iter().filter(|kind| *kind != "null").collect();
        if !words.is_empty() {
            out.insert("type".to_owned(), json!("string"));
            if LITERAL.contains(&path) {
                out.insert("enum".to_owned(), json!(words));
            } else {
                out.insert(
                    "pattern".to_owned(),
                    json!(format!("^({})$|{REFERENCE}", words.join("|"))),
                );
            }
            return out;
        }
        match kinds.as_slice() {
            ["object"] => {
                out.insert("type".to_owned(), json!("object"));
                copy(&mut out, &["required", "maxProperties"]);
                if let Some(fields) = schema.get("properties").and_then(Value::as_object) {
                    let fields: Map<String, Value> = fields
                        .iter()
                        .map(|(name, field)| (name.clone(), self.node(field, &join(path, name))))
                        .collect();
                    out.insert("properties".to_owned(), Value::Object(fields));
                } else if let Some(values) = schema
                    .get("additionalProperties")
                    .filter(|values| values.is_object())
                {
                    out.insert("additionalProperties".to_owned(), self.node(values, ""));
                }
            }
            ["array"] => {
                out.insert("type".to_owned(), json!("array"));
                copy(&mut out, &["minItems", "maxItems"]);
                if let Some(items) = schema.get("items") {
                    out.insert("items".to_owned(), self.node(items, &join(path, "[]")));
                }
                if let Some((_, key)) = NAMED.iter().find(|(list, _)| *list == path) {
                    out.insert("x-kubernetes-list-type".to_owned(), json!("map"));
                    out.insert("x-kubernetes-list-map-keys".to_owned(), json!([key]));
                }
            }
            ["integer"] => {
                out.insert("x-kubernetes-int-or-string".to_owned(), json!(true));
                out.insert("pattern".to_owned(), json!(REFERENCE));
                copy(&mut out, &["minimum", "maximum"]);
            }
            ["boolean"] => {
                out.insert("type".to_owned(), json!("boolean"));
            }
            ["number"] => {
                out.insert("type".to_owned(), json!("number"));
                copy(&mut out, &["minimum", "maximum"]);
            }
            ["string", "integer"] => {
                out.insert("x-kubernetes-int-or-string".to_owned(), json!(true));
                copy(&mut out, &["pattern"]);
            }
            _ => {
                out.insert("type".to_owned(), json!("string"));
                copy(&mut out, &["pattern", "minLength", "maxLength"]);
            }
        }
        out
    }
}

fn types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => Vec::new(),
    }
}

/// The words that a field may hold, if it holds words.
fn words(schema: &Value) -> Vec<&str> {
    let options = schema.get("oneOf").and_then(Value::as_array);
    options
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .filter_map(|option| option.get("const").and_then(Value::as_str))
        .collect()
}

/// What the pattern of a duration or a size does not say.
fn bounds(schema: &Value) -> String {
    let bound = |name: &str| schema.get(name).and_then(Value::as_str);
    match (bound("x-min"), bound("x-max")) {
        (Some(least), Some(most)) => format!(" From {least} to {most}."),
        (Some(least), None) => format!(" At least {least}."),
        (None, Some(most)) => format!(" At most {most}."),
        (None, None) => String::new(),
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn short(text: &str) -> String {
    if text.chars().count() <= MAX_DESCRIPTION {
        return text.to_owned();
    }
    let head: String = text.chars().take(MAX_DESCRIPTION).collect();
    let end = [". ", ".\n"].iter().filter_map(|end| head.rfind(end)).max();
    match end.and_then(|end| head.get(..=end)) {
        Some(sentence) => sentence.to_owned(),
        None => match head.rsplit_once(' ') {
            Some((words, _)) => format!("{words} …"),
            None => head,
        },
    }
}

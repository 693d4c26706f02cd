//! A strategic merge, as far as pod templates need one: objects by field, lists of named things by name, other lists
//! whole; null removes a field, `$patch: delete` an item.

use serde_json::{Map, Value};

/// The fields of a pod template that are lists of named things, and what names them.
fn key_of(list: &str) -> Option<&'static str> {
    match list {
        "containers" | "initContainers" | "ephemeralContainers" | "volumes" | "env" | "imagePullSecrets" => {
            Some("name")
        }
        "volumeMounts" => Some("mountPath"),
        "volumeDevices" => Some("devicePath"),
        "ports" => Some("containerPort"),
        "hostAliases" => Some("ip"),
        "topologySpreadConstraints" => Some("topologyKey"),
        _ => None,
    }
}

/// Merges `patch` into `base`.
pub(crate) fn strategic(base: &mut Value, patch: Value) {
    field("", base, patch);
}

/// The path of the first merge directive that is not understood.
pub(crate) fn unsupported(patch: &Map<String, Value>) -> Option<String> {
    directives(patch, false, &mut String::new())
}

/// The path of the first field that `known` lacks.
pub(crate) fn unknown(all: &Value, known: &Value) -> Option<String> {
    match (all, known) {
        (Value::Object(all), Value::Object(known)) => {
            all.iter().find_map(|(key, value)| match known.get(key) {
                Some(other) => unknown(value, other).map(|rest| join(key, &rest)),
                None if empty(value) => None,
                None => Some(key.clone()),
            })
        }
        (Value::Array(all), Value::Array(known)) => {
            all.iter()
                .zip(known)
                .enumerate()
                .find_map(|(index, (one, other))| {
                    unknown(one, other).map(|rest| join(&format!("[{index}]"), &rest))
                })
        }
        _ => None,
    }
}

fn field(name: &str, base: &mut Value, patch: Value) {
    match (base, patch) {
        (Value::Object(base), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    base.remove(&key);
                } else if let Some(old) = base.get_mut(&key) {
                    field(&key, old, value);
                } else {
                    base.insert(key, clean(value));
                }
            }
        }
        (Value::Array(base), Value::Array(patch)) if key_of(name).is_some() => items(name, base, patch),
        (base, patch) => *base = clean(patch),
    }
}

fn items(list: &str, base: &mut Vec<Value>, patch: Vec<Value>) {
    let key = key_of(list).unwrap_or_default();
    for item in patch {
        let place = item
            .get(key)
            .and_then(|word| base.iter().position(|old| old.get(key) == Some(word)));
        let delete = item.get("$patch").is_some();
        match place {
            Some(place) if delete => {
                base.remove(place);
            }
            Some(place) => {
                if let Some(old) = base.get_mut(place) {
                    field("", old, item);
                }
            }
            None if delete => {}
            None => base.push(clean(item)),
        }
    }
}

/// A value that nothing is merged with: without nulls and without items that only delete.
fn clean(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key, clean(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(
            items
                .into_iter()
                .filter(|item| item.get("$patch").is_none())
                .map(clean)
                .collect(),
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

fn directives(fields: &Map<String, Value>, item: bool, path: &mut String) -> Option<String> {
    let length = path.len();
    for (key, value) in fields {
        if key.starts_with('$') && !(item && key == "$patch" && value == "delete") {
            return Some(join(path, key));
        }
        *path = join(path, key);
        let found = match value {
            Value::Object(fields) => directives(fields, false, path),
            Value::Array(items) => items
                .iter()
                .filter_map(Value::as_object)
                .find_map(|fields| directives(fields, key_of(key).is_some(), path)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        };
        if found.is_some() {
            return found;
        }
        path.truncate(length);
    }
    None
}

fn empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else if key.starts_with('[') {
        format!("{path}{key}")
    } else {
        format!("{path}.{key}")
    }
}

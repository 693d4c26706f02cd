//! The users' reference of the configuration, as Markdown, made from the schema.

mod order;

use std::fmt::Write as _;

use serde_json::{Map, Value as Json};

use crate::{
    plan::{Class, class_of},
    schema,
};

/// The reference page. `docs/reference/configuration.md` is this text; a test keeps it so.
#[must_use]
pub fn markdown() -> String {
    let mut out = String::from(HEAD);
    let root = schema::checked();
    section(root, "Config", "", &mut out);
    // One blank line at most, one line feed at the end.
    let mut text = out.trim_end().to_owned();
    text.push('\n');
    text
}

const HEAD: &str = "\
<!-- Generated from crates/pure/config/src/model by `make generate`. Do not edit. -->
# Configuration reference

One YAML file, read at start with `continuum-router --config FILE`. `continuum-router config validate FILE` names
every error with its place, `config show` prints the file with all defaults, `config schema` prints the JSON Schema
(`docs/reference/continuum-router.schema.json`); an editor uses it with this first line:

```yaml
# yaml-language-server: $schema=https://raw.githubusercontent.com/continuum-router/continuum-router/main/docs/reference/continuum-router.schema.json
```

- **Durations** are a number and a unit: `500ms`, `30s`, `5m`, `1h`. **Sizes** are bytes, or a number and a unit:
  `16KiB`, `32MiB`, `1GiB`, `64KB`.
- **Environment**: `${NAME}` and `${NAME:-default}` are replaced in values (not in keys) after the file was parsed, so
  that a value never changes the structure. The default also stands in for an empty variable. `$${` is a literal `${`.
- Unknown keys and keys that stand twice are errors. A key without a value has its default.
- **Reload**: the file is read again when it changes, on SIGHUP and on `POST /admin/config/reload`. A file with errors
  changes nothing.

| reload | a change takes effect |
|---|---|
| live | with the next request, check or pick |
| subscriptions | at once; subscriptions to load and cache events that a change forbids end, others go on. With another `transport` all start anew |
| watcher | at once; the watcher of the fleet is exchanged. Only the waiting times, limits or credentials of the same endpoints: the view stands until the first sync. Namespaces that came or went in a list: only those that went are removed. Anything else: the view is emptied. |
| event bus | at once; sessions that the change concerns end |
| restart | with the next start of the process; until then the log names the field |
";

/// A heading, the fields, and the sections inside.
fn section(schema: &Json, name: &str, path: &str, out: &mut String) {
    let none = Map::new();
    let properties = schema
        .get("properties")
        .and_then(Json::as_object)
        .unwrap_or(&none);
    if !path.is_empty() {
        let _ = writeln!(out, "\n## `{path}`\n");
        let _ = writeln!(out, "{}\n", text(schema, "description"));
    } else {
        out.push('\n');
    }
    let _ = writeln!(
        out,
        "| key | type | default | reload | meaning |\n|---|---|---|---|---|"
    );
    let mut inner = Vec::new();
    for key in order::fields(name) {
        let Some(field) = properties.get(*key) else {
            continue;
        };
        let inside = if path.is_empty() {
            (*key).to_owned()
        } else {
            format!("{path}.{key}")
        };
        let nested = nested(field);
        if let Some((schema, name, list)) = nested {
            inner.push((schema, name, format!("{inside}{}", if list { "[]" } else { "" })));
        }
        let required = schema
            .get("required")
            .and_then(Json::as_array)
            .is_some_and(|all| all.iter().any(|one| one == key));
        let _ = writeln!(
            out,
            "| `{key}` | {} | {} | {} | {} |",
            kind(field),
            if required {
                "*required*".to_owned()
            } else {
                default(field, nested.is_some())
            },
            class(&inside),
            meaning(field),
        );
    }
    for (schema, name, path) in inner {
        section(schema, name, &path, out);
    }
}

/// The section that a field holds: its schema, its name, and whether the field is a list of them.
fn nested(field: &Json) -> Option<(&Json, &str, bool)> {
    let reference = |schema: &Json| schema.get("$ref").and_then(Json::as_str).map(str::len).is_some();
    let (holder, list) = match field.get("items") {
        Some(items) => (items, true),
        None => (field, false),
    };
    let any = holder.get("anyOf").and_then(Json::as_array).into_iter().flatten();
    let holder = std::iter::once(holder)
        .chain(any)
        .find(|schema| reference(schema))?;
    let name = holder.get("$ref")?.as_str()?.rsplit('/').next()?;
    Some((schema::resolve(holder), name, list))
}

fn kind(field: &Json) -> String {
    if field.get("items").is_some() && nested(field).is_some() {
        return "list of mappings".to_owned();
    }
    if nested(field).is_some() {
        return "mapping".to_owned();
    }
    let words = schema::words(field);
    if !words.is_empty() {
        return words
            .iter()
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", ");
    }
    let options = schema::alternatives(field);
    let kinds: Vec<String> = options.iter().map(|option| one_kind(option)).collect();
    kinds.join(" or ")
}

fn one_kind(schema: &Json) -> String {
    if let Some(items) = schema.get("items") {
        return format!("list of {}", plural(one_kind(items)));
    }
    let form = match text(schema, "format") {
        "duration" => "duration",
        "size" => "size",
        "cidr" => "network",
        "bind-address" => "address",
        "backend-url" => "URL",
        "endpoint" | "tcp-endpoint" => "endpoint",
        "socket" => "IP:port",
        "secret" | "key-file" | "token-hash" => "secret",
        _ if schema::takes(schema, "object") => "mapping of text to text",
        _ if schema::takes(schema, "boolean") => "true or false",
        _ if schema::takes(schema, "integer") => "integer",
        _ if schema::takes(schema, "number") => "number",
        _ => "text",
    };
    form.to_owned()
}

fn plural(kind: String) -> String {
    match kind.as_str() {
        "text" => "texts".to_owned(),
        "address" => "addresses".to_owned(),
        _ => format!("{kind}s"),
    }
}

fn default(field: &Json, nested: bool) -> String {
    match field.get("default") {
        None | Some(Json::Null) => "none".to_owned(),
        Some(Json::Object(_)) if nested => "see below".to_owned(),
        Some(Json::Array(items)) if items.is_empty() => "none".to_owned(),
        Some(Json::Object(items)) if items.is_empty() => "none".to_owned(),
        Some(Json::String(word)) => format!("`{word}`"),
        Some(other @ (Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_))) => {
            format!("`{other}`")
        }
    }
}

fn class(path: &str) -> &'static str {
    match class_of(path) {
        Some(Class::Live) => "live",
        Some(Class::Subscriptions) => "subscriptions",
        Some(Class::Watcher) => "watcher",
        Some(Class::EventBus) => "event bus",
        Some(Class::Process) => "restart",
        None => "by field",
    }
}

fn meaning(field: &Json) -> String {
    let mut meaning = text(field, "description").replace('\n', " ").replace('|', "\\|");
    let bound = |name: &str| match field.get(name) {
        Some(Json::String(text)) => Some(text.clone()),
        Some(Json::Number(number)) => Some(number.to_string()),
        Some(Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_)) | None => None,
    };
    let size = text(field, "format") == "size";
    let least = bound("x-min").or_else(|| bound("minimum").filter(|_| !size));
    let most = bound("x-max").or_else(|| bound("maximum"));
    let _ = match (least, most) {
        (Some(least), Some(most)) => write!(meaning, " From {least} to {most}."),
        (Some(least), None) if least != "0" => write!(meaning, " At least {least}."),
        (Some(_) | None, None) => Ok(()),
        (None, Some(most)) => write!(meaning, " At most {most}."),
    };
    for (key, what) in [("maxItems", "entries"), ("maxProperties", "entries")] {
        if let Some(most) = bound(key) {
            let _ = write!(meaning, " At most {most} {what}.");
        }
    }
    for option in field.get("oneOf").and_then(Json::as_array).into_iter().flatten() {
        if let (Some(word), false) = (
            option.get("const").and_then(Json::as_str),
            text(option, "description").is_empty(),
        ) {
            let _ = write!(
                meaning,
                "<br>`{word}`: {}",
                text(option, "description").replace('\n', " ")
            );
        }
    }
    meaning
}

fn text<'a>(schema: &'a Json, key: &str) -> &'a str {
    schema.get(key).and_then(Json::as_str).unwrap_or_default()
}

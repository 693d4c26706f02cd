//! The tree against the schema: unknown keys, types, ranges, forms. All problems are collected.
//!
//! What is wrong is replaced (by its default, or by the schema's example where a value is needed), so that the
//! rules that look at several fields can go on. They keep quiet about places that are in doubt.

mod scalar;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json, json};

use crate::{
    limits::MAX_SHOWN_CHARS,
    problem::Problem,
    schema,
    tree::{At, Entry, Node, Value, push_index, push_key},
};

/// What became of a tree.
pub(crate) struct Checked {
    /// Values that fit the schema.
    pub(crate) json: Json,
    pub(crate) problems: Vec<Problem>,
    pub(crate) places: Places,
    /// The paths of secrets that are written out.
    pub(crate) secrets: Vec<String>,
}

/// Where each path was written, and which of them are in doubt.
#[derive(Default)]
pub(crate) struct Places {
    at: BTreeMap<String, At>,
    doubtful: BTreeSet<String>,
    /// What cannot be known here, but for secrets: other fields do not hang on those.
    opaque: BTreeMap<String, Opaque>,
}

/// How far the meaning of an opaque value reaches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opaque {
    /// To the fields beside it.
    Value,
    /// Through its whole top-level section: it turns things on or off, or is a name that others refer to.
    Switch,
}

impl Places {
    /// Whether what holds at the path may depend on a value that cannot be known here.
    pub(crate) fn hangs_on_opaque(&self, path: &str) -> bool {
        let section = |path: &str| path.split(['.', '[']).next().unwrap_or_default().to_owned();
        let around = |path: &str| {
            path.rfind(['.', '['])
                .map_or(String::new(), |end| path[..end].to_owned())
        };
        self.opaque.iter().any(|(opaque, reach)| match reach {
            Opaque::Switch => section(opaque) == section(path),
            Opaque::Value => {
                let beside = around(opaque);
                path == beside || around(path) == beside || path.starts_with(&format!("{beside}."))
            }
        })
    }

    /// Where a path was written; the nearest container for what was not.
    pub(crate) fn of(&self, path: &str) -> At {
        let mut path = path;
        loop {
            if let Some(at) = self.at.get(path) {
                return *at;
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = path.get(..end).unwrap_or_default(),
                None => return At::START,
            }
        }
    }

    /// Whether the path was written.
    pub(crate) fn written(&self, path: &str) -> bool {
        self.at.contains_key(path)
    }

    /// Whether a problem stands already at the path, in it or around it.
    pub(crate) fn in_doubt(&self, path: &str) -> bool {
        let around = path
            .match_indices(['.', '['])
            .filter_map(|(end, _)| path.get(..end));
        let inside = |next: char| {
            let prefix = format!("{path}{next}");
            self.doubtful
                .range(prefix.clone()..)
                .next()
                .is_some_and(|doubtful| doubtful.starts_with(&prefix))
        };
        around.chain(["", path]).any(|path| self.doubtful.contains(path)) || inside('.') || inside('[')
    }
}

/// Checks a tree. `doubtful`: paths that have a problem already; `opaque`: paths whose values cannot be known here.
pub(crate) fn check(root: &Node, doubtful: Vec<String>, opaque: Vec<String>) -> Checked {
    let places = Places {
        at: BTreeMap::new(),
        doubtful: doubtful.into_iter().collect(),
        opaque: BTreeMap::new(),
    };
    let mut check = Check {
        problems: Vec::new(),
        places,
        secrets: Vec::new(),
        references: opaque.into_iter().collect(),
    };
    let json = check
        .node(schema::checked(), root, &mut String::new())
        .unwrap_or_else(|| json!({}));
    Checked {
        json,
        problems: check.problems,
        places: check.places,
        secrets: check.secrets,
    }
}

struct Check {
    problems: Vec<Problem>,
    places: Places,
    secrets: Vec<String>,
    /// Paths of texts that another environment expands.
    references: BTreeSet<String>,
}

impl Check {
    fn report(&mut self, path: &str, at: At, message: String) {
        self.places.doubtful.insert(path.to_owned());
        self.problems.push(Problem {
            path: path.to_owned(),
            line: at.line,
            column: at.column,
            message,
        });
    }

    /// The node as a value that fits the schema; `None` when it is better left out.
    fn node(&mut self, field: &Json, node: &Node, path: &mut String) -> Option<Json> {
        let options = schema::alternatives(field);
        let schema = options
            .iter()
            .find(|option| fits(option, &node.value))
            .or_else(|| options.first())?;
        match &node.value {
            Value::Null => None,
            Value::Map(entries) if schema::takes(schema, "object") => {
                Some(self.map(schema, entries, node.at, path))
            }
            Value::List(items) if schema::takes(schema, "array") => {
                Some(self.list(schema, items, node.at, path))
            }
            // A problem of expansion was reported already; the text is not what it should be.
            Value::Text(_) if self.places.doubtful.contains(path.as_str()) => None,
            Value::Text(_)
                if self.references.contains(path.as_str()) && options.iter().any(|o| is_scalar(o)) =>
            {
                self.opaque(field, &options, path)
            }
            Value::Bool(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::List(_)
            | Value::Map(_) => {
                // Bounds stand beside a reference or an alternative, forms inside.
                match scalar::check(schema, field, &node.value) {
                    Ok(json) => {
                        if schema.get("format").is_some_and(|format| format == "secret") {
                            self.secrets.push(path.clone());
                        }
                        Some(json)
                    }
                    Err(message) => {
                        self.report(path, node.at, message);
                        None
                    }
                }
            }
        }
    }

    /// A placeholder for a value that cannot be known here. Rules keep quiet about it.
    fn opaque(&mut self, field: &Json, options: &[&Json], path: &str) -> Option<Json> {
        self.places.doubtful.insert(path.to_owned());
        let any = |is: &dyn Fn(&Json) -> bool| options.iter().any(|option| is(option));
        let secret = |option: &Json| {
            matches!(
                option.get("format").and_then(Json::as_str),
                Some("secret" | "key-file" | "token-hash")
            )
        };
        if !any(&secret) {
            let switch = any(&|option| schema::takes(option, "boolean") || !schema::words(option).is_empty())
                || path.contains("namespace");
            let reach = if switch { Opaque::Switch } else { Opaque::Value };
            self.places.opaque.insert(path.to_owned(), reach);
        }
        let text = options
            .iter()
            .find(|option| schema::takes(option, "string") && schema::words(option).is_empty())?;
        example(field).or_else(|| example(text))
    }

    fn map(&mut self, schema: &Json, entries: &[Entry], at: At, path: &mut String) -> Json {
        let none = Map::new();
        let properties = schema
            .get("properties")
            .and_then(Json::as_object)
            .unwrap_or(&none);
        let others = schema
            .get("additionalProperties")
            .filter(|others| others.is_object());
        let length = path.len();
        let mut json = Map::new();
        // What stands beyond a bound is not looked at: the rules take the bounds for granted.
        let most = schema
            .get("maxProperties")
            .and_then(Json::as_u64)
            .unwrap_or(u64::MAX);
        for entry in entries.iter().take(usize::try_from(most).unwrap_or(usize::MAX)) {
            push_key(path, &entry.key);
            self.places.at.insert(path.clone(), entry.value.at);
            match properties.get(&entry.key).or(others) {
                Some(field) => {
                    if let Some(value) = self.node(field, &entry.value, path) {
                        json.insert(entry.key.clone(), value);
                    }
                }
                None => {
                    let known = nearest(&entry.key, properties.keys().map(String::as_str));
                    self.report(path, entry.at, unknown_key(&entry.key, known, properties));
                    path.truncate(length);
                    // What was meant is not missing.
                    if let Some(known) = known {
                        push_key(path, known);
                        self.places.doubtful.insert(path.clone());
                    }
                }
            }
            path.truncate(length);
        }
        self.require(schema, properties, at, path, &mut json);
        if entries.len() as u64 > most {
            self.report(
                path,
                at,
                format!("at most {most} entries, found {}", entries.len()),
            );
        }
        Json::Object(json)
    }

    /// Reports required keys that are absent, and fills them so that the rest can be read.
    fn require(
        &mut self,
        schema: &Json,
        properties: &Map<String, Json>,
        at: At,
        path: &mut String,
        json: &mut Map<String, Json>,
    ) {
        let length = path.len();
        for name in schema
            .get("required")
            .and_then(Json::as_array)
            .into_iter()
            .flatten()
            .filter_map(Json::as_str)
        {
            if json.contains_key(name) {
                continue;
            }
            push_key(path, name);
            if !self.places.doubtful.contains(path.as_str()) {
                self.report(path, at, format!("\"{name}\" is missing here"));
            }
            path.truncate(length);
            if let Some(example) = properties.get(name).and_then(example) {
                json.insert(name.to_owned(), example);
            }
        }
    }

    fn list(&mut self, schema: &Json, items: &[Node], at: At, path: &mut String) -> Json {
        let length = path.len();
        let mut json = Vec::new();
        let bound = |name| schema.get(name).and_then(Json::as_u64);
        let most = bound("maxItems").unwrap_or(u64::MAX);
        if items.len() as u64 > most {
            self.report(path, at, format!("at most {most} entries, found {}", items.len()));
        }
        if let Some(least) = bound("minItems")
            && (items.len() as u64) < least
        {
            self.report(
                path,
                at,
                format!(
                    "at least {least} {}",
                    if least == 1 { "entry" } else { "entries" }
                ),
            );
        }
        for (index, item) in items
            .iter()
            .enumerate()
            .take(usize::try_from(most).unwrap_or(usize::MAX))
        {
            push_index(path, index);
            self.places.at.insert(path.clone(), item.at);
            let field = schema.get("items").unwrap_or(&Json::Null);
            if matches!(item.value, Value::Null) {
                self.report(
                    path,
                    item.at,
                    "this entry is empty; fill it or remove the dash".to_owned(),
                );
            }
            // A list keeps its length, or the paths of later problems would be off.
            if let Some(value) = self.node(field, item, path).or_else(|| example(field)) {
                json.push(value);
            }
            path.truncate(length);
        }
        Json::Array(json)
    }
}

fn fits(schema: &Json, value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(_) => schema::takes(schema, "boolean"),
        Value::Integer(_) => schema::takes(schema, "integer") || schema::takes(schema, "number"),
        Value::Float(_) => schema::takes(schema, "number"),
        Value::Text(_) => schema::takes(schema, "string") || !schema::words(schema).is_empty(),
        Value::List(_) => schema::takes(schema, "array"),
        Value::Map(_) => schema::takes(schema, "object"),
    }
}

/// Whether one value without parts is meant, so that a text from the environment can be it.
fn is_scalar(schema: &Json) -> bool {
    !schema::words(schema).is_empty()
        || ["string", "integer", "number", "boolean"]
            .iter()
            .any(|kind| schema::takes(schema, kind))
}

/// A value that fits the schema, for a place where there has to be one.
fn example(field: &Json) -> Option<Json> {
    let inner = schema::resolve(field);
    if let Some(example) = field
        .get("examples")
        .or_else(|| inner.get("examples"))
        .and_then(|all| all.get(0))
    {
        return Some(example.clone());
    }
    if let Some(word) = schema::words(inner).first() {
        return Some(json!(word));
    }
    if schema::takes(inner, "string") {
        return Some(json!("x"));
    }
    if schema::takes(inner, "integer") || schema::takes(inner, "number") {
        return Some(
            inner
                .get("minimum")
                .or_else(|| field.get("minimum"))
                .cloned()
                .unwrap_or_else(|| json!(1)),
        );
    }
    let properties = inner.get("properties").and_then(Json::as_object)?;
    let mut json = Map::new();
    for name in inner
        .get("required")
        .and_then(Json::as_array)
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
    {
        json.insert(name.to_owned(), properties.get(name).and_then(example)?);
    }
    Some(Json::Object(json))
}

fn unknown_key(key: &str, near: Option<&str>, properties: &Map<String, Json>) -> String {
    if key == "<<" {
        return "merge keys (\"<<\") are not part of YAML 1.2; repeat the section with an alias, or write it out".to_owned();
    }
    let shown: String = key
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_SHOWN_CHARS)
        .collect();
    match near {
        Some(near) => format!("unknown key \"{shown}\"; did you mean \"{near}\"?"),
        None => {
            let known: Vec<&str> = properties.keys().map(String::as_str).collect();
            format!("unknown key \"{shown}\"; known here: {}", known.join(", "))
        }
    }
}

/// The known word that a typing error may have started from.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > MAX_SHOWN_CHARS {
        return None;
    }
    let word = word.to_ascii_lowercase().replace('-', "_");
    known
        .map(|known| (strsim::damerau_levenshtein(&word, known), known))
        .filter(|(distance, known)| {
            *distance <= known.len().max(word.len()) / 3
                || (word.len() >= 4 && known.len() >= 4 && (known.contains(&word) || word.contains(known)))
        })
        .min()
        .map(|(_, known)| known)
}

//! YAML text to a tree that knows where each node was written.
//!
//! Stricter than YAML where YAML surprises: a key may stand once in a mapping, keys are plain scalars, there
//! is one document, custom tags are refused. Aliases work, within a budget of nodes.

pub(crate) mod emit;
mod scalar;

use std::{borrow::Cow, collections::BTreeMap};

use saphyr_parser::{Event, Marker, Parser, Span, Tag};

pub(crate) use scalar::plain_scalar;
use scalar::{is_string_tag, scalar, written};

use crate::{
    limits::{MAX_DEPTH, MAX_NODES, MAX_TEXT_BYTES},
    problem::Problem,
};

/// A place in the text, line and column from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct At {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl At {
    pub(crate) const START: Self = Self { line: 1, column: 1 };
}

impl From<Marker> for At {
    fn from(marker: Marker) -> Self {
        Self {
            line: marker.line().max(1),
            column: marker.col() + 1,
        }
    }
}

/// A value and where it was written.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) at: At,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(Text),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A string. `expanded` when (a part of) it came from the environment: then no message repeats it.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) expanded: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) at: At,
    pub(crate) value: Node,
}

impl Value {
    /// What it is, for messages.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

/// Reads a document. An empty one is an empty mapping.
///
/// # Errors
/// Every problem of structure that was found; one alone when the text is no YAML.
pub(crate) fn parse(text: &str) -> Result<Node, Vec<Problem>> {
    let mut loader = Loader::default();
    if text.len() > MAX_TEXT_BYTES {
        loader.report(
            At::START,
            format!("the file is larger than {MAX_TEXT_BYTES} bytes"),
        );
        return Err(loader.problems);
    }
    match loader.load(text) {
        Ok(root) if loader.problems.is_empty() => Ok(root),
        Ok(_) => Err(loader.problems),
        Err((at, message)) => {
            loader.report(at, message);
            Err(loader.problems)
        }
    }
}

type Fatal = (At, String);

#[derive(Default)]
struct Loader {
    problems: Vec<Problem>,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
}

/// A list or mapping that has not ended yet.
struct Open {
    node: Node,
    anchor: usize,
    /// In a mapping: the key whose value comes next.
    key: Option<(String, At)>,
    /// In a mapping: the keys so far, and their lines.
    keys: BTreeMap<String, usize>,
}

impl Open {
    const fn wants_key(&self) -> bool {
        matches!(self.node.value, Value::Map(_)) && self.key.is_none()
    }
}

impl Loader {
    fn report(&mut self, at: At, message: String) {
        let path = self.path();
        self.problems.push(Problem {
            path,
            line: at.line,
            column: at.column,
            message,
        });
    }

    /// Where the loader stands, in the words of a path.
    fn path(&self) -> String {
        let mut path = String::new();
        for open in &self.open {
            match (&open.node.value, &open.key) {
                (Value::List(items), _) => push_index(&mut path, items.len()),
                (_, Some((key, _))) => push_key(&mut path, key),
                (_, None) => {}
            }
        }
        path
    }

    fn load(&mut self, text: &str) -> Result<Node, Fatal> {
        let mut root = None;
        let mut documents = 0;
        for event in Parser::new_from_str(text) {
            let (event, span) = event.map_err(|error| {
                (
                    (*error.marker()).into(),
                    format!("this is not valid YAML: {}", plain(error.info())),
                )
            })?;
            let at = At::from(span.start);
            match event {
                Event::DocumentStart(_) => {
                    documents += 1;
                    if documents > 1 {
                        return Err((
                            at,
                            "a second document begins here; a configuration is one document".to_owned(),
                        ));
                    }
                }
                Event::Scalar(text, style, anchor, tag) => {
                    if self.open.last().is_some_and(Open::wants_key) {
                        self.begin_entry(&text, at);
                        self.keep(
                            anchor,
                            &Node {
                                at,
                                value: scalar(&text, style),
                            },
                        );
                        continue;
                    }
                    self.check_tag(tag.as_deref(), at);
                    let value = if is_string_tag(tag.as_deref()) {
                        written(&text)
                    } else {
                        scalar(&text, style)
                    };
                    let node = Node { at, value };
                    self.count(1, at)?;
                    self.keep(anchor, &node);
                    self.place(node, &mut root);
                }
                Event::Alias(id) => {
                    let mut node = self.anchors.get(&id).cloned().ok_or_else(|| {
                        (
                            at,
                            "this alias stands inside the value that it repeats".to_owned(),
                        )
                    })?;
                    self.count(size(&node), at)?;
                    node.at = at;
                    self.check_depth(depth(&node), at)?;
                    if self.open.last().is_some_and(Open::wants_key) {
                        return Err((at, "a key cannot be an alias; write it out".to_owned()));
                    }
                    self.place(node, &mut root);
                }
                Event::SequenceStart(anchor, tag) => {
                    self.begin(Value::List(Vec::new()), anchor, tag, span)?
                }
                Event::MappingStart(anchor, tag) => self.begin(Value::Map(Vec::new()), anchor, tag, span)?,
                Event::SequenceEnd | Event::MappingEnd => {
                    if let Some(open) = self.open.pop() {
                        self.keep(open.anchor, &open.node);
                        self.place(open.node, &mut root);
                    }
                }
                Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            }
        }
        Ok(match root {
            Some(Node {
                value: Value::Null,
                at,
            }) => Node {
                at,
                value: Value::Map(Vec::new()),
            },
            Some(root) => root,
            None => Node {
                at: At::START,
                value: Value::Map(Vec::new()),
            },
        })
    }

    fn begin(
        &mut self,
        value: Value,
        anchor: usize,
        tag: Option<Cow<'_, Tag>>,
        span: Span,
    ) -> Result<(), Fatal> {
        let at = At::from(span.start);
        self.check_depth(1, at)?;
        if self.open.last().is_some_and(Open::wants_key) {
            return Err((
                at,
                "a key must be a plain name, not a list or a mapping".to_owned(),
            ));
        }
        self.count(1, at)?;
        self.check_tag(tag.as_deref(), at);
        self.open.push(Open {
            node: Node { at, value },
            anchor,
            key: None,
            keys: BTreeMap::new(),
        });
        Ok(())
    }

    fn begin_entry(&mut self, key: &str, at: At) {
        let mut duplicate = None;
        if let Some(open) = self.open.last_mut() {
            duplicate = open.keys.get(key).copied();
            open.keys.entry(key.to_owned()).or_insert(at.line);
            open.key = Some((key.to_owned(), at));
        }
        if let Some(line) = duplicate {
            self.report(
                at,
                format!("this key stands already in line {line}; remove one of them"),
            );
        }
    }

    fn place(&mut self, node: Node, root: &mut Option<Node>) {
        let Some(open) = self.open.last_mut() else {
            *root = Some(node);
            return;
        };
        match &mut open.node.value {
            Value::List(items) => items.push(node),
            Value::Map(entries) => {
                if let Some((key, at)) = open.key.take() {
                    entries.push(Entry { key, at, value: node });
                }
            }
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) => {}
        }
    }

    fn keep(&mut self, anchor: usize, node: &Node) {
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
            // A copy for the anchor costs as much as an alias.
            self.nodes = self.nodes.saturating_add(size(node));
        }
    }

    fn count(&mut self, nodes: usize, at: At) -> Result<(), Fatal> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES {
            return Err((
                at,
                format!("the file holds more than {MAX_NODES} values, those that aliases repeat included"),
            ));
        }
        Ok(())
    }

    fn check_depth(&self, more: usize, at: At) -> Result<(), Fatal> {
        if self.open.len() + more > MAX_DEPTH {
            return Err((at, format!("this is nested more than {MAX_DEPTH} levels deep")));
        }
        Ok(())
    }

    fn check_tag(&mut self, tag: Option<&Tag>, at: At) {
        if tag.is_some_and(|tag| !tag.is_yaml_core_schema()) {
            self.report(at, "tags (\"!...\") mean nothing here; remove it".to_owned());
        }
    }
}

fn size(node: &Node) -> usize {
    match &node.value {
        Value::List(items) => items.iter().map(size).fold(1, usize::saturating_add),
        Value::Map(entries) => entries
            .iter()
            .map(|entry| size(&entry.value))
            .fold(1, usize::saturating_add),
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) => 1,
    }
}

fn depth(node: &Node) -> usize {
    match &node.value {
        Value::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Map(entries) => 1 + entries.iter().map(|entry| depth(&entry.value)).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) => 0,
    }
}

/// The parser's message without what it repeats of the text.
fn plain(message: &str) -> String {
    message.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// Adds a key to a path: `a.b`, or `a["x.y"]` where the key would be read as several.
pub(crate) fn push_key(path: &mut String, key: &str) {
    let simple = !key.is_empty()
        && key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    if !simple {
        let shown: String = key
            .chars()
            .filter(|c| !c.is_control())
            .take(crate::limits::MAX_SHOWN_CHARS)
            .collect();
        path.push_str(&format!("[\"{shown}\"]"));
    } else if path.is_empty() {
        path.push_str(key);
    } else {
        path.push('.');
        path.push_str(key);
    }
}

/// Adds the index of a list to a path.
pub(crate) fn push_index(path: &mut String, index: usize) {
    path.push_str(&format!("[{index}]"));
}

#[cfg(test)]
mod tests;

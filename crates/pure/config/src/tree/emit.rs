//! A tree back to YAML text, for `config show`. Reading the text again gives the same tree.

use super::{Entry, Node, Value, plain_scalar};

/// Writes a mapping or list as block YAML.
pub(crate) fn emit(node: &Node) -> String {
    let mut out = String::new();
    match &node.value {
        Value::Map(entries) if !entries.is_empty() => map(entries, 0, &mut out),
        Value::List(items) if !items.is_empty() => list(items, 0, &mut out),
        Value::Null
        | Value::Bool(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Text(_)
        | Value::List(_)
        | Value::Map(_) => {
            inline(&node.value, &mut out);
            out.push('\n');
        }
    }
    out
}

fn map(entries: &[Entry], depth: usize, out: &mut String) {
    for (index, entry) in entries.iter().enumerate() {
        // The first line of an item follows its dash.
        if index > 0 || !out.ends_with("- ") {
            indent(depth, out);
        }
        scalar_text(&entry.key, out);
        out.push(':');
        match &entry.value.value {
            Value::Map(inner) if !inner.is_empty() => {
                out.push('\n');
                map(inner, depth + 1, out);
            }
            Value::List(items) if !items.is_empty() => {
                out.push('\n');
                list(items, depth + 1, out);
            }
            value @ (Value::Null
            | Value::Bool(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::List(_)
            | Value::Map(_)) => {
                out.push(' ');
                inline(value, out);
                out.push('\n');
            }
        }
    }
}

fn list(items: &[Node], depth: usize, out: &mut String) {
    for item in items {
        indent(depth, out);
        out.push_str("- ");
        match &item.value {
            Value::Map(entries) if !entries.is_empty() => map(entries, depth + 1, out),
            value @ (Value::Null
            | Value::Bool(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::List(_)
            | Value::Map(_)) => {
                inline(value, out);
                out.push('\n');
            }
        }
    }
}

fn indent(depth: usize, out: &mut String) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}

fn inline(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Integer(number) => out.push_str(&number.to_string()),
        Value::Float(number) => out.push_str(&format!("{number:?}")),
        Value::Text(text) => scalar_text(&text.text, out),
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                inline(&item.value, out);
            }
            out.push(']');
        }
        Value::Map(entries) => {
            out.push('{');
            for (index, entry) in entries.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                scalar_text(&entry.key, out);
                out.push_str(": ");
                inline(&entry.value.value, out);
            }
            out.push('}');
        }
    }
}

/// A text, in double quotes (as JSON has them) unless it is plainly a word.
fn scalar_text(text: &str, out: &mut String) {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/' | b':');
    let word = text.bytes().all(plain)
        && text
            .as_bytes()
            .first()
            .is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'/')
        && !text.ends_with(':')
        && matches!(plain_scalar(text), Value::Text(_));
    if word {
        out.push_str(text);
    } else {
        out.push_str(&serde_json::Value::from(text).to_string());
    }
}

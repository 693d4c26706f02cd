//! What a scalar means.

use saphyr_parser::{ScalarStyle, Tag};

use super::{Text, Value};

/// A scalar by the rules of YAML 1.2 (`yes` and `on` are texts); quoted and block scalars are texts.
pub(super) fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style == ScalarStyle::Plain {
        plain_scalar(text)
    } else {
        written(text)
    }
}

/// What a plain scalar means.
pub(crate) fn plain_scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    if let Some(number) = integer(text) {
        return Value::Integer(number);
    }
    let numeric = text
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'))
        && text.bytes().any(|b| b.is_ascii_digit());
    match text.parse::<f64>() {
        Ok(number) if numeric && number.is_finite() => Value::Float(number),
        Ok(_) | Err(_) => written(text),
    }
}

fn integer(text: &str) -> Option<i128> {
    if let Some(hex) = text.strip_prefix("0x") {
        return i128::from_str_radix(hex, 16)
            .ok()
            .filter(|_| !hex.starts_with(['+', '-']));
    }
    if let Some(octal) = text.strip_prefix("0o") {
        return i128::from_str_radix(octal, 8)
            .ok()
            .filter(|_| !octal.starts_with(['+', '-']));
    }
    text.parse().ok()
}

/// A text that stands in the file as it is.
pub(super) fn written(text: &str) -> Value {
    Value::Text(Text {
        text: text.to_owned(),
        expanded: false,
    })
}

/// Whether the scalar is said to be a text (`!!str`).
pub(super) fn is_string_tag(tag: Option<&Tag>) -> bool {
    tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str")
}

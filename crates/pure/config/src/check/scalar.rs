//! One scalar against its schema: type, bounds, form.

use ipnet::IpNet;
use serde_json::{Value as Json, json};

use crate::{
    limits::MAX_SHOWN_CHARS,
    schema,
    tree::{Text, Value, plain_scalar},
    value::{BackendUrl, BindAddress, Endpoint, TcpEndpoint, TokenHash, duration, size},
};

/// The value as JSON that the model reads, or what is wrong with it.
pub(super) fn check(schema: &Json, field: &Json, value: &Value) -> Result<Json, String> {
    let secret = matches!(format(schema), Some("secret" | "key-file" | "token-hash"));
    let words = schema::words(schema);
    if !words.is_empty() {
        return word(&words, value);
    }
    match value {
        Value::Text(text) if format(schema) == Some("size") => {
            measured(text, schema, field, size::parse, size::FORM)
        }
        Value::Text(text) if schema::takes(schema, "string") => string(text, schema, field),
        // A whole scalar from the environment may be a number or a boolean where one is expected.
        Value::Text(text) if text.expanded => match plain_scalar(&text.text) {
            converted @ (Value::Bool(_) | Value::Integer(_) | Value::Float(_)) => {
                check(schema, field, &converted).map_err(|_| mismatch(schema, value, true))
            }
            Value::Null | Value::Text(_) | Value::List(_) | Value::Map(_) => {
                Err(mismatch(schema, value, true))
            }
        },
        Value::Bool(value) if schema::takes(schema, "boolean") => Ok(json!(value)),
        Value::Integer(number) if schema::takes(schema, "integer") => integer(*number, schema, field),
        Value::Integer(number) if schema::takes(schema, "number") => float(*number as f64, schema, field),
        Value::Float(number) if schema::takes(schema, "number") => float(*number, schema, field),
        Value::Null
        | Value::Bool(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Text(_)
        | Value::List(_)
        | Value::Map(_) => Err(mismatch(schema, value, secret)),
    }
}

fn format(schema: &Json) -> Option<&str> {
    schema.get("format").and_then(Json::as_str)
}

fn word(words: &[&str], value: &Value) -> Result<Json, String> {
    if let Value::Text(text) = value {
        if words.contains(&text.text.as_str()) {
            return Ok(json!(text.text));
        }
        if !text.expanded
            && let Some(near) = super::nearest(&text.text, words.iter().copied())
        {
            return Err(format!(
                "expected {}, found {}; did you mean \"{near}\"?",
                list(words),
                shown(value, false)
            ));
        }
    }
    Err(format!("expected {}, found {}", list(words), shown(value, false)))
}

fn list(words: &[&str]) -> String {
    match words {
        [one] => format!("\"{one}\""),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(|word| format!("\"{word}\"")).collect();
            format!("{} or \"{last}\"", first.join(", "))
        }
        [] => String::new(),
    }
}

fn string(text: &Text, schema: &Json, field: &Json) -> Result<Json, String> {
    let written = text.text.as_str();
    let value = || Value::Text(text.clone());
    let found = |secret| shown(&value(), secret);
    match format(schema) {
        Some("duration") => {
            return measured(
                text,
                schema,
                field,
                |t| duration::parse(t).map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
                duration::FORM,
            );
        }
        Some("bind-address") => BindAddress::parse(written).map(drop).map_err(|e| e.to_string())?,
        Some("backend-url") => BackendUrl::parse(written).map(drop).map_err(|e| e.to_string())?,
        Some("endpoint") => Endpoint::parse(written).map(drop).map_err(|e| e.to_string())?,
        Some("tcp-endpoint") => TcpEndpoint::parse(written).map(drop).map_err(|e| e.to_string())?,
        Some("socket") => {
            let parsed = written.parse::<std::net::SocketAddr>();
            parsed.map_err(|_| {
                format!(
                    "expected an IP address and a port, such as \"0.0.0.0:7443\", found {}",
                    found(false)
                )
            })?;
        }
        Some("cidr") => {
            let parsed = written.parse::<IpNet>();
            parsed.map_err(|_| {
                format!(
                    "expected a network, such as \"10.0.0.0/8\" or \"fd00::/8\", found {}",
                    found(false)
                )
            })?;
        }
        Some("token-hash") if TokenHash::parse(written).is_none() => {
            return Err(format!("expected {}", TokenHash::FORM));
        }
        _ => {}
    }
    let bound = |name| {
        schema
            .get(name)
            .or_else(|| field.get(name))
            .and_then(Json::as_u64)
    };
    let length = written.chars().count() as u64;
    if bound("minLength").is_some_and(|least| length < least) {
        return Err(if length == 0 {
            "this is empty; give a value or remove the key".to_owned()
        } else {
            format!("too short: {length} characters")
        });
    }
    if let Some(most) = bound("maxLength").filter(|most| length > *most) {
        return Err(format!("too long: {length} characters, at most {most}"));
    }
    Ok(json!(written))
}

/// A duration (in milliseconds) or a size, within the bounds that the field names in words.
fn measured(
    text: &Text,
    schema: &Json,
    field: &Json,
    parse: impl Fn(&str) -> Option<u64>,
    form: &str,
) -> Result<Json, String> {
    let value = parse(&text.text).ok_or_else(|| {
        format!(
            "expected {form}, found {}",
            shown(&Value::Text(text.clone()), false)
        )
    })?;
    between(
        value,
        schema,
        field,
        &parse,
        &shown(&Value::Text(text.clone()), false),
    )?;
    Ok(json!(text.text))
}

fn between(
    value: u64,
    schema: &Json,
    field: &Json,
    parse: &impl Fn(&str) -> Option<u64>,
    found: &str,
) -> Result<(), String> {
    let bound = |name| {
        field
            .get(name)
            .or_else(|| schema.get(name))
            .and_then(Json::as_str)
    };
    let (least, most) = (bound("x-min"), bound("x-max"));
    let below = least.and_then(parse).is_some_and(|least| value < least);
    let above = most.and_then(parse).is_some_and(|most| value > most);
    match (least, most) {
        (Some(least), Some(most)) if below || above => {
            Err(format!("must be from {least} to {most}, found {found}"))
        }
        (Some(least), _) if below => Err(format!("must be at least {least}, found {found}")),
        (_, Some(most)) if above => Err(format!("must be at most {most}, found {found}")),
        _ => Ok(()),
    }
}

fn integer(number: i128, schema: &Json, field: &Json) -> Result<Json, String> {
    if format(schema) == Some("size") {
        let bytes = u64::try_from(number).map_err(|_| format!("expected {}, found {number}", size::FORM))?;
        between(bytes, schema, field, &size::parse, &bytes.to_string())?;
        return Ok(json!(bytes));
    }
    range(number as f64, schema, field)?;
    let json = u64::try_from(number)
        .map(Json::from)
        .or_else(|_| i64::try_from(number).map(Json::from));
    json.map_err(|_| format!("{number} is out of range"))
}

fn float(number: f64, schema: &Json, field: &Json) -> Result<Json, String> {
    range(number, schema, field)?;
    Ok(json!(number))
}

fn range(number: f64, schema: &Json, field: &Json) -> Result<(), String> {
    let bound = |name| {
        field
            .get(name)
            .or_else(|| schema.get(name))
            .and_then(Json::as_f64)
    };
    match (bound("minimum"), bound("maximum")) {
        (Some(least), Some(most)) if number < least || number > most => {
            Err(format!("must be from {least} to {most}, found {number}"))
        }
        (Some(least), None) if number < least => Err(format!("must be at least {least}, found {number}")),
        (None, Some(most)) if number > most => Err(format!("must be at most {most}, found {number}")),
        _ => Ok(()),
    }
}

fn mismatch(schema: &Json, value: &Value, secret: bool) -> String {
    let expected = match format(schema) {
        Some("duration") => duration::FORM.to_owned(),
        Some("size") => size::FORM.to_owned(),
        Some("secret" | "key-file") => "a text".to_owned(),
        _ if schema::takes(schema, "object") => "a mapping (key: value)".to_owned(),
        _ if schema::takes(schema, "array") => "a list (- value)".to_owned(),
        _ if schema::takes(schema, "boolean") => "true or false".to_owned(),
        _ if schema::takes(schema, "integer") => "a whole number".to_owned(),
        _ if schema::takes(schema, "number") => "a number".to_owned(),
        _ => "a text".to_owned(),
    };
    let quoted = schema::takes(schema, "string")
        && !schema::takes(schema, "integer")
        && format(schema) != Some("duration")
        && matches!(value, Value::Bool(_) | Value::Integer(_) | Value::Float(_));
    let hint = if quoted { "; put it in quotes" } else { "" };
    format!("expected {expected}, found {}{hint}", shown(value, secret))
}

/// A value for a message: cut, and never from a secret or from the environment.
fn shown(value: &Value, secret: bool) -> String {
    match value {
        Value::Text(text) if text.expanded => "the value of an environment variable".to_owned(),
        _ if secret => value.kind().to_owned(),
        Value::Text(text) => {
            let short: String = text
                .text
                .chars()
                .filter(|c| !c.is_control())
                .take(MAX_SHOWN_CHARS)
                .collect();
            let dots = if text.text.chars().count() > MAX_SHOWN_CHARS {
                "..."
            } else {
                ""
            };
            format!("\"{short}{dots}\"")
        }
        Value::Bool(value) => value.to_string(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Null | Value::List(_) | Value::Map(_) => value.kind().to_owned(),
    }
}

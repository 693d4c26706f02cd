//! Values as Python spells them: templates are written for Python, and its spelling is what models were trained on.

use minijinja::{
    Error, ErrorKind, Output, State,
    value::{Kwargs, Value, ValueKind},
};

use super::bounded::{self, Text};
use crate::{json::Json, limits::MAX_NESTING};

/// `json.dumps(value, ensure_ascii=False)`, as Hugging Face defines the filter: nothing is escaped for HTML.
pub(super) fn tojson(
    state: &State,
    value: &Value,
    indent: Option<Value>,
    options: Kwargs,
) -> Result<Value, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => options.get::<Option<Value>>("indent")?,
    };
    let indent = match indent.filter(|indent| !indent.is_none() && !indent.is_undefined()) {
        None => None,
        Some(width) => Some(match width.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::from(
                u8::try_from(i64::try_from(width)?.max(0)).unwrap_or(u8::MAX),
            )),
        }),
    };
    let separators = options.get::<Option<Value>>("separators")?;
    let (mut item, mut member) = (
        if indent.is_some() { "," } else { ", " }.to_owned(),
        ": ".to_owned(),
    );
    if let Some(pair) = separators.filter(|pair| !pair.is_none() && !pair.is_undefined()) {
        item = pair.get_item_by_index(0)?.to_string();
        member = pair.get_item_by_index(1)?.to_string();
    }
    let style = Style {
        indent,
        item,
        member,
        ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sorted: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    let mut out = Text::new(state);
    style.value(state, &mut out, value, 0)?;
    Ok(Value::from(out.into_string()))
}

/// `json.loads`; what is no text stays as it is.
pub(super) fn fromjson(value: Value) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return Ok(value);
    };
    serde_json::from_str::<Json>(text)
        .map(|json| json.to_value())
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, "not JSON"))
}

/// `{{ value }}`: floats as `str(value)` has them, everything else as the engine does.
pub(super) fn print(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match float_of(value) {
        Some(value) => out.write_str(&float(value)).map_err(Error::from),
        // What is printed into a variable is no output yet, and has no cap of its own.
        None if value.as_object().is_some() => out
            .write_str(&bounded::printed(state, value)?)
            .map_err(Error::from),
        None => minijinja::escape_formatter(out, state, value),
    }
}

/// The filter `string`, with floats as [`print`] has them.
pub(super) fn string(state: &State, value: &Value) -> Result<Value, Error> {
    Ok(match float_of(value) {
        Some(value) => Value::from(float(value)),
        None => match value.to_str() {
            Some(text) => Value::from(text),
            None => Value::from(bounded::printed(state, value)?),
        },
    })
}

/// `repr` of a float: the shortest digits that read back as the same number, in fixed notation from `1e-4` to below
/// `1e16`, else with an exponent of two digits or more.
pub(super) fn float(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    // `1.25e-7`: one digit, a fraction, an exponent. The digits are the shortest, as Python's are.
    let shortest = format!("{value:e}");
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa
        .strip_prefix('-')
        .map_or(("", mantissa), |rest| ("-", rest));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    if (-4..16).contains(&exponent) {
        let fixed = format!("{:.*}", fraction_digits(&digits, exponent), value.abs());
        return format!("{sign}{fixed}");
    }
    let exponent_sign = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{mantissa}e{exponent_sign}{:02}", exponent.unsigned_abs())
}

/// Digits after the point that show all of `digits`, at least one.
fn fraction_digits(digits: &str, exponent: i32) -> usize {
    let shown = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    usize::try_from(shown.saturating_sub(1).saturating_sub(exponent))
        .unwrap_or(0)
        .max(1)
}

fn float_of(value: &Value) -> Option<f64> {
    (value.is_number() && !value.is_integer())
        .then(|| f64::try_from(value.clone()).ok())
        .flatten()
}

/// How `json.dumps` was asked to write.
struct Style {
    indent: Option<String>,
    item: String,
    member: String,
    ascii: bool,
    sorted: bool,
}

impl Style {
    fn value(&self, state: &State, out: &mut Text, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_NESTING {
            return Err(Error::new(ErrorKind::BadSerialization, "nested too deeply"));
        }
        state.consume_fuel(1)?;
        match value.kind() {
            ValueKind::Undefined | ValueKind::None => out.push_str("null")?,
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" })?,
            ValueKind::Number => match float_of(value) {
                Some(number) if number.is_nan() => out.push_str("NaN")?,
                Some(number) if number.is_infinite() => {
                    out.push_str(if number < 0.0 { "-Infinity" } else { "Infinity" })?;
                }
                Some(number) => out.push_str(&float(number))?,
                None => out.push_str(&value.to_string())?,
            },
            ValueKind::String => self.text(state, out, value.as_str().unwrap_or_default())?,
            ValueKind::Seq | ValueKind::Iterable => {
                let mut items = value.try_iter()?.peekable();
                if items.peek().is_none() {
                    out.push_str("[]")?;
                    return Ok(());
                }
                out.push('[')?;
                for (index, item) in items.enumerate() {
                    self.before(out, index, depth + 1)?;
                    self.value(state, out, &item, depth + 1)?;
                }
                self.after(out, depth)?;
                out.push(']')?;
            }
            ValueKind::Map => {
                let mut names: Vec<Value> = value.try_iter()?.collect();
                if names.is_empty() {
                    out.push_str("{}")?;
                    return Ok(());
                }
                if self.sorted {
                    names.sort();
                }
                out.push('{')?;
                for (index, name) in names.iter().enumerate() {
                    self.before(out, index, depth + 1)?;
                    match name.as_str() {
                        Some(name) => self.text(state, out, name)?,
                        None => self.text(state, out, &name.to_string())?,
                    }
                    out.push_str(&self.member)?;
                    self.value(state, out, &value.get_item(name)?, depth + 1)?;
                }
                self.after(out, depth)?;
                out.push('}')?;
            }
            ValueKind::Bytes | ValueKind::Plain | ValueKind::Invalid => return Err(cannot()),
            _ => return Err(cannot()),
        }
        Ok(())
    }

    fn before(&self, out: &mut Text, index: usize, depth: usize) -> Result<(), Error> {
        if index > 0 {
            out.push_str(&self.item)?;
        }
        self.line(out, depth)
    }

    fn after(&self, out: &mut Text, depth: usize) -> Result<(), Error> {
        self.line(out, depth)
    }

    fn line(&self, out: &mut Text, depth: usize) -> Result<(), Error> {
        if let Some(indent) = &self.indent {
            out.push('\n')?;
            (0..depth).try_for_each(|_| out.push_str(indent))?;
        }
        Ok(())
    }

    fn text(&self, state: &State, out: &mut Text, text: &str) -> Result<(), Error> {
        state.consume_fuel(u64::try_from(text.len() / 64).unwrap_or(u64::MAX))?;
        out.push('"')?;
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\"")?,
                '\\' => out.push_str("\\\\")?,
                '\n' => out.push_str("\\n")?,
                '\r' => out.push_str("\\r")?,
                '\t' => out.push_str("\\t")?,
                '\u{8}' => out.push_str("\\b")?,
                '\u{c}' => out.push_str("\\f")?,
                c if c < ' ' => escape(out, c)?,
                c if self.ascii && !c.is_ascii() => escape(out, c)?,
                c => out.push(c)?,
            }
        }
        out.push('"')?;
        Ok(())
    }
}

fn cannot() -> Error {
    Error::new(ErrorKind::BadSerialization, "cannot be written as JSON")
}

fn escape(out: &mut Text, c: char) -> Result<(), Error> {
    for unit in c.encode_utf16(&mut [0; 2]) {
        out.push_str(&format!("\\u{unit:04x}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_spelled_as_python_does() {
        for (value, python) in [
            (0.000_001, "1e-06"),
            (0.0001, "0.0001"),
            (0.000_012_34, "1.234e-05"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (1.5e-7, "1.5e-07"),
            (2.5, "2.5"),
            (100.0, "100.0"),
            (0.1, "0.1"),
            (0.3, "0.3"),
            (-0.0, "-0.0"),
            (0.0, "0.0"),
            (-123.456, "-123.456"),
            (1e100, "1e+100"),
            (f64::MAX, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
        ] {
            assert_eq!(float(value), python, "{value:?}");
        }
    }
}

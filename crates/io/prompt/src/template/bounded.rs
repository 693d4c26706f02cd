//! Filters and methods that make a long text of little, kept to the length of a prompt.
//!
//! The engine's fuel pays for a text once it is there, and for 300 MB of them in all. What a request can blow up (deep
//! or long values that are written with indentation, joined or printed into a variable) must not get that far: a text
//! that is longer than the prompt may be is of no use in one.

use std::fmt::{self, Write as _};

use minijinja::{
    Error, ErrorKind, State, filters,
    value::{Kwargs, Rest, StringInput, Value, ValueOrKwargs},
};
use minijinja_contrib::pycompat;

use super::CAP;

/// A text that is refused once it is longer than the prompt may be.
pub(super) struct Text {
    text: String,
    cap: usize,
}

impl Text {
    pub(super) fn new(state: &State) -> Self {
        Self {
            text: String::new(),
            cap: cap(state),
        }
    }

    pub(super) fn push_str(&mut self, part: &str) -> Result<(), Error> {
        if part.len() > self.cap.saturating_sub(self.text.len()) {
            return Err(too_long());
        }
        self.text.push_str(part);
        Ok(())
    }

    pub(super) fn push(&mut self, c: char) -> Result<(), Error> {
        self.push_str(c.encode_utf8(&mut [0; 4]))
    }

    pub(super) fn into_string(self) -> String {
        self.text
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.push_str(part).map_err(|_| fmt::Error)
    }
}

/// A list or a mapping as the engine prints it.
pub(super) fn printed(state: &State, value: &Value) -> Result<String, Error> {
    let mut text = Text::new(state);
    write!(text, "{value}").map_err(|_| too_long())?;
    Ok(text.into_string())
}

/// The filter `pprint`.
pub(super) fn pprint(state: &State, value: &Value) -> Result<String, Error> {
    let mut text = Text::new(state);
    write!(text, "{value:#?}").map_err(|_| too_long())?;
    Ok(text.into_string())
}

/// The filter `join`.
pub(super) fn join(
    state: &mut State,
    value: &Value,
    joiner: Option<StringInput<'_>>,
    attribute: Option<&str>,
    options: Kwargs,
) -> Result<Value, Error> {
    let between = joiner.as_ref().map_or("", StringInput::as_str).len();
    may_join(state, between, value)?;
    filters::join(state, value, joiner, attribute, options)
}

/// The filter `format`.
pub(super) fn format(state: &mut State, format: &Value, given: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    may_format(state, format.as_str().unwrap_or_default())?;
    filters::format(state, format, given)
}

/// Methods that Python's values have.
pub(super) fn method(state: &mut State, value: &Value, name: &str, given: &[Value]) -> Result<Value, Error> {
    match (value.as_str(), name, given) {
        (Some(joiner), "join", [items]) => may_join(state, joiner.len(), items)?,
        (Some(format), "format", _) => may_format(state, format)?,
        _ => {}
    }
    pycompat::unknown_method_callback(state, value, name, given)
}

/// Refuses items that are too long together.
fn may_join(state: &State, between: usize, items: &Value) -> Result<(), Error> {
    let cap = cap(state);
    let mut length = 0_usize;
    // What cannot be joined is told by who joins it.
    for item in items.try_iter().into_iter().flatten() {
        state.consume_fuel(1)?;
        let own = match item.as_str() {
            Some(text) => text.len(),
            None if item.as_object().is_some() => printed(state, &item)?.len(),
            None => 0,
        };
        length = length.saturating_add(own);
        if length > cap {
            return Err(too_long());
        }
        length = length.saturating_add(between);
    }
    Ok(())
}

/// Refuses widths and precisions that are too long together.
fn may_format(state: &State, format: &str) -> Result<(), Error> {
    let numbers = format
        .split(|c: char| !c.is_ascii_digit())
        .filter(|digits| !digits.is_empty())
        .map(|digits| digits.parse::<usize>().unwrap_or(usize::MAX));
    if numbers.fold(0, usize::saturating_add) > cap(state) {
        return Err(too_long());
    }
    Ok(())
}

/// The longest text that this rendering may have, in bytes.
fn cap(state: &State) -> usize {
    state
        .lookup(CAP)
        .and_then(|cap| usize::try_from(cap).ok())
        .unwrap_or(0)
}

/// As an output that takes no more says it.
fn too_long() -> Error {
    Error::new(ErrorKind::WriteFailure, "longer than a prompt may be")
}

//! Why a body is refused.

use std::fmt;

use crate::ingress::limits::{MAX_MODEL_MEMBERS, MAX_MODEL_NAME_BYTES, MAX_REMOVALS};

/// Why a body is refused, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// Why.
    pub reason: Reason,
    /// Byte offset in the body.
    pub at: usize,
}

/// Why a body is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Not UTF-8.
    NotUtf8,
    /// The bytes end in the middle of something.
    Truncated,
    /// No value where one has to be.
    ExpectedValue,
    /// No key where one has to be.
    ExpectedKey,
    /// No colon behind a key.
    ExpectedColon,
    /// Neither a comma nor the end of an object or array.
    ExpectedCommaOrEnd,
    /// A number that JSON does not know.
    BadNumber,
    /// An escape that JSON does not know.
    BadEscape,
    /// A raw control character inside a string.
    ControlCharacter,
    /// Objects and arrays are nested too deeply.
    TooDeep,
    /// Something follows the object.
    TrailingData,
    /// JSON, but not an object.
    NotAnObject,
    /// There is no `model`.
    ModelMissing,
    /// `model` is no text.
    ModelNotText,
    /// `model` is the empty text.
    ModelEmpty,
    /// `model` is longer than any model name.
    ModelTooLong,
    /// `model` is there twice, with two names.
    ModelTwice,
    /// `model` is there again and again, with the same name.
    ModelTooOften,
    /// `stream` is neither true, false nor null.
    StreamNotBool,
    /// `stream` is there twice, with two values.
    StreamTwice,
    /// `nvext`, or `agent_hints` in it, is neither an object nor null.
    NvextNotObject,
    /// There are too many places in `nvext` that a client may not say anything in.
    TooManyRemovals,
}

impl Error {
    /// The field that is wrong, if one is.
    #[must_use]
    pub const fn param(&self) -> Option<&'static str> {
        match self.reason {
            Reason::ModelMissing
            | Reason::ModelNotText
            | Reason::ModelEmpty
            | Reason::ModelTooLong
            | Reason::ModelTwice
            | Reason::ModelTooOften => Some("model"),
            Reason::StreamNotBool | Reason::StreamTwice => Some("stream"),
            Reason::NvextNotObject | Reason::TooManyRemovals => Some("nvext"),
            Reason::NotUtf8
            | Reason::Truncated
            | Reason::ExpectedValue
            | Reason::ExpectedKey
            | Reason::ExpectedColon
            | Reason::ExpectedCommaOrEnd
            | Reason::BadNumber
            | Reason::BadEscape
            | Reason::ControlCharacter
            | Reason::TooDeep
            | Reason::TrailingData
            | Reason::NotAnObject => None,
        }
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.reason {
            Reason::NotUtf8 => "the text is not UTF-8",
            Reason::Truncated => "it ends too early",
            Reason::ExpectedValue => "expected a value",
            Reason::ExpectedKey => "expected a key in double quotes",
            Reason::ExpectedColon => "expected `:` after the key",
            Reason::ExpectedCommaOrEnd => "expected `,` or the end of the object or array",
            Reason::BadNumber => "this is not a JSON number",
            Reason::BadEscape => "this is not a JSON escape",
            Reason::ControlCharacter => "control characters inside strings must be escaped",
            Reason::TooDeep => "objects and arrays are nested too deeply",
            Reason::TrailingData => "there is something behind the object",
            Reason::NotAnObject => return f.write_str("the request body must be a JSON object"),
            Reason::ModelMissing => return f.write_str("the request body must name a `model`"),
            Reason::ModelNotText => return f.write_str("`model` must be a string"),
            Reason::ModelEmpty => return f.write_str("`model` must not be empty"),
            Reason::ModelTooLong => {
                return write!(f, "`model` must not be longer than {MAX_MODEL_NAME_BYTES} bytes");
            }
            Reason::ModelTwice => return f.write_str("`model` is given twice, with different names"),
            Reason::ModelTooOften => {
                return write!(f, "`model` is given more than {MAX_MODEL_MEMBERS} times");
            }
            Reason::StreamNotBool => return f.write_str("`stream` must be true or false"),
            Reason::StreamTwice => return f.write_str("`stream` is given twice, with different values"),
            Reason::NvextNotObject => {
                return f.write_str("`nvext` and `nvext.agent_hints` must be objects");
            }
            Reason::TooManyRemovals => {
                return write!(
                    f,
                    "`nvext` sets fields that are not for clients in more than {MAX_REMOVALS} places"
                );
            }
        };
        write!(f, "the request body is not valid JSON: {why} at byte {}", self.at)
    }
}

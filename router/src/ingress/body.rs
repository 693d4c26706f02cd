//! One look over the JSON body of a request.
//!
//! The bytes are walked once and nothing is rebuilt: what routing needs is read (model, stream, size of the
//! prompt), and what a client may not say is noted as ranges for [`super::edit`] to leave out. Keys are
//! compared after unescaping, every occurrence of a key counts, and what is not strictly JSON is refused, so
//! that no other reader of the same bytes finds something that this one did not.

use std::{fmt, ops::Range};

use bytes::Bytes;
use continuum_fleet::ids::ModelName;

use super::{
    edit::{self, Gaps},
    json::{Nobody, Reader, Refused, Text, Visitor, unescaped},
    limits::MAX_MODEL_NAME_BYTES,
    strip::Disclosure,
};

/// Fields of `nvext` that pin a request, replace its prompt or raise its priority.
const ROUTING_FIELDS: [&[u8]; 10] = [
    b"token_data",
    b"backend_instance_id",
    b"decode_worker_id",
    b"prefill_worker_id",
    b"dp_rank",
    b"prefill_dp_rank",
    b"routing_constraints",
    b"router",
    b"request_timestamp_ms",
    b"metadata_upload",
];

/// Fields of `nvext.agent_hints` that raise the priority of a request.
const PRIORITY_FIELDS: [&[u8]; 2] = [b"priority", b"strict_priority"];

/// Entries of `nvext.annotations` that begin so turn a request into a probe which tells worker ids.
const PROBE_ANNOTATION: &[u8] = b"query_instance_id";

/// Entries of `nvext.extra_fields` that make the answer tell of workers.
const TELLING_FIELDS: [&[u8]; 3] = [b"worker_id", b"engine_data", b"routed_experts"];

/// What routing needs to know of a body, and what has to leave it.
#[derive(Clone, Debug)]
pub struct Inspected {
    /// The model that the client asks for, unescaped; never empty.
    pub model: ModelName,
    /// Whether it wants a stream of events.
    pub stream: bool,
    /// How much prompt there is.
    pub prompt: PromptSize,
    models: Vec<Range<usize>>,
    removals: Vec<Range<usize>>,
}

impl Inspected {
    /// The body to send, out of the same bytes that were looked at.
    ///
    /// `mapped` replaces the model name. With nothing to edit the very same bytes come back, not a copy.
    #[must_use]
    pub fn outbound(&self, body: &Bytes, mapped: Option<&str>) -> Bytes {
        edit::apply(
            body,
            &self.removals,
            mapped.map(|name| (self.models.as_slice(), name)),
        )
    }

    /// Whether fields of the client have to leave the body.
    #[must_use]
    pub fn has_removals(&self) -> bool {
        !self.removals.is_empty()
    }
}

/// The size of a prompt, without a tokenizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptSize {
    /// ASCII characters of text.
    pub ascii: u64,
    /// Other characters of text.
    pub other: u64,
    /// Token ids that stand in `prompt` as numbers.
    pub token_ids: u64,
}

impl PromptSize {
    /// The character heuristic: four ASCII characters a token, one other character a token, at least 1.
    #[must_use]
    pub const fn estimated_tokens(self) -> u64 {
        let tokens = (self.ascii / 4)
            .saturating_add(self.other)
            .saturating_add(self.token_ids);
        if tokens == 0 { 1 } else { tokens }
    }
}

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
    /// `stream` is neither true, false nor null.
    StreamNotBool,
    /// `stream` is there twice, with two values.
    StreamTwice,
    /// `nvext`, or `agent_hints` in it, is neither an object nor null.
    NvextNotObject,
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
            | Reason::ModelTwice => Some("model"),
            Reason::StreamNotBool | Reason::StreamTwice => Some("stream"),
            Reason::NvextNotObject => Some("nvext"),
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
            Reason::StreamNotBool => return f.write_str("`stream` must be true or false"),
            Reason::StreamTwice => return f.write_str("`stream` is given twice, with different values"),
            Reason::NvextNotObject => {
                return f.write_str("`nvext` and `nvext.agent_hints` must be objects");
            }
        };
        write!(f, "the request body is not valid JSON: {why} at byte {}", self.at)
    }
}

/// Looks over a body.
///
/// `disclosure` decides whether the client may ask the frontend for worker ids in the answer.
///
/// # Errors
/// [`Error`] with the reason and the byte; a body that is refused was never sent anywhere.
pub fn inspect(body: &[u8], disclosure: Disclosure) -> Result<Inspected, Error> {
    Look::over(body, disclosure).map_err(|(reason, at)| Error { reason, at })
}

/// The state of one look.
struct Look<'a> {
    bytes: &'a [u8],
    reader: Reader<'a>,
    disclosure: Disclosure,
    model: Option<ModelName>,
    models: Vec<Range<usize>>,
    stream: Option<bool>,
    removals: Vec<Range<usize>>,
}

impl<'a> Look<'a> {
    fn over(bytes: &'a [u8], disclosure: Disclosure) -> Result<Inspected, Refused> {
        let text = simdutf8::compat::from_utf8(bytes).map_err(|e| (Reason::NotUtf8, e.valid_up_to()))?;
        let mut look = Self {
            bytes,
            reader: Reader::new(bytes),
            disclosure,
            model: None,
            models: Vec::new(),
            stream: None,
            removals: Vec::new(),
        };
        let mut counter = Counter {
            size: PromptSize::default(),
            all_ascii: text.is_ascii(),
            numbers: false,
        };
        match look.reader.peek() {
            Some(b'{') => look.object(|look, key| look.field(&key, &mut counter))?,
            // Still told apart: what is no JSON at all, and what is JSON of another kind.
            Some(_) => {
                look.reader.skip(0, &mut Nobody)?;
                return Err((Reason::NotAnObject, 0));
            }
            None => return Err((Reason::Truncated, look.reader.at())),
        }
        if look.reader.peek().is_some() {
            return Err((Reason::TrailingData, look.reader.at()));
        }
        Ok(Inspected {
            model: look.model.ok_or((Reason::ModelMissing, 0))?,
            stream: look.stream.unwrap_or(false),
            prompt: counter.size,
            models: look.models,
            removals: look.removals,
        })
    }

    /// The members of an object; the next byte is its brace. `member` reads the value and says whether the
    /// member may stay.
    fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, Text) -> Result<bool, Refused>,
    ) -> Result<(), Refused> {
        self.elements(b'{', b'}', |look| {
            let key = look.reader.key()?;
            member(look, key)
        })
    }

    /// The elements of an array; the next byte is its bracket.
    fn array(&mut self, element: impl FnMut(&mut Self) -> Result<bool, Refused>) -> Result<(), Refused> {
        self.elements(b'[', b']', element)
    }

    fn elements(
        &mut self,
        open: u8,
        close: u8,
        mut element: impl FnMut(&mut Self) -> Result<bool, Refused>,
    ) -> Result<(), Refused> {
        self.reader.take(open);
        if self.reader.take(close) {
            return Ok(());
        }
        let mut gaps = Gaps::default();
        loop {
            self.reader.peek();
            gaps.begin(self.reader.at(), &mut self.removals);
            let keep = element(self)?;
            gaps.end(self.reader.at(), keep, &mut self.removals);
            if self.reader.take(close) {
                gaps.close(&mut self.removals);
                return Ok(());
            }
            if !self.reader.take(b',') {
                return Err(self.reader.refuse(Reason::ExpectedCommaOrEnd));
            }
        }
    }

    /// A field of the body.
    fn field(&mut self, key: &Text, counter: &mut Counter) -> Result<bool, Refused> {
        let name = unescaped(self.bytes, key).unwrap_or_default();
        match name.as_ref() {
            b"model" => self.model()?,
            b"stream" => self.stream()?,
            b"nvext" => match self.reader.peek() {
                Some(b'{') => self.object(Self::nvext_field)?,
                _ => self.null_or(Reason::NvextNotObject)?,
            },
            b"messages" | b"input" | b"instructions" => {
                self.reader.skip(1, counter.of(false))?;
            }
            b"prompt" => self.reader.skip(1, counter.of(true))?,
            b"tools" | b"functions" => {
                self.reader.peek();
                let from = self.reader.at();
                self.reader.skip(1, &mut Nobody)?;
                counter.whole(self.bytes.get(from..self.reader.at()).unwrap_or_default());
            }
            _ => self.reader.skip(1, &mut Nobody)?,
        }
        Ok(true)
    }

    fn model(&mut self) -> Result<(), Refused> {
        self.reader.peek();
        let at = self.reader.at();
        if self.reader.peek() != Some(b'"') {
            self.reader.skip(1, &mut Nobody)?;
            return Err((Reason::ModelNotText, at));
        }
        let text = self.reader.string()?;
        let name = unescaped(self.bytes, &text).ok_or((Reason::ModelNotText, at))?;
        let name = std::str::from_utf8(&name).map_err(|_| (Reason::ModelNotText, at))?;
        if name.is_empty() {
            return Err((Reason::ModelEmpty, at));
        }
        if name.len() > MAX_MODEL_NAME_BYTES {
            return Err((Reason::ModelTooLong, at));
        }
        match &self.model {
            Some(first) if first.as_str() != name => return Err((Reason::ModelTwice, at)),
            Some(_) => {}
            None => self.model = Some(ModelName::new(name)),
        }
        self.models.push(text.quoted());
        Ok(())
    }

    fn stream(&mut self) -> Result<(), Refused> {
        self.reader.peek();
        let at = self.reader.at();
        self.reader.skip(1, &mut Nobody)?;
        let stream = match self.bytes.get(at..self.reader.at()) {
            Some(b"true") => true,
            Some(b"false" | b"null") => false,
            _ => return Err((Reason::StreamNotBool, at)),
        };
        if self.stream.is_some_and(|first| first != stream) {
            return Err((Reason::StreamTwice, at));
        }
        self.stream = Some(stream);
        Ok(())
    }

    fn nvext_field(&mut self, key: Text) -> Result<bool, Refused> {
        let name = unescaped(self.bytes, &key).unwrap_or_default();
        let name = name.as_ref();
        if ROUTING_FIELDS.contains(&name) {
            self.reader.skip(2, &mut Nobody)?;
            return Ok(false);
        }
        match (name, self.reader.peek()) {
            (b"agent_hints", Some(b'{')) => self.object(|look, key| {
                look.reader.skip(3, &mut Nobody)?;
                Ok(!unescaped(look.bytes, &key).is_some_and(|name| PRIORITY_FIELDS.contains(&name.as_ref())))
            })?,
            (b"agent_hints", _) => self.null_or(Reason::NvextNotObject)?,
            (b"annotations", Some(b'[')) => {
                self.array(|look| look.entry(|entry| !entry.starts_with(PROBE_ANNOTATION)))?;
            }
            (b"extra_fields", Some(b'[')) if self.disclosure == Disclosure::Hidden => {
                self.array(|look| look.entry(|entry| !TELLING_FIELDS.contains(&entry)))?;
            }
            _ => self.reader.skip(2, &mut Nobody)?,
        }
        Ok(true)
    }

    /// An element of an array in `nvext`: kept when it is no text, or a text that `may_stay`.
    fn entry(&mut self, may_stay: impl Fn(&[u8]) -> bool) -> Result<bool, Refused> {
        if self.reader.peek() != Some(b'"') {
            self.reader.skip(3, &mut Nobody)?;
            return Ok(true);
        }
        let text = self.reader.string()?;
        Ok(unescaped(self.bytes, &text).is_none_or(|entry| may_stay(&entry)))
    }

    /// `null`, or the refusal. Frontends read an array as an object without names, field by field.
    fn null_or(&mut self, reason: Reason) -> Result<(), Refused> {
        self.reader.peek();
        let at = self.reader.at();
        self.reader.skip(1, &mut Nobody)?;
        if self.bytes.get(at..self.reader.at()) == Some(b"null") {
            Ok(())
        } else {
            Err((reason, at))
        }
    }
}

/// Counts the prompt while it is walked over.
struct Counter {
    size: PromptSize,
    all_ascii: bool,
    numbers: bool,
}

impl Counter {
    /// Numbers count in `prompt`, where they are token ids.
    fn of(&mut self, numbers: bool) -> &mut Self {
        self.numbers = numbers;
        self
    }

    /// JSON that a template renders as JSON: keys and punctuation are prompt, too.
    fn whole(&mut self, json: &[u8]) {
        self.add(json, 0, 0);
    }

    fn add(&mut self, span: &[u8], spelling: usize, escaped_others: usize) {
        let (ascii, other) = if self.all_ascii {
            (span.len(), 0)
        } else {
            count_characters(span)
        };
        self.size.ascii += ascii.saturating_sub(spelling) as u64;
        self.size.other += (other + escaped_others) as u64;
    }
}

impl Visitor for Counter {
    fn text(&mut self, bytes: &[u8], text: &Text) {
        let span = bytes.get(text.start..text.end).unwrap_or_default();
        // Inline media: its size says nothing of its tokens.
        if !span.starts_with(b"data:") {
            self.add(span, text.spelling, text.escaped_others);
        }
    }

    fn number(&mut self) {
        self.size.token_ids += u64::from(self.numbers);
    }
}

/// ASCII characters and other characters of UTF-8 text.
fn count_characters(text: &[u8]) -> (usize, usize) {
    /// Bytes that are summed in one byte: they cannot overflow it, and a compiler makes vectors of them.
    const BLOCK: usize = 128;
    let count = |wanted: fn(u8) -> bool| -> usize {
        let (blocks, rest) = text.as_chunks::<BLOCK>();
        let ones = |bytes: &[u8]| {
            usize::from(
                bytes
                    .iter()
                    .fold(0_u8, |n, b| n.wrapping_add(u8::from(wanted(*b)))),
            )
        };
        blocks.iter().map(|block| ones(block)).sum::<usize>() + ones(rest)
    };
    (count(|b| b < 0x80), count(|b| b >= 0xc0))
}

#[cfg(test)]
mod tests;

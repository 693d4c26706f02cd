//! One look over the JSON body of a request.
//!
//! The bytes are walked once and nothing is rebuilt: what routing needs is read (model, stream, size of the
//! prompt), and what a client may not say is noted as ranges for [`super::edit`] to leave out. Keys are
//! compared after unescaping, every occurrence of a key counts, and what is not strictly JSON is refused, so
//! that no other reader of the same bytes finds something that this one did not.

mod error;
mod prompt;

use std::ops::Range;

use bytes::Bytes;
use continuum_fleet::ids::ModelName;

use self::prompt::Counter;
pub use self::{
    error::{Error, Reason},
    prompt::PromptSize,
};
use super::{
    edit::{self, Gaps},
    json::{Nobody, Reader, Refused, Text, unescaped},
    limits::{MAX_MODEL_MEMBERS, MAX_MODEL_NAME_BYTES, MAX_REMOVALS},
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
        let mut counter = Counter::new(text.is_ascii());
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
            prompt: counter.size(),
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
            if self.removals.len() > MAX_REMOVALS {
                return Err(self.reader.refuse(Reason::TooManyRemovals));
            }
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
        if self.models.len() >= MAX_MODEL_MEMBERS {
            return Err((Reason::ModelTooOften, at));
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

#[cfg(test)]
mod tests;

//! A strict JSON reader that builds nothing: it walks bytes that are known to be UTF-8 and tells where things
//! are.
//!
//! It accepts what RFC 8259 accepts, to a bounded depth, without recursion and without allocation.

use std::borrow::Cow;

use super::{body::Reason, limits::MAX_BODY_DEPTH};

/// A refusal and the byte at which it was found.
pub(super) type Refused = (Reason, usize);

/// Where a string is, and how its characters are spelled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    /// First byte behind the opening quote.
    pub(super) start: usize,
    /// The closing quote.
    pub(super) end: usize,
    /// ASCII bytes that escapes spend beyond the ASCII characters that they stand for; 0: no escapes.
    pub(super) spelling: usize,
    /// Other characters that are spelled as escapes.
    pub(super) escaped_others: usize,
}

impl Text {
    /// The string with its quotes, as a range.
    pub(super) fn quoted(&self) -> std::ops::Range<usize> {
        self.start.saturating_sub(1)..self.end.saturating_add(1)
    }
}

/// What [`Reader::skip`] reports on its way.
pub(super) trait Visitor {
    /// A string value.
    fn text(&mut self, bytes: &[u8], text: &Text);
    /// A number.
    fn number(&mut self);
}

/// Reports to nobody.
pub(super) struct Nobody;

impl Visitor for Nobody {
    fn text(&mut self, _: &[u8], _: &Text) {}
    fn number(&mut self) {}
}

/// A position in a body.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Where the next byte is.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The next byte that is no white space, not consumed.
    pub(super) fn peek(&mut self) -> Option<u8> {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    /// Consumes white space and one byte if it is the wanted one.
    pub(super) fn take(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += 1;
        }
        found
    }

    /// A refusal here, or of a body that ends too early.
    pub(super) fn refuse(&self, reason: Reason) -> Refused {
        let reason = if self.at >= self.bytes.len() {
            Reason::Truncated
        } else {
            reason
        };
        (reason, self.at)
    }

    /// A key and its colon.
    pub(super) fn key(&mut self) -> Result<Text, Refused> {
        if self.peek() != Some(b'"') {
            return Err(self.refuse(Reason::ExpectedKey));
        }
        let key = self.string()?;
        if self.take(b':') {
            Ok(key)
        } else {
            Err(self.refuse(Reason::ExpectedColon))
        }
    }

    /// A string; the next byte is its opening quote.
    pub(super) fn string(&mut self) -> Result<Text, Refused> {
        let start = self.at + 1;
        let mut text = Text {
            start,
            end: start,
            spelling: 0,
            escaped_others: 0,
        };
        let mut at = start;
        loop {
            at += plain_run(self.bytes.get(at..).unwrap_or_default());
            match self.bytes.get(at) {
                Some(b'"') => {
                    text.end = at;
                    self.at = at + 1;
                    return Ok(text);
                }
                Some(b'\\') => match self.bytes.get(at + 1) {
                    Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                        text.spelling += 1;
                        at += 2;
                    }
                    Some(b'u') => {
                        let unit = self.bytes.get(at + 2..at + 6).and_then(hex4);
                        match unit {
                            Some(0..=0x7f) => text.spelling += 5,
                            // The second half of a pair: counted with the first.
                            Some(0xdc00..=0xdfff) => text.spelling += 6,
                            Some(_) => {
                                text.spelling += 6;
                                text.escaped_others += 1;
                            }
                            None => {
                                self.at = at;
                                return Err(self.refuse(Reason::BadEscape));
                            }
                        }
                        at += 6;
                    }
                    Some(_) => return Err((Reason::BadEscape, at)),
                    None => return Err((Reason::Truncated, at)),
                },
                Some(_) => return Err((Reason::ControlCharacter, at)),
                None => return Err((Reason::Truncated, at)),
            }
        }
    }

    /// Any value, whole. `depth` counts the objects and arrays that it is inside of.
    pub(super) fn skip(&mut self, depth: u32, visitor: &mut impl Visitor) -> Result<(), Refused> {
        // One bit for each level that this call has opened: 1 for an object, 0 for an array.
        let mut objects = 0_u128;
        let mut opened = 0_u32;
        loop {
            match self.peek() {
                Some(b'"') => {
                    let text = self.string()?;
                    visitor.text(self.bytes, &text);
                }
                Some(open @ (b'{' | b'[')) => {
                    if depth.saturating_add(opened) >= MAX_BODY_DEPTH {
                        return Err((Reason::TooDeep, self.at));
                    }
                    self.at += 1;
                    let object = open == b'{';
                    if self.take(if object { b'}' } else { b']' }) {
                        // Empty: a value that ends at once.
                    } else {
                        objects = objects << 1 | u128::from(object);
                        opened += 1;
                        if object {
                            self.key()?;
                        }
                        continue;
                    }
                }
                Some(b'-' | b'0'..=b'9') => {
                    self.number()?;
                    visitor.number();
                }
                Some(b't') => self.literal(b"true")?,
                Some(b'f') => self.literal(b"false")?,
                Some(b'n') => self.literal(b"null")?,
                _ => return Err(self.refuse(Reason::ExpectedValue)),
            }
            loop {
                if opened == 0 {
                    return Ok(());
                }
                let object = objects & 1 == 1;
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        if object {
                            self.key()?;
                        }
                        break;
                    }
                    Some(close @ (b'}' | b']')) if object == (close == b'}') => {
                        self.at += 1;
                        objects >>= 1;
                        opened -= 1;
                    }
                    _ => return Err(self.refuse(Reason::ExpectedCommaOrEnd)),
                }
            }
        }
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), Refused> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.starts_with(word) {
            self.at += word.len();
            return Ok(());
        }
        let reason = if word.starts_with(rest) {
            Reason::Truncated
        } else {
            Reason::ExpectedValue
        };
        Err((reason, self.at))
    }

    fn number(&mut self) -> Result<(), Refused> {
        if self.bytes.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        // A leading zero stands alone.
        if self.bytes.get(self.at) == Some(&b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.bytes.get(self.at) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Refused> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let run = rest
            .iter()
            .position(|b| !b.is_ascii_digit())
            .unwrap_or(rest.len());
        if run == 0 {
            return Err(self.refuse(Reason::BadNumber));
        }
        self.at += run;
        Ok(())
    }
}

/// The characters of a string. Copies only where there are escapes.
///
/// `None` for a string that is no text: half of a surrogate pair.
pub(super) fn unescaped<'a>(bytes: &'a [u8], text: &Text) -> Option<Cow<'a, [u8]>> {
    if text.spelling == 0 {
        return bytes.get(text.start..text.end).map(Cow::Borrowed);
    }
    let decoded: String = serde_json::from_slice(bytes.get(text.quoted())?).ok()?;
    Some(Cow::Owned(decoded.into_bytes()))
}

/// Bytes before the first quote, backslash or control character.
pub(super) fn plain_run(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    const fn zero_bytes(word: u64) -> u64 {
        word.wrapping_sub(ONES) & !word
    }
    let (words, rest) = bytes.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let quote = zero_bytes(word ^ (ONES * b'"' as u64));
        let backslash = zero_bytes(word ^ (ONES * b'\\' as u64));
        let control = word.wrapping_sub(ONES * 0x20) & !word;
        // A borrow can only raise a false mark above a true one, and the lowest mark counts.
        let marks = (quote | backslash | control) & HIGH;
        if marks != 0 {
            return i * 8 + marks.trailing_zeros() as usize / 8;
        }
    }
    let plain = |b: &u8| !matches!(b, b'"' | b'\\' | 0..=0x1f);
    words.len() * 8 + rest.iter().position(|b| !plain(b)).unwrap_or(rest.len())
}

fn hex4(digits: &[u8]) -> Option<u16> {
    digits.iter().try_fold(0_u16, |value, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(value << 4 | digit as u16)
    })
}

#[cfg(test)]
mod tests;

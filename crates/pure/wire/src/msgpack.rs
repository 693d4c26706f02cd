//! A borrowing cursor over one msgpack text. Lengths are judged against the bytes that are there.

use std::borrow::Cow;

use rmp::{Marker, decode};

use crate::Refusal;

/// Reads values from the front of a byte slice. A clone is a place to come back to.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
    nesting: usize,
}

/// The fields of a struct, whose values are read one by one in any order.
pub(crate) trait Fields<'a>: Default {
    /// Names a field.
    type Field: Copy + 'static;
    /// Positions of the array form.
    const ORDER: &'static [Self::Field];

    /// The field of a name, if it is known.
    fn named(name: &[u8]) -> Option<Self::Field>;
    /// Reads the value of a field.
    fn read(&mut self, field: Self::Field, cursor: &mut Cursor<'a>) -> Result<(), Refusal>;
}

/// How a struct is spelled: rmp-serde writes maps by name, older writers arrays by position.
enum Shape {
    /// This many key and value pairs follow.
    Map(u32),
    /// This many values follow.
    Array(u32),
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8], nesting: usize) -> Self {
        Self { rest: bytes, nesting }
    }

    /// A struct in either spelling; unknown fields are passed over.
    pub(crate) fn fields<F: Fields<'a>>(&mut self) -> Result<F, Refusal> {
        let mut fields = F::default();
        match self.shape()? {
            Shape::Map(len) => {
                for _ in 0..len {
                    match F::named(self.str()?) {
                        Some(field) => fields.read(field, self)?,
                        None => self.skip()?,
                    }
                }
            }
            Shape::Array(len) => {
                let mut positions = F::ORDER.iter();
                for _ in 0..len {
                    match positions.next() {
                        Some(field) => fields.read(*field, self)?,
                        None => self.skip()?,
                    }
                }
            }
        }
        Ok(fields)
    }

    /// The head of a struct.
    fn shape(&mut self) -> Result<Shape, Refusal> {
        match self.map()? {
            Some(len) => Ok(Shape::Map(len)),
            None => decode::read_array_len(&mut self.rest)
                .map(Shape::Array)
                .map_err(malformed),
        }
    }

    /// The number of elements of an array whose elements take at least `least` bytes each. A number that the
    /// bytes left cannot hold is refused, so memory may be taken for it.
    pub(crate) fn array(&mut self, least: usize) -> Result<u32, Refusal> {
        let len = decode::read_array_len(&mut self.rest).map_err(malformed)?;
        let fits = usize::try_from(len).is_ok_and(|len| len <= self.rest.len() / least.max(1));
        fits.then_some(len).ok_or(Refusal::Malformed)
    }

    /// The number of entries of a map; `None`, and nothing is taken, when something else is next.
    pub(crate) fn map(&mut self) -> Result<Option<u32>, Refusal> {
        if matches!(self.peek()?, Marker::FixMap(_) | Marker::Map16 | Marker::Map32) {
            decode::read_map_len(&mut self.rest).map(Some).map_err(malformed)
        } else {
            Ok(None)
        }
    }

    /// Sixty-four bits, written as an integer with or without a sign.
    pub(crate) fn bits(&mut self) -> Result<u64, Refusal> {
        let wide: i128 = decode::read_int(&mut self.rest).map_err(malformed)?;
        u64::try_from(wide)
            .or_else(|_| i64::try_from(wide).map(i64::cast_unsigned))
            .map_err(malformed)
    }

    /// A non-negative integer of any width that fits.
    pub(crate) fn uint<T: TryFrom<u64>>(&mut self) -> Result<T, Refusal> {
        let wide: u64 = decode::read_int(&mut self.rest).map_err(malformed)?;
        T::try_from(wide).map_err(malformed)
    }

    /// An integer, or `None` for nil.
    pub(crate) fn optional_uint(&mut self) -> Result<Option<u64>, Refusal> {
        if self.nil() {
            Ok(None)
        } else {
            self.uint().map(Some)
        }
    }

    /// Takes a nil, if one is next.
    pub(crate) fn nil(&mut self) -> bool {
        let is_nil = self.rest.first() == Some(&NIL);
        if is_nil {
            self.rest = self.rest.get(1..).unwrap_or_default();
        }
        is_nil
    }

    /// The bytes of a string.
    pub(crate) fn str(&mut self) -> Result<&'a [u8], Refusal> {
        let len = decode::read_str_len(&mut self.rest).map_err(malformed)?;
        self.take(len)
    }

    /// A byte string: msgpack bin, or an array of integers below 256, as serde writes `Vec<u8>` by default.
    pub(crate) fn bytes(&mut self) -> Result<Cow<'a, [u8]>, Refusal> {
        if matches!(self.peek()?, Marker::Bin8 | Marker::Bin16 | Marker::Bin32) {
            let len = decode::read_bin_len(&mut self.rest).map_err(malformed)?;
            return self.take(len).map(Cow::Borrowed);
        }
        let len = decode::read_array_len(&mut self.rest).map_err(malformed)?;
        let len = usize::try_from(len).map_err(malformed)?;
        if len > self.rest.len() {
            return Err(Refusal::Malformed);
        }
        let mut bytes = Vec::with_capacity(len);
        for _ in 0..len {
            bytes.push(self.uint()?);
        }
        Ok(Cow::Owned(bytes))
    }

    /// Passes over one value of any type. Each step takes at least one byte, so hostile counts end with the
    /// input; the depth is bounded by the family's nesting limit.
    pub(crate) fn skip(&mut self) -> Result<(), Refusal> {
        self.skip_within(self.nesting)
    }

    fn skip_within(&mut self, depth: usize) -> Result<(), Refusal> {
        let marker = decode::read_marker(&mut self.rest).map_err(|_| Refusal::Malformed)?;
        let (bytes, values): (u64, u64) = match marker {
            Marker::FixPos(_) | Marker::FixNeg(_) | Marker::Null | Marker::True | Marker::False => (0, 0),
            Marker::U8 | Marker::I8 => (1, 0),
            Marker::U16 | Marker::I16 | Marker::FixExt1 => (2, 0),
            Marker::FixExt2 => (3, 0),
            Marker::U32 | Marker::I32 | Marker::F32 => (4, 0),
            Marker::FixExt4 => (5, 0),
            Marker::U64 | Marker::I64 | Marker::F64 => (8, 0),
            Marker::FixExt8 => (9, 0),
            Marker::FixExt16 => (17, 0),
            Marker::FixStr(len) => (u64::from(len), 0),
            Marker::Str8 | Marker::Bin8 => (self.length::<1>()?, 0),
            Marker::Str16 | Marker::Bin16 => (self.length::<2>()?, 0),
            Marker::Str32 | Marker::Bin32 => (self.length::<4>()?, 0),
            Marker::Ext8 => (self.length::<1>()? + 1, 0),
            Marker::Ext16 => (self.length::<2>()? + 1, 0),
            Marker::Ext32 => (self.length::<4>()? + 1, 0),
            Marker::FixArray(len) => (0, u64::from(len)),
            Marker::Array16 => (0, self.length::<2>()?),
            Marker::Array32 => (0, self.length::<4>()?),
            Marker::FixMap(len) => (0, 2 * u64::from(len)),
            Marker::Map16 => (0, 2 * self.length::<2>()?),
            Marker::Map32 => (0, 2 * self.length::<4>()?),
            Marker::Reserved => return Err(Refusal::Malformed),
        };
        self.take(bytes)?;
        if values > 0 {
            let depth = depth.checked_sub(1).ok_or(Refusal::Malformed)?;
            for _ in 0..values {
                self.skip_within(depth)?;
            }
        }
        Ok(())
    }

    fn length<const N: usize>(&mut self) -> Result<u64, Refusal> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Refusal::Malformed)?;
        self.rest = rest;
        Ok(head.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn peek(&self) -> Result<Marker, Refusal> {
        self.rest
            .first()
            .map(|byte| Marker::from_u8(*byte))
            .ok_or(Refusal::Malformed)
    }

    fn take(&mut self, len: impl TryInto<usize>) -> Result<&'a [u8], Refusal> {
        let len = len.try_into().map_err(|_| Refusal::Malformed)?;
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Refusal::Malformed)?;
        self.rest = rest;
        Ok(taken)
    }
}

/// msgpack nil.
const NIL: u8 = 0xc0;

/// Sets a field that has not occurred yet. A field that occurs twice has no meaning.
pub(crate) fn once<T>(slot: &mut Option<T>, value: T) -> Result<(), Refusal> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refusal::Malformed),
    }
}

fn malformed<E>(_: E) -> Refusal {
    Refusal::Malformed
}

/// Writes the smallest msgpack forms, as rmp-serde does. Memory is the only sink, so writing cannot fail.
pub(crate) struct Writer(rmp::encode::buffer::ByteBuf);

impl Writer {
    pub(crate) fn new() -> Self {
        Self(rmp::encode::buffer::ByteBuf::with_capacity(192))
    }

    pub(crate) fn map(&mut self, len: u32) -> &mut Self {
        sure(rmp::encode::write_map_len(&mut self.0, len));
        self
    }

    pub(crate) fn array(&mut self, len: usize) -> &mut Self {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        sure(rmp::encode::write_array_len(&mut self.0, len));
        self
    }

    pub(crate) fn str(&mut self, text: &str) -> &mut Self {
        sure(rmp::encode::write_str(&mut self.0, text));
        self
    }

    pub(crate) fn uint(&mut self, value: u64) -> &mut Self {
        sure(rmp::encode::write_uint(&mut self.0, value));
        self
    }

    pub(crate) fn optional_uint(&mut self, value: Option<u64>) -> &mut Self {
        match value {
            Some(value) => self.uint(value),
            None => {
                sure(rmp::encode::write_nil(&mut self.0));
                self
            }
        }
    }

    pub(crate) fn bin(&mut self, bytes: &[u8]) -> &mut Self {
        sure(rmp::encode::write_bin(&mut self.0, bytes));
        self
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0.into_vec()
    }
}

/// The writers of rmp return `Result` for sinks that can fail; ours is memory.
fn sure<T, E>(result: Result<T, E>) {
    drop(result);
}

//! Reading JSON that nobody vouches for: a field of a foreign type is an absent field, and nothing is
//! allocated beyond its cap.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// The longest escape of one byte of text: `\u00xx`.
const ESCAPE_BYTES: usize = 6;

/// Reads an object into `T`. An array is no object, although a derived reader would take it.
pub(crate) fn object<'a, T: Deserialize<'a>>(json: &'a str) -> Option<T> {
    if !json.trim_start_matches([' ', '\t', '\n', '\r']).starts_with('{') {
        return None;
    }
    serde_json::from_str(json).ok()
}

/// A field that is there and not `null`.
pub(crate) fn present(raw: Option<&RawValue>) -> Option<&RawValue> {
    raw.filter(|raw| raw.get() != "null")
}

/// A string of at most `cap` bytes without control characters: it may end up in a log line or a header.
pub(crate) fn text(raw: &RawValue, cap: usize) -> Option<String> {
    if raw.get().len() > cap * ESCAPE_BYTES + 2 {
        return None;
    }
    serde_json::from_str::<String>(raw.get())
        .ok()
        .filter(|text| text.len() <= cap && !text.contains(char::is_control))
}

/// A whole number that is not negative, however it is spelled (`16`, `16.0`, `1.6e1`).
pub(crate) fn number(raw: &RawValue) -> Option<u64> {
    /// Above it a double no longer tells neighbours apart.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let json = raw.get();
    if let Ok(number) = serde_json::from_str::<u64>(json) {
        return Some(number);
    }
    let number = serde_json::from_str::<f64>(json).ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole and in range, checked here"
    )]
    (number.fract() == 0.0 && (0.0..=EXACT).contains(&number)).then_some(number as u64)
}

/// An id: a JSON number, or hex text of either case with or without `0x`.
pub(crate) fn hex_or_number(raw: &RawValue) -> Option<u64> {
    /// `0x` and sixteen digits, with room for leading zeros.
    const CAP: usize = 64;
    if !raw.get().starts_with('"') {
        return serde_json::from_str(raw.get()).ok();
    }
    let text = text(raw, CAP)?;
    let digits = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .unwrap_or(&text);
    crate::ids::InstanceId::parse_hex(digits)
        .ok()
        .map(crate::ids::InstanceId::raw)
}

/// The first `N` items of an array, unread.
#[derive(Debug)]
pub(crate) struct FirstN<'a, const N: usize> {
    pub(crate) items: Vec<&'a RawValue>,
    /// There were more.
    pub(crate) more: bool,
}

impl<'de: 'a, 'a, const N: usize> Deserialize<'de> for FirstN<'a, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<'a, const N: usize>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a, const N: usize> Visitor<'de> for Items<'a, N> {
            type Value = FirstN<'a, N>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while items.len() < N {
                    let Some(item) = seq.next_element::<&'de RawValue>()? else {
                        return Ok(FirstN { items, more: false });
                    };
                    items.push(item);
                }
                let mut more = false;
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    more = true;
                }
                Ok(FirstN { items, more })
            }
        }
        deserializer.deserialize_seq(Items(PhantomData))
    }
}

/// The first `N` text entries of an object whose keys and values stay within `CAP` bytes.
#[derive(Debug)]
pub(crate) struct TextMap<const N: usize, const CAP: usize>(pub(crate) BTreeMap<String, String>);

impl<'de, const N: usize, const CAP: usize> Deserialize<'de> for TextMap<N, CAP> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<const N: usize, const CAP: usize>;
        impl<'de, const N: usize, const CAP: usize> Visitor<'de> for Entries<N, CAP> {
            type Value = TextMap<N, CAP>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, &'de RawValue>()? {
                    if entries.len() < N
                        && key.len() <= CAP
                        && let Some(value) = text(value, CAP)
                    {
                        entries.insert(key, value);
                    }
                }
                Ok(TextMap(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

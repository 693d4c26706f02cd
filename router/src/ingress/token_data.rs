//! Token ids for the frontend, written into a body.

use std::{borrow::Cow, fmt::Write};

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// A body with `nvext.token_data`, so that the frontend need not tokenize the prompt again; `None` when it is not the
/// JSON object that it was when it was looked over. All else stays as it is, byte for byte: what a client sent is
/// passed on as it was sent.
#[must_use]
pub fn with_token_data(body: &Bytes, tokens: &[u32]) -> Option<Bytes> {
    let text = std::str::from_utf8(body).ok()?;
    let outer = Object::read(text, "nvext")?;
    let mut ids = String::with_capacity(bytes_of_ids(tokens));
    ids.push('[');
    for (at, token) in tokens.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        write!(ids, "{comma}{token}").ok()?;
    }
    ids.push(']');
    let nvext = match outer.value.filter(|value| *value != "null") {
        None => format!("{{\"token_data\":{ids}}}"),
        Some(nvext) => Object::read(nvext, "token_data")?.with(&ids)?,
    };
    outer.with(&nvext).map(Bytes::from)
}

/// About the bytes of token ids in a body: those of the largest vocabularies have six digits.
#[must_use]
pub const fn bytes_of_ids(tokens: &[u32]) -> usize {
    tokens.len().saturating_mul(7).saturating_add(2)
}

/// A JSON object, looked over for one member.
struct Object<'a> {
    text: &'a str,
    name: &'static str,
    is_empty: bool,
    value: Option<&'a str>,
}

impl<'a> Object<'a> {
    fn read(text: &'a str, name: &'static str) -> Option<Self> {
        let mut json = serde_json::Deserializer::from_str(text);
        let (is_empty, value) = json.deserialize_map(Member(name)).ok()?;
        json.end().ok()?;
        Some(Self {
            text,
            name,
            is_empty,
            value: value.map(RawValue::get),
        })
    }

    /// The same object with this value of the member.
    fn with(&self, value: &str) -> Option<String> {
        let Self { text, name, .. } = self;
        if let Some(old) = self.value {
            // It is a piece of the text.
            let at = old.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
            let (before, rest) = (text.get(..at)?, text.get(at..)?);
            return Some([before, value, rest.get(old.len()..)?].concat());
        }
        let open = text.find('{')?.checked_add(1)?;
        let (before, after) = (text.get(..open)?, text.get(open..)?);
        let comma = if self.is_empty { "" } else { "," };
        Some([before, "\"", name, "\":", value, comma, after].concat())
    }
}

/// Finds a member: whether the object has none at all, and its value.
struct Member(&'static str);

impl<'de> Visitor<'de> for Member {
    type Value = (bool, Option<&'de RawValue>);

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut is_empty, mut found) = (true, None);
        while let Some(Name(name)) = map.next_key()? {
            is_empty = false;
            let value: &RawValue = map.next_value()?;
            if name == self.0 && found.replace(value).is_some() {
                return Err(A::Error::duplicate_field(self.0));
            }
        }
        Ok((is_empty, found))
    }
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    fn with(body: &'static str, tokens: &[u32]) -> Option<String> {
        let made = with_token_data(&Bytes::from_static(body.as_bytes()), tokens)?;
        Some(String::from_utf8(made.to_vec()).unwrap())
    }

    #[test]
    fn token_ids_are_put_in_and_the_rest_stays_byte_for_byte() {
        for (body, expected) in [
            ("{}", r#"{"nvext":{"token_data":[1,42]}}"#),
            (r#" { } "#, r#" {"nvext":{"token_data":[1,42]} } "#),
            (
                r#"{"model":"a","b" : 1}"#,
                r#"{"nvext":{"token_data":[1,42]},"model":"a","b" : 1}"#,
            ),
            (
                r#"{"model":"a","nvext": null ,"a":"{"}"#,
                r#"{"model":"a","nvext": {"token_data":[1,42]} ,"a":"{"}"#,
            ),
            (
                r#"{"z":1, "nvext":{ }, "a":{"nvext":{}}}"#,
                r#"{"z":1, "nvext":{"token_data":[1,42] }, "a":{"nvext":{}}}"#,
            ),
            (
                r#"{"seed":123456789012345678901234567890,"nvext":{ "z":1e5,"annotations":["x"]},"a":"\u0041"}"#,
                r#"{"seed":123456789012345678901234567890,"nvext":{"token_data":[1,42], "z":1e5,"annotations":["x"]},"a":"\u0041"}"#,
            ),
            (
                r#"{"nv\u0065xt":{"token_data":[7,8,9],"a":1}}"#,
                r#"{"nv\u0065xt":{"token_data":[1,42],"a":1}}"#,
            ),
            (
                r#"{"m":1,"m":2,"한":"글"}"#,
                r#"{"nvext":{"token_data":[1,42]},"m":1,"m":2,"한":"글"}"#,
            ),
        ] {
            assert_eq!(with(body, &[1, 42]).as_deref(), Some(expected), "{body}");
            let json: serde_json::Value = serde_json::from_str(expected).unwrap();
            assert_eq!(json["nvext"]["token_data"], serde_json::json!([1, 42]), "{body}");
        }
        assert_eq!(with("{}", &[]).as_deref(), Some(r#"{"nvext":{"token_data":[]}}"#));
    }

    #[test]
    fn what_is_no_object_or_says_it_twice_is_left_alone() {
        for body in [
            "[]",
            "",
            "{",
            "null",
            "{} {}",
            r#"{"nvext":[]}"#,
            r#"{"nvext":"x"}"#,
            r#"{"nvext":{},"nvext":{}}"#,
            r#"{"nvext":{"token_data":[],"token_data":[]}}"#,
        ] {
            assert_eq!(with(body, &[1]), None, "{body}");
        }
    }
}

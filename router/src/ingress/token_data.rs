//! Token ids for the frontend, written into a body.

use std::{collections::BTreeMap, fmt::Write};

use bytes::Bytes;
use serde_json::value::RawValue;

/// A body with `nvext.token_data`, so that the frontend need not tokenize the prompt again; `None` when it is not the
/// JSON object that it was when it was looked over.
#[must_use]
pub fn with_token_data(body: &Bytes, tokens: &[u32]) -> Option<Bytes> {
    type Members<'a> = BTreeMap<String, &'a RawValue>;
    let mut members: Members<'_> = serde_json::from_slice(body).ok()?;
    let nvext = members.get("nvext").map(|value| value.get());
    let mut inner: Members<'_> = match nvext {
        None | Some("null") => Members::new(),
        Some(object) => serde_json::from_str(object).ok()?,
    };
    let mut ids = String::with_capacity(tokens.len().saturating_mul(7).saturating_add(2));
    ids.push('[');
    for (at, token) in tokens.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        write!(ids, "{comma}{token}").ok()?;
    }
    ids.push(']');
    let ids = RawValue::from_string(ids).ok()?;
    inner.insert("token_data".to_owned(), &ids);
    let inner = serde_json::value::to_raw_value(&inner).ok()?;
    members.insert("nvext".to_owned(), &inner);
    serde_json::to_vec(&members).ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_ids_join_what_is_there() {
        let with = |body: &'static str| {
            let made = with_token_data(&Bytes::from_static(body.as_bytes()), &[1, 42]).unwrap();
            serde_json::from_slice::<serde_json::Value>(&made).unwrap()
        };
        let ids = serde_json::json!([1, 42]);
        for bare in [
            r#"{"model":"a"}"#,
            r#"{"model":"a","nvext":null}"#,
            r#"{"nvext":{},"model":"a"}"#,
        ] {
            assert_eq!(
                with(bare),
                serde_json::json!({"model": "a", "nvext": {"token_data": ids}})
            );
        }
        // Numbers keep their digits.
        let text = r#"{"seed":123456789012345678901234567890,"nvext":{"annotations":["x"]}}"#;
        let made = with_token_data(&Bytes::from_static(text.as_bytes()), &[7]).unwrap();
        let made = std::str::from_utf8(&made).unwrap();
        assert!(made.contains("123456789012345678901234567890"), "{made}");
        assert!(made.contains(r#""token_data":[7]"#) && made.contains(r#""annotations":["x"]"#));
        assert_eq!(with_token_data(&Bytes::from_static(b"[]"), &[7]), None);
    }
}
